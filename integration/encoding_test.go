package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tmux-mcpd/controlmode"
)

// forgeries are texts that look like something else to whoever reads tmux's
// output line by line or field by field.
var forgeries = []string{
	"x\n%end 1 1 1\n%exit\nP %99",
	"\n%begin 1 1 1\n%end 1 1 1\n%error 1 1 1\n%sessions-changed\n%exit too far behind",
	"P\t$99\tforged\t1\t0\t1\t@99\t0\tw\t1\t1\t1\t%99\nC\tforged",
	"a\tb\x1fc\x1ed",
	"␞␞␟",
	"\n\n",
	"tmux-mcpd-extra\nV\t$0\t3.3a\t1\t1",
}

// oddTitles are titles that a pane can have.
var oddTitles = []string{
	`quotes "double" 'single' and \ backslash \n \t \033`,
	"build (2/3) $HOME `id` {a} [b] | c ; d & e",
	"t␞u", "⠋ working ✳ 🚀 端末 é e\u0301", "שלום \u202eعربي\u202c", "\u0085\u009f\u00a0\u2028\u2029\ufeff\u200b", "\ufffd\ufffe\U0010ffff",
	"%end 1 1 1", "%71", "<|", "null", "true", "0", " ", "-t", "--", "=", "a:b.c", strings.Repeat("長", 1000),
}

// oddSessionNames are names that tmux may change or refuse, by version.
var oddSessionNames = []string{
	"alpha|beta", "with space", "ünï☃端末", `q"u'o\te`, "a.b:c", "#{pane_id}", "$5", "@1", "%2", "-x", "*", "[ab]", "=eq", "tab\there", "nl\nhere",
	"␞", "%end 1 1 1", "0", "a,b", "~", "\u202ertl",
}

// texts says what a pane must show.
type texts struct{ title, path, command any }

// oddServer has a pane or more for every text above, and one plain pane in front
// and behind. want holds those values that are known without asking tmux.
func oddServer(t *testing.T) (s *tmuxServer, want map[string]texts) {
	t.Helper()
	s = newTmuxServer(t, "set -g automatic-rename off", "set -g history-limit 0")
	version := s.version()
	want = map[string]texts{}
	window := func(args ...string) string {
		out, err := s.try(append([]string{"new-window", "-d", "-P", "-F", "#{pane_id}", "-t", "main:"}, args...)...)
		if err != nil {
			return "" // this tmux takes no such name
		}
		return strings.TrimSpace(out)
	}
	for _, title := range oddTitles {
		pane := window("-c", s.home.dir, "sleep", "9000")
		s.run("select-pane", "-t", pane, "-T", strings.ReplaceAll(title, "#", "##"))
		shown := title
		if version.AtLeast(3, 7) {
			shown = strings.ReplaceAll(title, `\`, `\\`)
		}
		// tmux drops what it holds for unprintable (3.3a: U+0085), so some titles are
		// known only from tmux.
		if s.format(pane, "#{==:#{n:pane_title},"+fmt.Sprint(len(shown))+"}") == "1" {
			want[pane] = texts{shown, s.home.dir, "sleep"}
		}
	}
	for i, text := range append(slices.Clone(forgeries), "bad \xff\xfe utf8 \xc3", "(deleted)", " ", "é") {
		// tmux expands -c as a format and may have trouble with the bytes of an
		// argument: a script goes there by itself.
		dir := filepath.Join(s.home.dir, fmt.Sprint("d", i), text)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		script := filepath.Join(s.home.dir, fmt.Sprint("go", i))
		if err := os.WriteFile(script, []byte("cd '"+dir+"' && exec sleep 9000\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		pane := window("-c", s.home.dir, "sh", script)
		want[pane] = texts{nil, shownAs(dir), "sleep"}
		// A name may hold anything where tmux does not clean it.
		window("-n", text, "-c", s.home.dir, "sleep", "9000")
	}
	if bash, err := exec.LookPath("bash"); err == nil {
		for i, tt := range []struct{ argv0, old, new string }{ // shown up to 3.6, and from 3.7 on
			{"\xff\xfe", "\xff", ""}, // what is no ASCII is cut off the end, down to one byte
			{"x\n%end 1 1 1\n%exit\nP %99", "x\n%end", ""},
			{"a\tb", "a\tb", ""},
			{"é☃x", "é☃x", "é☃x"},
			{`a\b"c`, `a\b`, `a\\b`},
			{"-sh", "sh", "sh"},
		} {
			script := filepath.Join(s.home.dir, fmt.Sprint("argv", i))
			if err := os.WriteFile(script, []byte("exec -a $'"+strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\t", `\t`).Replace(tt.argv0)+"' sleep 9000\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			pane := window("-c", s.home.dir, bash, script)
			shown := tt.old
			if version.AtLeast(3, 7) {
				shown = tt.new
			}
			want[pane] = texts{nil, s.home.dir, shownAs(shown)}
		}
	}
	for _, name := range oddSessionNames {
		_, _ = s.try("new-session", "-d", "-s", name, "-x", "80", "-y", "24", "-c", s.home.dir, "sleep", "9000") // some are refused, by some versions
	}
	last := window("-n", "last", "-c", s.home.dir, "sleep", "9000")
	want[last] = texts{nil, s.home.dir, "sleep"}
	if err := s.home.settle(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all panes run their program", 20*time.Second, func() (bool, string) {
		state, err := s.readRaw()
		if err != nil {
			return false, err.Error()
		}
		for _, r := range state.panes {
			if w, known := want[rowID(r)]; known && r["pane_current_command"] == "bash" && w.command != "bash" || r["pane_current_command"] == "sh" && w.command != "sh" {
				return false, fmt.Sprint(r)
			}
		}
		return true, ""
	})
	return s, want
}

// shownAs is a text of tmux's as JSON shows it: null for none, and U+FFFD for
// every byte that is no UTF-8.
func shownAs(text string) any {
	if text == "" {
		return nil
	}
	return string([]rune(text))
}

// version is that of the running server.
func (s *tmuxServer) version() controlmode.Version {
	return controlmode.ParseVersion(s.format("", "#{version}"))
}

// readRaw is read with texts as JSON shows them.
func (s *tmuxServer) readRaw() (serverState, error) {
	state, err := s.read()
	for _, rows := range [][]row{state.panes, state.sessions} {
		for _, r := range rows {
			for key, value := range r {
				if text, ok := value.(string); ok {
					r[key] = shownAs(text)
				}
			}
		}
	}
	return state, err
}

// TestEncoding: every text that tmux can hold comes right, whatever the locale,
// and disturbs no other row.
func TestEncoding(t *testing.T) {
	s, want := oddServer(t)
	version := s.version()
	// tmux 3.4 and 3.5 print control characters and bad UTF-8 as octal text. We
	// read directories and commands from the system, as they are.
	octal := version.AtLeast(3, 4) && !version.AtLeast(3, 6)
	environments := []struct {
		name string
		l    launch
		env  []string // of the daemon
	}{
		{"UTF-8", launch{}, nil},
		{"LC_ALL=C", launch{env: []string{"LC_ALL=C", "LANG=C"}}, []string{"LC_ALL=C", "LANG=C"}},
		{"empty", launch{env: []string{"LIBTMUX_SOCKET_PATH=" + s.socket}, bare: true}, nil},
	}
	check := func(t *testing.T, c *mcpClient) {
		t.Helper()
		truth, err := s.readRaw()
		if err != nil {
			t.Fatal(err)
		}
		panes := withoutCaller(c.mustList(t, "list_panes", nil))
		sessions := c.mustList(t, "list_sessions", nil)
		known := 0
		for i, r := range panes {
			if i >= len(truth.panes) {
				break
			}
			w, ok := want[rowID(r)]
			if !ok {
				continue
			}
			known++
			for key, value := range map[string]any{"pane_title": w.title, "pane_current_path": w.path, "pane_current_command": w.command} {
				if (value != nil || key == "pane_current_command") && r[key] != value {
					t.Errorf("%s of %s is %.200q, want %.200q", key, rowID(r), r[key], value)
				}
			}
			if octal {
				truth.panes[i]["pane_current_path"], truth.panes[i]["pane_current_command"] = w.path, w.command
			}
		}
		if known != len(want) {
			t.Errorf("%d of %d panes are there", known, len(want))
		}
		if diff := diffRows(truth.panes, panes); diff != "" {
			t.Errorf("list_panes differs from tmux: %.2000s", diff)
		}
		for _, r := range truth.sessions {
			// There is no client but ours, which come and go while tmux is read here.
			r["session_attached"] = "0"
		}
		if diff := diffRows(truth.sessions, sessions); diff != "" {
			t.Errorf("list_sessions differs from tmux: %.2000s", diff)
		}
	}
	for _, e := range environments {
		t.Run(e.name+"/embedded", func(t *testing.T) {
			t.Parallel()
			h := hostModes[0].open(t, s.home, e.l)
			check(t, h.mcpClient)
			s.waitSomeGuest()
			check(t, h.mcpClient)
		})
		t.Run(e.name+"/serve", func(t *testing.T) {
			t.Parallel()
			d := startDaemon(t, s.home, e.env)
			if e.l.bare {
				d = startBareDaemon(t, s.home)
			}
			c, err := d.dial(t, map[string]string{"LIBTMUX_SOCKET_PATH": s.socket})
			if err != nil {
				t.Fatal(err)
			}
			check(t, c)
			s.waitSomeGuest()
			check(t, c)
		})
	}
	t.Run("filters", func(t *testing.T) {
		t.Parallel()
		h := hostModes[0].open(t, s.home, launch{})
		checkOddFilters(t, s, want, h.mcpClient)
	})
}

// waitSomeGuest waits until the product is attached.
func (s *tmuxServer) waitSomeGuest() {
	s.home.t.Helper()
	eventually(s.home.t, "a client of tmux-mcpd is attached", 5*time.Second, func() (bool, string) {
		return len(s.guests()) > 0, "none"
	})
}

// checkOddFilters wants every odd name and title to find its own rows, and no
// others, by the exact text.
func checkOddFilters(t *testing.T, s *tmuxServer, want map[string]texts, c *mcpClient) {
	t.Helper()
	out := s.run("list-panes", "-a", "-F", joinFormats("pane_id", "window_name", "pane_title", "session_name"))
	found := map[string]map[string][]string{"window_name": {}, "pane_title": {}, "session_name": {}}
	for _, v := range splitRows(out) {
		for i, key := range []string{"window_name", "pane_title", "session_name"} {
			text, _ := shownAs(v[i+1]).(string)
			found[key][text] = append(found[key][text], v[0])
		}
	}
	// Directories are asked for as they are shown as well.
	found["pane_current_path"] = map[string][]string{}
	for pane, w := range want {
		if text := w.path.(string); text != s.home.dir {
			found["pane_current_path"][text] = []string{pane}
		}
	}
	for key, byText := range found {
		for text, ids := range byText {
			if text == "" {
				ids = nil // an empty value fails every filter
			}
			got := rowIDs(c.mustList(t, "list_panes", map[string]any{"filters": map[string]any{key: text}}))
			if !slices.Equal(got, ids) {
				t.Errorf("%s %.100q finds %v, want %v", key, text, got, ids)
			}
			if key == "session_name" && text != "" {
				got := rowIDs(c.mustList(t, "list_panes", map[string]any{"session_name": text}))
				if !slices.Equal(got, ids) {
					t.Errorf("session %q has %v, want %v", text, got, ids)
				}
			}
		}
	}
}

// startBareDaemon starts a daemon whose environment is empty.
func startBareDaemon(t testing.TB, home *tmuxHome) *daemonProcess {
	t.Helper()
	env, err := exec.LookPath("env")
	if err != nil {
		t.Fatal(err)
	}
	return startDaemon(t, home, nil, env, "-i")
}

// TestOddOptions: the values of user options may hold anything; as a filter they
// neither forge rows nor end the connection.
func TestOddOptions(t *testing.T) {
	inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
		s := newTmuxServer(t)
		s.run("split-window", "-d", "-t", "main", "sleep", "9000")
		s.newSession("other")
		h := open(s.home, launch{})
		values := append(slices.Clone(forgeries), oddTitles...)
		octal := s.version().AtLeast(3, 4) && !s.version().AtLeast(3, 6)
		for i, value := range values {
			if octal && strings.ContainsAny(value, "\x1e\x1f\u0085") {
				continue // printed as octal text
			}
			s.run("set-option", "-p", "-t", "main:0.1", "@odd", value)
			s.run("set-option", "-t", "other", "@odd", value+"x")
			h.mustMatch(t, "list_panes", map[string]any{"@odd": value}, "%1")
			h.mustMatch(t, "list_panes", map[string]any{"@odd__startswith": value}, "%1", "%2")
			h.mustMatch(t, "list_sessions", map[string]any{"@odd": value + "x"}, "$1")
			if i%8 == 0 {
				guest{client: h.mcpClient}.poll(t, s, 1)
			}
		}
		s.waitGuests(1, 5*time.Second)
	})
}

// TestForgedGuards: a name or an option that holds the very guards that tmux will
// print next costs nobody an answer. Whoever can set them can do what he likes
// with tmux, but an odd text is not always meant so. tmux from 3.7 on takes no
// such name.
func TestForgedGuards(t *testing.T) {
	for _, word := range []string{"end", "error"} {
		t.Run(word, func(t *testing.T) {
			inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
				s := newTmuxServer(t)
				s.newSession("other")
				h := open(s.home, launch{})
				g := guest{client: h.mcpClient}
				g.poll(t, s, 1)
				s.waitGuests(1, 5*time.Second)
				for range 3 {
					s.run("set-option", "-t", "other", "@odd", s.nextGuards(t, word))
					for range 10 {
						h.mustMatch(t, "list_sessions", map[string]any{"@odd__contains": "%" + word}, "$1")
					}
					if _, err := s.try("new-window", "-d", "-t", "other:", "-n", s.nextGuards(t, word), "sleep", "9000"); err != nil {
						continue
					}
					if err := s.home.settle(); err != nil {
						t.Fatal(err)
					}
					for range 10 {
						g.poll(t, s, 1)
					}
					s.run("kill-window", "-t", "other:1")
				}
			})
		})
	}
}

// nextGuards is the guards, of the given kind, of the commands that the server
// will carry out in the next seconds.
func (s *tmuxServer) nextGuards(t *testing.T, word string) string {
	t.Helper()
	control := newControlClient(t, s, "attach-session", "-t", "other", "-f", "ignore-size")
	control.send("display-message -p here")
	control.waitText("here", 5*time.Second)
	var at, number, flags int
	text := control.screen.text()
	if _, err := fmt.Sscanf(text[strings.LastIndex(text, "%begin "):], "%%begin %d %d %d", &at, &number, &flags); err != nil {
		t.Fatal(err)
	}
	control.close()
	var guards strings.Builder
	for second := range 4 {
		for n := range 120 {
			fmt.Fprintf(&guards, "\n%%%s %d %d 1", word, at+second, number+n)
		}
	}
	return guards.String()
}
