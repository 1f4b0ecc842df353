package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tmuxHome is a directory with everything some private tmux servers need: their
// sockets, configuration, environment, and the working directory of their panes.
type tmuxHome struct {
	t         testing.TB
	tmux      string
	guestTmux string // the tmux that tmux-mcpd is told to use
	dir       string // real path, short: a socket path may have 104 bytes
	tmpdir    string // TMUX_TMPDIR
	conf      string
	servers   []*tmuxServer
}

// newTmuxHome makes an empty home. conf are lines of tmux.conf; with none tmux
// runs on its defaults.
func newTmuxHome(t testing.TB, conf ...string) *tmuxHome {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tm-")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // /tmp is a link on macOS
		t.Fatal(err)
	}
	tmux := requireTmux(t)
	h := &tmuxHome{t: t, tmux: tmux, guestTmux: tmux, dir: dir, tmpdir: filepath.Join(dir, ".t"), conf: "/dev/null"}
	t.Cleanup(func() {
		for _, s := range h.servers {
			s.stop()
		}
		if err := os.RemoveAll(h.dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(h.tmpdir, 0o755); err != nil {
		t.Fatal(err)
	}
	if len(conf) > 0 {
		h.setConf(conf...)
	}
	return h
}

// setConf writes the configuration that servers started from now on read.
func (h *tmuxHome) setConf(lines ...string) {
	h.t.Helper()
	h.conf = filepath.Join(h.dir, ".tmux.conf")
	if err := os.WriteFile(h.conf, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// environ is the environment of tmux itself, servers and clients.
func (h *tmuxHome) environ() []string {
	return append(scrubbed("TMUX", "LIBTMUX", "LC_ALL"),
		"TMUX_TMPDIR="+h.tmpdir, "SHELL=/bin/sh", "LANG=C.UTF-8", "TERM=xterm-256color", "HOME="+h.dir, "PS1=$ ", "ENV=")
}

// clientEnviron is the environment of an MCP client's server process. extra are
// NAME=value pairs; a bare NAME unsets the variable.
func (h *tmuxHome) clientEnviron(extra ...string) []string {
	env := append(scrubbed("TMUX", "LIBTMUX", "LC_"),
		"TMUX_TMPDIR="+h.tmpdir, "TMPDIR="+h.dir, "LANG=C.UTF-8", "SHELL=/bin/sh", "TMUX_MCPD_TMUX="+h.guestTmux)
	for _, e := range extra {
		name, _, set := strings.Cut(e, "=")
		env = slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") })
		if set {
			env = append(env, e)
		}
	}
	return env
}

// scrubbed is this process's environment without the variables whose names start so.
func scrubbed(prefixes ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(e, p) })
	})
}

// server names a server of this home. Nothing is started: tmux does that with
// the first command that may (new-session).
func (h *tmuxHome) server(name string) *tmuxServer {
	for _, s := range h.servers {
		if s.name == name {
			return s
		}
	}
	s := &tmuxServer{home: h, name: name, socket: h.socketPath(name)}
	h.servers = append(h.servers, s)
	return s
}

// socketPath is where tmux -L name would put its socket.
func (h *tmuxHome) socketPath(name string) string {
	return filepath.Join(h.tmpdir, "tmux-"+strconv.Itoa(os.Getuid()), name)
}

// settle waits until every pane's program runs. Between fork and exec a pane shows
// as a copy of tmux itself. A moment earlier, before the child has made the
// terminal its own, tmux gives the start command and no path: that state looks
// settled by its command alone. tmux expands the two in the order asked for, so the
// path comes first: with a path, the command after it is that of the process.
func (h *tmuxHome) settle() error {
	saw, ok := holdsWithin(10*time.Second, func() (bool, string) {
		for _, s := range h.servers {
			out, _ := s.try("list-panes", "-a", "-F", joinFormats("pane_dead", "pane_pid", "pane_current_path", "pane_current_command"))
			for _, v := range splitRows(out) { // no server: nothing to settle
				dead, pid, path, name := v[0], v[1], v[2], v[3]
				if dead == "1" || pid == "0" { // has no program
					continue
				}
				if name == "tmux" || strings.HasPrefix(name, "tmux:") || path == "" {
					return false, s.name + ": " + strings.Join(v, " ")
				}
			}
		}
		return true, ""
	})
	if !ok {
		return fmt.Errorf("panes did not settle: %s", saw)
	}
	return nil
}

// tmuxServer is one private tmux server, addressed by its socket path.
type tmuxServer struct {
	home   *tmuxHome
	name   string
	socket string
	pids   []int // every server process seen, a restarted one adds another
}

// newTmuxServer makes a home and starts its default server with one session
// "main" of one pane, 200x50, that runs sleep.
func newTmuxServer(t testing.TB, conf ...string) *tmuxServer {
	t.Helper()
	s := newTmuxHome(t, conf...).server("default")
	s.newSession("main")
	s.pid()
	return s
}

// newSession makes a detached session whose only pane runs sleep.
func (s *tmuxServer) newSession(name string) {
	s.home.t.Helper()
	s.run("new-session", "-d", "-s", name, "-x", "200", "-y", "50", "-c", s.home.dir, "sleep", "9000")
	if err := s.home.settle(); err != nil {
		s.home.t.Fatal(err)
	}
}

// argv is a tmux command line for this server.
func (s *tmuxServer) argv(args ...string) []string {
	return append([]string{s.home.tmux, "-S", s.socket, "-f", s.home.conf}, args...)
}

// try runs one tmux command. It may be called from any goroutine.
func (s *tmuxServer) try(args ...string) (string, error) {
	// tmux -L makes this directory, -S does not.
	if err := os.MkdirAll(filepath.Dir(s.socket), 0o700); err != nil {
		return "", err
	}
	out, errs, err := command(s.argv(args...), s.home.environ(), s.home.dir, nil, 20*time.Second)
	if err != nil {
		err = fmt.Errorf("tmux %q: %w: %s", args, err, strings.TrimSpace(string(errs)))
	}
	return string(out), err
}

// run is try for commands that must succeed.
func (s *tmuxServer) run(args ...string) string {
	s.home.t.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.home.t.Fatal(err)
	}
	return out
}

// format expands a tmux format, "" if that cannot be done. target may be "".
func (s *tmuxServer) format(target, format string) string {
	args := []string{"display-message", "-p"}
	if target != "" {
		args = append(args, "-t", target)
	}
	out, _ := s.try(append(args, format)...) // a server that is gone has no values
	return strings.TrimRight(out, "\n")
}

// wait waits until a format has the wanted value.
func (s *tmuxServer) wait(target, format, want string, within time.Duration) {
	s.home.t.Helper()
	eventually(s.home.t, fmt.Sprintf("%s of %q is %q", format, target, want), within, func() (bool, string) {
		got := s.format(target, format)
		return got == want, got
	})
}

// pid is the process id of the running server, 0 if none answers.
func (s *tmuxServer) pid() int {
	pid, err := strconv.Atoi(s.format("", "#{pid}"))
	if err != nil {
		return 0
	}
	if !slices.Contains(s.pids, pid) {
		s.pids = append(s.pids, pid)
	}
	return pid
}

// stop ends the server and makes sure that it is gone.
func (s *tmuxServer) stop() {
	s.home.t.Helper()
	if _, err := os.Lstat(s.socket); err == nil {
		_ = os.Chmod(s.socket, 0o700) // a test may have taken the rights away
		s.pid()
		_, _ = s.try("kill-server") // it may have ended already
	}
	for _, pid := range s.pids {
		gone := func() (bool, string) { return !alive(pid) || !s.owns(pid), "alive" }
		if _, ok := holdsWithin(5*time.Second, gone); ok {
			continue
		}
		s.home.t.Errorf("tmux server %s (pid %d) outlived kill-server", s.name, pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// owns tells this server's process from a stranger that got its old pid.
func (s *tmuxServer) owns(pid int) bool {
	out, err := exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), s.socket)
}

// tmuxClient is one row of list-clients.
type tmuxClient struct {
	name, session, termname, tty, size string
	pid                                int
}

// clients lists the attached clients, of every kind.
func (s *tmuxServer) clients() ([]tmuxClient, error) {
	out, err := s.try("list-clients", "-F", joinFormats(
		"client_name", "client_session", "client_termname", "client_tty", "client_width", "client_height", "client_pid"))
	if err != nil {
		return nil, err
	}
	var clients []tmuxClient
	for _, f := range splitRows(out) {
		pid, _ := strconv.Atoi(f[6])
		clients = append(clients, tmuxClient{f[0], f[1], f[2], f[3], f[4] + "x" + f[5], pid})
	}
	return clients, nil
}

// productTermname is how clients of tmux-mcpd show themselves.
const productTermname = "tmux-mcpd"

// guests lists the clients that belong to tmux-mcpd.
func (s *tmuxServer) guests() []tmuxClient {
	clients, _ := s.clients() // no server: no clients
	return slices.DeleteFunc(clients, func(c tmuxClient) bool { return c.termname != productTermname })
}

// waitGuests waits until exactly n clients of tmux-mcpd are attached.
func (s *tmuxServer) waitGuests(n int, within time.Duration) {
	s.home.t.Helper()
	eventually(s.home.t, fmt.Sprintf("%d clients of tmux-mcpd attached", n), within, func() (bool, string) {
		guests := s.guests()
		return len(guests) == n, fmt.Sprint(guests)
	})
}

// row is one answer row as decoded JSON: strings, json.Number, bool, nil.
type row = map[string]any

type valueKind int

const (
	textValue valueKind = iota
	numberValue
	flagValue
)

// outputField says how one key of a row is read from tmux.
type outputField struct {
	key, format string
	kind        valueKind
}

// paneFields are the keys of a list_panes row that are tmux's; is_caller depends
// on who asks.
var paneFields = []outputField{
	{"pane_id", "pane_id", textValue}, {"pane_index", "pane_index", textValue},
	{"pane_width", "pane_width", textValue}, {"pane_height", "pane_height", textValue},
	{"pane_left", "pane_left", numberValue}, {"pane_top", "pane_top", numberValue},
	{"pane_right", "pane_right", numberValue}, {"pane_bottom", "pane_bottom", numberValue},
	{"pane_at_left", "pane_at_left", flagValue}, {"pane_at_right", "pane_at_right", flagValue},
	{"pane_at_top", "pane_at_top", flagValue}, {"pane_at_bottom", "pane_at_bottom", flagValue},
	{"pane_tty", "pane_tty", textValue}, {"pane_current_command", "pane_current_command", textValue},
	{"pane_current_path", "pane_current_path", textValue}, {"pane_pid", "pane_pid", textValue},
	{"pane_title", "pane_title", textValue}, {"pane_active", "pane_active", textValue},
	{"window_id", "window_id", textValue}, {"session_id", "session_id", textValue},
}

// sessionFields are the keys of a list_sessions row.
var sessionFields = []outputField{
	{"session_id", "session_id", textValue}, {"session_name", "session_name", textValue},
	{"window_count", "session_windows", numberValue}, {"session_attached", "session_attached", textValue},
	{"session_created", "session_created", textValue}, {"active_pane_id", "pane_id", textValue},
}

// panes is what list_panes must answer for the whole server, is_caller left out.
func (s *tmuxServer) panes() []row {
	s.home.t.Helper()
	state, err := s.read()
	if err != nil {
		s.home.t.Fatal(err)
	}
	return state.panes
}

// sessions is what list_sessions must answer.
func (s *tmuxServer) sessions() []row {
	s.home.t.Helper()
	state, err := s.read()
	if err != nil {
		s.home.t.Fatal(err)
	}
	return state.sessions
}

// serverState is what both tools must answer, read from tmux itself.
type serverState struct{ panes, sessions []row }

// read asks tmux for everything by one command line, so that both lists are of
// the same moment.
func (s *tmuxServer) read() (serverState, error) {
	out, err := s.try(
		"list-panes", "-a", "-F", "P"+joinFields(paneFields), ";",
		"list-sessions", "-F", "S"+joinFields(sessionFields), ";",
		"list-clients", "-F", "C"+joinFormats("session_id", "client_termname"))
	if err != nil {
		return serverState{}, err
	}
	var state serverState
	ours := map[string]int{}
	for _, values := range splitRows(out) {
		kind := values[0][0]
		values[0] = values[0][1:]
		switch kind {
		case 'P':
			state.panes = append(state.panes, makeRow(paneFields, values))
		case 'S':
			state.sessions = append(state.sessions, makeRow(sessionFields, values))
		case 'C':
			if values[1] == productTermname {
				ours[values[0]]++
			}
		}
	}
	for _, r := range state.sessions {
		attached, err := strconv.Atoi(r["session_attached"].(string))
		if err != nil {
			return serverState{}, err
		}
		r["session_attached"] = strconv.Itoa(attached - ours[r["session_id"].(string)])
	}
	return state, nil
}

// Marks that no value of these tests holds. tmux 3.4 to 3.5 print control
// characters as octal text, so they must be printable.
const (
	valueMark = "<|>"
	rowMark   = "<||>"
)

func joinFields(fields []outputField) string {
	var formats []string
	for _, f := range fields {
		formats = append(formats, f.format)
	}
	return joinFormats(formats...)
}

func joinFormats(names ...string) string {
	return "#{" + strings.Join(names, "}"+valueMark+"#{") + "}" + rowMark
}

func splitRows(out string) [][]string {
	var rows [][]string
	for _, text := range strings.Split(out, rowMark+"\n") {
		if text != "" {
			rows = append(rows, strings.Split(text, valueMark))
		}
	}
	return rows
}

func makeRow(fields []outputField, values []string) row {
	r := row{}
	for i, f := range fields {
		switch {
		case values[i] == "":
			r[f.key] = nil
		case f.kind == numberValue:
			r[f.key] = json.Number(values[i])
		case f.kind == flagValue:
			r[f.key] = values[i] == "1"
		default:
			r[f.key] = values[i]
		}
	}
	return r
}
