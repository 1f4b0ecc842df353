package integration

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestHarness checks the harness itself on tmux alone: terminals, control
// clients, rows and the end of servers.
func TestHarness(t *testing.T) {
	t.Parallel()
	s := newTmuxServer(t, "set -g status off")
	s.run("new-window", "-t", "main:", "-n", "shell", "-c", s.home.dir, "PS1='ready> ' exec sh")
	term := newTerminal(t, s, 90, 25, "attach-session", "-t", "main")
	term.waitText("ready>", 10*time.Second)
	term.write("echo typed-$((40+2))\r")
	term.waitText("typed-42", 10*time.Second)
	s.wait("main", "#{window_width}x#{window_height}", "90x25", 5*time.Second)
	term.resize(70, 20)
	s.wait("main", "#{window_width}x#{window_height}", "70x20", 5*time.Second)

	control := newControlClient(t, s, "attach-session", "-t", "main", "-f", "ignore-size")
	control.send("rename-window heard")
	control.waitText("%window-renamed", 5*time.Second)
	if got := s.sessions()[0]["session_attached"]; got != "2" {
		t.Errorf("session_attached is %v, want 2", got)
	}
	control.close()
	term.hangUp()
	if got := s.sessions()[0]["session_attached"]; got != "0" {
		t.Errorf("session_attached is %v, want 0", got)
	}

	panes := s.panes()
	if len(panes) != 2 || panes[0]["pane_current_command"] != "sleep" || panes[1]["pane_current_path"] != s.home.dir {
		t.Errorf("panes: %v", panes)
	}
	for _, r := range panes {
		if len(r) != len(paneFields) {
			t.Errorf("row has %d keys, want %d: %v", len(r), len(paneFields), r)
		}
		for _, f := range paneFields {
			want := map[valueKind]string{textValue: "string", numberValue: "json.Number", flagValue: "bool"}[f.kind]
			if got := reflect.TypeOf(r[f.key]).String(); got != want {
				t.Errorf("%s is a %s, want %s", f.key, got, want)
			}
		}
	}
	pid := s.pid()
	s.stop()
	if alive(pid) && s.owns(pid) {
		t.Errorf("server %d is alive after stop", pid)
	}
}

// TestHarnessKeepsAway: no test can reach the tmux of the user who runs it.
func TestHarnessKeepsAway(t *testing.T) {
	t.Setenv("TMUX", "/nonexistent/users,1,0")
	t.Setenv("TMUX_PANE", "%7")
	t.Setenv("LIBTMUX_SOCKET", "users")
	t.Setenv("LC_ALL", "C")
	home := newTmuxHome(t)
	for _, env := range [][]string{home.environ(), home.clientEnviron()} {
		for _, e := range env {
			for _, bad := range []string{"TMUX=", "TMUX_PANE=", "LIBTMUX", "LC_ALL="} {
				if strings.HasPrefix(e, bad) {
					t.Errorf("%s is handed on", e)
				}
			}
		}
	}
	if !strings.HasPrefix(home.socketPath("x"), home.dir+"/") {
		t.Errorf("socket %s is outside %s", home.socketPath("x"), home.dir)
	}
}

// TestHarnessRows: the text that tmux prints is taken apart as it was put together.
func TestHarnessRows(t *testing.T) {
	s := newTmuxServer(t)
	for _, title := range []string{"plain", "späce ☃ 端末", `q"uo'te $HOME`, "{[|]}<>,"} {
		s.run("select-pane", "-t", "main", "-T", title)
		if got := s.panes()[0]["pane_title"]; got != title {
			t.Errorf("title %q is read as %q", title, got)
		}
	}
}
