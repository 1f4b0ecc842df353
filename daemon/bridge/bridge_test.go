package bridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const deadline = 10 * time.Second

// fakeDaemon serves a unix socket: it answers every request with its method and the number of the connection.
type fakeDaemon struct {
	t    *testing.T
	path string
	// answer may be set to answer in another way; it returns false to end the connection.
	answer func(conn *net.UnixConn, n int, line string) bool

	mu    sync.Mutex
	ln    *net.UnixListener
	conns []*net.UnixConn
	lines [][]string // received, by connection
	wg    sync.WaitGroup
}

func newFakeDaemon(t *testing.T) *fakeDaemon {
	d := &fakeDaemon{t: t, path: filepath.Join(t.TempDir(), "s")}
	t.Cleanup(d.stop)
	return d
}

func (d *fakeDaemon) start() {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.path, Net: "unix"})
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ln = ln
	d.wg.Go(func() {
		for {
			conn, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			d.mu.Lock()
			n := len(d.lines)
			d.lines = append(d.lines, nil)
			d.conns = append(d.conns, conn)
			d.mu.Unlock()
			d.wg.Go(func() { d.serve(conn, n) })
		}
	})
}

// stop is as sudden as SIGKILL.
func (d *fakeDaemon) stop() {
	d.mu.Lock()
	if d.ln != nil {
		d.ln.Close()
		d.ln = nil
	}
	for _, c := range d.conns {
		c.Close()
	}
	d.conns = nil
	d.mu.Unlock()
	d.wg.Wait()
}

func (d *fakeDaemon) serve(conn *net.UnixConn, n int) {
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 64<<10)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		d.mu.Lock()
		d.lines[n] = append(d.lines[n], line)
		d.mu.Unlock()
		answer := d.answer
		if answer == nil {
			answer = plainAnswer
		}
		if !answer(conn, n, line) {
			return
		}
	}
}

func plainAnswer(conn *net.UnixConn, n int, line string) bool {
	if reply := replyTo(line, n); reply != "" {
		io.WriteString(conn, reply)
	}
	return true
}

// replyTo returns "" for what wants no answer.
func replyTo(line string, n int) string {
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if json.Unmarshal([]byte(line), &m) != nil {
		return `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"bad"}}` + "\n"
	}
	if m.ID == nil {
		return ""
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"method":%q,"conn":%d}}`+"\n", m.ID, m.Method, n)
}

// received returns what came on connection n.
func (d *fakeDaemon) received(n int) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n >= len(d.lines) {
		return nil
	}
	return append([]string(nil), d.lines[n]...)
}

func (d *fakeDaemon) dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", d.path)
}

// host runs a Bridge as an MCP host would: by two pipes of the system.
type host struct {
	t      *testing.T
	in     *os.File // we write here
	out    *os.File // and read here
	answer chan string
	done   chan error
	log    *logBuffer
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// run starts b. With listen false nobody reads the answers.
func run(t *testing.T, b *Bridge, listen bool) *host {
	t.Helper()
	before := runtime.NumGoroutine()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, in: inW, out: outR, answer: make(chan string, 1000), done: make(chan error, 1), log: &logBuffer{}}
	b.Log = slog.New(slog.NewTextHandler(h.log, nil))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		err := b.Run(ctx, inR, outW)
		outW.Close()
		h.done <- err
	})
	if listen {
		wg.Go(func() {
			defer close(h.answer)
			r := bufio.NewReader(outR)
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					if line != "" {
						t.Errorf("half a line on stdout: %.100q", line)
					}
					return
				}
				if !json.Valid([]byte(line)) {
					t.Errorf("not JSON on stdout: %.100q", line)
				}
				h.answer <- strings.TrimSuffix(line, "\n")
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		inW.Close()
		wg.Wait()
		inR.Close()
		outR.Close()
		waitFor(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
	})
	return h
}

func (h *host) send(lines ...string) {
	h.t.Helper()
	if _, err := io.WriteString(h.in, strings.Join(lines, "\n")+"\n"); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) receive() string {
	h.t.Helper()
	select {
	case line, ok := <-h.answer:
		if !ok {
			h.t.Fatalf("stdout ended; log: %s", h.log)
		}
		return line
	case <-time.After(deadline):
		h.t.Fatalf("no answer; log: %s", h.log)
	}
	return ""
}

// want receives one answer and compares id and connection number.
func (h *host) want(id string, conn int) {
	h.t.Helper()
	line := h.receive()
	var m struct {
		ID     json.RawMessage
		Result struct{ Conn int }
		Error  any
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil || string(m.ID) != id || m.Error != nil || m.Result.Conn != conn {
		h.t.Fatalf("got %.200s, want an answer to %s from connection %d", line, id, conn)
	}
}

func (h *host) wantEnd(within time.Duration) {
	h.t.Helper()
	start := time.Now()
	select {
	case err := <-h.done:
		if err != nil {
			h.t.Fatalf("Run: %v", err)
		}
		if took := time.Since(start); took > within {
			h.t.Errorf("ended after %v, want %v", took, within)
		}
	case <-time.After(deadline):
		h.t.Fatalf("does not end; log: %s", h.log)
	}
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(deadline); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

const (
	hello       = `{"jsonrpc":"2.0","method":"notifications/tmux-mcpd/hello","params":{"version":"1"}}`
	initialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func ping(id any) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":"ping"}`, id) }

func TestConversation(t *testing.T) {
	d := newFakeDaemon(t)
	d.start()
	h := run(t, &Bridge{Dial: d.dial, Hello: []byte(hello)}, true)
	h.send(initialize)
	h.want("0", 0)
	h.send(initialized, ping(1), "", ping(`"two"`))
	h.want("1", 0)
	h.want(`"two"`, 0)
	h.send(`{bad`)
	if line := h.receive(); !strings.Contains(line, "-32700") {
		t.Errorf("got %s", line)
	}
	h.in.Close()
	h.wantEnd(100 * time.Millisecond)
	if got := d.received(0); len(got) != 6 || got[0] != hello || got[1] != initialize || got[2] != initialized {
		t.Errorf("daemon saw %q", got)
	}
	if h.log.String() != "" {
		t.Errorf("log: %s", h.log)
	}
}

// A daemon that is killed and started again 20 times while the host has calls under way: every call is answered once.
func TestRestarts(t *testing.T) {
	d := newFakeDaemon(t)
	held := make(chan struct{})
	var mu sync.Mutex
	d.answer = func(conn *net.UnixConn, n int, line string) bool {
		if strings.Contains(line, `"hold"`) {
			mu.Lock()
			ch := held
			mu.Unlock()
			if ch != nil { // the killed one never answers: half a frame at most
				io.WriteString(conn, `{"jsonrpc":"2.0","id":`)
				<-ch
				return false
			}
		}
		return plainAnswer(conn, n, line)
	}
	d.start()
	h := run(t, &Bridge{Dial: d.dial, Hello: []byte(hello)}, true)
	h.send(initialize)
	h.want("0", 0)
	h.send(initialized)
	id := 0
	for round := range 20 {
		mu.Lock()
		held = make(chan struct{})
		mu.Unlock()
		const calls = 10
		for i := range calls {
			id++
			method := "hold"
			if i < 3 {
				method = "ping"
			}
			h.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, id, method))
		}
		for i := range 3 {
			h.want(fmt.Sprint(id-calls+1+i), round)
		}
		waitFor(t, "the held call", func() bool {
			got := d.received(round)
			return len(got) > 0 && strings.Contains(got[len(got)-1], "hold")
		})
		mu.Lock()
		close(held)
		held = nil
		mu.Unlock()
		d.stop()
		d.start()
		for i := range calls - 3 {
			h.want(fmt.Sprint(id-calls+4+i), round+1)
		}
		got := d.received(round + 1)
		if len(got) != 3+calls-3 || got[0] != hello || got[1] != initialize || got[2] != initialized {
			t.Fatalf("round %d: daemon saw %q", round, got)
		}
	}
	h.in.Close()
	h.wantEnd(100 * time.Millisecond)
	if extra, ok := <-h.answer; ok {
		t.Errorf("answered twice: %s", extra)
	}
}

// The daemon goes down between two calls, and also while the host's first call is still to come.
func TestRestartWhileIdle(t *testing.T) {
	d := newFakeDaemon(t)
	d.start()
	h := run(t, &Bridge{Dial: d.dial}, true)
	waitFor(t, "connection", d.connected)
	d.stop()
	h.send(initialize)
	d.start()
	h.want("0", 1)
	d.stop()
	h.send(ping(1))
	d.start()
	h.want("1", 2)
	h.in.Close()
	h.wantEnd(100 * time.Millisecond)
}

func (d *fakeDaemon) connected() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns) > 0
}

func TestStateIsReplayed(t *testing.T) {
	d := newFakeDaemon(t)
	d.answer = func(conn *net.UnixConn, n int, line string) bool {
		if strings.Contains(line, "never") || strings.Contains(line, `"end"`) && n == 0 {
			return !strings.Contains(line, `"end"`)
		}
		return plainAnswer(conn, n, line)
	}
	d.start()
	h := run(t, &Bridge{Dial: d.dial, Hello: []byte(hello + "\n")}, true)
	h.send(initialize)
	h.want("0", 0)
	h.send(initialized,
		`{"id":1,"method":"resources/subscribe","params":{"uri":"tmux://a"}}`,
		`{"id":2,"method":"resources/subscribe","params":{"uri":"tmux://b"}}`,
		`{"id":3,"method":"resources/unsubscribe","params":{"uri":"tmux://a"}}`,
		`{"id":4,"method":"logging/setLevel","params":{"level":"debug"}}`)
	for _, id := range []string{"1", "2", "3", "4"} {
		h.want(id, 0)
	}
	h.send(`{"id":5,"method":"never"}`, `{"method":"notifications/cancelled","params":{"requestId":5}}`)
	h.send(`{"id":6,"method":"end"}`)
	// What has changed while no daemon looked is not known.
	if got, want := h.receive(), `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"tmux://b"}}`; got != want {
		t.Errorf("host got %s, want %s", got, want)
	}
	h.want("6", 1)
	got := d.received(1)
	want := []string{hello, initialize, initialized,
		`{"jsonrpc":"2.0","id":"tmux-mcpd/bridge/level","method":"logging/setLevel","params":{"level":"debug"}}`,
		`{"jsonrpc":"2.0","id":"tmux-mcpd/bridge/0","method":"resources/subscribe","params":{"uri":"tmux://b"}}`,
		`{"id":6,"method":"end"}`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("daemon saw\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	h.in.Close()
	h.wantEnd(100 * time.Millisecond)
}

// TestListenIsReplayed: a subscriptions/listen outlives its daemon, as often as need be, and one acknowledgement is
// enough for the host. A subscription that was refused is not asked for again.
func TestListenIsReplayed(t *testing.T) {
	d := newFakeDaemon(t)
	const restarts = 2 * maxSends
	d.answer = func(conn *net.UnixConn, n int, line string) bool {
		switch {
		case strings.Contains(line, "subscriptions/listen"):
			io.WriteString(conn, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l1"},`+
				`"notifications":{"resourceSubscriptions":["tmux://a","tmux://b"]}}}`+"\n")
			return n >= restarts // else this daemon ends
		case strings.Contains(line, "tmux://refused"):
			io.WriteString(conn, `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no such resource"}}`+"\n")
			return true
		}
		return plainAnswer(conn, n, line)
	}
	d.start()
	h := run(t, &Bridge{Dial: d.dial, Hello: []byte(hello + "\n")}, true)
	h.send(initialize)
	h.want("0", 0)
	h.send(`{"id":1,"method":"resources/subscribe","params":{"uri":"tmux://refused"}}`)
	if got := h.receive(); !strings.Contains(got, "-32002") {
		t.Fatalf("host got %s, want the error", got)
	}
	h.send(`{"id":"l1","method":"subscriptions/listen","params":{}}`)
	if got := h.receive(); !strings.Contains(got, "acknowledged") {
		t.Fatalf("host got %s, want the acknowledgement", got)
	}
	for range restarts {
		for _, uri := range []string{"tmux://a", "tmux://b"} {
			want := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"` + uri + `","_meta":{"io.modelcontextprotocol/subscriptionId":"l1"}}}`
			if got := h.receive(); got != want {
				t.Fatalf("host got %s, want %s", got, want)
			}
		}
	}
	h.send(`{"id":2,"method":"ping"}`)
	h.want("2", restarts)
	if got := strings.Join(d.received(restarts), "\n"); strings.Contains(got, "refused") {
		t.Errorf("a refused subscription is asked for again:\n%s", got)
	}
}

func TestHalfCloseDrains(t *testing.T) {
	d := newFakeDaemon(t)
	release := make(chan struct{})
	d.answer = func(conn *net.UnixConn, n int, line string) bool {
		if strings.Contains(line, `"id":1,`) {
			<-release
		}
		return plainAnswer(conn, n, line)
	}
	d.start()
	h := run(t, &Bridge{Dial: d.dial}, true)
	h.send(initialize)
	h.want("0", 0)
	var calls []string
	for i := range 50 {
		calls = append(calls, ping(i+1))
	}
	io.WriteString(h.in, strings.Join(calls, "\n")) // the last one without its newline
	h.in.Close()
	close(release)
	for i := range 50 {
		h.want(fmt.Sprint(i+1), 0)
	}
	h.wantEnd(100 * time.Millisecond)
}

// The host ends, and so does the daemon, with answers still to come.
func TestRestartWhileDraining(t *testing.T) {
	d := newFakeDaemon(t)
	d.answer = func(conn *net.UnixConn, n int, line string) bool { return n > 0 && plainAnswer(conn, n, line) }
	d.start()
	h := run(t, &Bridge{Dial: d.dial}, true)
	h.send(ping(1), ping(2))
	h.in.Close()
	h.want("1", 1)
	h.want("2", 1)
	h.wantEnd(100 * time.Millisecond)
}

func TestStdinEmpty(t *testing.T) {
	d := newFakeDaemon(t)
	d.start()
	h := run(t, &Bridge{Dial: d.dial, Hello: []byte(hello)}, true)
	h.in.Close()
	h.wantEnd(100 * time.Millisecond)
}

func TestHostGone(t *testing.T) {
	d := newFakeDaemon(t)
	d.start()
	h := run(t, &Bridge{Dial: d.dial}, false)
	h.out.Close()
	h.send(ping(1))
	h.wantEnd(100 * time.Millisecond) // though stdin is open
}

func TestContextEnds(t *testing.T) {
	d := newFakeDaemon(t)
	d.start()
	inR, inW := io.Pipe()
	defer inW.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- (&Bridge{Dial: d.dial}).Run(ctx, inR, io.Discard) }()
	io.WriteString(inW, ping(1)+"\n")
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(deadline):
		t.Fatal("does not end")
	}
}

// A host that does not read: no answer is lost, memory is bounded by the pipes.
func TestSlowHost(t *testing.T) {
	d := newFakeDaemon(t)
	big := strings.Repeat("x", 10<<10)
	d.answer = func(conn *net.UnixConn, n int, line string) bool {
		f := scan([]byte(line))
		_, err := fmt.Fprintf(conn, `{"id":%s,"result":{"conn":%d,"x":%q}}`+"\n", f.id, n, big)
		return err == nil
	}
	d.start()
	h := run(t, &Bridge{Dial: d.dial}, false)
	const calls = 500
	var sent sync.WaitGroup
	sent.Go(func() {
		for i := range calls {
			io.WriteString(h.in, ping(i)+"\n")
		}
		h.in.Close()
	})
	// Some 300 KB fit into pipe, buffer and socket: by then everybody waits for the host.
	waitFor(t, "answers to pile up", func() bool { return len(d.received(0)) >= 16 })
	r := bufio.NewReader(h.out)
	for i := range calls {
		line, err := r.ReadString('\n')
		if f := scan([]byte(line)); err != nil || string(f.id) != fmt.Sprint(i) {
			t.Fatalf("answer %d: %.50q %v", i, line, err)
		}
	}
	sent.Wait()
	h.wantEnd(100 * time.Millisecond)
}

// More unanswered requests than are remembered: the rest wait in stdin, and none is lost.
func TestManyPending(t *testing.T) {
	d := newFakeDaemon(t)
	release := make(chan struct{})
	d.answer = func(conn *net.UnixConn, n int, line string) bool {
		<-release
		return plainAnswer(conn, n, line)
	}
	d.start()
	h := run(t, &Bridge{Dial: d.dial}, true)
	var calls []string
	for i := range 3 * maxPending {
		calls = append(calls, ping(i))
	}
	h.send(calls...)
	waitFor(t, "the first call", func() bool { return len(d.received(0)) == 1 })
	d.stopAfter(func() { close(release) })
	d.start()
	seen := map[string]int{}
	for range 3 * maxPending {
		seen[string(scan([]byte(h.receive())).id)]++
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s answered %d times", id, n)
		}
	}
	if n := len(d.received(1)); n < maxPending {
		t.Errorf("second daemon saw %d requests, want at least %d", n, maxPending)
	}
}

// stopAfter closes everything first, so that what release lets go can no longer be answered.
func (d *fakeDaemon) stopAfter(release func()) {
	d.mu.Lock()
	d.ln.Close()
	d.ln = nil
	for _, c := range d.conns {
		c.Close()
	}
	d.conns = nil
	d.mu.Unlock()
	release()
	d.wg.Wait()
}

func TestHugeAnswers(t *testing.T) {
	d := newFakeDaemon(t)
	huge := strings.Repeat("x", 3<<20) // more than the bridge keeps
	d.answer = func(conn *net.UnixConn, n int, line string) bool {
		f := scan([]byte(line))
		fmt.Fprintf(conn, `{"id":%s,"result":{"x":%q}}`+"\n", f.id, huge)
		return true
	}
	d.start()
	h := run(t, &Bridge{Dial: d.dial}, true)
	for i := range 2 {
		h.send(ping(i), ping(1000+i))
		for _, id := range []int{i, 1000 + i} {
			if line := h.receive(); string(scanAnswer([]byte(line)).id) != fmt.Sprint(id) || len(line) < len(huge) {
				t.Fatalf("answer to %d: %d bytes", id, len(line))
			}
		}
	}
	h.in.Close()
	h.wantEnd(100 * time.Millisecond)
}

func TestLongLine(t *testing.T) {
	d := newFakeDaemon(t)
	d.start()
	h := run(t, &Bridge{Dial: d.dial}, true)
	h.send(ping(1))
	h.want("1", 0)
	long := strings.Repeat("x", 3*FrameLimit)
	h.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":"`+long+`"}`, ping(2), long, ping(3))
	var lines []string
	for range 4 {
		lines = append(lines, h.receive())
	}
	all := strings.Join(lines, "\n")
	for _, want := range []string{`"id":7,"error":{"code":-32600`, `"id":null,"error":{"code":-32600`, `"id":2,"result"`, `"id":3,"result"`} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in\n%s", want, all)
		}
	}
	limit := `{"id":4,"method":"ping","params":"` // a line of just the limit
	limit += strings.Repeat("x", FrameLimit-1-len(limit)-2) + `"}`
	h.send(limit)
	h.want("4", 0)
	h.in.Close()
	h.wantEnd(100 * time.Millisecond)
}

// Requests, and notifications that are not for the bridge, reach the host; the answer to hello does not.
func TestServerSpeaks(t *testing.T) {
	d := newFakeDaemon(t)
	d.answer = func(conn *net.UnixConn, n int, line string) bool {
		if strings.Contains(line, "hello") {
			io.WriteString(conn, `{"jsonrpc":"2.0","method":"notifications/tmux-mcpd/hello","params":{"version":"2"}}`+"\n"+
				`{"jsonrpc":"2.0","method":"notifications/message"}`+"\n\n"+`{"jsonrpc":"2.0","method":"notifications/tmux-mcpd/hello","params":{"version":"3"}}`+"\n"+
				`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")
		}
		return true
	}
	d.start()
	h := run(t, &Bridge{Dial: d.dial, Hello: []byte(hello), Version: "1"}, true)
	if a, b := h.receive(), h.receive(); !strings.Contains(a, "notifications/message") || !strings.Contains(b, `"ping"`) {
		t.Errorf("got %s, %s", a, b)
	}
	h.send(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	waitFor(t, "the host's answer", func() bool { return len(d.received(0)) == 2 })
	if log := h.log.String(); strings.Count(log, "version") != 1 || !strings.Contains(log, "bridge=1 daemon=2") {
		t.Errorf("log: %s", log)
	}
	h.in.Close()
	h.wantEnd(100 * time.Millisecond)
}

// embedded answers like a fakeDaemon of connection number 99.
func embedded(ctx context.Context, rwc io.ReadWriteCloser) error {
	defer rwc.Close()
	r := bufio.NewScanner(rwc)
	for r.Scan() {
		if reply := replyTo(r.Text(), 99); reply != "" {
			if _, err := io.WriteString(rwc, reply); err != nil {
				return err
			}
		}
	}
	return r.Err()
}

func TestNoDaemon(t *testing.T) {
	d := newFakeDaemon(t)
	h := run(t, &Bridge{Dial: d.dial, Hello: []byte(hello), Embedded: embedded}, true)
	h.send(initialize)
	h.want("0", 99)
	h.send(initialized, ping(1), ping(2))
	h.want("1", 99)
	h.want("2", 99)
	h.in.Close()
	h.wantEnd(100 * time.Millisecond)
	if log := h.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "no daemon") {
		t.Errorf("log: %s", log)
	}
}

func TestNobodyAtAll(t *testing.T) {
	d := newFakeDaemon(t)
	err := (&Bridge{Dial: d.dial}).Run(context.Background(), strings.NewReader(""), io.Discard)
	if !errors.Is(err, syscall.ENOENT) {
		t.Error(err)
	}
	if err := (&Bridge{}).Run(context.Background(), strings.NewReader(""), io.Discard); err == nil {
		t.Error("want an error")
	}
}

func TestEmbeddedEnds(t *testing.T) {
	broken := errors.New("broken")
	h := run(t, &Bridge{Embedded: func(ctx context.Context, rwc io.ReadWriteCloser) error { return broken }}, true)
	select {
	case err := <-h.done:
		if !errors.Is(err, broken) {
			t.Error(err)
		}
	case <-time.After(deadline):
		t.Fatal("does not end")
	}
}

// bubble runs a bridge over net.Pipe connections in synthetic time. serve is called for each attempt to connect.
func bubble(t *testing.T, serve func(n int, conn net.Conn) error, talk func(h *bubbleHost)) {
	synctest.Test(t, func(t *testing.T) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		h := &bubbleHost{t: t, in: inW, out: bufio.NewReader(outR), start: time.Now(), log: &logBuffer{}, done: make(chan error, 1)}
		b := &Bridge{
			Hello:    []byte(hello),
			Embedded: embedded,
			Log:      slog.New(slog.NewTextHandler(h.log, nil)),
			Dial: func(ctx context.Context) (net.Conn, error) {
				n := h.dials
				h.dials++
				ours, theirs := net.Pipe()
				h.conns = append(h.conns, theirs)
				if err := serve(n, theirs); err != nil {
					return nil, err
				}
				return ours, nil
			},
		}
		go func() { h.done <- b.Run(t.Context(), inR, outW); outW.Close() }()
		talk(h)
		inW.Close()
		if err := <-h.done; err != nil {
			t.Errorf("Run: %v", err)
		}
		for _, c := range h.conns {
			c.Close()
		}
	})
}

type bubbleHost struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Reader
	start time.Time
	log   *logBuffer
	done  chan error
	dials int
	conns []net.Conn
}

// ask sends line and returns its answer and the time it took.
func (h *bubbleHost) ask(line string) (string, time.Duration) {
	start := time.Now()
	go io.WriteString(h.in, line+"\n")
	answer, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("%v; log: %s", err, h.log)
	}
	return answer, time.Since(start)
}

func wantEmbedded(t *testing.T, answer string) {
	t.Helper()
	if !strings.Contains(answer, `"conn":99`) {
		t.Errorf("got %s, want it from the embedded server", answer)
	}
}

func near(t *testing.T, took, want time.Duration) {
	t.Helper()
	if took < want-time.Second || took > want+time.Second {
		t.Errorf("took %v, want about %v", took, want)
	}
}

// The daemon goes and does not come back: after 3 s the process serves the host itself.
func TestDaemonStaysAway(t *testing.T) {
	bubble(t, func(n int, conn net.Conn) error {
		if n > 0 {
			return syscall.ECONNREFUSED
		}
		go func() {
			r := bufio.NewScanner(conn)
			for r.Scan() {
				if strings.Contains(r.Text(), `"id":1`) {
					break
				}
				io.WriteString(conn, replyTo(r.Text(), n))
			}
			conn.Close()
		}()
		return nil
	}, func(h *bubbleHost) {
		if answer, took := h.ask(initialize); !strings.Contains(answer, `"conn":0`) || took > time.Millisecond {
			h.t.Errorf("%s after %v", answer, took)
		}
		go io.WriteString(h.in, initialized+"\n")
		synctest.Wait()
		answer, took := h.ask(ping(1))
		wantEmbedded(h.t, answer)
		near(h.t, took, patience)
		if h.dials < 7 || h.dials > 20 {
			h.t.Errorf("%d attempts", h.dials)
		}
		if answer, took = h.ask(ping(2)); took > time.Millisecond {
			h.t.Errorf("%s after %v", answer, took)
		}
		if log := h.log.String(); strings.Count(log, "\n") != 2 {
			h.t.Errorf("log: %s", log)
		}
	})
}

// Peers that are no daemon of ours, or one that is of no use.
func TestUselessPeers(t *testing.T) {
	for _, c := range []struct {
		name  string
		serve func(n int, conn net.Conn)
		took  time.Duration
		log   string
	}{
		{"hangs", func(n int, conn net.Conn) { io.Copy(io.Discard, conn) }, patience, "does not answer"},
		{"hangs up", func(n int, conn net.Conn) { conn.Close() }, patience, "no daemon"},
		{"hangs up after hello", func(n int, conn net.Conn) { bufio.NewReader(conn).ReadString('\n'); conn.Close() }, patience, "no daemon"},
		{"speaks HTTP", func(n int, conn net.Conn) {
			bufio.NewReader(conn).ReadString('\n')
			io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			io.Copy(io.Discard, conn)
		}, patience, "JSON-RPC"},
		{"is full", func(n int, conn net.Conn) {
			bufio.NewReader(conn).ReadString('\n')
			io.WriteString(conn, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"too many"}}`+"\n")
			conn.Close()
		}, patience, "too many"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(n int, conn net.Conn) error { go c.serve(n, conn); return nil }, func(h *bubbleHost) {
				answer, took := h.ask(initialize)
				wantEmbedded(t, answer)
				near(t, took, c.took)
				if log := h.log.String(); !strings.Contains(log, c.log) || strings.Count(log, "\n") > 2 {
					t.Errorf("log: %s", log)
				}
			})
		})
	}
}

// Garbage in the middle of a conversation ends the connection, not the conversation.
func TestGarbageInConversation(t *testing.T) {
	d := newFakeDaemon(t)
	d.answer = func(conn *net.UnixConn, n int, line string) bool {
		if n == 0 && strings.Contains(line, `"id":2,`) {
			io.WriteString(conn, `{"id":1,"result":{"conn":0}}`+"\n"+"panic: \x00\xff\n"+`{"id":2,"result":{"conn":0}}`+"\n")
			return true
		}
		if n == 0 && strings.Contains(line, `"id":1,`) {
			return true
		}
		return plainAnswer(conn, n, line)
	}
	d.start()
	h := run(t, &Bridge{Dial: d.dial}, true)
	h.send(initialize)
	h.want("0", 0)
	h.send(ping(1), ping(2))
	h.want("1", 0)
	h.want("2", 1)
	h.in.Close()
	h.wantEnd(100 * time.Millisecond)
}

// A request that kills every daemon is given up, and the others are answered.
func TestPoison(t *testing.T) {
	d := newFakeDaemon(t)
	d.answer = func(conn *net.UnixConn, n int, line string) bool {
		return !strings.Contains(line, "poison") && plainAnswer(conn, n, line)
	}
	d.start()
	h := run(t, &Bridge{Dial: d.dial}, true)
	h.send(initialize)
	h.want("0", 0)
	h.send(`{"id":1,"method":"poison"}`, ping(2))
	seen := h.receive() + "\n" + h.receive()
	if !strings.Contains(seen, `"id":1,"error":{"code":-32603`) {
		t.Errorf("got %s", seen)
	}
	if n := strings.Count(seen, `"id":2,`); n != 1 {
		t.Errorf("id 2 answered %d times", n)
	}
	h.in.Close()
	h.wantEnd(100 * time.Millisecond)
}

// A reader that never comes and an end of stdin: the answers have their 5 s, then the bridge ends.
func TestDrainIsBounded(t *testing.T) {
	bubble(t, func(n int, conn net.Conn) error { go io.Copy(io.Discard, conn); return nil }, func(h *bubbleHost) {
		io.WriteString(h.in, ping(1)+"\n")
		h.in.Close()
		if err := <-h.done; err != nil {
			h.t.Error(err)
		}
		h.done <- nil
		near(h.t, time.Since(h.start), drainTime)
	})
}

func BenchmarkBridge(b *testing.B) {
	dir := b.TempDir()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	answer := []byte(`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n")
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		buf := make([]byte, 4096)
		for {
			if _, err := conn.Read(buf); err != nil {
				return
			}
			conn.Write(answer)
		}
	}()
	inR, inW, _ := os.Pipe()
	outR, outW, _ := os.Pipe()
	bridge := &Bridge{Dial: func(ctx context.Context) (net.Conn, error) { return net.Dial("unix", ln.Addr().String()) }}
	done := make(chan error, 1)
	go func() { done <- bridge.Run(context.Background(), inR, outW) }()
	call := []byte(ping(1) + "\n")
	buf := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		inW.Write(call)
		outR.Read(buf)
	}
	inW.Close()
	<-done
}
