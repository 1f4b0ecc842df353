package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// habits are what hosts do with arguments, beside the plain way to say the same.
var habits = []struct {
	name, tool   string
	habit, plain string // params, without the name
}{
	{"filters as JSON text", "list_panes", `"arguments":{"filters":"{\"pane_active\":\"1\"}"}`, `"arguments":{"filters":{"pane_active":"1"}}`},
	{"filters as JSON text", "list_sessions", `"arguments":{"filters":" {\"session_name__contains\": \"a\"} "}`, `"arguments":{"filters":{"session_name__contains":"a"}}`},
	{"numbers for text", "list_panes", `"arguments":{"session_name":"main","window_index":1}`, `"arguments":{"session_name":"main","window_index":"1"}`},
	{"numbers in filters", "list_panes", `"arguments":{"filters":{"pane_index":1,"pane_width":200}}`, `"arguments":{"filters":{"pane_index":"1","pane_width":"200"}}`},
	{"text for numbers in filters", "list_sessions", `"arguments":{"filters":{"window_count":"2"}}`, `"arguments":{"filters":{"window_count":2}}`},
	{"null for every argument", "list_panes", `"arguments":{"socket_name":null,"session_name":null,"session_id":null,"window_id":null,"window_index":null,"filters":null}`, `"arguments":{}`},
	{"null for every argument", "list_sessions", `"arguments":{"socket_name":null,"filters":null}`, `"arguments":{}`},
	{"no filters", "list_panes", `"arguments":{"filters":{}}`, `"arguments":{}`},
	{"no arguments", "list_panes", ``, `"arguments":{}`},
	{"no arguments", "list_sessions", ``, `"arguments":{}`},
	{"null arguments", "list_panes", `"arguments":null`, `"arguments":{}`},
	{"a progress token", "list_panes", `"arguments":{},"_meta":{"progressToken":"t"}`, `"arguments":{}`},
}

func TestHostHabits(t *testing.T) {
	inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
		s := newTmuxServer(t)
		s.newSession("bare")
		s.run("new-window", "-d", "-t", "main:1", "sleep", "9000")
		s.run("split-window", "-d", "-t", "main:1", "sleep", "9000")
		if err := s.home.settle(); err != nil {
			t.Fatal(err)
		}
		h := open(s.home, launch{})
		for _, tt := range habits {
			var results [2]string
			for i, params := range []string{tt.habit, tt.plain} {
				if params != "" {
					params = "," + params
				}
				raw, err := h.result("tools/call", json.RawMessage(`{"name":"`+tt.tool+`"`+params+`}`))
				if err != nil {
					t.Fatalf("%s, %s: %v", tt.name, tt.tool, err)
				}
				results[i] = string(raw)
			}
			if results[0] != results[1] || !strings.Contains(results[0], `"isError":false`) || strings.Contains(results[0], `"result":[]`) {
				t.Errorf("%s, %s: %.300s\nwant %.300s", tt.name, tt.tool, results[0], results[1])
			}
		}
	})
}

// TestSchemasAreForEveryHost: no construct that a host is known to refuse.
func TestSchemasAreForEveryHost(t *testing.T) {
	h := startHost(t, newTmuxHome(t), launch{flags: []string{"--embedded"}})
	raw, err := h.result("tools/list", nil)
	if err != nil {
		t.Fatal(err)
	}
	var list any
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				if key == "type" {
					if _, isText := value.(string); !isText {
						t.Errorf("%s.type is %v: Gemini wants one type", path, value)
					}
				}
				if strings.HasPrefix(key, "$") {
					t.Errorf("%s.%s: VS Code refuses references", path, key)
				}
				walk(path+"."+key, value)
			}
		case []any:
			for i, value := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), value)
			}
		}
	}
	walk("", list)
}

// TestHostWithoutEnvironment: a host of a desktop hands on next to nothing. The
// product finds tmux, its socket and the caller's server all the same.
func TestHostWithoutEnvironment(t *testing.T) {
	usual := []string{"/usr/local/bin/tmux", "/opt/homebrew/bin/tmux", "/opt/local/bin/tmux", "/usr/bin/tmux", "/bin/tmux"}
	i := slices.IndexFunc(usual, func(path string) bool { _, err := os.Stat(path); return err == nil })
	if i < 0 || usual[i] != requireTmux(t) {
		t.Skip("the tmux under test is not where one is looked for first")
	}
	for _, mode := range []string{"embedded", "bridged"} {
		for _, env := range []struct {
			name string
			vars []string
		}{{"nothing", nil}, {"launchd's", []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin"}}, {"no locale", []string{"HOME=/nonexistent", "LC_ALL=C"}}} {
			t.Run(mode+"/"+env.name, func(t *testing.T) {
				t.Parallel()
				s := newTmuxServer(t)
				s.run("select-pane", "-t", "main", "-T", "⠋ wörk")
				vars := append(slices.Clone(env.vars), "TMUX_TMPDIR="+s.home.tmpdir)
				argv := []string{requireProduct(t), "stdio", "--embedded"}
				if mode == "bridged" {
					dir, err := os.MkdirTemp(s.home.dir, "d")
					if err != nil {
						t.Fatal(err)
					}
					socket := filepath.Join(dir, "s")
					p := startProcess(t, []string{requireProduct(t), "serve", "--socket", socket}, vars, s.home.dir)
					eventually(t, "the daemon listens", callWithin, func() (bool, string) {
						_, err := os.Stat(socket)
						return err == nil, p.stderr.String()
					})
					argv = []string{requireProduct(t), "stdio", "--socket", socket}
				}
				p := startProcess(t, argv, vars, s.home.dir)
				c := newMCPClient(t, p)
				if err := c.initialize(); err != nil {
					t.Fatalf("%v; stderr: %s", err, p.stderr)
				}
				guest{client: c}.poll(t, s, 2)
				if text := p.stderr.String(); text != "" {
					t.Errorf("stderr: %s", text)
				}
			})
		}
	}
}

// TestVersionSkew: a bridge and a daemon of two versions work together, and the
// bridge says so, once, also when the daemon is started anew.
func TestVersionSkew(t *testing.T) {
	old := filepath.Join(t.TempDir(), "tmux-mcpd")
	if err := build(old, "0.0.1-old"); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(t.TempDir(), "tmux-mcpd")
	if err := build(newer, "0.0.2-new"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, daemon, bridge, daemonVersion, bridgeVersion string }{
		{"old daemon", old, newer, "0.0.1-old", "0.0.2-new"},
		{"old bridge", newer, old, "0.0.2-new", "0.0.1-old"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newTmuxServer(t)
			dir, err := os.MkdirTemp(s.home.dir, "d")
			if err != nil {
				t.Fatal(err)
			}
			socket := filepath.Join(dir, "s")
			d := startDaemonAt(t, s.home, socket, []string{tt.daemon}, nil)
			p := startProcess(t, []string{tt.bridge, "stdio", "--socket", socket}, s.home.clientEnviron(), s.home.dir)
			c := newMCPClient(t, p)
			if err := c.initialize(); err != nil {
				t.Fatal(err)
			}
			guest{client: c}.poll(t, s, 2)
			d.crash()
			startDaemonAt(t, s.home, socket, []string{tt.daemon}, nil)
			guest{client: c}.poll(t, s, 2)
			raw, err := c.result("tmux-mcpd/status", nil)
			if err != nil {
				t.Fatal(err)
			}
			mustHold(t, string(raw), `"version":"`+tt.daemonVersion+`"`, `"bridge":"`+tt.bridgeVersion+`"`)
			text := p.stderr.String()
			if strings.Count(text, "another version") != 1 {
				t.Errorf("stderr: %s", text)
			}
			mustHold(t, text, tt.daemonVersion, tt.bridgeVersion)
		})
	}
}

// TestStdoutIsForJSON: whatever happens, and however little it is about MCP.
func TestStdoutIsForJSON(t *testing.T) {
	home := newTmuxHome(t)
	session := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n" + pingFrame
	file := filepath.Join(home.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		flags []string
		env   []string
		input string
		lines int
		code  string // "" for success
	}{
		{"embedded", []string{"--embedded"}, nil, session, 2, ""},
		{"no daemon", []string{"--socket", filepath.Join(home.dir, "none")}, nil, session, 2, ""},
		{"no socket at all", []string{"--socket", file}, nil, session, 2, ""},
		{"no tmux", []string{"--embedded", "--tmux", "/nonexistent/tmux"}, nil, session, 2, ""},
		{"nothing to do", []string{"--embedded"}, nil, "", 0, ""},
		{"nothing to do, no daemon", []string{"--socket", filepath.Join(home.dir, "none")}, nil, "", 0, ""},
		{"garbage", []string{"--embedded"}, nil, "hello\n", 1, ""},
		{"wrong flag", []string{"--nope"}, nil, session, 0, "exit status 2"},
		{"wrong argument", []string{"nope"}, nil, session, 0, "exit status 2"},
	} {
		argv := append([]string{requireProduct(t), "stdio"}, tt.flags...)
		out, errs, err := command(argv, home.clientEnviron(tt.env...), home.dir, strings.NewReader(tt.input), callWithin)
		if code := errorText(err); code != tt.code {
			t.Errorf("%s: ended with %q, want %q; stderr: %s", tt.name, code, tt.code, errs)
		}
		lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		if len(out) == 0 {
			lines = nil
		}
		for _, line := range lines {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s: stdout has %q", tt.name, line)
			}
		}
		if len(lines) != tt.lines {
			t.Errorf("%s: %d lines, want %d: %s", tt.name, len(lines), tt.lines, out)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestBridgesComeAndGo: many hosts at once share one client of tmux; a host that
// goes, by whichever way, takes its bridge with it, and leaves nothing behind.
func TestBridgesComeAndGo(t *testing.T) {
	const hosts, calls = 20, 10
	s := newTmuxServer(t)
	d := startDaemon(t, s.home, nil)
	first := d.host(t, launch{})
	guest{client: first.mcpClient}.poll(t, s, 1)
	s.waitGuests(1, 10*time.Second)
	base := d.fds("")
	want := s.panes()
	var all []host
	for range hosts {
		all = append(all, d.host(t, launch{}))
	}
	var asking errgroup.Group
	for _, h := range all {
		asking.Go(func() error {
			for range calls {
				rows, err := h.list("list_panes", nil)
				if err != nil {
					return err
				}
				if diff := diffRows(want, withoutCaller(rows)); diff != "" {
					return fmt.Errorf("%s", diff)
				}
			}
			return nil
		})
	}
	if err := asking.Wait(); err != nil {
		t.Error(err)
	}
	if guests := s.guests(); len(guests) != 1 {
		t.Errorf("%d clients of ours are in tmux: %v", len(guests), guests)
	}
	for i, h := range all {
		switch i % 3 {
		case 0: // closes its server's stdin
			h.close()
		case 1: // does not read any more, and says something
			h.process.stdout.Close()
			_ = h.send([]byte(strings.TrimSpace(pingFrame)))
		case 2:
			h.process.kill()
		}
	}
	for i, h := range all {
		if !h.process.waitExit(stopWithin) {
			t.Errorf("the bridge of host %d does not end", i)
		}
	}
	eventually(t, "the daemon has its descriptors back", 10*time.Second, func() (bool, string) {
		n := d.fds("")
		return n <= base, fmt.Sprintf("%d, %d before", n, base)
	})
	guest{client: first.mcpClient}.poll(t, s, 1)
}

// TestHandshakeWithoutTmux: a host waits a few seconds for initialize, so it must
// not wait for tmux.
func TestHandshakeWithoutTmux(t *testing.T) {
	inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
		s := newTmuxServer(t)
		resume := stopProcess(t, s.pid())
		h := open(s.home, launch{}) // initializes
		if _, err := h.result("tools/list", nil); err != nil {
			t.Fatal(err)
		}
		resume()
		guest{client: h.mcpClient}.poll(t, s, 1)
	})
}
