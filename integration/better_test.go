package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestBetter has a test for each of the twelve points of the contract in which
// this server is better than the published one, by the numbers they have there.
func TestBetter(t *testing.T) {
	for _, point := range []struct {
		name string
		test func(t *testing.T, open func(*tmuxHome, launch) host)
	}{
		{"01_any_text_comes_right", testAnyText},
		{"02_what_hides_a_server_is_an_error", testHiddenServer},
		{"03_no_sessions", testNoSessions},
		{"04_unknown_fields", testUnknownFields},
		{"05_every_output_field_is_a_filter", testOutputFields},
		{"06_numbers_and_booleans", testTypedValues},
		{"07_regular_expressions", testRegexps},
		{"08_linked_windows", testLinkedWindows},
		{"09_socket_names", testSocketNames},
		{"10_empty_is_text_too", testEmptyText},
		{"11_hints", testHints},
		{"12_one_moment_within_a_deadline", testOneMoment},
	} {
		t.Run(point.name, func(t *testing.T) { inModes(t, point.test) })
	}
}

// 1: a title with the published server's separator, a directory with a newline,
// no locale. encoding_test.go has many more texts.
func testAnyText(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	dir := filepath.Join(s.home.dir, "x\ny")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.run("split-window", "-d", "-t", "main", "-c", dir, "sleep", "9000")
	s.run("select-pane", "-t", "main:0.0", "-T", "t␞u")
	if err := s.home.settle(); err != nil {
		t.Fatal(err)
	}
	h := open(s.home, launch{env: []string{"LC_ALL=C", "LANG=C"}})
	rows := h.mustList(t, "list_panes", nil)
	if len(rows) != 2 || rows[0]["pane_title"] != "t␞u" || rows[1]["pane_current_path"] != dir {
		t.Errorf("rows are %v", rows)
	}
	guest{client: h.mcpClient}.poll(t, s, 2)
}

// hiddenServers are the ways in which a server that lives cannot be asked.
var hiddenServers = []struct {
	name string
	// hide hides the server and says how to start a host, and what its errors hold.
	hide func(t *testing.T, s *tmuxServer) (launch, []string)
}{
	{"permission denied", func(t *testing.T, s *tmuxServer) (launch, []string) {
		if err := os.Chmod(s.socket, 0); err != nil {
			t.Fatal(err)
		}
		return launch{prefix: withoutRootsRights(t)}, []string{s.socket, "permission denied"}
	}},
	{"not a directory", func(t *testing.T, s *tmuxServer) (launch, []string) {
		file := filepath.Join(s.home.dir, "file")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return launch{env: []string{"LIBTMUX_SOCKET_PATH=" + file + "/default"}}, []string{file, "not a directory"}
	}},
	{"unsafe directory", func(t *testing.T, s *tmuxServer) (launch, []string) {
		if err := os.Chmod(filepath.Dir(s.socket), 0o777); err != nil {
			t.Fatal(err)
		}
		return launch{}, []string{filepath.Dir(s.socket), "has unsafe permissions"}
	}},
	{"tmux is missing", func(_ *testing.T, s *tmuxServer) (launch, []string) {
		s.home.guestTmux = filepath.Join(s.home.dir, "no-tmux")
		return launch{}, []string{s.socket, s.home.guestTmux, "no such file"}
	}},
	{"tmux is too old", func(_ *testing.T, s *tmuxServer) (launch, []string) {
		s.home.fakeTmux("old", "")
		return launch{}, []string{s.socket, "tmux 3.1c", "3.2 or newer is needed"}
	}},
	{"tmux does not answer", func(t *testing.T, s *tmuxServer) (launch, []string) {
		stopProcess(t, s.pid())
		return launch{}, []string{s.socket, "no answer within 5s"}
	}},
}

// withoutRootsRights is the prefix of a command line that takes root's right to
// open everything; nothing if the test is not run by root.
func withoutRootsRights(t *testing.T) []string {
	if os.Getuid() != 0 {
		return nil
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("as root this test needs setpriv")
	}
	return []string{setpriv, "--bounding-set", "-dac_override,-dac_read_search", "--"}
}

// stopProcess stops a process until the end of the test. The returned function
// lets it go on before that.
func stopProcess(t testing.TB, pid int) (resume func()) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	t.Cleanup(resume)
	return resume
}

// 2: both tools, targeted or not, with the path and the reason.
func testHiddenServer(t *testing.T, open func(*tmuxHome, launch) host) {
	calls := []struct {
		tool string
		args map[string]any
	}{
		{"list_sessions", nil},
		{"list_sessions", map[string]any{"filters": map[string]any{"session_name": "main"}}},
		{"list_panes", nil},
		{"list_panes", map[string]any{"session_name": "main"}},
		{"list_panes", map[string]any{"window_id": "@0"}},
		{"list_panes", map[string]any{"window_index": "0"}},
		{"list_panes", map[string]any{"filters": map[string]any{"@x": "y"}}},
	}
	for _, tt := range hiddenServers {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newTmuxServer(t)
			l, parts := tt.hide(t, s)
			h := open(s.home, l)
			// All are asked at once: where each takes its deadline, all take one.
			for i, call := range calls {
				message := map[string]any{"jsonrpc": "2.0", "id": fmt.Sprint("call ", i), "method": "tools/call"}
				if err := h.sendMessage(message, map[string]any{"name": call.tool, "arguments": call.args}); err != nil {
					t.Fatal(err)
				}
			}
			for range calls {
				f, err := h.receive(callWithin)
				if err != nil {
					t.Fatal(err)
				}
				r, err := parseToolResult(f.Result)
				if err != nil {
					t.Fatal(err)
				}
				if !r.IsError || r.StructuredContent != nil || strings.Contains(r.text(), "not found") {
					t.Errorf("%s is answered %s", f.ID, f.raw)
				}
				mustHold(t, r.text(), parts...)
			}
		})
	}
}

// 3: a live server with no session is like none, in both ways to ask it.
func testNoSessions(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t, "set -s exit-empty off")
	h := open(s.home, launch{})
	g := guest{client: h.mcpClient}
	g.poll(t, s, 1)
	s.waitGuests(1, 5*time.Second)
	pid := s.pid()
	for range 2 {
		s.run("kill-session", "-t", "main")
		for range 3 {
			g.mustBeAbsent(t, s.name)
		}
		if s.pid() != pid {
			t.Fatal("the server has ended: the test shows nothing")
		}
		s.newSession("main")
		g.poll(t, s, 1)
	}
}

// 4: an agent that misspells a field is told, with the nearest names.
func testUnknownFields(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	h := open(s.home, launch{})
	for _, tt := range []struct {
		tool, key string
		parts     []string
	}{
		{"list_panes", "pane_titel", []string{"Unknown filter field 'pane_titel' in 'pane_titel'.", "pane_title"}},
		{"list_panes", "pane_titel__contains", []string{"Unknown filter field 'pane_titel' in 'pane_titel__contains'.", "pane_title"}},
		{"list_panes", "command", []string{"Unknown filter field 'command' in 'command'.", "pane_current_command"}},
		{"list_panes", "session__nmae__eq", []string{"Unknown filter field 'nmae' in 'session__nmae__eq'.", "name"}},
		{"list_panes", "sesion__name__eq", []string{"Unknown filter field 'sesion' in 'sesion__name__eq'.", "session"}},
		{"list_sessions", "sesion_name", []string{"Unknown filter field 'sesion_name' in 'sesion_name'.", "session_name"}},
		{"list_sessions", "attached", []string{"Unknown filter field 'attached' in 'attached'.", "session_attached"}},
	} {
		for _, args := range []map[string]any{
			{"filters": map[string]any{tt.key: "x"}},
			{"filters": fmt.Sprintf(`{%q:"x"}`, tt.key)},
			{"filters": map[string]any{tt.key: "x"}, "socket_name": "none"}, // no rows at all: it is the filter that is wrong
		} {
			mustHold(t, h.mustRefuse(t, tt.tool, args), tt.parts...)
		}
	}
}

// 5: what is shown can be asked for.
func testOutputFields(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	s.run("split-window", "-d", "-t", "main", "sleep", "9000")
	s.newSession("work")
	s.run("new-window", "-d", "-t", "work:", "sleep", "9000")
	s.run("select-pane", "-t", "work", "-T", "title ☃")
	s.run("set-option", "-p", "-t", "main:0.1", "@task", "build: 2\nsteps")
	s.run("set-option", "-t", "work", "@owner", "me")
	if err := s.home.settle(); err != nil {
		t.Fatal(err)
	}
	h := open(s.home, launch{env: []string{"TMUX=" + s.socket + ",1,0", "TMUX_PANE=%1"}})
	for _, tool := range []string{"list_panes", "list_sessions"} {
		rows := h.mustList(t, tool, nil)
		for _, key := range rowKeys(rows[0], rows[1]) {
			for _, r := range rows {
				value, want := r[key], []string(nil)
				if value == nil {
					continue // null fails every filter
				}
				for _, other := range rows {
					if other[key] == value {
						want = append(want, rowID(other))
					}
				}
				h.mustMatch(t, tool, map[string]any{key: value}, want...)
			}
		}
	}
	h.mustMatch(t, "list_panes", map[string]any{"is_caller": true}, "%1")
	h.mustMatch(t, "list_sessions", map[string]any{"active_pane_id": "%2", "window_count": 2}, "$1")
	h.mustMatch(t, "list_panes", map[string]any{"@task": "build: 2\nsteps"}, "%1")
	h.mustMatch(t, "list_panes", map[string]any{"@owner__icontains": "ME"}, "%2", "%3")
	h.mustMatch(t, "list_sessions", map[string]any{"@owner": "me"}, "$1")
	h.mustMatch(t, "list_sessions", map[string]any{"@none__nin": "me"})
}

// 6: JSON's types compare by what is shown, and numbers are good as arguments.
func testTypedValues(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	s.run("split-window", "-d", "-h", "-l", "99", "-t", "main", "sleep", "9000") // 100 and 99 wide
	s.newSession("0")
	if err := s.home.settle(); err != nil {
		t.Fatal(err)
	}
	h := open(s.home, launch{})
	for _, tt := range []struct {
		key   string
		value any
		ids   []string
	}{
		{"pane_width", "200", []string{"%2"}}, {"pane_width", 200, []string{"%2"}}, {"pane_width__eq", 99, []string{"%1"}},
		{"pane_left", 101, []string{"%1"}}, {"pane_left", "101", []string{"%1"}}, {"pane_left", 0, []string{"%2", "%0"}},
		{"pane_at_left", false, []string{"%1"}}, {"pane_at_left", "false", []string{"%1"}}, {"pane_at_left", 0, []string{"%1"}}, {"pane_at_left", "0", []string{"%1"}},
		{"pane_at_right", true, []string{"%2", "%1"}}, {"pane_at_right", "true", []string{"%2", "%1"}}, {"pane_at_right", 1, []string{"%2", "%1"}}, {"pane_at_right", "1", []string{"%2", "%1"}},
		{"pane_active", true, []string{"%2", "%0"}}, {"pane_active", 1, []string{"%2", "%0"}}, {"pane_active", "1", []string{"%2", "%0"}},
		{"session_name", 0, []string{"%2"}},
	} {
		h.mustMatch(t, "list_panes", map[string]any{tt.key: tt.value}, tt.ids...)
	}
	h.mustMatch(t, "list_sessions", map[string]any{"window_count": 1, "session_attached": 0}, "$1", "$0")
	for _, args := range []map[string]any{
		{"session_name": 0}, {"session_name": "0"}, {"session_name": "0", "window_index": 0}, {"session_id": "$1", "window_index": "0"},
		{"session_name": 0, "window_index": 0, "filters": `{"pane_width__in":[200]}`},
	} {
		if got := rowIDs(h.mustList(t, "list_panes", args)); !slices.Equal(got, []string{"%2"}) {
			t.Errorf("%v: %v", args, got)
		}
	}
	mustHold(t, h.mustRefuse(t, "list_panes", map[string]any{"session_name": 0, "window_index": 7}), "Could not find window_index=7")
}

// 7: an expression that is none is told before any row is looked at, one that
// runs away is cut off.
func testRegexps(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	s.run("select-pane", "-t", "main", "-T", strings.Repeat("a", 60)+"!")
	h := open(s.home, launch{})
	for _, key := range []string{"session_name__regex", "session_name__iregex", "@x__regex"} {
		for _, tool := range []string{"list_panes", "list_sessions"} {
			for _, socket := range []string{s.name, "none"} {
				text := h.mustRefuse(t, tool, map[string]any{"filters": map[string]any{key: "(", "session_id": "$99"}, "socket_name": socket})
				mustHold(t, text, "Invalid regular expression in '"+key+"': ")
			}
		}
	}
	begin := time.Now()
	text := h.mustRefuse(t, "list_panes", map[string]any{"filters": map[string]any{"pane_title__regex": "(a+)+$"}})
	took := time.Since(begin)
	mustHold(t, text, "pane_title__regex", "250 ms", "cut off")
	if took > 10*time.Second { // without a limit it takes years
		t.Errorf("cut off after %v", took)
	}
	h.mustMatch(t, "list_panes", map[string]any{"pane_title__regex": "^(?P<x>a)(?P=x)+!$"}, "%0")
}

// 8: a window that is linked into several sessions.
func testLinkedWindows(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t) // main: $0, window @0, pane %0
	s.newSession("a")     // $1 @1 %1
	s.newSession("b")     // $2 @2 %2
	s.run("split-window", "-d", "-t", "main", "sleep", "9000")
	s.run("link-window", "-d", "-s", "main:0", "-t", "a:5")
	s.run("link-window", "-d", "-s", "main:0", "-t", "a:7")
	if err := s.home.settle(); err != nil {
		t.Fatal(err)
	}
	h := open(s.home, launch{})
	in := func(session string, ids ...string) (want []string) {
		for _, id := range ids {
			want = append(want, session+" "+id)
		}
		return want
	}
	for _, tt := range []struct {
		args map[string]any
		want []string // session and pane of each row
	}{
		{map[string]any{"window_id": "@0"}, in("$1", "%0", "%3")},
		{map[string]any{"window_id": "@0", "session_name": "main"}, in("$0", "%0", "%3")},
		{map[string]any{"window_id": "@0", "session_id": "$0"}, in("$0", "%0", "%3")},
		{map[string]any{"window_id": "@0", "session_id": "$1", "session_name": "main"}, in("$1", "%0", "%3")},
		{map[string]any{"window_id": "@0", "session_name": "b"}, in("$1", "%0", "%3")},
		{map[string]any{"window_id": "@0", "session_name": "none"}, in("$1", "%0", "%3")},
		{map[string]any{"window_id": "@0", "session_id": "$99"}, in("$1", "%0", "%3")},
		{map[string]any{"session_name": "a", "window_index": "5"}, in("$1", "%0", "%3")},
		{map[string]any{"session_name": "main", "window_index": "0"}, in("$0", "%0", "%3")},
		{map[string]any{"session_name": "a"}, in("$1", "%1", "%0", "%3", "%0", "%3")},
		{map[string]any{"session_name": "main"}, in("$0", "%0", "%3")},
		{map[string]any{}, slices.Concat(in("$1", "%1", "%0", "%3", "%0", "%3"), in("$2", "%2"), in("$0", "%0", "%3"))},
	} {
		var got []string
		for _, r := range h.mustList(t, "list_panes", tt.args) {
			got = append(got, fmt.Sprint(r["session_id"], " ", r["pane_id"]))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.args, got, tt.want)
		}
	}
}

// 9: the name that is asked for wins, and must be one.
//
// The contract's text says that every name with a slash is an error; its recorded
// calls (scenario "sockets") want [] for an absolute path, and they hold.
func testSocketNames(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	other := s.home.server("other")
	other.newSession("elsewhere")
	h := open(s.home, launch{env: []string{"LIBTMUX_SOCKET_PATH=" + s.socket}})
	for name, want := range map[string]string{"": "main", "other": "elsewhere", "default": "main"} {
		args := map[string]any{"socket_name": name}
		if rows := h.mustList(t, "list_sessions", args); len(rows) != 1 || rows[0]["session_name"] != want {
			t.Errorf("%q: %v, want %s", name, rows, want)
		}
	}
	for _, tt := range []struct{ name, part string }{
		{"a/b", "must not be a path"}, {"../default", "must not be a path"}, {"default/", "must not be a path"}, {"..", "must not be a path"},
		{"a\x00b", "NUL"}, {strings.Repeat("x", 120), "too long"}, {"/" + strings.Repeat("x", 120), "too long"},
	} {
		for _, tool := range []string{"list_sessions", "list_panes"} {
			mustHold(t, h.mustRefuse(t, tool, map[string]any{"socket_name": tt.name}), "socket_name", tt.part)
		}
	}
	if rows := h.mustList(t, "list_sessions", map[string]any{"socket_name": other.socket}); len(rows) != 0 {
		t.Errorf("an absolute path: %v, want []", rows)
	}
}

// 10: an empty list is a text as well.
func testEmptyText(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	h := open(s.home, launch{})
	for _, tool := range []string{"list_sessions", "list_panes"} {
		for _, args := range []map[string]any{
			{"socket_name": "none"}, {"filters": map[string]any{"session_name": "none"}}, {"filters": map[string]any{"@none": "x"}},
		} {
			r := h.mustCall(t, tool, args)
			if r.IsError || r.text() != "[]" || string(r.StructuredContent) != `{"result":[]}` {
				t.Errorf("%s %v: text %q, structuredContent %s", tool, args, r.text(), r.StructuredContent)
			}
		}
	}
}

// 11: the hints are those of the contract, unless a host wants others; what one
// host wants is nothing to another one of the same daemon.
func testHints(t *testing.T, open func(*tmuxHome, launch) host) {
	type hints struct{ ReadOnlyHint, DestructiveHint, IdempotentHint, OpenWorldHint *bool }
	show := func(h hints) string {
		raw, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	published := map[string]string{}
	for _, tool := range []string{"list_sessions", "list_panes"} {
		var contract struct{ Annotations hints }
		if err := json.Unmarshal([]byte(readFile(t, filepath.Join("..", "tools", tool+".json"))), &contract); err != nil {
			t.Fatal(err)
		}
		published[tool] = show(contract.Annotations)
	}
	is, not := true, false
	readOnly := show(hints{&is, &not, &is, &not})
	if published["list_panes"] == readOnly {
		t.Fatal("both kinds of hints are the same: the test shows nothing")
	}
	home := newTmuxHome(t)
	check := func(name string, h host, want func(tool string) string) {
		t.Helper()
		raw, err := h.result("tools/list", map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		var listed struct {
			Tools []struct {
				Name        string
				Annotations hints
			}
		}
		if err := json.Unmarshal(raw, &listed); err != nil || len(listed.Tools) != 2 {
			t.Fatalf("%v: %s", err, raw)
		}
		for _, tool := range listed.Tools {
			if got := show(tool.Annotations); got != want(tool.Name) {
				t.Errorf("%s: %s has %s, want %s", name, tool.Name, got, want(tool.Name))
			}
		}
	}
	asPublished := func(tool string) string { return published[tool] }
	asReadOnly := func(string) string { return readOnly }
	check("by default", open(home, launch{}), asPublished)
	check("by flag", open(home, launch{flags: []string{"--hints", "read-only"}}), asReadOnly)
	check("by variable", open(home, launch{env: []string{"TMUX_MCPD_HINTS=read-only"}}), asReadOnly)
	d := startDaemon(t, home, nil)
	first, second := d.host(t, launch{flags: []string{"--hints=read-only"}}), d.host(t, launch{})
	check("first of two", first, asReadOnly)
	check("second of two", second, asPublished)
	check("a daemon told so", startDaemon(t, home, []string{"TMUX_MCPD_HINTS=read-only"}).host(t, launch{}), asReadOnly)
}

// 12: an answer is of one moment. Each change renames two sessions and sets an
// option of both, in one command line, which tmux carries out as one; no answer
// may show one session before and the other after it, whichever way its values
// are come by. And a server that does not answer costs a call its deadline, and
// nothing to the calls of other servers.
func testOneMoment(t *testing.T, open func(*tmuxHome, launch) host) {
	s := newTmuxServer(t)
	s.newSession("b-0")
	s.run("rename-session", "-t", "$0", "a-0")
	h := open(s.home, launch{})
	h.mustList(t, "list_sessions", nil)
	ended := make(chan error, 1)
	stop := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			n := fmt.Sprint(i % 10)
			if _, err := s.try("rename-session", "-t", "$0", "a-"+n, ";", "set-option", "-t", "$0", "@n", n, ";",
				"rename-session", "-t", "$1", "b-"+n, ";", "set-option", "-t", "$1", "@n", n); err != nil {
				ended <- err
				return
			}
		}
	}()
	suffix := regexp.MustCompile(`^[ab]-(\d)$`)
	seen := map[string]bool{}
	for i := range 150 {
		digit := fmt.Sprint(i % 10)
		args := []map[string]any{
			{}, {"filters": map[string]any{"session_name__contains": "-"}},
			{"filters": map[string]any{"@n": digit}}, {"filters": map[string]any{"@n__regex": "."}},
		}[i%4]
		var found []string
		for _, r := range h.mustList(t, "list_sessions", args) {
			found = append(found, suffix.FindStringSubmatch(r["session_name"].(string))[1])
		}
		fetched := i%4 == 2
		switch {
		case fetched && len(found) == 0, i < 8 && len(found) == 0: // not now, or no option yet
		case len(found) != 2 || found[0] != found[1] || fetched && found[0] != digit:
			t.Errorf("%v: of no one moment: %v", args, found)
		default:
			seen[found[0]] = true
		}
	}
	close(stop)
	if err, failed := <-ended; failed {
		t.Fatal(err)
	}
	if len(seen) < 2 {
		t.Errorf("only the states %v were seen: the test shows nothing", seen)
	}

	other := s.home.server("other")
	other.newSession("elsewhere")
	h.mustList(t, "list_sessions", map[string]any{"socket_name": "other"})
	resume := stopProcess(t, s.pid())
	begin := time.Now()
	message := map[string]any{"jsonrpc": "2.0", "id": "stopped", "method": "tools/call"}
	if err := h.sendMessage(message, map[string]any{"name": "list_panes"}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		// The next frame that comes is the answer to this: the stopped server's
		// comes later, or request fails.
		if rows := h.mustList(t, "list_sessions", map[string]any{"socket_name": "other"}); len(rows) != 1 {
			t.Errorf("other server: %v", rows)
		}
	}
	f, err := h.receive(callWithin)
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseToolResult(f.Result)
	if err != nil || !r.IsError || string(f.ID) != `"stopped"` {
		t.Errorf("%v: stopped server: %s", err, f.raw)
	}
	mustHold(t, r.text(), s.socket, "no answer within 5s")
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("the answer took %v", took)
	}
	resume()
	guest{client: h.mcpClient}.poll(t, s, 2)
}
