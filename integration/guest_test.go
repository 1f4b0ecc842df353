package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// visible is what a user of the server can see and tmux-mcpd must not change:
// sizes, environments, options and the user's own clients, each by the command
// that shows it.
func (s *tmuxServer) visible() map[string]string {
	s.home.t.Helper()
	shown := map[string]string{}
	show := func(args ...string) {
		s.home.t.Helper()
		shown[strings.Join(args, " ")] = s.run(args...)
	}
	show("list-windows", "-a", "-F", "#{session_name}:#{window_index} #{window_id} #{window_width}x#{window_height} #{window_layout} #{window_active}")
	show("list-panes", "-a", "-F", "#{pane_id} #{pane_width}x#{pane_height} #{pane_pid} #{pane_title} #{pane_active}")
	show("show-environment", "-g")
	show("show-options", "-g")
	show("show-options", "-s")
	show("show-options", "-gw")
	for _, r := range s.sessions() {
		id := r["session_id"].(string)
		show("show-environment", "-t", id)
		show("show-options", "-t", id)
	}
	clients, err := s.clients()
	if err != nil {
		s.home.t.Fatal(err)
	}
	for _, c := range clients {
		if c.termname != productTermname {
			shown["client "+c.name] = c.session + " " + c.size
		}
	}
	return shown
}

// mustStayVisible fails the test for everything that differs from before.
func (s *tmuxServer) mustStayVisible(before map[string]string, when string) {
	s.home.t.Helper()
	now := s.visible()
	all := maps.Clone(before)
	maps.Copy(all, now)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if before[key] != now[key] {
			s.home.t.Errorf("%s, %q has changed\nbefore:\n%s\nnow:\n%s", when, key, before[key], now[key])
		}
	}
}

// TestGuestChangesNoEnvironment: an attaching client takes the variables of
// update-environment from its own environment into the session, unless told not
// to. The guest's are other values than the session's, or none.
func TestGuestChangesNoEnvironment(t *testing.T) {
	environments := []struct {
		name string
		env  []string
	}{
		{"other values", []string{"DISPLAY=:99", "SSH_AUTH_SOCK=/nonexistent/agent", "SSH_AGENT_PID=1", "SSH_CONNECTION=192.0.2.1 1 192.0.2.2 22",
			"WINDOWID=7", "XAUTHORITY=/nonexistent/auth", "KRB5CCNAME=none", "SSH_ASKPASS=none", "EXTRA_TEST_VARIABLE=guest"}},
		{"no values", []string{"DISPLAY", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_CONNECTION", "WINDOWID", "XAUTHORITY", "KRB5CCNAME", "SSH_ASKPASS"}},
	}
	for _, mode := range guestModes {
		for _, e := range environments {
			t.Run(mode.name+"/"+e.name, func(t *testing.T) {
				t.Parallel()
				s := newTmuxServer(t, "set -ga update-environment EXTRA_TEST_VARIABLE")
				s.run("set-environment", "-t", "main", "DISPLAY", ":1")
				s.run("set-environment", "-t", "main", "SSH_AUTH_SOCK", "/tmp/agent of the user")
				s.run("set-environment", "-t", "main", "EXTRA_TEST_VARIABLE", "user")
				before := s.visible()
				g := mode.open(t, s.home, e.env...)
				g.poll(t, s, 3)
				s.waitGuests(1, 5*time.Second)
				s.mustStayVisible(before, "while tmux-mcpd is attached")
				g.leave()
				s.waitGuests(0, 5*time.Second)
				s.mustStayVisible(before, "after tmux-mcpd has left")
				// What a new pane gets is what the user would miss.
				s.run("new-window", "-t", "main:", "-n", "env",
					`printf '%s\n' "$DISPLAY" "$SSH_AUTH_SOCK" "$EXTRA_TEST_VARIABLE" >`+s.home.dir+"/env; exec sleep 9000")
				s.wait("main:env", "#{pane_current_command}", "sleep", 10*time.Second)
				want := ":1\n/tmp/agent of the user\nuser\n"
				if got := readFile(t, s.home.dir+"/env"); got != want {
					t.Errorf("a new pane has the environment %q, want %q", got, want)
				}
			})
		}
	}
}

// TestGuestChangesNoSize: the windows of a session follow the sizes of its
// clients, by the rule of window-size; the guest has none.
func TestGuestChangesNoSize(t *testing.T) {
	type size struct {
		session       string
		width, height int
	}
	terminals := []struct {
		name string
		open []size
	}{
		{"no terminal", nil},
		{"one terminal", []size{{"main", 100, 30}}},
		{"two terminals on one session", []size{{"main", 100, 30}, {"main", 132, 43}}},
		{"two terminals on two sessions", []size{{"main", 90, 25}, {"other", 140, 50}}},
	}
	for _, rule := range []string{"latest", "largest", "smallest", "manual"} {
		for _, tt := range terminals {
			for _, mode := range guestModes {
				t.Run(rule+"/"+tt.name+"/"+mode.name, func(t *testing.T) {
					t.Parallel()
					s := newTmuxServer(t)
					s.newSession("other")
					s.run("split-window", "-h", "-d", "-t", "main", "sleep", "9000")
					s.run("new-window", "-d", "-t", "main:", "sleep", "9000")
					// Last: with "manual" tmux 3.3a crashes when it makes a window without a client.
					s.run("set-option", "-g", "window-size", rule)
					for _, o := range tt.open {
						newTerminal(t, s, o.width, o.height, "attach-session", "-t", o.session)
					}
					before := s.visible()
					g := mode.open(t, s.home)
					g.poll(t, s, 3)
					s.waitGuests(1, 5*time.Second)
					s.mustStayVisible(before, "while tmux-mcpd is attached")
					g.leave()
					s.waitGuests(0, 5*time.Second)
					s.mustStayVisible(before, "after tmux-mcpd has left")
				})
			}
		}
	}
}

// TestGuestSizesFollowTerminals: with the guest attached, windows go on to follow
// the user's terminal, and answers to follow the windows.
func TestGuestSizesFollowTerminals(t *testing.T) {
	for _, mode := range guestModes {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			s := newTmuxServer(t, "set -g status off")
			g := mode.open(t, s.home)
			g.poll(t, s, 1)
			term := newTerminal(t, s, 100, 30, "attach-session", "-t", "main")
			s.wait("main", "#{window_width}x#{window_height}", "100x30", 5*time.Second)
			g.poll(t, s, 1)
			term.resize(81, 24)
			s.wait("main", "#{window_width}x#{window_height}", "81x24", 5*time.Second)
			g.poll(t, s, 1)
			term.hangUp()
			g.poll(t, s, 1)
			g.leave()
			if got := s.format("main", "#{window_width}x#{window_height}"); got != "81x24" {
				t.Errorf("the window is %s after terminal and guest have left, want 81x24", got)
			}
		})
	}
}

// fragile are servers on which leaving can destroy something. The options must be
// set while a terminal is attached: tmux obeys them at once.
var fragile = []struct {
	name      string
	terminals []string // sessions that get one each
	options   [][]string
	destroyed string // the session that goes with the first terminal; "" = the server goes
}{
	{"destroy-unattached on one session", []string{"main"}, [][]string{{"set-option", "-t", "main", "destroy-unattached", "on"}}, "main"},
	{"destroy-unattached on all sessions", []string{"main", "other"}, [][]string{{"set-option", "-g", "destroy-unattached", "on"}}, "main"},
	{"destroy-unattached on the detached session's neighbours", []string{"main", "main"}, [][]string{{"set-option", "-t", "main", "destroy-unattached", "on"}}, "main"},
	{"exit-unattached", []string{"main"}, [][]string{{"set-option", "-s", "exit-unattached", "on"}}, ""},
	{"both", []string{"main", "other"}, [][]string{
		{"set-option", "-s", "exit-unattached", "on"}, {"set-option", "-g", "destroy-unattached", "on"}}, ""},
}

// TestGuestDestroysNothing: neither by its coming nor by its going, however it goes.
func TestGuestDestroysNothing(t *testing.T) {
	endings := []struct {
		name string
		end  func(guest)
	}{
		{"leaves", func(g guest) { g.leave() }},
		{"crashes", func(g guest) { g.crash() }},
	}
	for _, tt := range fragile {
		for _, mode := range guestModes {
			for _, ending := range endings {
				t.Run(tt.name+"/"+mode.name+"/"+ending.name, func(t *testing.T) {
					t.Parallel()
					s := newTmuxServer(t)
					s.newSession("other")
					for i, session := range tt.terminals {
						newTerminal(t, s, 100+10*i, 30, "attach-session", "-t", session)
					}
					for _, o := range tt.options {
						s.run(o...)
					}
					pid, before := s.pid(), s.visible()
					g := mode.open(t, s.home)
					g.poll(t, s, 5)
					s.mustStayVisible(before, "while tmux-mcpd works")
					ending.end(g)
					s.waitGuests(0, 5*time.Second)
					s.mustStayVisible(before, "after tmux-mcpd has gone")
					if now := s.pid(); now != pid {
						t.Errorf("the tmux server is pid %d, was %d", now, pid)
					}
				})
			}
		}
	}
}

// holdWithin is how soon what the user wants gone must be gone with the guest
// there: the guest leaves at most 1.5 s after the cause, the rest is for a loaded
// machine.
const holdWithin = 5 * time.Second

// TestGuestHoldsNothingUp: what ends with the user's last client ends although the
// guest is there, and the rest stays.
func TestGuestHoldsNothingUp(t *testing.T) {
	for _, tt := range fragile {
		for _, mode := range guestModes {
			t.Run(tt.name+"/"+mode.name, func(t *testing.T) {
				t.Parallel()
				s := newTmuxServer(t)
				s.newSession("other")
				var terms []*terminal
				for i, session := range tt.terminals {
					terms = append(terms, newTerminal(t, s, 100+10*i, 30, "attach-session", "-t", session))
				}
				for _, o := range tt.options {
					s.run(o...)
				}
				pid := s.pid()
				g := mode.open(t, s.home)
				g.poll(t, s, 2)
				for i, term := range terms {
					// Only what "main" needs is closed; the server goes with the last of all.
					if tt.destroyed == "" || tt.terminals[i] == tt.destroyed {
						term.hangUp()
					}
				}
				if tt.destroyed == "" {
					eventually(t, "the tmux server has ended", holdWithin, func() (bool, string) { return !alive(pid), "alive" })
					for _, tool := range []string{"list_panes", "list_sessions"} {
						rows, err := g.client.list(tool, map[string]any{"socket_name": s.name})
						if err != nil || len(rows) != 0 {
							t.Errorf("%s without a server: %v, %v", tool, rows, err)
						}
					}
					if now := s.pid(); now != 0 {
						t.Errorf("a tmux server was started again: pid %d", now)
					}
				} else {
					eventually(t, "the session has ended", holdWithin, func() (bool, string) {
						names, _ := s.try("list-sessions", "-F", "#{session_name}")
						return names == "other\n", names
					})
					g.poll(t, s, 2)
				}
				g.leave()
			})
		}
	}
}

// TestGuestCrash: a killed tmux-mcpd leaves no client behind on the server, and
// kill-server still works at once.
func TestGuestCrash(t *testing.T) {
	for _, mode := range guestModes {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			s := newTmuxServer(t)
			g := mode.open(t, s.home)
			g.poll(t, s, 2)
			s.waitGuests(1, 5*time.Second)
			before := s.visible()
			g.crash()
			s.waitGuests(0, 5*time.Second)
			s.mustStayVisible(before, "after the crash")
			pid := s.pid()
			s.run("kill-server")
			eventually(t, "the server has ended", 5*time.Second, func() (bool, string) { return !alive(pid), fmt.Sprint(pid) })
		})
	}
}
