package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// scenario is one file of recorded calls: how to set up tmux, and what each call
// was answered.
type scenario struct {
	Name         string             `json:"name"`
	Description  string             `json:"description"`
	TmuxConf     []string           `json:"tmux_conf"`
	TmuxCommands [][]string         `json:"tmux_commands"`
	Env          map[string]*string `json:"env"` // of the MCP server; null unsets

	// NoDACOverride: the server must not have root's right to read everything.
	NoDACOverride bool `json:"no_dac_override"`

	// Startup, if it says so, wants a server that ends without an answer.
	Startup struct {
		Fails          bool     `json:"fails"`
		StderrContains []string `json:"stderr_contains"`
	} `json:"startup"`

	Calls []recordedCall `json:"calls"`
}

// recordedCall is one request and the outcome that was recorded for it: exactly
// one of Result, Error and RPCError.
type recordedCall struct {
	Tool      json.RawMessage `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Method    string          `json:"method"` // another method than tools/call
	Params    json.RawMessage `json:"params"`
	Pick      []string        `json:"pick"`   // of tools/list: these tools …
	Fields    []string        `json:"fields"` // … and these keys of each
	Before    [][]string      `json:"before"` // what is done to tmux first

	Result json.RawMessage `json:"result"`
	Error  *struct {
		Text    string          `json:"text"`
		Meta    json.RawMessage `json:"meta"`
		Phrases []string        `json:"phrases"`
	} `json:"error"`
	RPCError *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"rpc_error"`

	// Remarks of the recording; they change nothing.
	Nested       any `json:"nested"`
	Questionable any `json:"questionable"`
}

// loadScenarios reads all scenario files. A key that this runner does not know is
// an error: it might be a directive.
func loadScenarios(t testing.TB) []*scenario {
	t.Helper()
	paths, err := filepath.Glob("testdata/vectors/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	var all []*scenario
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s := &scenario{}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(s); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, s)
	}
	return all
}

// stage is a scenario being played: its tmux servers, its clients, and the
// translation between the recording's placeholders and what is real here.
type stage struct {
	t        testing.TB
	home     *tmuxHome
	hostname string
	names    map[string]string // SOCK, SOCK2, SOCK3 → tmux -L name
	clients  map[string]interface{ close() }
}

func newStage(t testing.TB, sc *scenario) *stage {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	st := &stage{t: t, home: newTmuxHome(t), hostname: host, clients: map[string]interface{ close() }{}}
	// The names are translated back wherever they appear in an answer, so they must
	// not be a part of anything else: the temporary directory makes them unique.
	unique := strings.NewReplacer("-", "", "_", "").Replace(filepath.Base(st.home.dir))
	st.names = map[string]string{"SOCK": "vec" + unique + "a", "SOCK2": "vec" + unique + "b", "SOCK3": "vec" + unique + "c"}
	lines := []string{"set -g default-shell /bin/sh", "set -g automatic-rename off", "set -g status off"}
	for _, line := range sc.TmuxConf {
		lines = append(lines, st.expand(line))
	}
	st.home.setConf(lines...)
	return st
}

// main is the server that plain commands and formats are for.
func (st *stage) main() *tmuxServer { return st.home.server(st.names["SOCK"]) }

// placeholder is ${NAME} or ${FMT:target:format name}.
var placeholder = regexp.MustCompile(`\$\{([A-Z0-9_]+(?::[^}]*)?)\}`)

// expand puts the real values into a text.
func (st *stage) expand(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(match string) string {
		key := match[2 : len(match)-1]
		if name, ok := st.names[key]; ok {
			return name
		}
		if name, ok := st.names[strings.TrimSuffix(key, "_PATH")]; ok {
			return st.home.socketPath(name)
		}
		if spec, ok := strings.CutPrefix(key, "FMT:"); ok {
			target, name, _ := strings.Cut(spec, ":")
			return st.main().format(target, "#{"+name+"}")
		}
		switch key {
		case "TMP":
			return st.home.dir
		case "TMUX_TMPDIR":
			return st.home.tmpdir
		case "UID":
			return strconv.Itoa(os.Getuid())
		case "HOSTNAME":
			return st.hostname
		case "SERVER_PID":
			return strconv.Itoa(st.main().pid())
		}
		return match
	})
}

// expandJSON is expand for encoded JSON. It works on the text, because the order
// of the filters in an object is part of a call and a decoded map would lose it.
func (st *stage) expandJSON(raw json.RawMessage) json.RawMessage {
	return placeholder.ReplaceAllFunc(raw, func(match []byte) []byte {
		quoted, err := json.Marshal(st.expand(string(match)))
		if err != nil {
			st.t.Fatal(err)
		}
		return quoted[1 : len(quoted)-1]
	})
}

// run plays tmux commands and directives.
func (st *stage) run(commands [][]string) error {
	spawned := false
	for _, given := range commands {
		argv := make([]string, len(given))
		for i, a := range given {
			argv[i] = st.expand(a)
		}
		spawned = spawned || !strings.HasPrefix(argv[0], "@") || argv[0] == "@tmux"
		if err := st.step(argv); err != nil {
			return fmt.Errorf("%q: %w", argv, err)
		}
	}
	if spawned {
		return st.home.settle()
	}
	return nil
}

func (st *stage) step(argv []string) error {
	directive, args := argv[0], argv[1:]
	if !strings.HasPrefix(directive, "@") {
		_, err := st.main().try(argv...)
		return err
	}
	switch directive {
	case "@tmux":
		_, err := st.home.server(args[0]).try(args[1:]...)
		return err
	case "@try":
		_, _ = st.main().try(args...) // may fail: that is its meaning
		return nil
	case "@mkdir":
		return os.MkdirAll(args[0], 0o755)
	case "@rmdir", "@unlink":
		return os.Remove(args[0])
	case "@symlink":
		return os.Symlink(args[0], args[1])
	case "@write":
		return os.WriteFile(args[0], []byte(args[1]), 0o644)
	case "@chmod":
		mode, err := strconv.ParseUint(args[1], 8, 12)
		if err != nil {
			return err
		}
		return os.Chmod(args[0], os.FileMode(mode))
	case "@stale":
		return leaveStaleSocket(args[0])
	case "@attach":
		width, height, _ := strings.Cut(args[1], "x")
		w, err := strconv.Atoi(width)
		if err != nil {
			return err
		}
		h, err := strconv.Atoi(height)
		if err != nil {
			return err
		}
		term, err := openTerminal(st.t, st.main(), w, h, args[2:]...)
		st.clients[args[0]] = term
		return err
	case "@control":
		c, err := openControlClient(st.t, st.main(), args[1:]...)
		st.clients[args[0]] = c
		return err
	case "@detach":
		st.clients[args[0]].close()
		return nil
	case "@wait":
		saw, ok := holdsWithin(10*time.Second, func() (bool, string) {
			got := st.main().format(args[0], args[1])
			return got == args[2], got
		})
		if !ok {
			return fmt.Errorf("it is %q", saw)
		}
		return nil
	case "@kill9":
		return killServer(st.home.server(args[0]))
	case "@sleep":
		seconds, err := strconv.ParseFloat(args[0], 64)
		time.Sleep(time.Duration(seconds * float64(time.Second))) // as recorded: the passing of time is what is tested
		return err
	}
	return fmt.Errorf("unknown directive")
}

// leaveStaleSocket makes a socket file that nobody listens on.
func leaveStaleSocket(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	ln.SetUnlinkOnClose(false)
	return ln.Close()
}

// killServer ends a tmux server so that its socket file stays.
func killServer(s *tmuxServer) error {
	pid := s.pid()
	if pid == 0 {
		return fmt.Errorf("no server on %s", s.name)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	if _, ok := holdsWithin(10*time.Second, func() (bool, string) { return !alive(pid) || !s.owns(pid), "" }); !ok {
		return fmt.Errorf("pid %d survived SIGKILL", pid)
	}
	return nil
}

// normalText is the inverse of expand: it makes a text independent of where and
// when it was produced, as the recorded texts are.
func (st *stage) normalText(text string) string {
	var pairs []string
	for _, key := range []string{"SOCK", "SOCK2", "SOCK3"} {
		pairs = append(pairs, st.home.socketPath(st.names[key]), "<"+strings.ToLower(key)+"_path>")
	}
	pairs = append(pairs,
		filepath.Dir(st.home.socketPath("")+"x"), "<tmux_tmpdir>/tmux-<uid>",
		st.home.tmpdir, "<tmux_tmpdir>",
		st.home.dir, "<tmp>")
	for _, key := range []string{"SOCK", "SOCK2", "SOCK3"} {
		pairs = append(pairs, st.names[key], "<"+strings.ToLower(key)+">")
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// liveValue is a key of a row that differs from run to run. Its value is replaced
// by a mark if it is what tmux says at this moment for the thing with that id.
type liveValue struct {
	id, format string // the row's key for the thing, and the value's tmux format
	mark       string
}

var liveValues = map[string]liveValue{
	"pane_pid":        {"pane_id", "pane_pid", "<pid>"},
	"pane_tty":        {"pane_id", "pane_tty", "<tty>"},
	"session_created": {"session_id", "session_created", "<created>"},
}

// normalRows makes rows comparable with recorded ones.
func (st *stage) normalRows(rows []row) []row {
	if len(rows) == 0 {
		return rows
	}
	live := st.live()
	out := make([]row, len(rows))
	for i, r := range rows {
		out[i] = row{}
		for key, value := range r {
			out[i][key] = value
			text, ok := value.(string)
			if !ok {
				continue
			}
			spec, isLive := liveValues[key]
			id, _ := r[spec.id].(string)
			switch {
			case isLive && !live[key+" "+id+" "+text]:
				out[i][key] = "not what tmux says: " + text
			case isLive && text == "0": // a pane without a process
			case isLive:
				out[i][key] = spec.mark
			case key == "pane_title" && text == st.hostname:
				out[i][key] = "<hostname>"
			default:
				out[i][key] = st.normalText(text)
			}
		}
	}
	return out
}

// live is the set of "key id value" that hold on any server of the scenario. Ids
// of several servers are the same, so one id may have several values.
func (st *stage) live() map[string]bool {
	set := map[string]bool{}
	for _, s := range st.home.servers {
		out, _ := s.try("list-panes", "-a", "-F", joinFormats("pane_id", "pane_pid", "pane_tty", "session_id", "session_created"))
		for _, v := range splitRows(out) {
			set["pane_pid "+v[0]+" "+v[1]] = true
			set["pane_tty "+v[0]+" "+v[2]] = true
			set["session_created "+v[3]+" "+v[4]] = true
		}
	}
	return set
}
