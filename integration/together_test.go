package integration

import (
	"sync"
	"testing"
	"time"
)

// together are several tmux-mcpd on one tmux server: a daemon with a client of its
// own and one through a bridge, and two hosts that have no daemon.
func together(t *testing.T, s *tmuxServer) map[string]*mcpClient {
	t.Helper()
	d := startDaemon(t, s.home, nil)
	direct, err := d.dial(t, map[string]string{"TMUX_TMPDIR": s.home.tmpdir})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*mcpClient{
		"daemon":          direct,
		"bridge":          d.host(t, launch{}).mcpClient,
		"first embedded":  hostModes[0].open(t, s.home, launch{}).mcpClient,
		"second embedded": hostModes[0].open(t, s.home, launch{}).mcpClient,
	}
}

// mustShowAttached asks every client n times for the number of clients of a
// session, by both tools.
func mustShowAttached(t *testing.T, clients map[string]*mcpClient, session, want string, n int) {
	t.Helper()
	for range n {
		for name, c := range clients {
			for _, r := range c.mustList(t, "list_sessions", nil) {
				shown := "0"
				if r["session_name"] == session {
					shown = want
				}
				if r["session_attached"] != shown {
					t.Errorf("%s: session_attached of %v is %v, want %s", name, r["session_name"], r["session_attached"], shown)
				}
			}
			c.mustMatch(t, "list_sessions", map[string]any{"session_name": session, "session_attached": want}, "$0")
			c.mustMatch(t, "list_panes", map[string]any{"session_name": session, "session_attached": want}, "%0")
		}
	}
}

// TestTogether: no tmux-mcpd counts itself or another one, and each counts the
// clients that are real.
func TestTogether(t *testing.T) {
	t.Parallel()
	s := newTmuxServer(t)
	s.newSession("other")
	clients := together(t, s)
	mustShowAttached(t, clients, "main", "0", 3)
	s.waitGuests(3, 5*time.Second)
	mustShowAttached(t, clients, "main", "0", 10)

	first := newTerminal(t, s, 100, 30, "attach-session", "-t", "main")
	mustShowAttached(t, clients, "main", "1", 5)
	control := newControlClient(t, s, "attach-session", "-t", "main", "-f", "ignore-size")
	mustShowAttached(t, clients, "main", "2", 5)
	control.close()
	mustShowAttached(t, clients, "main", "1", 5)
	first.hangUp()
	mustShowAttached(t, clients, "main", "0", 5)
	s.run("detach-client", "-a") // all of ours go, and come back
	mustShowAttached(t, clients, "main", "0", 5)
}

// TestClientFields: what else counts or names clients does not see ours.
func TestClientFields(t *testing.T) {
	t.Parallel()
	s := newTmuxServer(t)
	s.run("new-session", "-d", "-t", "main", "-s", "twin") // a group of two
	clients := together(t, s)
	mustShowAttached(t, clients, "main", "0", 1)
	s.waitGuests(3, 5*time.Second)
	check := func(when string, filters map[string]any, ids ...string) {
		t.Helper()
		for name, c := range clients {
			t.Log(when, name)
			c.mustMatch(t, "list_sessions", filters, ids...)
		}
	}
	all := []string{"$0", "$1"}
	check("nobody", map[string]any{"session_attached": "0"}, all...)
	check("nobody", map[string]any{"session_many_attached": "1"})
	check("nobody", map[string]any{"session_group_attached": "0"}, all...)
	check("nobody", map[string]any{"session_group_many_attached": "1"})
	check("nobody", map[string]any{"window_active_clients": "0"}, all...)
	check("nobody", map[string]any{"session_attached_list__regex": ""})
	check("nobody", map[string]any{"session_group_attached_list__regex": ""})
	check("nobody", map[string]any{"window_active_clients_list__regex": ""})

	term := newTerminal(t, s, 100, 30, "attach-session", "-t", "twin")
	check("one", map[string]any{"session_attached": "1"}, "$1")
	check("one", map[string]any{"session_many_attached": "1"})
	check("one", map[string]any{"session_group_attached": "1"}, all...)
	check("one", map[string]any{"session_group_many_attached": "1"})
	check("one", map[string]any{"window_active_clients": "1"}, all...)
	check("one", map[string]any{"session_attached_list": term.tty}, "$1")
	check("one", map[string]any{"session_group_attached_list": term.tty}, all...)
	check("one", map[string]any{"window_active_clients_list": term.tty}, all...)

	newTerminal(t, s, 100, 30, "attach-session", "-t", "twin")
	check("two", map[string]any{"session_attached": "2"}, "$1")
	check("two", map[string]any{"session_many_attached": "1"}, "$1")
	check("two", map[string]any{"session_group_many_attached": "1"}, all...)
	check("two", map[string]any{"window_active_clients": "2"}, all...)
}

// TestIdleDetach: our client leaves when nobody has asked for as long as the
// daemon was told, and comes back with the next question.
func TestIdleDetach(t *testing.T) {
	s := newTmuxServer(t)
	newTerminal(t, s, 100, 30, "attach-session", "-t", "main") // else a minute is the most
	d := startDaemon(t, s.home, []string{"TMUX_MCPD_IDLE_DETACH=1500ms"})
	c, err := d.dial(t, map[string]string{"TMUX_TMPDIR": s.home.tmpdir})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c.mustList(t, "list_sessions", nil)
		s.waitGuests(1, 5*time.Second)
		asked := time.Now()
		c.mustList(t, "list_sessions", nil)
		s.waitGuests(0, 10*time.Second)
		if stayed := time.Since(asked); stayed < time.Second {
			t.Errorf("our client has left after %v", stayed)
		}
	}
}

// TestSwitchIsHandedOn: a switch-client from outside that names no client meets
// ours, and moves the terminal all the same before the next answer, whether that
// comes from the cache or has to be fetched.
func TestSwitchIsHandedOn(t *testing.T) {
	filters := map[string]map[string]any{
		"cached":  nil,
		"fetched": {"filters": map[string]any{"session_alerts__regex": ""}},
	}
	for name, filter := range filters {
		t.Run(name, func(t *testing.T) {
			inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
				s := newTmuxServer(t)
				s.newSession("other")
				term := newTerminal(t, s, 100, 30, "attach-session", "-t", "main")
				h := open(s.home, launch{})
				h.mustList(t, "list_sessions", nil)
				s.waitGuests(1, 5*time.Second)
				h.mustList(t, "list_sessions", filter)
				for i := range 10 {
					to := []string{"other", "main"}[i%2]
					s.run("switch-client", "-t", to)
					for _, r := range h.mustList(t, "list_sessions", filter) {
						want := "0"
						if r["session_name"] == to {
							want = "1"
						}
						if r["session_attached"] != want {
							t.Errorf("after switch %d to %s: %v has session_attached %v, want %s", i+1, to, r["session_name"], r["session_attached"], want)
						}
					}
					clients, err := s.clients()
					if err != nil {
						t.Fatal(err)
					}
					for _, c := range clients {
						if c.tty == term.tty && c.session != to {
							t.Errorf("after switch %d the terminal is in %s, want %s", i+1, c.session, to)
						}
					}
				}
			})
		})
	}
}

// TestLastAttached: that we have attached is no answer to when somebody has.
func TestLastAttached(t *testing.T) {
	inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
		s := newTmuxServer(t)
		before := s.format("main", "#{session_last_attached}")
		h := open(s.home, launch{})
		check := func(last string) {
			t.Helper()
			for range 3 {
				if last == "" {
					h.mustMatch(t, "list_sessions", map[string]any{"session_last_attached__regex": ""})
				} else {
					h.mustMatch(t, "list_sessions", map[string]any{"session_last_attached": last}, "$0")
				}
			}
		}
		check(before)
		s.waitGuests(1, 5*time.Second)
		check(before)
		// tmux counts in seconds: a terminal that came in the second of ours could
		// not be told from it.
		ours := time.Now().Unix()
		eventually(t, "the next second", 5*time.Second, func() (bool, string) { return time.Now().Unix() > ours, "" })
		term := newTerminal(t, s, 100, 30, "attach-session", "-t", "main")
		now := s.format("main", "#{session_last_attached}")
		if now == before || now == "" {
			t.Fatalf("session_last_attached is %q after a terminal has come", now)
		}
		check(now)
		term.hangUp()
		s.run("detach-client", "-a") // ours comes back
		s.waitGuests(1, 5*time.Second)
		check(now)
	})
}

// TestComingAndGoing: while other tmux-mcpd come and go, no answer counts one of
// them, or takes one off that has just gone.
func TestComingAndGoing(t *testing.T) {
	t.Parallel()
	s := newTmuxServer(t)
	newTerminal(t, s, 100, 30, "attach-session", "-t", "main")
	d := startDaemon(t, s.home, nil)
	c, err := d.dial(t, map[string]string{"TMUX_TMPDIR": s.home.tmpdir})
	if err != nil {
		t.Fatal(err)
	}
	c.mustList(t, "list_sessions", nil)
	s.waitGuests(1, 5*time.Second)
	var working sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		working.Go(func() {
			for range 6 {
				h := hostModes[0].open(t, s.home, launch{})
				for range 5 {
					if _, err := h.list("list_sessions", nil); err != nil {
						t.Error(err)
					}
				}
				h.close()
				h.process.waitExit(stopWithin)
			}
		})
	}
	go func() {
		working.Wait()
		close(done)
	}()
	seen := map[any]int{}
	for asking := true; asking; {
		select {
		case <-done:
			asking = false
		default:
		}
		for _, r := range c.mustList(t, "list_sessions", nil) {
			seen[r["session_attached"]]++
		}
	}
	if len(seen) != 1 || seen["1"] == 0 {
		t.Errorf("session_attached was shown as %v, want always 1", seen)
	}
}
