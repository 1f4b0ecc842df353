package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// unavoidable is what a tmux user can notice of tmux-mcpd and tmux lets nobody
// avoid who is attached to it. The README has the same list. Each entry is shown to
// be true on twin servers, of which one has the guest: seen says what was seen, and
// whether it is the effect that the text speaks of. An effect that a version does
// not have is no error; it is printed.
var unavoidable = []struct {
	text string
	conf []string
	// prepare is done before the guest comes, seen looks afterwards.
	prepare func(tw *twins)
	seen    func(tw *twins, p *polling) (saw string, effect bool)
	// everywhere is set where all versions have the effect.
	everywhere bool
}{
	{
		text:       "The session we sit in has the mark \"(attached)\" in `tmux ls`, and its `session_attached` is one higher. Where somebody is attached we sit with them; else in the session that commands without a target go to.",
		everywhere: true,
		seen: func(tw *twins, _ *polling) (string, bool) {
			host, alone := tw.host.run("list-sessions"), tw.alone.run("list-sessions")
			return "`tmux ls` has " + fmt.Sprint(strings.Count(host, "(attached)")) + " marks, " + fmt.Sprint(strings.Count(alone, "(attached)")) + " without us",
				strings.Count(host, "(attached)") == 1 && strings.Count(alone, "(attached)") == 0
		},
	},
	{
		text:       "The bell, activity and silence flags of that session's current window are cleared once, when we come.",
		everywhere: true,
		prepare: func(tw *twins) {
			for _, s := range tw.both() {
				s.run("new-window", "-t", "other:", "-n", "bell", `printf '\a'; exec sleep 9000`)
				s.run("kill-session", "-t", "main")
				s.wait("other:bell", "#{window_bell_flag}", "1", 10*time.Second)
			}
		},
		seen: func(tw *twins, _ *polling) (string, bool) {
			host, alone := tw.host.format("other:bell", "#{window_bell_flag}"), tw.alone.format("other:bell", "#{window_bell_flag}")
			return "window_bell_flag is " + host + ", " + alone + " without us", host == "0" && alone == "1"
		},
	},
	{
		text:       "`tmux attach` without a target takes a session that nobody is attached to before the one we sit in.",
		everywhere: true,
		prepare: func(tw *twins) {
			tw.run("new-session", "-d", "-s", "newest", "sleep", "9000")
		},
		seen: func(tw *twins, p *polling) (saw string, effect bool) {
			var went [2]string
			p.expect(1, func() {
				for i, s := range tw.both() {
					term := newTerminal(tw.t, s, 90, 30, "attach-session")
					clients, err := s.clients()
					if err != nil {
						tw.t.Fatal(err)
					}
					for _, c := range clients {
						if c.tty == term.tty {
							went[i] = c.session
						}
					}
				}
			})
			return fmt.Sprintf("it went to %s, to %s without us", went[0], went[1]), went[0] != went[1]
		},
	},
	{
		text:       "Our client is the latest of its session until somebody types there: commands from outside of tmux that name no client meet ours and not the terminal (`display-message` shows its text to nobody, `detach-client` detaches us; we come back). A `switch-client` we hand on.",
		everywhere: true,
		prepare:    func(tw *twins) { tw.terminal(100, 30, "main") },
		seen: func(tw *twins, _ *polling) (string, bool) {
			const text = "text for somebody"
			for _, s := range tw.both() {
				_, _ = s.try("display-message", text)
			}
			alone := tw.terms[0][1].screen.wait(text, 10*time.Second)
			host := tw.terms[0][0].screen.wait(text, 500*time.Millisecond)
			_, _ = tw.host.try("switch-client", "-t", "other")
			_, moved := holdsWithin(5*time.Second, func() (bool, string) {
				clients, _ := tw.host.clients() // looked at again
				for _, c := range clients {
					if c.tty == tw.terms[0][0].tty {
						return c.session == "other", ""
					}
				}
				return false, ""
			})
			if !moved {
				tw.t.Error("a switch-client without a client did not move the terminal")
			}
			_, err := tw.host.try("detach-client")
			clients, _ := tw.host.clients() // the terminal must be among them
			stayed := strings.Contains(fmt.Sprint(clients), tw.terms[0][0].tty)
			return fmt.Sprintf("the terminal has shown the message: %v, %v without us; it moved with switch-client; detach-client (%v) left it attached: %v", host, alone, err, stayed),
				alone && !host && stayed
		},
	},
	{
		text:    "From 3.7 on a window that is made from outside of tmux in a session nobody is attached to gets the size of `default-size` and not that of the terminal, until somebody types.",
		prepare: func(tw *twins) { tw.terminal(77, 23, "main") },
		seen: func(tw *twins, _ *polling) (string, bool) {
			tw.run("new-window", "-d", "-t", "other:", "-n", "made", "sleep", "9000")
			const size = "#{window_width}x#{window_height}"
			host, alone := tw.host.format("other:made", size), tw.alone.format("other:made", size)
			return "it has " + host + ", " + alone + " without us", host != alone
		},
	},
	{
		text: "With two terminals of different size on one window, and nowhere better to sit, that window follows neither of them until somebody types: `set status` or the like does not resize it at once.",
		prepare: func(tw *twins) {
			tw.terminal(100, 30, "main")
			tw.terminal(132, 43, "main")
		},
		everywhere: true,
		seen: func(tw *twins, _ *polling) (string, bool) {
			tw.run("set-option", "-g", "status", "off")
			tw.alone.wait("main", "#{window_height}", "43", 5*time.Second)
			before := tw.host.format("main", "#{window_height}")
			tw.onTerminals(1, func(term *terminal) { term.write("x") })
			tw.mustBeAlike("after a key")
			return "the height is " + before + " after `set status off`, 43 without us; the same after a key", before == "42"
		},
	},
	{
		text:       "Each time our cache is made anew (after changes, and once a second while somebody asks) `show-messages` has one more line of ours, and a hook on `after-list-panes` runs once; if clients have come or gone, one more line, and one on `after-list-clients`. A hook on `after-list-panes` makes every request one of these.",
		conf:       []string{"set -s message-limit 100000"},
		everywhere: true,
		prepare:    func(tw *twins) { tw.terminal(100, 30, "main") },
		seen: func(tw *twins, p *polling) (string, bool) {
			for _, hook := range []string{"after-list-panes", "after-list-clients"} {
				tw.host.run("set-hook", "-g", hook, "set-option -ga @journal '"+hook+" '")
			}
			ran := tw.host.journal()
			before, told := p.status(), tw.host.messagesOf(tw.t, tw)
			eventually(tw.t, "dumps", 10*time.Second, func() (bool, string) {
				s := p.status()
				return s.Dumps > before.Dumps+10, fmt.Sprint(s)
			})
			p.halt()
			<-p.ended
			after, lines, have := p.status(), tw.host.messagesOf(tw.t, tw)-told, tw.host.journal()
			runs, asked := have["after-list-panes"]-ran["after-list-panes"], have["after-list-clients"]-ran["after-list-clients"]
			dumps := int(after.Dumps - before.Dumps)
			// A dump or two may be under way at either look, which lists the clients.
			return fmt.Sprintf("%d dumps: %d lines, %d runs of after-list-panes, %d of after-list-clients", dumps, lines, runs, asked),
				lines >= dumps-4 && lines <= linesPerDump*(dumps+4) && runs >= dumps-1 && runs <= dumps+4 && asked <= 2
		},
	},
	{
		text:       "Each time we attach, the hooks client-attached and client-session-changed run once, and client-detached when we leave (3.8: client-created and client-closed, too); before that after-list-sessions, after-list-clients, after-list-panes once and after-display-message twice.",
		everywhere: true,
		prepare: func(tw *twins) {
			for _, s := range tw.both() {
				s.keepJournal()
				for _, hook := range []string{"after-list-sessions", "after-display-message"} {
					s.run("set-hook", "-g", hook, "set-option -ga @journal '"+hook+" '")
				}
			}
		},
		seen: func(tw *twins, p *polling) (string, bool) {
			j := tw.host.journal()
			return fmt.Sprint(j), j["client-attached"] == 1 && j["client-session-changed"] == 1 && j["client-detached"] == 0
		},
	},
	{
		text: "With `focus-events on` a program in the current pane of that session that has asked for it is told that it has the focus when we come; the hooks pane-focus-in, pane-focus-out and client-active may run once more or less.",
		conf: []string{"set -s focus-events on"},
		prepare: func(tw *twins) {
			for _, s := range tw.both() {
				s.run("respawn-pane", "-k", "-t", "main:0", `printf '\033[?1004h'; stty raw -echo; exec cat -v >'`+s.home.dir+"/focus-"+s.name+"'")
				s.wait("main:0", "#{pane_current_command}", "cat", 10*time.Second)
				s.run("select-window", "-t", "main:0")
				s.run("kill-session", "-t", "other")
			}
		},
		seen: func(tw *twins, _ *polling) (string, bool) {
			read := func(s *tmuxServer) string { return readFile(tw.t, s.home.dir+"/focus-"+s.name) }
			saw, _ := holdsWithin(2*time.Second, func() (bool, string) {
				return strings.Contains(read(tw.host), "[I"), read(tw.host)
			})
			return fmt.Sprintf("the program was sent %q, %q without us", saw, read(tw.alone)), strings.Contains(saw, "[I") && !strings.Contains(read(tw.alone), "[I")
		},
	},
	{
		text: "With no other client attached, `display-menu` and `confirm-before` from outside of tmux that name no client wait for an answer of our client instead of failing with \"no current client\".",
		seen: func(tw *twins, _ *polling) (string, bool) {
			argv := func(s *tmuxServer) []string { return s.argv("confirm-before", "-p", "sure?", "display-message x") }
			_, errs, _ := command(argv(tw.alone), tw.alone.home.environ(), "/", nil, 5*time.Second)
			_, hostErrs, err := command(argv(tw.host), tw.host.home.environ(), "/", nil, time.Second)
			return fmt.Sprintf("confirm-before: %v %q, %q without us", err, hostErrs, errs), len(hostErrs) == 0 && len(errs) > 0
		},
	},
	{
		text:       "`list-clients` and `choose-client` show our client, `session_activity` and `session_last_attached` of that session are the time when we came, and `tmux ls -F` with them shows it.",
		everywhere: true,
		seen: func(tw *twins, _ *polling) (string, bool) {
			clients, _ := tw.host.clients() // a server without clients has none
			return fmt.Sprint(clients), len(clients) == 1 && clients[0].termname == productTermname
		},
	},
}

// TestUnavoidable prints what can be noticed of us, having made sure of it.
func TestUnavoidable(t *testing.T) {
	for i, u := range unavoidable {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			tw := newTwins(t, u.conf...)
			if u.prepare != nil {
				u.prepare(tw)
			}
			d := startDaemon(t, tw.host.home, nil)
			g := dialGuest(t, d, tw.host.home)
			p := g.startPolling(t, tw.host, guestRate, -1)
			tw.host.waitGuests(1, 10*time.Second)
			saw, effect := u.seen(tw, p)
			_, version, _ := realTmux() // it has been used
			switch {
			case effect:
				t.Logf("tmux %s: %s\n(seen: %s)", version, u.text, saw)
			case u.everywhere:
				t.Errorf("not on tmux %s any more: %s\n(seen: %s)", version, u.text, saw)
			default:
				t.Logf("not on tmux %s: %s\n(seen: %s)", version, u.text, saw)
			}
			p.stop()
			g.leave()
		})
	}
}
