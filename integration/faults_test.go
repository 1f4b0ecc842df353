package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// A fault is something that a client or the world does to a daemon.
type fault struct {
	name     string
	expected string
	run      func(t *testing.T, d *daemonProcess, s *tmuxServer) (seen string)
	alone    bool // wants daemon and tmux to itself and a witness
}

// faults are done to one daemon, one after the other, while a witness asks it all
// the time.
var faults = []fault{
	{"garbage bytes", "null -32700, 7 result", saying(func() string { return string(garbage(4<<10)) + "\n" + pingFrame }), false},
	{"invalid UTF-8 in an id", "null -32600, 7 result", saying(func() string {
		return "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}\n" + pingFrame
	}), false},
	{"invalid UTF-8 in an argument", "1 isError, 7 result", saying(func() string {
		return callFrame("1", "{\"session_name\":\"\xff\xfe\"}") + pingFrame
	}), false},
	{"100 MiB without newline", "null -32600, closed; memory flat", longLine, false},
	{"a frame of 1 MiB", "1 result, 7 result", saying(func() string { return frameOf(frameLimit) + pingFrame }), false},
	{"a frame of 1 MiB and 1 byte", "null -32600, closed", saying(func() string { return frameOf(frameLimit+1) + pingFrame }), false},
	{"100,000-deep JSON", "null -32700, 7 result", saying(func() string {
		return `{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}\n" + pingFrame
	}), false},
	{"batch array", "null -32600, 7 result", saying(func() string { return "[" + strings.TrimSpace(pingFrame) + "]\n" + pingFrame }), false},
	{"duplicate ids", "1 result, 1 result, 1 result, 7 result", saying(func() string {
		return strings.Repeat(callFrame("1", "{}"), 3) + pingFrame
	}), false},
	{"ids beyond 2^53 and with escapes", `"\u00e4\/" result, -9007199254740993 result, 18446744073709551616 result, 7 result`, saying(func() string {
		return callFrame("18446744073709551616", "{}") + callFrame("-9007199254740993", "{}") + callFrame(`"\u00e4\/"`, "{}") + pingFrame
	}), false},
	{"calls before initialize", "1 result, 2 result, 7 result", saying(func() string { return callFrame("1", "{}") + callFrame("2", "{}") + pingFrame }), false},
	{"answers to nobody's question", "7 result", saying(func() string {
		return `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"x"}}` + "\n" + pingFrame
	}), false},
	{"cancelling what is not there", "7 result", saying(func() string {
		return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}` + "\n" +
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}` + "\n" + pingFrame
	}), false},
	{"1,000 hellos", "notifications/tmux-mcpd/hello, 7 result", saying(func() string {
		return strings.Repeat(`{"jsonrpc":"2.0","method":"notifications/tmux-mcpd/hello","params":{"version":"x"}}`+"\n", 1000) + pingFrame
	}), false},
	{"50 pipelined calls, half-close (20 times)", "1000 of 1000 answers", pipelined, false},
	{"64 regular expressions that backtrack", "64 of 64 answers", backtracking, false},
	{"a client that never reads", "dropped; memory flat", neverReads, false},
	{"1,000 connects and disconnects", "descriptors back; memory flat", comeAndGo, true},
	{"200 clients at once", "200 of 200 exact", atOnce, true},
	{"more clients than are served", "null -32603, closed; room again", tooMany, true},
}

const (
	frameLimit = 1 << 20 // of daemon and bridge, newline included
	pingFrame  = `{"jsonrpc":"2.0","id":7,"method":"ping"}` + "\n"
	// dripsEnd is how long a frame may take, and some more.
	dripsEnd = 30*time.Second + 20*time.Second
	dripping = 50
)

// flatKB is by how much a daemon may grow while it is being maltreated. With the
// race detector it grows by some times as much and gives little back.
func flatKB() int {
	if raceEnabled {
		return 128 << 10
	}
	return 16 << 10
}

func callFrame(id, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"list_panes","arguments":` + arguments + "}}\n"
}

// frameOf is a ping of n bytes, newline included.
func frameOf(n int) string {
	head, tail := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"`, "\"}}\n"
	return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
}

// garbage is the same each time, and one line.
func garbage(n int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return bytes.ReplaceAll(b, []byte("\n"), []byte("x"))
}

// rawClient says whatever a test wants.
type rawClient struct {
	*net.UnixConn
	in *bufio.Reader
}

func (d *daemonProcess) dialRaw() (*rawClient, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: d.socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return newRawClient(conn), nil
}

func newRawClient(conn *net.UnixConn) *rawClient {
	return &rawClient{conn, bufio.NewReaderSize(conn, 64<<10)}
}

// hear reads so many frames, fewer if the connection ends: that is heard as well.
func (c *rawClient) hear(frames int) []string {
	var heard []string
	for len(heard) < frames {
		_ = c.SetReadDeadline(time.Now().Add(callWithin))
		line, err := c.in.ReadBytes('\n')
		if err != nil {
			// A connection that is closed with unread bytes in it is "reset".
			if os.IsTimeout(err) {
				return append(heard, "nothing more")
			}
			return append(heard, "closed")
		}
		heard = append(heard, describeFrame(line))
	}
	return heard
}

// describeFrame is "id result", "id isError", "id code" or a method.
func describeFrame(line []byte) string {
	var f frame
	if err := json.Unmarshal(line, &f); err != nil {
		return fmt.Sprintf("no JSON: %.60q", line)
	}
	switch {
	case f.Method != "":
		return f.Method
	case f.Error != nil:
		if f.ID == nil {
			f.ID = json.RawMessage("null")
		}
		return fmt.Sprintf("%s %d", f.ID, f.Error.Code)
	case bytes.Contains(f.Result, []byte(`"isError":true`)):
		return string(f.ID) + " isError"
	}
	return string(f.ID) + " result"
}

// saying is a fault that consists of what one client says before it half-closes.
// The end of the connection is only mentioned where the client had not asked for
// it: where its last ping is not answered.
func saying(words func() string) func(*testing.T, *daemonProcess, *tmuxServer) string {
	return func(t *testing.T, d *daemonProcess, _ *tmuxServer) string {
		c, err := d.dialRaw()
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		_, _ = io.WriteString(c, words()) // a client that is cut off in the middle reads why
		_ = c.CloseWrite()
		heard := c.hear(1000)
		if n := len(heard); n > 1 && heard[n-1] == "closed" && slices.Contains(heard, "7 result") {
			heard = heard[:n-1]
		}
		slices.SortFunc(heard, func(a, b string) int {
			if heardRank(a) != heardRank(b) {
				return heardRank(a) - heardRank(b)
			}
			return strings.Compare(a, b)
		})
		return strings.Join(heard, ", ")
	}
}

// heardRank puts answers, which come in any order, into one: what has no id, the
// others, the pong, the end.
func heardRank(s string) int {
	switch {
	case strings.HasPrefix(s, "null"), strings.HasPrefix(s, "notifications"):
		return 0
	case s == "7 result":
		return 2
	case s == "closed":
		return 3
	}
	return 1
}

// growth is by how much the daemon's memory grows at most while f runs.
func (d *daemonProcess) growth(f func()) int {
	before, most := d.residentKB(), 0
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for {
			most = max(most, d.residentKB()-before)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	f()
	close(done)
	watching.Wait()
	return most
}

func flat(kb int) string {
	if kb > flatKB() {
		return fmt.Sprintf("memory grew by %d kB", kb)
	}
	return "memory flat"
}

func longLine(t *testing.T, d *daemonProcess, _ *tmuxServer) string {
	c, err := d.dialRaw()
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	part := bytes.Repeat([]byte("x"), 1<<20)
	taken := 0
	grown := d.growth(func() {
		for range 100 {
			n, err := c.Write(part)
			taken += n
			if err != nil {
				return
			}
		}
	})
	t.Logf("%d of %d bytes were taken; memory grew by %d kB", taken, 100<<20, grown)
	return strings.Join(c.hear(2), ", ") + "; " + flat(grown)
}

func pipelined(_ *testing.T, d *daemonProcess, _ *tmuxServer) string {
	const rounds, calls = 20, 50
	answers := 0
	for range rounds {
		c, err := d.dialRaw()
		if err != nil {
			return err.Error()
		}
		var all strings.Builder
		for i := range calls {
			all.WriteString(callFrame(fmt.Sprint(i), "{}"))
		}
		_, _ = io.WriteString(c, all.String())
		_ = c.CloseWrite()
		for _, heard := range c.hear(calls + 1) {
			if strings.HasSuffix(heard, " result") {
				answers++
			}
		}
		c.Close()
	}
	return fmt.Sprintf("%d of %d answers", answers, rounds*calls)
}

func backtracking(_ *testing.T, d *daemonProcess, s *tmuxServer) string {
	const calls = 64
	c, err := d.dialRaw()
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	hello, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": "notifications/tmux-mcpd/hello",
		"params": map[string]any{"version": "test", "env": map[string]string{"TMUX_TMPDIR": s.home.tmpdir}}})
	_, _ = c.Write(append(hello, '\n'))
	for i := range calls {
		_, _ = io.WriteString(c, callFrame(fmt.Sprint(i), `{"filters":{"pane_title__regex":"(a+)+$"}}`))
	}
	_ = c.CloseWrite()
	answers := 0
	for _, heard := range c.hear(calls + 2) {
		if strings.HasSuffix(heard, " result") || strings.HasSuffix(heard, " isError") {
			answers++
		}
	}
	return fmt.Sprintf("%d of %d answers", answers, calls)
}

func neverReads(t *testing.T, d *daemonProcess, _ *tmuxServer) string {
	c, err := d.dialRaw()
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(callWithin))
	batch := []byte(strings.Repeat(callFrame("1", "{}"), 100))
	taken := 0
	grown := d.growth(func() {
		for err == nil {
			var n int
			n, err = c.Write(batch)
			taken += n
		}
	})
	t.Logf("%d bytes of calls were taken; memory grew by %d kB", taken, grown)
	if os.IsTimeout(err) {
		return "not dropped"
	}
	return "dropped; " + flat(grown)
}

func comeAndGo(t *testing.T, d *daemonProcess, _ *tmuxServer) string {
	base, baseKB := d.fds(""), d.residentKB()
	var coming errgroup.Group
	coming.SetLimit(8)
	for i := range 1000 {
		coming.Go(func() error {
			c, err := d.dialRaw()
			if err != nil {
				return err
			}
			defer c.Close()
			switch i % 5 { // others just connect
			case 1:
				_, _ = io.WriteString(c, pingFrame[:9])
			case 2:
				_, _ = io.WriteString(c, pingFrame)
			case 3:
				_, _ = io.WriteString(c, strings.Repeat(callFrame("1", "{}"), 5))
			case 4:
				_, _ = io.WriteString(c, pingFrame)
				c.hear(1)
			}
			return nil
		})
	}
	if err := coming.Wait(); err != nil {
		return err.Error()
	}
	saw, ok := holdsWithin(15*time.Second, func() (bool, string) {
		n := d.fds("")
		return n <= base, fmt.Sprintf("%d descriptors, %d before", n, base)
	})
	if !ok {
		return saw
	}
	return "descriptors back; " + flat(d.residentKB()-baseKB)
}

func atOnce(t *testing.T, d *daemonProcess, s *tmuxServer) string {
	const clients = 200
	want := s.panes()
	var exact atomic.Int64
	var asking errgroup.Group
	for range clients {
		asking.Go(func() error {
			c, err := d.dial(t, map[string]string{"TMUX_TMPDIR": s.home.tmpdir})
			if err != nil {
				return err
			}
			defer c.close()
			rows, err := c.list("list_panes", nil)
			if err != nil {
				return err
			}
			if diff := diffRows(want, withoutCaller(rows)); diff != "" {
				return fmt.Errorf("%s", diff)
			}
			exact.Add(1)
			return nil
		})
	}
	if err := asking.Wait(); err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("%d of %d exact", exact.Load(), clients)
}

func tooMany(t *testing.T, d *daemonProcess, _ *tmuxServer) string {
	var conns []*rawClient
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range 600 {
		c, err := d.dialRaw()
		if err != nil {
			return err.Error()
		}
		conns = append(conns, c)
		_, _ = io.WriteString(c, pingFrame)
		heard := c.hear(1)
		if heard[0] == "7 result" {
			continue
		}
		seen := strings.Join(append(heard, c.hear(1)...), ", ")
		for _, c := range conns {
			c.Close()
		}
		conns = nil
		eventuallyRoom, ok := holdsWithin(15*time.Second, func() (bool, string) {
			c, err := d.dialRaw()
			if err != nil {
				return false, err.Error()
			}
			defer c.Close()
			_, _ = io.WriteString(c, pingFrame)
			heard := c.hear(1)[0]
			return heard == "7 result", heard
		})
		if !ok {
			return seen + "; " + eventuallyRoom
		}
		return seen + "; room again"
	}
	return fmt.Sprintf("%d clients and no end", len(conns))
}

// drippers are clients that never get done with their handshake.
type drippers struct {
	clients []*rawClient
	stop    chan struct{}
	running sync.WaitGroup
}

func drip(d *daemonProcess, n int) (*drippers, error) {
	all := &drippers{stop: make(chan struct{})}
	for range n {
		c, err := d.dialRaw()
		if err != nil {
			return all, err
		}
		all.clients = append(all.clients, c)
	}
	all.running.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, c := range all.clients {
				_, _ = c.Write([]byte("{"))
			}
			select {
			case <-all.stop:
				return
			case <-tick.C:
			}
		}
	})
	return all, nil
}

// dropped counts those that have been told why and dropped.
func (all *drippers) dropped() int {
	n := 0
	for _, c := range all.clients {
		_ = c.SetReadDeadline(time.Now().Add(dripsEnd))
		line, _ := c.in.ReadBytes('\n')
		_, err := c.in.ReadByte()
		if describeFrame(line) == "null -32600" && err != nil && !os.IsTimeout(err) {
			n++
		}
	}
	return n
}

func (all *drippers) end() {
	close(all.stop)
	all.running.Wait()
	for _, c := range all.clients {
		c.Close()
	}
}

// witness is a client that asks all the time and compares with what tmux says.
type witness struct {
	calls atomic.Int64
	stop  chan struct{}
	done  chan error
}

func newWitness(t *testing.T, d *daemonProcess, s *tmuxServer) *witness {
	t.Helper()
	c, err := d.dial(t, map[string]string{"TMUX_TMPDIR": s.home.tmpdir})
	if err != nil {
		t.Fatal(err)
	}
	want := s.panes()
	w := &witness{stop: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		defer c.close()
		tick := time.NewTicker(5 * time.Millisecond) // leaves the machine to the fault
		defer tick.Stop()
		for {
			rows, err := c.list("list_panes", nil)
			if err == nil {
				if diff := diffRows(want, withoutCaller(rows)); diff != "" {
					err = fmt.Errorf("%s", diff)
				}
			}
			if err != nil {
				w.done <- err
				return
			}
			w.calls.Add(1)
			select {
			case <-w.stop:
				w.done <- nil
				return
			case <-tick.C:
			}
		}
	}()
	return w
}

// TestFaults does everything to a daemon that a client can, and prints what it saw.
func TestFaults(t *testing.T) {
	s := newTmuxServer(t)
	s.run("split-window", "-d", "-t", "main", "sleep", "9000")
	s.run("select-pane", "-t", "main:0.0", "-T", strings.Repeat("a", 40)+"!")
	if err := s.home.settle(); err != nil {
		t.Fatal(err)
	}

	// A daemon that served one client at rest is the measure for what is left.
	quiet := startDaemon(t, s.home, nil)
	dialGuest(t, quiet, s.home).poll(t, s, 2)
	wantGoroutines, _ := quiet.quit()

	d := startDaemon(t, s.home, nil)
	dialGuest(t, d, s.home).poll(t, s, 2)
	s.waitGuests(1, 10*time.Second)
	wantFDs := d.fds("") - 1 // without that client
	startKB := d.residentKB()
	drips, err := drip(d, dripping)
	if err != nil {
		t.Fatal(err)
	}
	defer drips.end()

	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\texpected\tseen\tothers meanwhile\tkB after")
	row := func(f fault, seen, others string, kb int) {
		if seen != f.expected {
			t.Errorf("%s: want %s, saw %s", f.name, f.expected, seen)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\n", f.name, f.expected, seen, others, kb)
	}
	all := slices.Clone(faults)
	if !testing.Short() {
		all = append(all, fault{"50 slow-loris handshakes", "50 told -32600 and dropped", func(*testing.T, *daemonProcess, *tmuxServer) string {
			return fmt.Sprintf("%d told -32600 and dropped", drips.dropped())
		}, true})
	}
	for _, f := range all {
		witness := newWitness(t, d, s)
		seen := f.run(t, d, s)
		eventually(t, f.name+": others are answered", callWithin, func() (bool, string) { return witness.calls.Load() > 2 || len(witness.done) > 0, "" })
		close(witness.stop)
		others := fmt.Sprintf("%d exact answers", witness.calls.Load())
		if err := <-witness.done; err != nil {
			t.Errorf("%s: another client: %v", f.name, err)
			others = err.Error()
		}
		row(f, seen, others, d.residentKB())
	}
	for _, f := range []fault{
		{"SIGTERM under load", "64 of 64 answers, closed, code 0", terminated, true},
		{"SIGKILL and restart under a bridge (20 times)", "20 restarts, 0 errors", killedUnderBridge, true},
	} {
		row(f, f.run(t, nil, newTmuxServer(t)), "", 0)
	}
	w.Flush()
	fmt.Print(table.String())

	for _, c := range drips.clients {
		c.Close()
	}
	eventually(t, "all connections are closed", 20*time.Second, func() (bool, string) {
		n := d.fds("")
		return n <= wantFDs+1, fmt.Sprintf("%d descriptors, %d at the start", n, wantFDs) // the first client's may live on
	})
	endKB := d.residentKB()
	n, stacks := d.quit()
	fmt.Printf("at the start %d kB, %d descriptors, %d goroutines; at the end %d kB, %d goroutines\n", startKB, wantFDs, wantGoroutines, endKB, n)
	if n > wantGoroutines+4 {
		t.Errorf("%d goroutines at the end, %d at the start; stacks:\n%s", n, wantGoroutines, stacks)
	}
	if endKB-startKB > 2*flatKB() {
		t.Errorf("%d kB at the end, %d kB at the start", endKB, startKB)
	}
}

// terminated: 16 clients have 4 calls open each, all of which the daemon has read
// and none of which it can answer, for tmux is stopped. Then it gets SIGTERM, and
// tmux goes on.
func terminated(t *testing.T, _ *daemonProcess, s *tmuxServer) string {
	const clients, calls = 16, 4
	d := startDaemon(t, s.home, nil)
	dialGuest(t, d, s.home).poll(t, s, 1)
	pid := s.pid()
	resume := stopProcess(t, pid)
	var conns []*rawClient
	for range clients {
		c, err := d.dialRaw()
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		for i := range calls {
			_, _ = io.WriteString(c, callFrame(fmt.Sprint(i), fmt.Sprintf(`{"socket_name":%q}`, "default")))
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		eventually(t, "the daemon has read everything", callWithin, func() (bool, string) {
			raw, err := c.SyscallConn()
			if err != nil {
				return false, err.Error()
			}
			unread := 0
			_ = raw.Control(func(fd uintptr) { unread, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
			return err == nil && unread == 0, fmt.Sprint(unread, err)
		})
	}
	d.ended = true
	d.signal(syscall.SIGTERM)
	eventually(t, "nobody can connect any more", callWithin, func() (bool, string) {
		c, err := d.dialRaw()
		if err == nil {
			c.Close()
		}
		return err != nil, "connected"
	})
	resume()
	answers, end := 0, "closed"
	for _, c := range conns {
		for i, heard := range c.hear(calls + 1) {
			switch {
			case strings.HasSuffix(heard, " result"):
				answers++
			case heard != "closed" || i != calls:
				end = heard
			}
		}
	}
	if !d.waitExit(stopWithin) {
		return "does not end"
	}
	return fmt.Sprintf("%d of %d answers, %s, code %d", answers, clients*calls, end, d.exitCode())
}

// killedUnderBridge: a host asks all the time through a bridge whose daemon is
// killed and started again.
func killedUnderBridge(t *testing.T, _ *daemonProcess, s *tmuxServer) string {
	const restarts = 20
	dir, err := os.MkdirTemp(s.home.dir, "d")
	if err != nil {
		t.Fatal(err)
	}
	socket, program := filepath.Join(dir, "mcp.sock"), []string{requireProduct(t)}
	d := startDaemonAt(t, s.home, socket, program, nil)
	want := s.panes()
	var calls, wrong atomic.Int64
	var firstErr atomic.Value
	open := func() (p *process, end func()) {
		c, p := startStdio(t, s.home, nil, "--socket", socket)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				rows, err := c.list("list_panes", nil)
				if err == nil {
					if diff := diffRows(want, withoutCaller(rows)); diff != "" {
						err = fmt.Errorf("%s", diff)
					}
				}
				if err != nil {
					wrong.Add(1)
					firstErr.CompareAndSwap(nil, err.Error())
					return
				}
				calls.Add(1)
			}
		}()
		return p, func() { close(stop); <-done; c.close() }
	}
	p, end := open()
	done, alone := 0, 0
	for range restarts {
		before := calls.Load()
		eventually(t, "the host is served", callWithin, func() (bool, string) {
			return calls.Load() > before+2 || wrong.Load() > 0, fmt.Sprint(calls.Load())
		})
		d.crash()
		d = startDaemonAt(t, s.home, socket, program, nil)
		done++
		// On a very slow machine the bridge may have lost patience and serve the
		// host itself, as it should: the next restarts need a new one.
		if strings.Contains(p.stderr.String(), "no daemon to be reached") {
			alone++
			end()
			p, end = open()
		}
	}
	before := calls.Load()
	eventually(t, "the host is served at last", callWithin, func() (bool, string) {
		return calls.Load() > before+2 || wrong.Load() > 0, fmt.Sprint(calls.Load())
	})
	end()
	t.Logf("%d calls over %d restarts; the bridge served the host itself %d times", calls.Load(), done, alone)
	if err := firstErr.Load(); err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("%d restarts, %d errors", done, wrong.Load())
}
