package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"tmux-mcpd/controlmode"
	"tmux-mcpd/daemon/state"
	"tmux-mcpd/tools"
)

func TestParseStat(t *testing.T) {
	// What follows the name, with parent 10, session 12, group 14 and start 22.
	const tail = " S 10 11 12 34816 14 4194304 0 0 0 0 0 0 0 0 20 0 1 0 2200 2404352 200\n"
	want := stat{parent: 10, session: 12, group: 14, started: 2200}
	tests := []struct {
		name, line string
		want       stat
	}{
		{"plain", "9 (sh)" + tail, want},
		{"spaces in the name", "9 (a b c)" + tail, want},
		{"a parenthesis in the name", "9 (a) S 1 2 3 (b))" + tail, want},
		{"a newline in the name", "9 (a\nb)" + tail, want},
		{"no name", "9 ()" + tail, want},
		{"no terminal", "9 (sh) S 10 11 12 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 2200 0\n", stat{10, 12, 0, 2200}},
		{"cut short", "9 (sh) S 10 11 12 34816 14", stat{parent: 10, session: 12, group: 14}},
		{"cut in a number", "9 (sh) S 10 11", stat{parent: 10}},
		{"nothing after the name", "9 (sh)", stat{}},
		{"nothing", "", stat{}},
		{"no numbers", "9 (sh) S a b c d e", stat{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseStat([]byte(tt.line)); got != tt.want {
				t.Errorf("parseStat(%q) = %+v, want %+v", tt.line, got, tt.want)
			}
		})
	}
	// The system's own line for a process that we know.
	line, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if got := parseStat(line); got.parent != os.Getppid() || got.started == 0 || got.age() < 0 || got.age() > time.Hour {
		t.Errorf("our own stat is read as %+v, age %v", got, got.age())
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("9 (sh) S 10 11 12 34816 14 4194304 0 0 0 0 0 0 0 0 20 0 1 0 2200 2404352 200\n"))
	f.Add([]byte("9 (a) b) S -1 -1"))
	f.Fuzz(func(t *testing.T, line []byte) { parseStat(line) })
}

// labServer is a private tmux server with a directory of its own.
type labServer struct {
	t                 *testing.T
	tmux, dir, socket string
	version           controlmode.Version
}

func newLabServer(t *testing.T) *labServer {
	t.Helper()
	path := os.Getenv("TMUX_MCPD_TEST_TMUX")
	if path == "" {
		var err error
		if path, err = exec.LookPath("tmux"); err != nil {
			t.Skip("no tmux to compare with: ", err)
		}
	}
	dir, err := os.MkdirTemp("", "tm-")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &labServer{t: t, tmux: path, dir: dir, socket: filepath.Join(dir, "sock")}
	s.run("new-session", "-d", "-s", "main", "-x", "200", "-y", "50", "sleep", "9000")
	t.Cleanup(func() { s.try("kill-server") })
	s.version = controlmode.ParseVersion(s.run("display-message", "-p", "#{version}"))
	return s
}

func (s *labServer) try(args ...string) (string, error) {
	cmd := exec.Command(s.tmux, append([]string{"-u", "-S", s.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "TMUX") || strings.HasPrefix(kv, "BASH_ENV=")
	})
	// bash because dash has no exec -a.
	cmd.Env = append(cmd.Env, "SHELL=/bin/sh", "ENV=", "PS1=$ ", "LANG=C.UTF-8", "LC_ALL=C.UTF-8")
	cmd.Dir = s.dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("tmux %.80q: %w", args, err)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

func (s *labServer) run(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// shown is what tmux itself says of a pane.
func (s *labServer) shown(pane string) (p state.Process) {
	s.t.Helper()
	const mark = "<|>"
	out := s.run("list-panes", "-a", "-F", "#{pane_id}"+mark+"#{pane_current_command}"+mark+"#{pane_current_path}"+mark+"E")
	for row := range strings.SplitSeq(out, mark+"E") {
		f := strings.Split(strings.TrimPrefix(row, "\n"), mark)
		if f[0] == pane && len(f) == 3 {
			return state.Process{Command: f[1], Path: f[2]}
		}
	}
	s.t.Fatalf("tmux has no pane %s", pane)
	return p
}

// A processCase is a pane in some state.
type processCase struct {
	name string
	// argv is what the pane is started with; keys are typed into it once its
	// shell has said that it is ready.
	argv []string
	keys []string
	// command is what tmux shows when the pane has got there: the state is
	// reached, and not another one. path likewise, "" for the pane's directory.
	command, path string
	// asks is set where /proc cannot tell and tmux has to be asked.
	asks bool
	// options are set on the window.
	options []string
	empty   bool // a pane without a process
	root    bool // only root may do so
}

func processCases(s *labServer) []processCase {
	sh := []string{"sh", "-i"}
	cases := []processCase{
		{name: "shell", argv: sh, command: "sh"},
		{name: "login shell", command: "sh"},
		{name: "program", argv: []string{"sleep", "9000"}, command: "sleep"},
		{name: "pipeline", argv: sh, keys: []string{"sleep 9000 | cat", "Enter"}, command: "sleep"},
		{name: "background job", argv: sh, keys: []string{"sleep 9000 &", "Enter", "cd /usr", "Enter"}, command: "sh", path: "/usr"},
		{name: "shebang", argv: []string{"exec '" + s.dir + "/a script'"}, command: "sh"},
		{name: "another directory in the foreground", argv: sh, keys: []string{"(cd /usr/bin && exec sleep 9000)", "Enter"}, command: "sleep", path: "/usr/bin"},
		{name: "setsid waits", argv: sh, keys: []string{"setsid -w sleep 9000", "Enter"}, command: "setsid"},
		{name: "setsid -c takes the terminal", argv: []string{"sh", "-c", "setsid -c -w sleep 9000; exec sleep 9000"}, command: "sleep", asks: true, root: true},
		{name: "deleted directory", argv: sh, keys: []string{"mkdir gone && cd gone && rmdir ../gone", "Enter"}, command: "sh", path: s.dir + "/gone (deleted)"},
		// bash reaps the leader; tmux is left with what the pane was started with.
		{name: "leader has exited", argv: []string{"env", "bash", "--norc", "-i"}, keys: []string{"/bin/true | sleep 9000", "Enter"}, command: "env", asks: true},
		{name: "stopped job", argv: sh, keys: []string{"cd /usr; sleep 9000", "Enter", "C-z"}, command: "sh", path: "/usr"},
		{name: "dead", argv: []string{"sh", "-c", "exit 3"}, command: "sh", path: "-", options: []string{"remain-on-exit", "on"}},
		{name: "dead without arguments", argv: []string{"true"}, command: "true", path: "-", options: []string{"remain-on-exit", "on"}},
		{name: "no process", command: "-", path: "-", empty: true, asks: s.version.AtLeast(3, 7)}, // dead before
		{name: "a directory like a guard", argv: sh, keys: []string{"mkdir -p \"$GUARD\" && cd \"$GUARD\"", "Enter"}, command: "sh", path: s.dir + "/x\n%end 1 1 1\n%exit"},
		{name: "a directory of any bytes", argv: sh, keys: []string{"mkdir -p \"$BYTES\" && cd \"$BYTES\"", "Enter"}, command: "sh", path: s.dir + "/tab\t\xff\x01"},
		{name: "no argv[0]", argv: []string{"bash", "-c", "exec -a '' sleep 9000"}, command: "bash", asks: true},
	}
	for _, n := range commandNames {
		want := n.old
		if s.version.AtLeast(3, 7) {
			want = n.since
		}
		asks := len(n.argv0) >= 4096
		cases = append(cases, processCase{name: fmt.Sprintf("argv0 %.40q", n.argv0), command: want, asks: asks,
			argv: []string{"bash", "-c", `exec -a "$0" sleep 9000`, n.argv0}})
	}
	return cases
}

// TestProcesses: what we read in /proc is what tmux says, for every state that a
// pane can be in. The names have been derived from tmux's source; here tmux
// itself is the judge.
func TestProcesses(t *testing.T) {
	s := newLabServer(t)
	t.Logf("tmux %s", s.version)
	if err := os.WriteFile(s.dir+"/a script", []byte("#!/bin/sh\nread forever\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.run("set-environment", "-g", "GUARD", s.dir+"/x\n%end 1 1 1\n%exit")
	s.run("set-environment", "-g", "BYTES", s.dir+"/tab\t\xff\x01")

	d := New(Config{Tmux: s.tmux})
	defer d.stop()
	server, err := d.Server(tools.Caller{Env: map[string]string{"LIBTMUX_SOCKET_PATH": s.socket}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	v := server.(view)
	asked, parent := 0, t
	for _, tt := range processCases(s) {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root && os.Geteuid() != 0 {
				t.Skip("only root may do so")
			}
			s.t = t
			defer func() { s.t = parent }()
			pane := s.start(t, tt)
			defer s.try("kill-pane", "-t", pane)
			want, got := s.compare(t, v, pane, tt.asks)
			if (state.Process{Command: s.printed(got.Command), Path: s.printed(got.Path)}) != want {
				t.Errorf("we say %.60q in %q, tmux says %.60q in %q", got.Command, got.Path, want.Command, want.Path)
			}
			if tt.asks {
				asked++
			}
		})
	}
	t.Logf("%d states of a pane, tmux was asked about %d of them", len(processCases(s)), asked)
}

// start brings a pane into a state and returns its id.
func (s *labServer) start(t *testing.T, c processCase) string {
	t.Helper()
	args := []string{"new-window", "-d", "-P", "-F", "#{pane_id}", "-t", "main:"}
	if c.options != nil {
		// The option must be there before the process can end.
		s.run("set-option", "-g", c.options[0], c.options[1])
		defer s.run("set-option", "-gu", c.options[0])
	}
	if c.empty {
		args = []string{"split-window", "-d", "-P", "-F", "#{pane_id}", "-t", "main:0", ""}
	} else {
		args = append(append(args, "-c", s.dir), c.argv...)
	}
	pane := s.run(args...)
	want := state.Process{Command: c.command, Path: c.path}
	switch c.path {
	case "":
		want.Path = s.dir
	case "-":
		want.Path = ""
	}
	if want.Command == "-" {
		want.Command = s.shown(pane).Command // of no interest, but ours must be the same
	}
	if len(c.keys) > 0 {
		s.waitFor(t, "a prompt", func() (bool, string) {
			text := s.run("capture-pane", "-p", "-t", pane)
			return strings.Contains(text, "$"), strings.TrimSpace(text)
		})
	}
	for _, key := range c.keys {
		if key == "C-z" {
			s.waitFor(t, "the job to run", func() (bool, string) {
				p := s.shown(pane)
				return p.Command == "sleep", p.Command
			})
		}
		s.run("send-keys", "-t", pane, key)
	}
	if c.options != nil {
		s.waitFor(t, "the pane to be dead", func() (bool, string) {
			dead := s.run("display-message", "-p", "-t", pane, "#{pane_dead}")
			return dead == "1", dead
		})
	}
	s.waitFor(t, fmt.Sprintf("%.60q in %q", want.Command, want.Path), func() (bool, string) {
		p := s.shown(pane)
		return p == state.Process{Command: s.printed(want.Command), Path: s.printed(want.Path)}, fmt.Sprintf("%.60q in %q", p.Command, p.Path)
	})
	return pane
}

// printed is a value as this tmux prints it: 3.4 to 3.5a show the bytes of
// control characters and of what is no UTF-8 as octal text. Ours is the value.
func (s *labServer) printed(value string) string {
	if !s.version.AtLeast(3, 4) || s.version.AtLeast(3, 6) {
		return value
	}
	var b strings.Builder
	for i, r := range value {
		switch size := utf8.RuneLen(r); {
		case r == utf8.RuneError && !strings.HasPrefix(value[i:], "\uFFFD"), r < ' ' && r != '\n' && r != '\t', r == 0x7f:
			fmt.Fprintf(&b, `\%03o`, value[i])
		default:
			b.WriteString(value[i : i+size])
		}
	}
	return b.String()
}

// compare asks tmux, us, and tmux again until nothing has happened in between and
// we have asked tmux ourselves, or not: a process that is just ending makes us.
func (s *labServer) compare(t *testing.T, v view, pane string, asks bool) (want, got state.Process) {
	t.Helper()
	s.waitFor(t, fmt.Sprintf("a quiet moment, tmux being asked: %v", asks), func() (bool, string) {
		before := s.shown(pane)
		snapshot, err := v.Snapshot(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(snapshot.Panes, func(p *state.Pane) bool { return p.Value(state.PaneID) == pane })
		if i < 0 {
			t.Fatalf("no pane %s", pane)
		}
		fetches := v.server.counters.fetches.Load()
		processes, err := v.Processes(context.Background(), snapshot.Panes[i:i+1])
		if err != nil {
			t.Fatal(err)
		}
		got, want = processes[0], s.shown(pane)
		asked := v.server.counters.fetches.Load() > fetches
		return before == want && asked == asks, fmt.Sprintf("%.60q, asked: %v", want.Command, asked)
	})
	return want, got
}

func (s *labServer) waitFor(t *testing.T, what string, check func() (bool, string)) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		late := time.Now().After(end)
		ok, saw := check()
		if ok {
			return
		}
		if late {
			t.Fatalf("waiting for %s, last seen: %s", what, saw)
		}
	}
}

// TestReadingIsShared: what runs in panes is taken from another request's reading
// only if that began after this request arrived, and is of the same panes.
func TestReadingIsShared(t *testing.T) {
	panes := make([]*state.Pane, sharedPanes)
	for i := range panes {
		panes[i] = &state.Pane{Dead: true}
	}
	table := newProcessTable()
	defer table.close()
	before := table.arrival()
	other := &reading{number: table.begun.Add(1), panes: panes, done: make(chan struct{}), processes: []state.Process{{Command: "other"}}}
	close(other.done)
	for _, tt := range []struct {
		name    string
		arrival uint64
		panes   []*state.Pane
		server  int
		shared  bool
	}{
		{"arrived before it began", before, panes, 0, true},
		{"arrived after it began", table.arrival(), panes, 0, false},
		{"other panes", before, slices.Clone(panes), 0, false},
		{"another server", before, panes, 1, false},
	} {
		table.last = other
		got, _ := table.read(tt.arrival, tt.panes, tt.server, controlmode.Version{})
		if shared := got[0].Command == "other"; shared != tt.shared {
			t.Errorf("%s: shared %v, want %v", tt.name, shared, tt.shared)
		}
	}
}
