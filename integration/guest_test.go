package integration

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
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

// guestSeconds is how long TestGuestPolled polls on each server.
func guestSeconds(t testing.TB) time.Duration {
	t.Helper()
	if text := os.Getenv("TMUX_MCPD_TEST_GUEST_SECONDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("TMUX_MCPD_TEST_GUEST_SECONDS: %v", err)
		}
		return time.Duration(n) * time.Second
	}
	if testing.Short() || os.Getenv("CI") != "" {
		return 3 * time.Second
	}
	return 20 * time.Second
}

// guestRate is how often the guest is asked.
const guestRate = 100 // per second

// A userStep is something a user does while the guest is there.
type userStep struct {
	name      string
	terminals int // that it needs
	do        func(tw *twins)
}

func onBoth(args ...string) func(*twins) { return func(tw *twins) { tw.run(args...) } }

var userSteps = []userStep{
	{"status of three lines", 0, onBoth("set-option", "-g", "status", "3")},
	{"status of one line", 0, onBoth("set-option", "-g", "status", "on")},
	{"select-window", 0, onBoth("select-window", "-t", "main:1")},
	{"status off", 0, onBoth("set-option", "-g", "status", "off")},
	{"status of two lines", 0, onBoth("set-option", "-g", "status", "2")},
	{"status on", 0, onBoth("set-option", "-g", "status", "on")},
	{"select-window back", 0, onBoth("select-window", "-t", "main:0")},
	{"a terminal grows", 1, func(tw *twins) { tw.onTerminals(0, func(term *terminal) { term.resize(111, 33) }) }},
	{"a terminal shrinks", 1, func(tw *twins) { tw.onTerminals(0, func(term *terminal) { term.resize(77, 22) }) }},
	{"status off again", 0, onBoth("set-option", "-g", "status", "off")},
	{"keys are typed", 2, func(tw *twins) {
		tw.onTerminals(1, func(term *terminal) { term.write("x") })
	}},
	{"status on again", 0, onBoth("set-option", "-g", "status", "on")},
	{"split-window", 0, onBoth("split-window", "-d", "-h", "-t", "main:0", "sleep", "9000")},
	{"resize-pane -Z", 0, onBoth("resize-pane", "-Z", "-t", "main:0")},
	{"kill-pane", 0, onBoth("kill-pane", "-a", "-t", "main:0")},
	{"window-size largest", 0, onBoth("set-option", "-g", "window-size", "largest")},
	{"window-size smallest", 0, onBoth("set-option", "-g", "window-size", "smallest")},
	{"window-size latest", 0, onBoth("set-option", "-g", "window-size", "latest")},
	{"new-window", 0, onBoth("new-window", "-t", "other:", "-n", "third", "sleep", "9000")},
	{"rename-session", 0, onBoth("rename-session", "-t", "other", "another")},
	{"rename-session back", 0, onBoth("rename-session", "-t", "another", "other")},
	{"switch-client -c", 1, func(tw *twins) {
		tw.onTerminals(0, func(term *terminal) {
			term.server.run("switch-client", "-c", term.tty, "-t", "other")
		})
	}},
	{"switch-client -c back", 1, func(tw *twins) {
		tw.onTerminals(0, func(term *terminal) {
			term.server.run("switch-client", "-c", term.tty, "-t", "main")
		})
	}},
	{"new-session", 0, onBoth("new-session", "-d", "-s", "fourth", "-x", "90", "-y", "20", "sleep", "9000")},
	{"kill-session", 0, onBoth("kill-session", "-t", "fourth")},
	{"set-environment", 0, onBoth("set-environment", "-t", "main", "SSH_AUTH_SOCK", "/tmp/another agent")},
}

// TestGuestPolled is the quiet guest at full work: asked a hundred times a
// second while a user works, on a server of which there is a twin without it.
func TestGuestPolled(t *testing.T) {
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
		{"two terminals on two sessions", []size{{"main", 90, 25}, {"other", 140, 50}}},
		{"two terminals on one window", []size{{"main", 100, 30}, {"main", 132, 43}}},
	}
	for _, mode := range guestModes {
		for _, tt := range terminals {
			t.Run(mode.name+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				length := guestSeconds(t)
				tw := newTwins(t, "set -s message-limit 100000")
				for _, o := range tt.open {
					tw.terminal(o.width, o.height, o.session)
				}
				for _, s := range tw.both() {
					s.keepJournal()
				}
				tw.mustBeAlike("before tmux-mcpd comes")
				processes := tw.host.processes(t)

				g := mode.open(t, tw.host.home, "SSH_AUTH_SOCK=/nonexistent/agent", "DISPLAY=:99")
				p := g.startPolling(t, tw.host, guestRate, len(tt.open))
				tw.host.waitGuests(1, 5*time.Second)
				tw.mustBeAlike("after tmux-mcpd has come")

				if last := len(tt.open) - 1; last >= 0 {
					// The user works in a terminal. Until somebody types, see unavoidable.
					tw.onTerminals(last, func(term *terminal) { term.write("x") })
					tw.mustBeAlike("after a key")
					p.mustAnswerRightly()
				}

				// Nobody does anything: what does the asking alone do?
				first := p.status()
				told := tw.host.messagesOf(t, tw)
				p.mustAnswerRightly() // what the look has changed is known now
				begin := time.Now()
				before := p.status()
				eventually(t, "half of the time has passed", 2*length+10*time.Second, func() (bool, string) {
					return time.Since(begin) > length/2, ""
				})
				after, took := p.status(), time.Since(begin)
				lines := tw.host.messagesOf(t, tw) - told
				last := p.status() // each line that is counted is of a dump since the first
				asked, probes, dumps := after.Requests-before.Requests, after.Probes-before.Probes, after.Dumps-before.Dumps
				t.Logf("nobody does anything for %v: %d requests, %d probes, %d dumps; with two looks of ours %d dumps, %d lines in show-messages",
					took.Round(time.Millisecond), asked, probes, dumps, last.Dumps-first.Dumps, lines)
				limit := uint64(took/time.Second) + 2
				if tw.host.atLeast(3, 8) {
					limit += asked / 100 // false hints, see TestPollingIsCheap
				}
				if dumps > limit {
					t.Errorf("%d dumps in %v, want at most one per second", dumps, took)
				}
				if probes > asked+dumps {
					t.Errorf("%d probes for %d requests", probes, asked)
				}
				if lines > linesPerDump*int(last.Dumps-first.Dumps) {
					t.Errorf("%d lines in show-messages for %d dumps", lines, last.Dumps-first.Dumps)
				}
				tw.mustBeAlike("after many requests")

				for _, step := range userSteps {
					if step.terminals > len(tt.open) {
						continue
					}
					step.do(tw)
					tw.mustBeAlike("after " + step.name)
					p.mustAnswerRightly()
				}
				eventually(t, "the time has passed", 2*length+10*time.Second, func() (bool, string) {
					return time.Since(begin) > length, ""
				})
				tw.mustBeAlike("at the end of the work")
				if guests := tw.host.guests(); len(guests) != 1 {
					t.Errorf("%d clients of tmux-mcpd are attached: %v", len(guests), guests)
				}
				if now := tw.host.processes(t); len(now) != len(processes)+1 {
					t.Errorf("%d tmux processes, want one more than the %d before:\n%s", len(now), len(processes), strings.Join(now, "\n"))
				}
				final := p.status()
				polls := p.stop()
				t.Logf("%v: %d polls, %d requests, %d dumps, %d attaches, %d exits", time.Since(begin).Round(time.Second),
					polls, final.Requests, final.Dumps, final.Attaches, final.Exits)
				if final.Attaches != 1 {
					t.Errorf("%d attaches", final.Attaches)
				}
				g.leave()
				tw.host.waitGuests(0, 5*time.Second)
				tw.mustBeAlike("after tmux-mcpd has left")
				if now := tw.host.processes(t); len(now) != len(processes) {
					t.Errorf("%d tmux processes are left of %d:\n%s", len(now), len(processes), strings.Join(now, "\n"))
				}
				ours := map[string]int{"client-attached": 1, "client-session-changed": 1, "client-detached": 1}
				if tw.host.atLeast(3, 8) {
					ours["client-created"], ours["client-closed"] = 1, 1
				}
				tw.mustHaveHeard(ours)
			})
		}
	}
}

// linesPerDump is how many lines tmux writes into its log for one dump, which is
// one command (3.3a to 3.8) as long as no client comes or goes.
const linesPerDump = 1

// lives are options by which tmux ends sessions or itself when clients leave.
var lives = []struct {
	name    string
	options [][]string
	since   [2]int // version that has the choice
}{
	{"destroy-unattached", [][]string{{"set-option", "-t", "main", "destroy-unattached", "on"}}, [2]int{3, 2}},
	{"destroy-unattached everywhere", [][]string{{"set-option", "-g", "destroy-unattached", "on"}}, [2]int{3, 2}},
	{"destroy-unattached keep-last", [][]string{{"set-option", "-g", "destroy-unattached", "keep-last"}}, [2]int{3, 4}},
	{"destroy-unattached keep-group", [][]string{
		{"new-session", "-d", "-s", "mate", "-t", "main"}, {"set-option", "-g", "destroy-unattached", "keep-group"}}, [2]int{3, 4}},
	{"exit-unattached", [][]string{{"set-option", "-s", "exit-unattached", "on"}}, [2]int{3, 2}},
	{"both", [][]string{{"set-option", "-t", "main", "destroy-unattached", "on"}, {"set-option", "-s", "exit-unattached", "on"}}, [2]int{3, 2}},
}

// leaveWhen is how soon we must be out of the way of what tmux would end.
const leaveWhen = 1500 * time.Millisecond

// TestGuestLivesAndDies: with the options that let sessions or the server end, a
// server with the guest lives and dies as one without, at most 1.5 s later.
func TestGuestLivesAndDies(t *testing.T) {
	moments := []struct {
		name         string
		before, asks bool
	}{
		{"set before, asked", true, true},
		{"set before, not asked", true, false},
		{"set later, asked", false, true},
		{"set later, not asked", false, false},
	}
	attached := []struct {
		name     string
		sessions []string
	}{
		{"no terminal", nil},
		{"one in main", []string{"main"}},
		{"one in other", []string{"other"}},
		{"both", []string{"main", "other"}},
	}
	for i, life := range lives {
		for j, moment := range moments {
			for k, at := range attached {
				mode := guestModes[(i+j+k)%len(guestModes)]
				if testing.Short() && (i+j+k)/len(guestModes)%2 == 1 {
					continue
				}
				t.Run(life.name+"/"+moment.name+"/"+at.name+"/"+mode.name, func(t *testing.T) {
					t.Parallel()
					tw := newTwins(t)
					if !tw.host.atLeast(life.since[0], life.since[1]) {
						t.Skipf("needs tmux %d.%d", life.since[0], life.since[1])
					}
					for n, session := range at.sessions {
						tw.terminal(100+n*10, 30, session)
					}
					set := func() {
						for _, s := range tw.both() {
							for _, o := range life.options {
								_, _ = s.try(o...) // the first may end what the second is for
							}
						}
					}
					if moment.before {
						set()
					}
					g := mode.open(t, tw.host.home)
					p := g.startPolling(t, tw.host, guestRate, len(at.sessions))
					eventually(t, "it has been asked", 10*time.Second, func() (bool, string) { return p.count() > 5, "" })
					if !moment.before {
						tw.host.waitGuests(1, 5*time.Second)
					}
					if !moment.asks {
						p.halt()
						<-p.ended
					}
					if moment.before {
						tw.mustLiveAlike("after tmux-mcpd has come", time.Now())
					} else {
						begun := time.Now()
						set()
						tw.mustLiveAlike("after the options are set", begun)
					}
					for n := range at.sessions {
						begun := time.Now()
						p.expect(len(at.sessions)-n-1, func() { tw.onTerminals(n, func(term *terminal) { term.hangUp() }) })
						tw.mustLiveAlike("after a terminal has gone", begun)
					}
					p.stop()
					if s := tw.host.sessionNames(); s != gone {
						g.poll(t, tw.host, 1)
					} else {
						g.mustBeAbsent(t, tw.host.name)
					}
					begun := time.Now()
					g.leave()
					tw.mustLiveAlike("after tmux-mcpd has left", begun)
				})
			}
		}
	}
}

// TestGuestLetsServerEnd: kill-server ends a server at once with the guest there
// and at work.
func TestGuestLetsServerEnd(t *testing.T) {
	for _, mode := range guestModes {
		for terminals := range 2 {
			t.Run(fmt.Sprintf("%s/%d terminals", mode.name, terminals), func(t *testing.T) {
				t.Parallel()
				tw := newTwins(t)
				for range terminals {
					tw.terminal(100, 30, "main")
				}
				g := mode.open(t, tw.host.home)
				p := g.startPolling(t, tw.host, guestRate, terminals)
				tw.host.waitGuests(1, 5*time.Second)
				var took [2]time.Duration
				lag := watchLag()
				p.expect(0, func() {
					for i, s := range tw.both() {
						pid, begun := s.pid(), time.Now()
						s.run("kill-server")
						eventually(t, "the server has ended", 10*time.Second, func() (bool, string) { return !alive(pid), fmt.Sprint(pid) })
						took[i] = time.Since(begun)
					}
				})
				late := lag.end()
				t.Logf("kill-server took %v with tmux-mcpd, %v without; this machine was up to %v late",
					took[0].Round(time.Millisecond), took[1].Round(time.Millisecond), late.Round(time.Millisecond))
				if took[0] > time.Second+late {
					t.Errorf("kill-server took %v", took[0])
				}
				p.stop()
				g.mustBeAbsent(t, tw.host.name)
				g.leave()
			})
		}
	}
}
