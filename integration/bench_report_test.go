package integration

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	benchReport = flag.String("bench-report", "", "write the benchmark report to this file, - for stdout")
	benchRounds = flag.Int("bench-rounds", 7, "interleaved rounds of the benchmark report")
	benchSlice  = flag.Duration("bench-slice", 150*time.Millisecond, "time for each measurement in a round")
	benchPanes  = flag.String("bench-panes", "1,20,200,1000", "numbers of panes in the benchmark report")
)

// TestBenchReport measures everything in interleaved rounds, so that whatever
// else the machine does meets all alike, and prints Markdown tables and what of
// the promised figures is met.
//
//	go test ./integration -v -run TestBenchReport -bench-report -
func TestBenchReport(t *testing.T) {
	if *benchReport == "" {
		t.Skip("no -bench-report")
	}
	out := io.Writer(os.Stdout)
	if *benchReport != "-" {
		file, err := os.Create(*benchReport)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		out = file
	}
	r := &report{out: out, medians: map[string]float64{}}
	r.machine(t)
	for _, size := range benchSizes {
		if !slices.Contains(strings.Split(*benchPanes, ","), strconv.Itoa(size.panes)) {
			continue
		}
		t.Run(fmt.Sprintf("%d panes", size.panes), func(t *testing.T) { r.calls(t, size.panes, size.perSession) })
	}
	t.Run("cold start", r.coldStart)
	t.Run("agents", r.agents)
	t.Run("idle", r.idle)
	r.verdicts()
}

// A report collects what is measured, by name, and prints it.
type report struct {
	out     io.Writer
	medians map[string]float64 // µs, but for memory (MiB), throughput (per s) and CPU (% of a core)
}

func (r *report) printf(format string, args ...any) { fmt.Fprintf(r.out, format, args...) }

func (r *report) machine(t *testing.T) {
	_, version, err := realTmux()
	if err != nil {
		t.Fatal(err)
	}
	load, _ := os.ReadFile("/proc/loadavg") // none on macOS
	r.printf("tmux %s, %s, %d cores, %d rounds of %v, load average before: %s\n", version, runtime.Version(), runtime.NumCPU(), *benchRounds, *benchSlice, strings.TrimSpace(string(load)))
}

// A series is one thing that is measured in every round.
type series struct {
	name                   string
	scene                  *benchScene
	lanes                  []func() error
	p50, p99, daemon, tmux []time.Duration // of each round
	rate                   []float64       // calls per second
}

func (s *series) take(m measured) {
	n := time.Duration(max(1, len(m.latencies)))
	s.p50 = append(s.p50, quantile(m.latencies, 0.5))
	s.p99 = append(s.p99, quantile(m.latencies, 0.99))
	s.daemon = append(s.daemon, m.daemon/n)
	s.tmux = append(s.tmux, m.tmux/n)
	s.rate = append(s.rate, float64(len(m.latencies))/m.elapsed.Seconds())
}

func median[T time.Duration | float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func micro(d time.Duration) float64 { return float64(d) / 1e3 }

// calls measures the calls on one scene, through socket and bridge, for one
// client and for sixteen, beside the floors. These have a server of their own,
// of the same size: each control client makes every wake-up of tmux dearer (by
// half with three more at 200 panes), so both servers have exactly one.
func (r *report) calls(t *testing.T, panes, perSession int) {
	s, floors := newBenchScene(t, panes, perSession), newBenchScene(t, panes, perSession)
	s.serve()
	var all []*series
	add := func(scene *benchScene, name string, lanes []func() error) {
		all = append(all, &series{name: fmt.Sprintf("%d/%s", panes, name), scene: scene, lanes: lanes})
	}
	for _, clients := range []int{1, 16} {
		for _, call := range benchCalls {
			add(s, fmt.Sprintf("%d/%s/socket", clients, call.name), exchanges(s.dialSocket(call, clients)))
			add(s, fmt.Sprintf("%d/%s/echo", clients, call.name), exchanges(s.dialEcho(call, clients)))
			if clients == 1 {
				add(s, fmt.Sprintf("%d/%s/bridge", clients, call.name), exchanges(s.dialBridge(call, clients)))
			}
		}
	}
	control := floors.dialControl(benchProbe)
	add(floors, "1/probe", []func() error{control.exchange})
	for _, tool := range []string{"list_sessions", "list_panes"} {
		same := *control // the same client, asking something else
		same.line = []byte(controlLine(tool) + "\n")
		add(floors, "1/"+tool+"/control", []func() error{same.exchange})
		add(floors, "1/"+tool+"/exec", []func() error{floors.execTmux(tool)})
		if lanes := s.rival(t, tool); lanes != nil && panes == 20 {
			add(s, "1/"+tool+"/libtmux-mcp", lanes)
		}
	}
	for range *benchRounds {
		for _, one := range all {
			one.scene.measure(one.lanes, *benchSlice/10) // the way is warm, and the cache
			one.take(one.scene.measure(one.lanes, *benchSlice))
		}
	}
	r.medians[fmt.Sprintf("%d/memory", panes)] = float64(s.daemon.residentKB()) / 1024
	r.printf("\n### %d panes\n\n| clients, request, way | p50 µs | p99 µs | × echo | × (echo + probe) | calls/s | CPU µs per call: daemon | tmux |\n|---|---|---|---|---|---|---|---|\n", panes)
	for _, one := range all {
		r.medians[one.name] = micro(median(one.p50))
		r.medians[one.name+" rate"] = median(one.rate)
	}
	probe := r.medians[fmt.Sprintf("%d/1/probe", panes)]
	for _, one := range all {
		p50 := r.medians[one.name]
		echo := r.medians[one.name[:strings.LastIndex(one.name, "/")+1]+"echo"]
		ratio, sum := "", ""
		if echo > 0 {
			ratio = fmt.Sprintf("%.1f", p50/echo)
		}
		if echo > 0 && strings.HasPrefix(one.name, fmt.Sprintf("%d/1/", panes)) { // the probe is of one client
			sum = fmt.Sprintf("%.2f", p50/(echo+probe))
		}
		_, label, _ := strings.Cut(one.name, "/")
		r.printf("| %s | %.0f | %.0f | %s | %s | %.0f | %.0f | %.0f |\n", label, p50, micro(median(one.p99)), ratio, sum,
			median(one.rate), micro(median(one.daemon)), micro(median(one.tmux)))
	}
	r.printf("\nDaemon resident after this, with 18 clients connected for each request: %.1f MiB\n", r.medians[fmt.Sprintf("%d/memory", panes)])
}

// rival opens the published server of the same contract, nil if it is not
// installed.
func (s *benchScene) rival(t *testing.T, tool string) []func() error {
	path, err := exec.LookPath("libtmux-mcp")
	if err != nil {
		return nil
	}
	call := benchCalls[slices.IndexFunc(benchCalls, func(c benchCall) bool { return c.name == tool })]
	p := startProcess(t, []string{path}, s.server.home.clientEnviron("LIBTMUX_SOCKET_PATH="+s.server.socket), s.server.home.dir)
	w := newWire(p, call.frame(s))
	size := s.sizes[call.name]
	err = s.greet(w, call)
	s.sizes[call.name] = size
	if err != nil {
		t.Logf("libtmux-mcp: %v", err)
		return nil
	}
	return []func() error{w.exchange}
}

// coldStart measures the time from the start of a process to its first answer
// to list_panes, at 20 panes.
func (r *report) coldStart(t *testing.T) {
	s := newBenchScene(t, 20, 4)
	s.serve()
	empty := benchProgram(t, "empty")
	product := requireProduct(t)
	if _, err := s.coldCall([]string{product, "stdio"}); err != nil { // the daemon attaches
		t.Fatal(err)
	}
	ways := []struct {
		name string
		run  func() (time.Duration, error)
	}{
		{"empty", func() (time.Duration, error) {
			begun := time.Now()
			err := exec.Command(empty).Run()
			return time.Since(begun), err
		}},
		{"version", func() (time.Duration, error) {
			begun := time.Now()
			err := exec.Command(product, "version").Run()
			return time.Since(begun), err
		}},
		{"bridge", func() (time.Duration, error) { return s.coldCall([]string{product, "stdio"}) }},
		{"embedded", func() (time.Duration, error) { return s.coldCall([]string{product, "stdio", "--embedded"}) }},
	}
	took := map[string][]time.Duration{}
	for range 5 * *benchRounds {
		for _, way := range ways {
			d, err := way.run()
			if err != nil {
				t.Fatalf("%s: %v", way.name, err)
			}
			took[way.name] = append(took[way.name], d)
		}
	}
	r.printf("\n### Cold start, 20 panes\n\n| | p50 ms | least ms | more than an empty Go program, ms |\n|---|---|---|---|\n")
	for _, way := range ways {
		r.medians["cold/"+way.name] = micro(median(took[way.name]))
		r.printf("| %s | %.2f | %.2f | %.2f |\n", way.name, micro(median(took[way.name]))/1e3, micro(slices.Min(took[way.name]))/1e3,
			(r.medians["cold/"+way.name]-r.medians["cold/empty"])/1e3)
	}
}

// coldCall starts a process and returns how long it takes to its first answer.
func (s *benchScene) coldCall(argv []string) (time.Duration, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = s.bridgeEnviron(), s.server.home.dir
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	w := newWire(struct {
		io.Reader
		io.Writer
	}{out, in}, nil)
	call := benchCalls[1]
	answer := ""
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	if _, err = w.say(benchInitialize, true); err == nil {
		answer, err = w.say(benchInitialized+"\n"+strings.TrimSuffix(string(call.frame(s)), "\n"), true)
	}
	took := time.Since(begun)
	in.Close()
	if err == nil && !strings.Contains(answer, `"isError":false`) {
		err = fmt.Errorf("answered %.200s", answer)
	}
	if waitErr := cmd.Wait(); err == nil {
		err = waitErr
	}
	return took, err
}

// agents measures eight agents that ask list_panes ten times a second each, at
// 20 panes, on a quiet server and on busy ones: their latency, what they cost,
// and how long a typed key takes to be seen in a terminal, with them and without.
func (r *report) agents(t *testing.T) {
	r.printf("\n### Eight agents at 10 Hz, 20 panes\n\n| the server | p50 µs | p99 µs | CPU %% of a core: daemon | tmux | tmux without us | a key's echo, p50 µs | without us |\n|---|---|---|---|---|---|---|---|\n")
	for _, load := range benchLoads {
		t.Run(load.name, func(t *testing.T) { r.agentsUnder(t, load.name, load.begin) })
	}
}

var benchLoads = []struct {
	name  string
	begin func(s *benchScene)
}{
	{"quiet", func(*benchScene) {}},
	{"a pane prints `yes`", func(s *benchScene) { s.server.run("new-window", "-d", "-t", "work01:", "exec yes") }},
	{"five titles change at 10 Hz", func(s *benchScene) {
		for range 5 {
			s.server.run("new-window", "-d", "-t", "work01:", `i=0; while :; do i=$((i+1)); printf '\033]2;working %d\007' $i; sleep 0.1; done`)
		}
	}},
}

func (r *report) agentsUnder(t *testing.T, name string, begin func(*benchScene)) {
	s := newBenchScene(t, 20, 4)
	s.server.run("set-option", "-g", "status", "off") // so that all that is drawn is the key's echo
	s.server.run("new-window", "-t", "work00:", "exec cat")
	term := newTerminal(t, s.server, 80, 24, "attach-session", "-t", "work00")
	begin(s)
	const during = time.Second
	var keys, keysAlone, p50, p99 []time.Duration
	var daemon, tmux, tmuxAlone []float64
	percent := func(cpu time.Duration) float64 { return 100 * cpu.Seconds() / during.Seconds() }
	for range *benchRounds {
		before := cpuOf(s.pids.tmux)
		keysAlone = append(keysAlone, term.typeFor(during)...)
		tmuxAlone = append(tmuxAlone, percent(cpuOf(s.pids.tmux)-before))

		round := s.within(t)
		round.serve()
		lanes := round.dialSocket(benchCalls[1], 8)
		var asking sync.WaitGroup
		latencies := make([][]time.Duration, len(lanes))
		stop := make(chan struct{})
		cpu, tmuxCPU := cpuOf(round.pids.daemon), cpuOf(s.pids.tmux)
		for i, lane := range lanes {
			asking.Go(func() { latencies[i] = poll(t, lane, 10, time.Duration(i)*time.Second/80, stop) })
		}
		keys = append(keys, term.typeFor(during)...)
		daemon = append(daemon, percent(cpuOf(round.pids.daemon)-cpu))
		tmux = append(tmux, percent(cpuOf(s.pids.tmux)-tmuxCPU))
		close(stop)
		asking.Wait()
		all := slices.Concat(latencies...)
		p50, p99 = append(p50, quantile(all, 0.5)), append(p99, quantile(all, 0.99))
		round.daemon.stop()
	}
	key := "agents/" + name
	r.medians[key] = micro(median(p50))
	r.medians[key+" key"] = micro(quantile(keys, 0.5)) / micro(quantile(keysAlone, 0.5))
	r.medians[key+" cpu"] = median(daemon) + median(tmux) - median(tmuxAlone)
	r.printf("| %s | %.0f | %.0f | %.1f | %.1f | %.1f | %.0f | %.0f |\n", name, micro(median(p50)), micro(median(p99)),
		median(daemon), median(tmux), median(tmuxAlone), micro(quantile(keys, 0.5)), micro(quantile(keysAlone, 0.5)))
}

// poll makes a call so many times a second until stop, the first after a while.
func poll(t *testing.T, lane *wire, hz int, first time.Duration, stop <-chan struct{}) (latencies []time.Duration) {
	select {
	case <-time.After(first):
	case <-stop:
		return nil
	}
	tick := time.NewTicker(time.Second / time.Duration(hz))
	defer tick.Stop()
	for {
		sent := time.Now()
		if err := lane.exchange(); err != nil {
			t.Error(err)
			return latencies
		}
		latencies = append(latencies, time.Since(sent))
		select {
		case <-tick.C:
		case <-stop:
			return latencies
		}
	}
}

// typeFor types thirty keys a second and returns how long each took to be drawn.
func (term *terminal) typeFor(during time.Duration) (delays []time.Duration) {
	term.t.Helper()
	tick := time.NewTicker(time.Second / 30)
	defer tick.Stop()
	for i := 0; i < int(30*during.Seconds()); i++ {
		<-tick.C
		term.screen.mu.Lock()
		drawn := term.screen.wake
		term.screen.mu.Unlock()
		sent := time.Now()
		key := string(rune('a' + i%26))
		if i%26 == 25 {
			key = "\r" // the line must not get longer than cat's terminal takes
		}
		term.write(key)
		select {
		case <-drawn:
			delays = append(delays, time.Since(sent))
		case <-time.After(5 * time.Second):
			term.t.Fatal("a typed key is not drawn")
		}
	}
	return delays
}

// idle measures the memory of a daemon that has served one call of one client.
func (r *report) idle(t *testing.T) {
	s := newBenchScene(t, 1, 1)
	s.serve()
	r.medians["idle/fresh"] = float64(s.daemon.residentKB()) / 1024
	part := s.within(t)
	lane := part.dialSocket(benchCalls[1], 1)[0]
	if err := lane.exchange(); err != nil {
		t.Fatal(err)
	}
	r.medians["idle/memory"] = float64(s.daemon.residentKB()) / 1024
	info, err := os.Stat(requireProduct(t))
	if err != nil {
		t.Fatal(err)
	}
	r.printf("\nMemory of the daemon: %.1f MiB before the first client, %.1f MiB with one at 1 pane (%s is %.1f MiB).\n",
		r.medians["idle/fresh"], r.medians["idle/memory"], filepath.Base(requireProduct(t)), float64(info.Size())/(1<<20))
}

// A promise is one line of what must be shown: a figure, made of what was
// measured, and its bound.
type promise struct {
	text  string
	value func(m func(string) float64) float64
	bound float64
	least bool // the bound is a lower one
}

var promises = []promise{
	{"list_sessions, 20 panes, × (echo + probe)", overFloor("20/1/list_sessions"), 1.5, false},
	{"list_sessions, 200 panes, × (echo + probe)", overFloor("200/1/list_sessions"), 1.5, false},
	{"list_sessions, 20 panes, × echo", over("20/1/list_sessions/socket", "20/1/list_sessions/echo"), 6, false},
	{"list_sessions, 200 panes, × echo", over("200/1/list_sessions/socket", "200/1/list_sessions/echo"), 12, false},
	{"list_panes, one row by a cached field, 20 panes, × (echo + probe)", overFloor("20/1/list_panes pane_id=%N"), 1.5, false},
	{"list_panes, one row by a cached field, 20 panes, × echo", over("20/1/list_panes pane_id=%N/socket", "20/1/list_panes pane_id=%N/echo"), 6, false},
	{"list_panes, one row by a cached field, 200 panes, × echo", over("200/1/list_panes pane_id=%N/socket", "200/1/list_panes pane_id=%N/echo"), 12, false},
	{"list_panes, 20 panes, × echo", over("20/1/list_panes/socket", "20/1/list_panes/echo"), 13, false},
	{"list_panes, 200 panes, × echo", over("200/1/list_panes/socket", "200/1/list_panes/echo"), 50, false},
	{"16 clients, list_sessions, 20 panes, × echo of 16 clients", over("20/16/list_sessions/socket", "20/16/list_sessions/echo"), 4, false},
	{"16 clients, list_panes, 20 panes, × echo of 16 clients", over("20/16/list_panes/socket", "20/16/list_panes/echo"), 7, false},
	{"list_panes faster than exec of tmux, 1 pane", over("1/1/list_panes/exec", "1/1/list_panes/socket"), 10, true},
	{"list_panes faster than exec of tmux, 20 panes", over("20/1/list_panes/exec", "20/1/list_panes/socket"), 10, true},
	{"list_sessions faster than exec of tmux, 20 panes", over("20/1/list_sessions/exec", "20/1/list_sessions/socket"), 18, true},
	{"list_panes faster than libtmux-mcp, 20 panes", over("20/1/list_panes/libtmux-mcp", "20/1/list_panes/socket"), 40, true},
	{"list_sessions faster than libtmux-mcp, 20 panes", over("20/1/list_sessions/libtmux-mcp", "20/1/list_sessions/socket"), 200, true},
	{"cold start of the bridge, ms more than an empty program", beyondEmpty("cold/bridge"), 2, false},
	{"cold start embedded, ms more than an empty program", beyondEmpty("cold/embedded"), 6, false},
	{"list_sessions through the bridge, × direct, 20 panes", over("20/1/list_sessions/bridge", "20/1/list_sessions/socket"), 1.5, false},
	{"list_panes through the bridge, × direct, 20 panes", over("20/1/list_panes/bridge", "20/1/list_panes/socket"), 1.5, false},
	{"throughput of 16 clients, × that of one, list_sessions, 20 panes", over("20/16/list_sessions/socket rate", "20/1/list_sessions/socket rate"), 2.5, true},
	{"throughput of 16 clients, × that of one, list_panes, 20 panes", over("20/16/list_panes/socket rate", "20/1/list_panes/socket rate"), 2.5, true},
	{"list_panes while a pane prints `yes`, × quiet", over("agents/a pane prints `yes`", "agents/quiet"), 3, false},
	{"a key's echo with 8 agents at 10 Hz, × without us", measuredAs("agents/quiet key"), 1.2, false},
	{"the same while a pane prints `yes`", measuredAs("agents/a pane prints `yes` key"), 1.2, false},
	{"the same while five titles change", measuredAs("agents/five titles change at 10 Hz key"), 1.2, false},
	{"daemon at 1,000 panes and 16 clients, MiB", measuredAs("1000/memory"), 40, false},
	{"daemon idle, MiB", measuredAs("idle/memory"), 15, false},
}

func measuredAs(name string) func(func(string) float64) float64 {
	return func(m func(string) float64) float64 { return m(name) }
}

func over(a, b string) func(func(string) float64) float64 {
	return func(m func(string) float64) float64 { return m(a) / m(b) }
}

func overFloor(request string) func(func(string) float64) float64 {
	panes, _, _ := strings.Cut(request, "/")
	return func(m func(string) float64) float64 {
		return m(request+"/socket") / (m(request+"/echo") + m(panes+"/1/probe"))
	}
}

func beyondEmpty(name string) func(func(string) float64) float64 {
	return func(m func(string) float64) float64 { return (m(name) - m("cold/empty")) / 1e3 }
}

func (r *report) verdicts() {
	r.printf("\n### Promised and measured\n\n| | bound | measured | |\n|---|---|---|---|\n")
	for _, p := range promises {
		missing := false
		value := p.value(func(name string) float64 {
			v, ok := r.medians[name]
			missing = missing || !ok
			return v
		})
		sign, verdict := "≤", "met"
		if p.least {
			sign = "≥"
		}
		switch {
		case missing:
			r.printf("| %s | %s %g | | not measured |\n", p.text, sign, p.bound)
			continue
		case p.least && value < p.bound, !p.least && value > p.bound:
			verdict = fmt.Sprintf("**not met**, by %.0f %%", 100*max(value/p.bound, p.bound/value)-100)
		}
		r.printf("| %s | %s %g | %.2f | %s |\n", p.text, sign, p.bound, value, verdict)
	}
}
