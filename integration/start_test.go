package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// logCommands puts a script before the tmux of the home's guests that notes each
// command line, and returns a function that reads the notes.
func (h *tmuxHome) logCommands() (lines func() []string) {
	h.t.Helper()
	log := filepath.Join(h.dir, "commands")
	dir := filepath.Join(h.dir, "bin")
	script := "#!/bin/sh\nprintf '%s\\n' \"$*\" >>'" + log + "'\nexec '" + h.guestTmux + "' \"$@\"\n"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tmux"), []byte(script), 0o755); err != nil {
		h.t.Fatal(err)
	}
	h.guestTmux = filepath.Join(dir, "tmux")
	return func() []string {
		text, _ := os.ReadFile(log) // none: tmux was never run
		return strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	}
}

// mustNotStart fails the test for a tmux command line that could start a server:
// all but -V, which asks no server, must have -N among the flags.
func mustNotStart(t testing.TB, lines []string) {
	t.Helper()
	for _, line := range lines {
		args := strings.Fields(line)
		if len(args) == 0 || slices.Equal(args, []string{"-V"}) {
			continue
		}
		flags := slices.IndexFunc(args, func(a string) bool {
			return strings.HasPrefix(a, "list-") || strings.HasPrefix(a, "attach") || strings.HasPrefix(a, "display")
		})
		if flags < 0 {
			flags = len(args)
		}
		if !slices.Contains(args[:flags], "-N") {
			t.Errorf("tmux was run without -N: %q", line)
		}
	}
}

// absentCalls are the calls that are made of a server that is not there.
var absentCalls = []struct {
	tool     string
	args     map[string]any
	targeted bool
}{
	{"list_sessions", map[string]any{}, false},
	{"list_panes", map[string]any{}, false},
	{"list_panes", map[string]any{"session_name": "main"}, true},
	{"list_panes", map[string]any{"window_id": "@0"}, true},
	{"list_sessions", map[string]any{"filters": map[string]any{"session_name": "main"}}, false},
}

// mustBeAbsent makes the calls and wants the answers of a server that is not there.
func (g guest) mustBeAbsent(t testing.TB, socketName string) {
	t.Helper()
	for _, call := range absentCalls {
		args := map[string]any{"socket_name": socketName}
		for k, v := range call.args {
			args[k] = v
		}
		r, err := g.client.call(call.tool, args)
		if err != nil {
			t.Fatal(err)
		}
		if r.IsError != call.targeted {
			t.Errorf("%s %v: isError %v, text %q", call.tool, args, r.IsError, r.text())
		}
		if !call.targeted && r.text() != "[]" {
			t.Errorf("%s %v: text %q, want []", call.tool, args, r.text())
		}
		if call.targeted && !strings.HasPrefix(r.text(), "Object not found: ") {
			t.Errorf("%s %v: text %q, want Object not found", call.tool, args, r.text())
		}
	}
}

// TestNeverStartsServer: whatever is asked, no tmux server comes into being. tmux
// itself would start one for attach-session and new-session.
func TestNeverStartsServer(t *testing.T) {
	absences := []struct {
		name    string
		prepare func(t *testing.T, s *tmuxServer)
	}{
		{"no socket", func(*testing.T, *tmuxServer) {}},
		{"empty socket directory", func(t *testing.T, s *tmuxServer) {
			if err := os.MkdirAll(filepath.Dir(s.socket), 0o700); err != nil {
				t.Fatal(err)
			}
		}},
		{"stale socket", func(t *testing.T, s *tmuxServer) {
			if err := leaveStaleSocket(s.socket); err != nil {
				t.Fatal(err)
			}
		}},
		{"killed server", func(t *testing.T, s *tmuxServer) {
			s.newSession("main")
			if err := killServer(s); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, tt := range absences {
		for _, mode := range guestModes {
			t.Run(tt.name+"/"+mode.name, func(t *testing.T) {
				t.Parallel()
				home := newTmuxHome(t)
				s := home.server("default")
				tt.prepare(t, s)
				lines := home.logCommands()
				g := mode.open(t, home)
				for range 3 {
					g.mustBeAbsent(t, s.name)
				}
				_, dirErr := os.Stat(filepath.Dir(s.socket))
				if tt.name == "no socket" && !os.IsNotExist(dirErr) {
					t.Errorf("the socket directory was made: %v", dirErr)
				}
				g.leave()
				if pid := s.pid(); pid != 0 {
					t.Errorf("a tmux server was started: pid %d", pid)
				}
				mustNotStart(t, lines())
			})
		}
	}
}

// TestServerEndsUnderGuest: a server that goes away while the guest is attached
// stays away, one that comes back is found at once.
func TestServerEndsUnderGuest(t *testing.T) {
	endings := []struct {
		name string
		end  func(t *testing.T, s *tmuxServer)
	}{
		{"kill-server", func(_ *testing.T, s *tmuxServer) { s.run("kill-server") }},
		{"last session killed", func(_ *testing.T, s *tmuxServer) { s.run("kill-session", "-t", "main") }},
		{"SIGKILL", func(t *testing.T, s *tmuxServer) {
			if err := killServer(s); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, tt := range endings {
		for _, mode := range guestModes {
			t.Run(tt.name+"/"+mode.name, func(t *testing.T) {
				t.Parallel()
				s := newTmuxServer(t)
				lines := s.home.logCommands()
				g := mode.open(t, s.home)
				g.poll(t, s, 2)
				s.waitGuests(1, 5*time.Second)
				pid := s.pid()
				tt.end(t, s)
				eventually(t, "the server has ended", 10*time.Second, func() (bool, string) { return !alive(pid), fmt.Sprint(pid) })
				for range 10 {
					g.mustBeAbsent(t, s.name)
				}
				if now := s.pid(); now != 0 {
					t.Errorf("a tmux server was started: pid %d", now)
				}
				s.newSession("main")
				g.poll(t, s, 2)
				g.leave()
				s.waitGuests(0, 5*time.Second)
				mustNotStart(t, lines())
			})
		}
	}
}
