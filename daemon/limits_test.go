package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tmux-mcpd/tools"
)

// piped serves one client over a pipe inside a synctest bubble and returns the
// client's end; done gets what serveSession returns.
func piped(t *testing.T, ctx context.Context) (client net.Conn, done chan error) {
	d, _ := lonelyDaemon(t)
	client, server := net.Pipe()
	done = make(chan error, 1)
	go func() { done <- d.serveSession(ctx, server, tools.Caller{}) }()
	t.Cleanup(func() { client.Close() })
	return client, done
}

// TestTimeLimits: what a client may take its time with, in time that a bubble
// makes pass.
func TestTimeLimits(t *testing.T) {
	ping := ask("1", "ping", "")
	hello := `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	drip := func(s string, every time.Duration) func(net.Conn) {
		return func(c net.Conn) {
			for i := range len(s) {
				if _, err := c.Write([]byte(s[i : i+1])); err != nil {
					return
				}
				time.Sleep(every)
			}
		}
	}
	say := func(s string) func(net.Conn) { return func(c net.Conn) { _, _ = c.Write([]byte(s)) } }
	tests := []struct {
		name   string
		client func(net.Conn)
		ends   time.Duration // 0: not within ten minutes
		told   string        // part of what the client is told at last
	}{
		{"says nothing", func(net.Conn) {}, silence, ""},
		{"only blank lines", drip(strings.Repeat("\n", 1000), time.Second), silence, ""},
		{"only notifications", say(hello + hello), silence, ""},
		{"only garbage", drip(strings.Repeat("x\n", 1000), time.Second), silence, "-32700"},
		{"drips its first frame", drip(ping+ping+ping, time.Second), frameTime, "not ended within 30s"},
		{"drips a later frame", func(c net.Conn) { say(ping)(c); drip(ping, time.Second)(c) }, frameTime, "not ended within 30s"},
		{"drips a long frame", func(c net.Conn) { say(strings.Repeat("x", 2*frameBuffer))(c) }, frameTime, "not ended within 30s"},
		{"stops after a whole frame and a half", say(ping + ping[:10]), frameTime, "not ended within 30s"},
		{"has asked and is idle", say(ping), 0, `"result"`},
		{"is slow but in time", func(c net.Conn) {
			drip(ping, frameTime/time.Duration(2*len(ping)))(c)
			drip(ping, frameTime/time.Duration(2*len(ping)))(c)
		}, 0, `"result"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				client, done := piped(t, ctx)
				begun := time.Now()
				var told strings.Builder
				var reading sync.WaitGroup
				reading.Go(func() { _, _ = io.Copy(&told, client) })
				reading.Go(func() { tt.client(client) })
				select {
				case <-done:
					if took := time.Since(begun); tt.ends == 0 || took < tt.ends || took > tt.ends+time.Second {
						t.Errorf("ended after %v, want %v", took, tt.ends)
					}
				case <-time.After(10 * time.Minute):
					if tt.ends != 0 {
						t.Errorf("served after ten minutes, want an end after %v", tt.ends)
					}
					cancel()
					<-done
				}
				reading.Wait()
				cancel()
				lines := strings.Split(strings.TrimSpace(told.String()), "\n")
				if last := lines[len(lines)-1]; !strings.Contains(last, tt.told) || tt.told == "" && last != "" {
					t.Errorf("told %q at last, want %q", last, tt.told)
				}
			})
		})
	}
}

// TestClientThatDoesNotRead is dropped once a write has not got through for
// writeDeadline. Until then it is read from only until maxRunning answers wait, and
// nothing more piles up. In real time: a bubble's does not pass while somebody
// waits for a mutex, which is what those answers do.
func TestClientThatDoesNotRead(t *testing.T) {
	hello := string(Hello("1", func(string) (string, bool) { return "", false }, false))
	for name, frame := range map[string]string{"requests": ask("1", "tools/list", ""), "garbage": "x\n", "hellos": hello, "unknown": ask("1", "x", "")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, caller := lonelyDaemon(t)
			client, server := socketPair(t)
			done := make(chan error, 1)
			begun := time.Now()
			go func() { done <- d.serveSession(t.Context(), server, caller) }()
			// Hellos are not answered: there is nothing to be stuck with. The bound
			// then is what the test sends.
			enough := 64 << 20
			if name == "hellos" {
				enough = 1 << 20
			}
			batch, sent, most := []byte(strings.Repeat(frame, 100)), 0, 0
			for sent < enough {
				n, err := client.Write(batch)
				sent += n
				if err != nil {
					break
				}
				most = max(most, runtime.NumGoroutine())
			}
			if name == "hellos" {
				client.Close()
			} else if took := time.Since(begun); took < writeDeadline/2 {
				t.Errorf("dropped after %v, want %v", took, writeDeadline)
			}
			select {
			case <-done:
			case <-time.After(10 * writeDeadline):
				t.Fatal("is not dropped")
			}
			if most > 8*maxRunning { // of all four clients
				t.Errorf("%d goroutines", most)
			}
			if name != "hellos" && sent > 16<<20 { // what sockets hold, and what was answered into them
				t.Errorf("%d bytes were taken of a client that reads nothing", sent)
			}
		})
	}
}

// socketPair is a connection of unix sockets.
func socketPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("unix", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func TestHelloCountsOnceAndFirst(t *testing.T) {
	d, _ := lonelyDaemon(t)
	hello := func(pane, hints string) string {
		return `{"jsonrpc":"2.0","method":"` + helloMethod + `","params":{"version":"` + pane + `","hints":"` + hints + `","env":{"TMUX_PANE":"` + pane + `"}}}` + "\n"
	}
	for _, tt := range []struct{ name, in, pane, hinted string }{
		{"one", hello("%1", "read-only"), "%1", "true"},
		{"two", hello("%1", "") + hello("%2", "read-only"), "%1", "false"},
		{"after a request", ask("1", "ping", "") + hello("%1", "read-only"), "", "false"},
		{"a variable that is no path", hello(strings.Repeat("x", maxVariable+1), ""), "", "false"},
	} {
		var pane string
		var hints bool
		for _, a := range converse(t, d, tools.Caller{}, []byte(tt.in+ask("8", StatusMethod, "")+ask("9", "tools/list", ""))) {
			var result struct {
				Clients []ClientStatus
				Tools   []struct{ Annotations struct{ ReadOnlyHint bool } }
			}
			switch string(a.ID) {
			case "8":
				if err := json.Unmarshal(a.Result, &result); err != nil {
					t.Fatal(err)
				}
				pane = result.Clients[0].Pane
			case "9":
				if err := json.Unmarshal(a.Result, &result); err != nil {
					t.Fatal(err)
				}
				hints = result.Tools[0].Annotations.ReadOnlyHint
			}
		}
		if pane != tt.pane || fmt.Sprint(hints) != tt.hinted {
			t.Errorf("%s: pane %.20q, read-only %v; want %q, %s", tt.name, pane, hints, tt.pane, tt.hinted)
		}
	}
}

// TestSubscriptionIsAcknowledged: there is nothing to subscribe to, which is said
// before the answer.
func TestSubscriptionIsAcknowledged(t *testing.T) {
	d, caller := lonelyDaemon(t)
	answers := converse(t, d, caller, []byte(ask(`"s"`, "subscriptions/listen", `{"notifications":{"toolsListChanged":true},`+modernMeta+`}`)))
	if len(answers) != 2 || answers[0].Method != "notifications/subscriptions/acknowledged" || answers[1].String() != `"s" result` {
		t.Errorf("answered %v", answers)
	}
}

func TestModernProtocol(t *testing.T) {
	d, caller := lonelyDaemon(t)
	for _, tt := range []struct{ name, in, want string }{
		{"discover", ask("1", "server/discover", "{"+modernMeta+"}"), `"supportedVersions":["2026-07-28"`},
		{"list", ask("1", "tools/list", "{"+modernMeta+"}"), `"resultType":"complete"`},
		{"no handshake any more", ask("1", "initialize", "{"+modernMeta+"}"), "-32601"},
		{"no ping any more", ask("1", "ping", "{"+modernMeta+"}"), "-32601"},
		{"a version that nobody knows", ask("1", "tools/list", strings.ReplaceAll("{"+modernMeta+"}", "2026-07-28", "2099-01-01")), `"2026-07-28"`},
		{"no capabilities", ask("1", "tools/call", `{"name":"list_panes","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`), "-32602"},
		{"discover of old", ask("1", "server/discover", ""), "-32601"},
	} {
		stream := &scripted{Reader: strings.NewReader(tt.in)}
		if err := d.serveSession(t.Context(), stream, caller); err != nil {
			t.Fatal(err)
		}
		if out := stream.out.String(); !strings.Contains(out, tt.want) {
			t.Errorf("%s: answered %s, want %s", tt.name, out, tt.want)
		}
	}
	// The same call again and again: by mcp-go, then directly.
	call := `{"name":"list_panes","arguments":{},` + modernMeta + `}`
	client, server := net.Pipe()
	defer client.Close()
	go func() { _ = d.serveSession(t.Context(), server, caller) }()
	r := bufio.NewReader(client)
	var first string
	for range 3 {
		if _, err := io.WriteString(client, ask("1", "tools/call", call)); err != nil {
			t.Fatal(err)
		}
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = line
		}
		if line != first || !strings.Contains(line, `"isError":false`) || !strings.Contains(line, `"resultType":"complete"`) {
			t.Errorf("answered %s, at first %s", line, first)
		}
	}
}

// TestInitializeIsNotCancelled: a client that tries is answered all the same.
func TestInitializeIsNotCancelled(t *testing.T) {
	d, caller := lonelyDaemon(t)
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` + "\n"
	for range 20 {
		answers := converse(t, d, caller, []byte(ask("1", "initialize", initializeParams)+cancel))
		if len(answers) != 1 || answers[0].String() != "1 result" {
			t.Fatalf("answered %v", answers)
		}
	}
}

// TestLittleIsKept of a client that introduces itself at length.
func TestLittleIsKept(t *testing.T) {
	d, caller := lonelyDaemon(t)
	long := strings.Repeat("ä", maxFrame/4)
	answers := converse(t, d, caller, []byte(ask("1", "initialize", strings.Replace(initializeParams, "test", long, 1))+ask("2", StatusMethod, "")))
	for _, a := range answers {
		if len(a.Result) > 10<<10 {
			t.Errorf("answered with %d bytes: %.200s", len(a.Result), a.Result)
		}
	}
	s := &session{}
	s.SetClientInfo(s.info)
	if got := shortened(long); len(got) > maxName || !strings.HasPrefix(long, got) {
		t.Errorf("shortened to %q", got)
	}
	frames := newFrameReader(strings.NewReader(strings.Repeat("x", maxFrame-1)+"\nx\n"), func() {})
	if f, err := frames.next(); err != nil || len(f) != maxFrame-1 {
		t.Fatalf("%d bytes, %v", len(f), err)
	}
	if f, err := frames.next(); err != nil || len(f) != 1 || frames.long != nil {
		t.Errorf("%d bytes, %v; %d are kept", len(f), err, cap(frames.long))
	}
}

// TestPanicsAreContained: in what answers a call, and in what reads a frame.
func TestPanicsAreContained(t *testing.T) {
	log := &strings.Builder{}
	d := New(Config{Tmux: "/nonexistent/tmux", Log: slog.New(slog.NewTextHandler(log, nil))})
	t.Cleanup(d.stop)
	servers := d.servers
	d.servers = nil // a call writes to it
	caller := tools.Caller{Env: map[string]string{"TMUX_TMPDIR": t.TempDir()}}
	answers := converse(t, d, caller, []byte(ask("1", "tools/call", `{"name":"list_panes"}`)+ask("2", "ping", "")))
	if len(answers) != 2 || !strings.Contains(log.String(), "a request panicked") {
		t.Errorf("answered %v; log: %s", answers, log)
	}
	for _, a := range answers {
		if got := a.String(); got != "1 -32603" && got != "2 result" {
			t.Errorf("answered %s", got)
		}
	}
	d.servers = servers
	if answers := converse(t, d, caller, []byte(ask("1", "tools/call", listParams))); len(answers) != 1 || answers[0].String() != "1 result" {
		t.Errorf("answered %v after the panic", answers)
	}
	err := d.serveSession(t.Context(), panicking{}, caller)
	if err == nil || !strings.Contains(err.Error(), "panic") {
		t.Errorf("a panic in the reader: %v", err)
	}
}

type panicking struct{}

func (panicking) Read([]byte) (int, error)    { panic("read") }
func (panicking) Write(p []byte) (int, error) { return len(p), nil }
func (panicking) Close() error                { return nil }

// TestClientsAreCounted: of a burst of clients as many are served as may be, the
// others are told why not, and a place that gets free is given out again.
func TestClientsAreCounted(t *testing.T) {
	const most, burst = 4, 40
	d := New(Config{Tmux: "/nonexistent/tmux", MaxClients: most})
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx, ln) }()
	dial := func() (net.Conn, answer) {
		c, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, ask("1", "ping", "")) // a client that is refused may be gone already
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			t.Fatalf("not told anything: %v", err)
		}
		return c, parseAnswer(t, []byte(line))
	}
	var conns []net.Conn
	for range burst {
		c, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	got := map[string]int{}
	for _, c := range conns {
		_, _ = io.WriteString(c, ask("1", "ping", ""))
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		r := bufio.NewReader(c)
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("not told anything: %v", err)
		}
		a := parseAnswer(t, []byte(line))
		got[a.String()]++
		if a.Error != nil {
			if !strings.Contains(*a.Error.Message, "too many clients: 4 are connected") {
				t.Errorf("told %s", line)
			}
			if _, err := r.ReadByte(); err == nil {
				t.Error("not closed after being refused")
			}
		}
	}
	if got["1 result"] != most || got["null -32603"] != burst-most {
		t.Errorf("answers: %v", got)
	}
	for _, c := range conns {
		c.Close()
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		c, a := dial()
		c.Close()
		if a.Error == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no place is given out again")
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestStopAnswersWhatWasBegun: a stop in the middle of a call lets it be answered
// and then closes the connection; the client reads the answer, then the end.
func TestStopAnswersWhatWasBegun(t *testing.T) {
	d, caller := lonelyDaemon(t)
	found, err := d.Server(caller, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := found.(view).server
	server.turn <- struct{}{}
	client, theirs := net.Pipe()
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.serveSession(ctx, theirs, caller) }()
	if _, err := io.WriteString(client, ask("1", "tools/call", listParams)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); !running(d); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the call does not begin")
		}
	}
	cancel()
	select {
	case err := <-done:
		t.Fatalf("ended with a call under way: %v", err)
	case <-time.After(20 * time.Millisecond): // time for a mistake to show
	}
	server.endTurn()
	r := bufio.NewReader(client)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if got := parseAnswer(t, []byte(line)).String(); got != "1 result" {
		t.Errorf("answered %s", got)
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the answer: %v, want the end", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// running reports whether a request is being answered.
func running(d *Daemon) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.sessions {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.running) > 0 {
			return true
		}
	}
	return false
}
