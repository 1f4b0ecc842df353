package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKnownBugs does again what went wrong for other programs of this field, by
// the ids under which it was noted down. Those that have tests of their own
// elsewhere are not here.
func TestKnownBugs(t *testing.T) {
	for _, tt := range []struct {
		name string
		test func(t *testing.T, open func(*tmuxHome, launch) host)
	}{
		{"B003_broken_configuration", testBrokenConfiguration},
		{"B005_output_that_is_no_text", testOutputThatIsNoText},
		{"B006_flood", testFlood},
		{"B014_paste_buffer", testPasteBuffer},
		{"B018_B037_command_lines", testCommandLines},
		{"B019_names_with_dots", testNamesWithDots},
		{"B034_B035_B042_B043_exact_targets", testExactTargets},
		{"B039_B041_session_scope", testSessionScope},
		{"B045_socket_removed", testSocketRemoved},
		{"B046_sessions_of_a_moment", testSessionsOfAMoment},
		{"B047_tmux_starts_later", testTmuxStartsLater},
		{"B050_names_with_bars", testNamesWithBars},
		{"B062_active_panes", testActivePanes},
		{"B094_B097_plain_schemas", testPlainSchemas},
		{"B098_B099_both_forms", testBothForms},
		{"B105_size", testSize},
	} {
		t.Run(tt.name, func(t *testing.T) { inModes(t, tt.test) })
	}
}

func testBrokenConfiguration(t *testing.T, open func(*tmuxHome, launch) host) {
	home := newTmuxHome(t, "set", "no-such-command x", "set -g status off")
	s := home.server("default")
	s.newSession("main")
	s.pid()
	h := open(home, launch{})
	guest{client: h.mcpClient}.poll(t, s, 3)
	s.waitGuests(1, 5*time.Second)
	guest{client: h.mcpClient}.poll(t, s, 3)
}

func testOutputThatIsNoText(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	script := `printf '\377\376 \033]2;bad \377\376 title\007\033]2;good\007%%end 1 1 1\n\033k\377\033\\'; exec sleep 9000`
	s.run("split-window", "-d", "-t", "main", "sh", "-c", script)
	for i := range 12 { // a nested layout
		s.run("split-window", "-d", []string{"-h", "-v"}[i%2], "-t", "main", "sleep", "9000")
		s.run("select-layout", "-t", "main", "tiled")
	}
	s.wait("%1", "#{pane_title}", "good", 10*time.Second)
	if err := s.home.settle(); err != nil {
		t.Fatal(err)
	}
	h := open(s.home, launch{})
	guest{client: h.mcpClient}.poll(t, s, 3)
}

// Panes that print without end cost us nothing: we ask for no output, so tmux has
// nothing to throw us out for.
func testFlood(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	for range 2 {
		s.run("split-window", "-d", "-t", "main", "yes")
	}
	if err := s.home.settle(); err != nil {
		t.Fatal(err)
	}
	h := open(s.home, launch{})
	g := guest{client: h.mcpClient}
	g.poll(t, s, 1)
	s.waitGuests(1, 5*time.Second)
	first := s.guests()
	g.poll(t, s, 20)
	if now := s.guests(); !slices.Equal(now, first) {
		t.Errorf("the client was %v, is %v", first, now)
	}
}

func testPasteBuffer(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	h := open(s.home, launch{})
	g := guest{client: h.mcpClient}
	g.poll(t, s, 1)
	for _, text := range append([]string{"a|b\n%end 1 1 1"}, forgeries...) {
		s.run("set-buffer", "--", text)
		g.poll(t, s, 1)
	}
}

// Every command line is made in one place: with -u, which is not the locale's
// business, without starting a server, and with ids as the only targets.
func testCommandLines(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	s.newSession("$(touch x) `id` =a:b.c")
	lines := s.home.logCommands()
	h := open(s.home, launch{env: []string{"LC_ALL=C"}})
	g := guest{client: h.mcpClient}
	g.poll(t, s, 1)
	s.waitGuests(1, 5*time.Second)
	h.mustList(t, "list_panes", map[string]any{"session_name": s.sessions()[0]["session_name"], "filters": map[string]any{"@x__nin": "y"}})
	s.run("detach-client", "-a")
	g.poll(t, s, 2)
	target := regexp.MustCompile(`^\$[0-9]+$`)
	// The control client may reach the server by a relay's socket.
	want := "-u -N -S " + s.socket + " "
	relayed := regexp.MustCompile(`^-u -N -S ` + regexp.QuoteMeta(s.home.dir) + `/tmux-mcpd-[0-9]+/s -C attach-session -E `)
	attached := false
	for _, line := range lines() {
		if line == "-V" {
			continue
		}
		if !strings.HasPrefix(line, want) && !relayed.MatchString(line) {
			t.Errorf("%q does not begin with %q", line, want)
		}
		if _, after, found := strings.Cut(line, " -t "); found {
			id, _, _ := strings.Cut(after, " ")
			attached = attached || strings.Contains(line, "attach")
			if !target.MatchString(id) {
				t.Errorf("%q targets %q", line, id)
			}
		}
	}
	if !attached {
		t.Errorf("no attach in %q: the test shows nothing", lines())
	}
}

func testNamesWithDots(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	h := open(s.home, launch{})
	for _, name := range []string{"foo.bar", "a:b", "x.1", "0", "main:0.0"} {
		out, err := s.try("new-window", "-d", "-P", "-F", "#{window_id} #{pane_id}", "-t", "main:", "-n", name, "sleep", "9000")
		if err != nil {
			continue // this tmux takes no such name
		}
		window, pane, _ := strings.Cut(strings.TrimSpace(out), " ")
		shown := s.format(window, "#{window_name}")
		h.mustMatch(t, "list_panes", map[string]any{"window_name": shown}, pane)
		if got := rowIDs(h.mustList(t, "list_panes", map[string]any{"window_id": window})); !slices.Equal(got, []string{pane}) {
			t.Errorf("%q: window %s has %v, want %s", name, window, got, pane)
		}
	}
}

// Names are no patterns and no prefixes, and numbers may be names.
func testExactTargets(t *testing.T, open func(*tmuxHome, launch) host) {
	home := newTmuxHome(t)
	s := home.server("default")
	for _, args := range [][]string{{}, {}, {"-s", "abc"}, {"-s", "tab-10"}, {"-s", "*"}, {"-s", "[x]"}} {
		s.run(append([]string{"new-session", "-d", "-x", "80", "-y", "24"}, append(args, "sleep", "9000")...)...)
	}
	s.run("new-window", "-d", "-t", "$1:", "sleep", "9000") // the second window of the session named 1
	s.pid()
	if err := home.settle(); err != nil {
		t.Fatal(err)
	}
	h := open(home, launch{})
	for _, tt := range []struct {
		args map[string]any
		want []string // nil: not found
	}{
		{map[string]any{"session_name": "ab"}, nil},
		{map[string]any{"session_name": "tab-1"}, nil},
		{map[string]any{"session_name": "ab*"}, nil},
		{map[string]any{"session_name": "x"}, nil},
		{map[string]any{"session_name": "=abc"}, nil},
		{map[string]any{"session_name": "abc:"}, nil},
		{map[string]any{"session_name": "*"}, []string{"%4"}},
		{map[string]any{"session_name": "[x]"}, []string{"%5"}},
		{map[string]any{"session_name": "0"}, []string{"%0"}},
		{map[string]any{"session_name": "1"}, []string{"%1", "%6"}},
		{map[string]any{"session_name": "1", "window_index": "0"}, []string{"%1"}},
		{map[string]any{"session_name": "1", "window_index": "1"}, []string{"%6"}},
		{map[string]any{"session_name": "0", "window_index": "1"}, nil},
		{map[string]any{"window_id": "@6"}, []string{"%6"}},
		{map[string]any{"window_id": "@66"}, nil},
	} {
		if tt.want == nil {
			mustHold(t, h.mustRefuse(t, "list_panes", tt.args), "Object not found: ")
		} else if got := rowIDs(h.mustList(t, "list_panes", tt.args)); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.args, got, tt.want)
		}
	}
}

// A session has the panes of all its windows, and the rows say that session, not
// another one of its group.
func testSessionScope(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	for range 3 {
		s.run("new-window", "-d", "-t", "main:", "sleep", "9000")
	}
	s.run("new-session", "-d", "-t", "main", "-s", "main-2")
	newTerminal(t, s, 100, 30, "attach-session", "-t", "main-2")
	if err := s.home.settle(); err != nil {
		t.Fatal(err)
	}
	h := open(s.home, launch{})
	for name, id := range map[string]string{"main": "$0", "main-2": "$1"} {
		for _, args := range []map[string]any{{"session_name": name}, {"session_id": id}} {
			rows := h.mustList(t, "list_panes", args)
			if got := rowIDs(rows); !slices.Equal(got, []string{"%0", "%1", "%2", "%3"}) {
				t.Errorf("%v: %v", args, got)
			}
			for _, r := range rows {
				if r["session_id"] != id || r["pane_active"] != "1" {
					t.Errorf("%v: session %v, active %v", args, r["session_id"], r["pane_active"])
				}
			}
		}
	}
}

// A cleaner of /tmp removes the socket; tmux makes it again at SIGUSR1.
func testSocketRemoved(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	h := open(s.home, launch{})
	g := guest{client: h.mcpClient}
	g.poll(t, s, 1)
	s.waitGuests(1, 5*time.Second)
	if err := os.Remove(s.socket); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if rows := h.mustList(t, "list_sessions", nil); len(rows) != 1 || rows[0]["session_name"] != "main" {
			t.Errorf("without its socket: %v", rows)
		}
	}
	if err := syscall.Kill(s.pids[0], syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "tmux has made its socket again", 10*time.Second, func() (bool, string) {
		_, err := os.Stat(s.socket)
		return err == nil, fmt.Sprint(err)
	})
	g.poll(t, s, 3)
	guest{client: open(s.home, launch{}).mcpClient}.poll(t, s, 2)
}

func testSessionsOfAMoment(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	h := open(s.home, launch{})
	for range 15 {
		_, _ = s.try("new-session", "-d", "-s", "brief", "/nonexistent/command") // it is gone at once, or never was
		s.wait("", "#{S:#{session_name} }", "main ", 10*time.Second)
		if rows := h.mustList(t, "list_sessions", nil); len(rows) != 1 {
			t.Errorf("sessions are %v", rows)
		}
		mustHold(t, h.mustRefuse(t, "list_panes", map[string]any{"session_name": "brief"}), "Object not found")
	}
}

func testTmuxStartsLater(t *testing.T, open func(*tmuxHome, launch) host) {
	home := newTmuxHome(t)
	s := home.server("default")
	h := open(home, launch{})
	g := guest{client: h.mcpClient}
	g.mustBeAbsent(t, s.name)
	s.newSession("main")
	g.poll(t, s, 2)
	if err := killServer(s); err != nil {
		t.Fatal(err)
	}
	g.mustBeAbsent(t, s.name)
	s.newSession("again")
	g.poll(t, s, 2)
}

func testNamesWithBars(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	s.newSession("alpha|beta")
	newTerminal(t, s, 100, 30, "attach-session", "-t", "alpha|beta")
	h := open(s.home, launch{})
	rows := h.mustList(t, "list_sessions", map[string]any{"filters": map[string]any{"session_name": "alpha|beta"}})
	if len(rows) != 1 || rows[0]["session_attached"] != "1" || !regexp.MustCompile(`^[0-9]+$`).MatchString(fmt.Sprint(rows[0]["session_created"])) {
		t.Errorf("rows are %v", rows)
	}
	guest{client: h.mcpClient}.poll(t, s, 2)
}

func testActivePanes(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	s.run("split-window", "-d", "-t", "main", "sleep", "9000")      // %1, inactive
	s.run("new-window", "-d", "-t", "main:", "sleep", "9000")       // %2
	s.run("split-window", "-t", "main:1", "sleep", "9000")          // %3, active there
	s.run("new-window", "-d", "-t", "main:", "-k", "sleep", "9000") // %4
	if err := s.home.settle(); err != nil {
		t.Fatal(err)
	}
	h := open(s.home, launch{})
	for _, step := range []struct {
		command []string
		active  string
	}{
		{[]string{"select-window", "-t", "main:0"}, "%0"},
		{[]string{"select-pane", "-t", "%1"}, "%1"},
		{[]string{"select-window", "-t", "main:1"}, "%3"},
		{[]string{"select-pane", "-t", "%2"}, "%2"},
		{[]string{"select-window", "-t", "main:2"}, "%4"},
	} {
		s.run(step.command...)
		if rows := h.mustList(t, "list_sessions", nil); rows[0]["active_pane_id"] != step.active {
			t.Errorf("after %v active_pane_id is %v, want %s", step.command, rows[0]["active_pane_id"], step.active)
		}
		if got := h.mustList(t, "list_panes", map[string]any{"filters": map[string]any{"pane_active": "1"}}); len(got) != 3 {
			t.Errorf("after %v the windows' active panes are %v", step.command, rowIDs(got))
		}
	}
}

// Some hosts refuse a list of types and all that refers to elsewhere.
func testPlainSchemas(t *testing.T, open func(*tmuxHome, launch) host) {
	h := open(newTmuxHome(t), launch{})
	raw, err := h.result("tools/list", map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"$ref", "$dynamicRef", "$defs", "$schema"} {
		if bytes.Contains(raw, []byte(`"`+word+`"`)) {
			t.Errorf("tools/list has %s", word)
		}
	}
	var all any
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				if _, list := value.([]any); list && key == "type" {
					t.Errorf("%s.type is a list", path)
				}
				walk(path+"."+key, value)
			}
		case []any:
			for i, value := range v {
				walk(fmt.Sprint(path, "[", i, "]"), value)
			}
		}
	}
	walk("", all)
}

// What one form of an answer says, the other says too.
func testBothForms(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	s.run("select-pane", "-t", "main", "-T", `"quoted" \ ☃`)
	h := open(s.home, launch{})
	for _, tool := range []string{"list_sessions", "list_panes"} {
		for _, args := range []any{nil, map[string]any{"filters": map[string]any{"session_name": "none"}}} {
			r := h.mustCall(t, tool, args)
			var structured struct{ Result json.RawMessage }
			if err := json.Unmarshal(r.StructuredContent, &structured); err != nil || string(structured.Result) != r.text() {
				t.Errorf("%v: structuredContent %s, text %s", err, r.StructuredContent, r.text())
			}
		}
	}
}

// Hosts cut off what is longer than some 25,000 tokens, or write it to a file:
// 100 panes must stay well below.
func testSize(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	const panes = 40
	for range panes - 1 {
		s.run("new-window", "-d", "-t", "main:", "-c", s.home.dir, "sleep", "9000")
	}
	if err := s.home.settle(); err != nil {
		t.Fatal(err)
	}
	h := open(s.home, launch{})
	r := h.mustCall(t, "list_panes", nil)
	if rows, err := r.rows(); err != nil || len(rows) != panes {
		t.Fatalf("%v: %d rows", err, len(rows))
	}
	if each := len(r.text()) / panes; each > 600 {
		t.Errorf("a row has %d bytes, want at most 600", each)
	}
}

// TestStdout: stdout carries JSON-RPC and nothing else, however stdio is started
// (B091), and the end of its input is its end (B103).
func TestStdout(t *testing.T) {
	home := newTmuxHome(t)
	d := startDaemon(t, home, nil)
	for _, tt := range []struct {
		name  string
		flags []string
		env   []string
		code  int
	}{
		{"daemon", []string{"stdio", "--socket", d.socket}, nil, 0},
		{"no daemon", []string{"stdio", "--socket", filepath.Join(home.dir, "none.sock")}, nil, 0},
		{"embedded", []string{"stdio", "--embedded"}, nil, 0},
		{"embedded without tmux", []string{"stdio", "--embedded"}, []string{"TMUX_MCPD_TMUX=/nonexistent"}, 0},
		{"bad flag", []string{"stdio", "--no-such-flag"}, nil, 2},
		{"bad hints", []string{"stdio", "--hints", "maybe"}, nil, 2},
		{"an argument too many", []string{"stdio", "x"}, nil, 2},
		{"a second daemon", []string{"serve", "--socket", d.socket}, nil, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, input := range []string{"", `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\nnonsense\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_panes"}}`} {
				p := startProcess(t, append([]string{requireProduct(t)}, tt.flags...), home.clientEnviron(tt.env...), home.dir)
				if _, err := p.Write([]byte(input)); err != nil && tt.code == 0 {
					t.Error(err)
				}
				p.stdin.Close()
				if !p.waitExit(stopWithin) {
					t.Fatalf("does not end within %v of the end of its input", stopWithin)
				}
				if code := p.exitCode(); code != tt.code {
					t.Errorf("ended with code %d, want %d", code, tt.code)
				}
				c := newMCPClient(t, p)
				frames := 0
				for {
					if _, err := c.receive(10 * time.Second); err == errStreamEnded {
						break
					} else if err != nil {
						t.Fatalf("after %d frames: %v", frames, err)
					}
					frames++
				}
				want := 0
				if tt.code == 0 && input != "" {
					want = 3
				}
				if frames != want {
					t.Errorf("%d frames on stdout, want %d", frames, want)
				}
			}
		})
	}
}

// TestManyHosts: hosts that come and go leave nothing behind, and all of one
// daemon's share one client of tmux (B103, B106).
func TestManyHosts(t *testing.T) {
	t.Parallel()
	s := newTmuxServer(t)
	d := startDaemon(t, s.home, nil)
	warm := d.host(t, launch{})
	guest{client: warm.mcpClient}.poll(t, s, 1)
	s.waitGuests(1, 5*time.Second)
	before := d.fds("socket:")
	for range 3 {
		var hosts []host
		for range 8 {
			hosts = append(hosts, d.host(t, launch{}))
		}
		for _, h := range hosts {
			if rows := h.mustList(t, "list_panes", nil); len(rows) != 1 {
				t.Errorf("rows are %v", rows)
			}
		}
		s.waitGuests(1, 5*time.Second)
		for i, h := range hosts {
			if i%2 == 0 {
				h.close()
			} else {
				h.process.kill()
			}
		}
		for _, h := range hosts {
			if !h.process.waitExit(stopWithin) {
				t.Error("a host's server outlives it")
			}
		}
	}
	eventually(t, "the daemon has as many sockets as before", 10*time.Second, func() (bool, string) {
		now := d.fds("socket:")
		return now <= before, fmt.Sprintf("%d, was %d", now, before)
	})
	guest{client: warm.mcpClient}.poll(t, s, 1)
}
