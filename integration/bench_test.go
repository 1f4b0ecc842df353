package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tmux-mcpd/controlmode"
)

// The benchmarks measure the built product from outside, as a client sees it,
// beside what nobody can beat: an echo of the same bytes over a unix socket and
// a round trip to the same tmux server.
//
//	go test -run '^$' -bench . ./integration
//	go test -run '^$' -bench '20_panes/1_clients/.*/list_sessions' -benchtime 2s ./integration
//
// TestBenchReport measures the same in interleaved rounds and prints a table.

// benchSizes are the numbers of panes that are measured, in sessions of the
// given size.
var benchSizes = []struct{ panes, perSession int }{{1, 1}, {20, 4}, {200, 10}, {1000, 20}}

// A benchCall is one kind of request. Filtered calls let one row or none in ten
// through.
type benchCall struct {
	name, tool string
	arguments  func(s *benchScene) string
}

var benchCalls = []benchCall{
	{"list_sessions", "list_sessions", func(*benchScene) string { return `{}` }},
	{"list_panes", "list_panes", func(*benchScene) string { return `{}` }},
	{"list_panes pane_id=%N", "list_panes", func(s *benchScene) string {
		return fmt.Sprintf(`{"filters":{"pane_id":"%%%d"}}`, s.panes/2)
	}},
	{"list_panes command=cat", "list_panes", func(*benchScene) string { return `{"filters":{"pane_current_command":"cat"}}` }},
}

func (c benchCall) frame(s *benchScene) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`+"\n", c.tool, c.arguments(s))
}

// A benchScene is a tmux server of a known size with all that is measured on it.
type benchScene struct {
	t      testing.TB
	server *tmuxServer
	panes  int
	daemon *daemonProcess
	echo   string // socket of the echo server
	pids   struct{ tmux, daemon int }
	sizes  map[string]int // bytes of the answer to each benchCall
}

func newBenchScene(t testing.TB, panes, perSession int) *benchScene {
	t.Helper()
	home := newTmuxHome(t)
	s := &benchScene{t: t, server: home.server("default"), panes: panes, sizes: map[string]int{}}
	var script strings.Builder
	for i := range panes {
		program := "exec sleep 9000"
		if i%10 == 9 {
			program = "exec cat"
		}
		session := fmt.Sprintf("work%02d", i/perSession)
		if i%perSession == 0 {
			fmt.Fprintf(&script, "new-session -d -s %s -x 200 -y 50 -c %s '%s'\n", session, home.dir, program)
		} else {
			fmt.Fprintf(&script, "new-window -d -t %s: -c %s '%s'\n", session, home.dir, program)
		}
	}
	home.setConf(script.String())
	s.server.run("start-server", ";", "list-sessions")
	eventually(t, "all panes run", 60*time.Second, func() (bool, string) {
		out, _ := s.server.try("list-panes", "-a", "-F", "#{pane_current_command}")
		n := strings.Count(out, "sleep\n") + strings.Count(out, "cat\n")
		return n == panes, fmt.Sprint(n)
	})
	s.pids.tmux = s.server.pid()
	s.echo = startEcho(t, home)
	return s
}

// startEcho starts the echo server and returns its socket.
func startEcho(t testing.TB, home *tmuxHome) string {
	t.Helper()
	socket := filepath.Join(home.dir, "echo")
	startProcess(t, []string{benchProgram(t, "echo"), socket}, os.Environ(), home.dir)
	eventually(t, "echo listens", 10*time.Second, func() (bool, string) {
		_, err := os.Stat(socket)
		return err == nil, fmt.Sprint(err)
	})
	return socket
}

// benchProgram builds one of the programs in testdata/bench as the product is
// built.
func benchProgram(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(runDir(), name)
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./testdata/bench/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return path
}

// serve starts the daemon that is measured.
func (s *benchScene) serve() {
	s.daemon = startDaemon(s.t, s.server.home, nil)
	s.pids.daemon = s.daemon.pid()
}

// A wire sends the same line again and again and waits for the line that comes
// back. It is for one goroutine.
type wire struct {
	io.Writer
	in    *bufio.Reader
	line  []byte
	until func(line []byte) (done bool, err error) // nil: every line is an answer
}

// wireBuffer holds the largest answer.
const wireBuffer = 4 << 20

func newWire(stream io.ReadWriter, line []byte) *wire {
	return &wire{Writer: stream, in: bufio.NewReaderSize(stream, wireBuffer), line: line}
}

func (w *wire) exchange() error {
	if _, err := w.Write(w.line); err != nil {
		return err
	}
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil || w.until == nil {
			return err
		}
		if done, err := w.until(line); done || err != nil {
			return err
		}
	}
}

// say sends a frame that wants no answer, or one that does, and returns the
// answer. Notifications that come first are dropped.
func (w *wire) say(frame string, answered bool) (string, error) {
	if _, err := io.WriteString(w, frame+"\n"); err != nil || !answered {
		return "", err
	}
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil || !bytes.HasPrefix(line, []byte(`{"jsonrpc":"2.0","method":`)) {
			return string(line), err
		}
	}
}

const (
	benchInitialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	benchInitialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// greet opens an MCP session and makes the wire's call until the answer is that
// of an attached daemon, and it notes its size.
func (s *benchScene) greet(w *wire, call benchCall) error {
	if _, err := w.say(benchInitialize, true); err != nil {
		return err
	}
	if _, err := w.say(benchInitialized, false); err != nil {
		return err
	}
	for range 10 {
		answer, err := w.say(strings.TrimSuffix(string(w.line), "\n"), true)
		if err != nil {
			return err
		}
		if !strings.Contains(answer, `"isError":false`) {
			return fmt.Errorf("%s: %.300s", call.name, answer)
		}
		s.sizes[call.name] = len(answer)
	}
	return nil
}

// dialSocket opens lanes of a call over the daemon's socket.
func (s *benchScene) dialSocket(call benchCall, clients int) []*wire {
	s.t.Helper()
	lanes := make([]*wire, clients)
	for i := range lanes {
		conn, err := net.Dial("unix", s.daemon.socket)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { conn.Close() })
		w := newWire(conn, call.frame(s))
		_, err = w.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tmux-mcpd/hello","params":{"version":"bench","env":{"LIBTMUX_SOCKET_PATH":%q}}}`, s.server.socket), false)
		if err == nil {
			err = s.greet(w, call)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		lanes[i] = w
	}
	return lanes
}

// dialBridge opens lanes of a call through one stdio process each.
func (s *benchScene) dialBridge(call benchCall, clients int) []*wire {
	s.t.Helper()
	lanes := make([]*wire, clients)
	for i := range lanes {
		w := newWire(startProcess(s.t, []string{requireProduct(s.t), "stdio"}, s.bridgeEnviron(), s.server.home.dir), call.frame(s))
		if err := s.greet(w, call); err != nil {
			s.t.Fatal(err)
		}
		lanes[i] = w
	}
	return lanes
}

// bridgeEnviron is the environment of a stdio process: the daemon is found by it.
func (s *benchScene) bridgeEnviron() []string {
	socket := "/nonexistent"
	if s.daemon != nil {
		socket = s.daemon.socket
	}
	return s.server.home.clientEnviron("LIBTMUX_SOCKET_PATH="+s.server.socket, "TMUX_MCPD_SOCKET="+socket)
}

// dialEcho opens lanes to the echo server, which answers with as many bytes as
// the daemon.
func (s *benchScene) dialEcho(call benchCall, clients int) []*wire {
	s.t.Helper()
	if s.sizes[call.name] == 0 {
		s.t.Fatalf("the size of an answer to %s is not known yet", call.name)
	}
	lanes := make([]*wire, clients)
	for i := range lanes {
		conn, err := net.Dial("unix", s.echo)
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { conn.Close() })
		lanes[i] = newWire(conn, call.frame(s))
		if _, err := lanes[i].say(strconv.Itoa(s.sizes[call.name]), false); err != nil {
			s.t.Fatal(err)
		}
	}
	return lanes
}

// The fields of the two lists, as a program would ask tmux itself for them.
var benchFormats = map[string][]string{
	"list_panes":    {"list-panes", "-a", "-F", joinFields(paneFields)},
	"list_sessions": {"list-sessions", "-F", joinFields(sessionFields)},
}

// dialControl attaches a control client that sends one line again and again.
func (s *benchScene) dialControl(line string) *wire {
	s.t.Helper()
	p := startProcess(s.t, s.server.argv("-C", "attach-session", "-t", "work00", "-f", "ignore-size,no-output"), s.server.home.environ(), s.server.home.dir)
	w := newWire(p, []byte(line+"\n"))
	ends := 0
	w.until = func(line []byte) (bool, error) {
		return bytes.HasPrefix(line, []byte("%end ")) || bytes.HasPrefix(line, []byte("%error ")), nil
	}
	for ends < 1 { // of attach-session itself
		l, err := w.in.ReadSlice('\n')
		if err != nil {
			s.t.Fatal(err)
		}
		if done, _ := w.until(l); done {
			ends++
		}
	}
	return w
}

// benchProbe is a line that tmux cannot parse: the cheapest question there is.
const benchProbe = "}"

func controlLine(tool string) string {
	args := slices.Clone(benchFormats[tool])
	args[len(args)-1] = controlmode.Quote(args[len(args)-1])
	return strings.Join(args, " ")
}

// execTmux runs tmux once for each question.
func (s *benchScene) execTmux(tool string) func() error {
	args := s.server.argv(benchFormats[tool]...)
	env := s.server.home.environ()
	return func() error {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = env
		_, err := cmd.Output()
		return err
	}
}

func exchanges(lanes []*wire) []func() error {
	calls := make([]func() error, len(lanes))
	for i, w := range lanes {
		calls[i] = w.exchange
	}
	return calls
}

// cpuOf is the time that all threads of a process have run so far; 0 where the
// system does not tell.
func cpuOf(pid int) time.Duration {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	var sum time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		ran, _, _ := strings.Cut(string(text), " ")
		ns, _ := strconv.ParseInt(ran, 10, 64)
		sum += time.Duration(ns)
	}
	return sum
}

// A slice of measuring: the latency of each call, and what it took.
type measured struct {
	latencies    []time.Duration
	elapsed      time.Duration
	daemon, tmux time.Duration // CPU
}

// measure lets all lanes call for a while, each at least three times.
func (s *benchScene) measure(lanes []func() error, during time.Duration) measured {
	s.t.Helper()
	daemon, tmux := cpuOf(s.pids.daemon), cpuOf(s.pids.tmux)
	all := make([][]time.Duration, len(lanes))
	begun := time.Now()
	var calling sync.WaitGroup
	for i, call := range lanes {
		calling.Go(func() {
			for n := 0; n < 3 || time.Since(begun) < during; n++ {
				sent := time.Now()
				if err := call(); err != nil {
					s.t.Error(err)
					return
				}
				all[i] = append(all[i], time.Since(sent))
			}
		})
	}
	calling.Wait()
	return measured{slices.Concat(all...), time.Since(begun), cpuOf(s.pids.daemon) - daemon, cpuOf(s.pids.tmux) - tmux}
}

// quantile sorts the values.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)-1, int(q*float64(len(values))))]
}

// benchWays are the ways to the daemon, and the echo beside them.
var benchWays = []struct {
	name string
	dial func(s *benchScene, call benchCall, clients int) []*wire
}{
	{"socket", (*benchScene).dialSocket},
	{"bridge", (*benchScene).dialBridge},
	{"echo", (*benchScene).dialEcho},
}

// within is the same scene for a part of the test: what is opened for it is
// closed at its end.
func (s *benchScene) within(t testing.TB) *benchScene {
	part := *s
	part.t = t
	return &part
}

func BenchmarkCalls(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%d_panes", size.panes), func(b *testing.B) {
			s := newBenchScene(b, size.panes, size.perSession)
			s.serve()
			for _, clients := range []int{1, 16} {
				for _, call := range benchCalls {
					for _, way := range benchWays {
						name := fmt.Sprintf("%d_clients/%s/%s", clients, way.name, strings.ReplaceAll(call.name, " ", "_"))
						b.Run(name, func(b *testing.B) { s.bench(b, exchanges(way.dial(s.within(b), call, clients))) })
					}
				}
			}
			b.Run("floor/probe", func(b *testing.B) { s.bench(b, exchanges([]*wire{s.within(b).dialControl(benchProbe)})) })
			for tool := range benchFormats {
				b.Run("floor/control_"+tool, func(b *testing.B) { s.bench(b, exchanges([]*wire{s.within(b).dialControl(controlLine(tool))})) })
				b.Run("floor/exec_"+tool, func(b *testing.B) { s.bench(b, []func() error{s.execTmux(tool)}) })
			}
		})
	}
}

// bench makes b.N calls on all lanes together, and reports the p50 and p99 of
// one call and what it costs daemon and tmux.
func (s *benchScene) bench(b *testing.B, lanes []func() error) {
	daemon, tmux := cpuOf(s.pids.daemon), cpuOf(s.pids.tmux)
	all := make([][]time.Duration, len(lanes))
	b.ResetTimer()
	var calling sync.WaitGroup
	for i, call := range lanes {
		calling.Go(func() {
			for range (b.N + i) / len(lanes) {
				sent := time.Now()
				if err := call(); err != nil {
					b.Error(err)
					return
				}
				all[i] = append(all[i], time.Since(sent))
			}
		})
	}
	calling.Wait()
	b.StopTimer()
	latencies := slices.Concat(all...)
	micro := func(d time.Duration) float64 { return float64(d) / 1e3 }
	b.ReportMetric(micro(quantile(latencies, 0.5)), "p50-µs")
	b.ReportMetric(micro(quantile(latencies, 0.99)), "p99-µs")
	b.ReportMetric(micro(cpuOf(s.pids.daemon)-daemon)/float64(b.N), "daemon-µs/op")
	b.ReportMetric(micro(cpuOf(s.pids.tmux)-tmux)/float64(b.N), "tmux-µs/op")
}
