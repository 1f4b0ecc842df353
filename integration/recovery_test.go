package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// crowd are clients that ask all the time while things break. What they are
// answered is judged afterwards by the history of the tmux server.
type crowd struct {
	t       testing.TB
	server  *tmuxServer
	history *history
	members []*member
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// member is one client of the crowd.
type member struct {
	name string
	ask  asker

	mu   sync.Mutex
	seen []observation
	err  error // ends the asking
}

// crowdPace is the pause between two questions of one client.
const crowdPace = 10 * time.Millisecond

// newCrowd lets the clients begin to ask. The server's state of now is the first
// of the history.
func newCrowd(t testing.TB, server *tmuxServer, clients map[string]*mcpClient) *crowd {
	t.Helper()
	c := &crowd{t: t, server: server, history: &history{}}
	c.record("start", time.Time{}, server)
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	t.Cleanup(func() { stop(); c.done.Wait() })
	for name, client := range clients {
		args := map[string]any{"socket_name": server.name}
		m := &member{name: name, ask: func(tool string) ([]row, error) { return client.list(tool, args) }}
		c.members = append(c.members, m)
		c.done.Go(func() { m.run(ctx) })
	}
	c.waitAnswers(5)
	return c
}

func (m *member) run(ctx context.Context) {
	tick := time.NewTicker(crowdPace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		o := observation{tool: []string{"list_panes", "list_sessions"}[n%2], begun: time.Now()}
		rows, err := m.ask(o.tool)
		o.rows, o.got = rows, time.Now()
		m.mu.Lock()
		if err != nil {
			m.err = fmt.Errorf("call %d, %s, after %v: %w", n+1, o.tool, o.got.Sub(o.begun), err)
			m.mu.Unlock()
			return
		}
		m.seen = append(m.seen, o)
		m.mu.Unlock()
	}
}

// waitAnswers waits until each client has had n answers to questions asked from now on.
func (c *crowd) waitAnswers(n int) {
	c.t.Helper()
	from := time.Now()
	for _, m := range c.members {
		eventually(c.t, fmt.Sprintf("client %s has %d more answers", m.name, n), 20*time.Second, func() (bool, string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			later := 0
			for i := len(m.seen) - 1; i >= 0 && later < n && m.seen[i].begun.After(from); i-- {
				later++
			}
			return later >= n || m.err != nil, fmt.Sprint(later)
		})
	}
}

// record notes the state of the server now, which something begun then led to.
func (c *crowd) record(what string, begun time.Time, server *tmuxServer) {
	c.t.Helper()
	done := time.Now()
	state, err := server.read()
	if err != nil && server.pid() != 0 {
		c.t.Fatal(err)
	}
	c.history.record(what, begun, done, state)
	if err := server.home.settle(); err != nil {
		c.t.Fatal(err)
	}
	if state, err = server.read(); err == nil {
		c.history.settle(state.panes, time.Now())
	}
}

// change does something to the server and records what it led to.
func (c *crowd) change(what string, do func()) {
	c.t.Helper()
	begun := time.Now()
	do()
	c.record(what, begun, c.server)
}

// slowest is how long the answers took, per client the slowest of those that
// were open at a moment or asked for later.
func (c *crowd) slowest(since time.Time) (all []time.Duration) {
	for _, m := range c.members {
		m.mu.Lock()
		most := time.Duration(0)
		for i := len(m.seen) - 1; i >= 0 && m.seen[i].got.After(since); i-- {
			most = max(most, m.seen[i].got.Sub(m.seen[i].begun))
		}
		m.mu.Unlock()
		all = append(all, most)
	}
	return all
}

// judge ends the asking and fails the test for each wrong answer.
func (c *crowd) judge() {
	c.t.Helper()
	c.stop()
	c.done.Wait()
	calls := 0
	for _, m := range c.members {
		calls += len(m.seen)
		if m.err != nil {
			c.t.Errorf("client %s: %v", m.name, m.err)
		}
		if err := c.history.check(m.seen); err != nil {
			c.t.Errorf("client %s: %v", m.name, err)
		}
	}
	c.t.Logf("%d clients, %d answers, %d states", len(c.members), calls, len(c.history.changes))
}

// spread is the median and the maximum.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	return fmt.Sprintf("p50 %v, max %v", all[len(all)/2].Round(time.Millisecond/10), all[len(all)-1].Round(time.Millisecond/10))
}

const crowdSize = 8

// repeats is how often each thing is broken.
func repeats() int {
	if testing.Short() {
		return 2
	}
	return 5
}

// wreck is a tmux server with a crowd around it: clients of one daemon, and one
// that serves itself.
type wreck struct {
	*crowd
	t      *testing.T
	daemon *daemonProcess
}

// kills are what is done to tmux, or by its users, while the crowd asks. Each
// leaves the server such that it can be done again.
var kills = []struct {
	name string
	do   func(w *wreck)
	// away is set where we stay away from the server afterwards, for a while.
	away bool
}{
	{name: "SIGKILL of our tmux clients", do: func(w *wreck) {
		for _, g := range w.server.guests() {
			_ = syscall.Kill(g.pid, syscall.SIGKILL)
		}
	}},
	{name: "SIGTERM of our tmux clients", do: func(w *wreck) {
		for _, g := range w.server.guests() {
			_ = syscall.Kill(g.pid, syscall.SIGTERM)
		}
	}},
	{name: "SIGKILL of the server", do: func(w *wreck) {
		w.change("SIGKILL", func() {
			if err := killServer(w.server); err != nil {
				w.t.Fatal(err)
			}
		})
		w.waitAnswers(3)
		w.begin()
	}},
	{name: "attach -d by a terminal", do: func(w *wreck) {
		term := w.attach("-d", "-t", w.server.guests()[0].session)
		w.waitAnswers(3)
		w.change("the terminal leaves", term.close)
	}},
	{name: "the session we sit in is killed", do: func(w *wreck) {
		session := w.server.guests()[0].session
		w.change("kill-session", func() { w.server.run("kill-session", "-t", session) })
		w.waitAnswers(3)
		w.change("new-session", func() { w.server.newFixedSession(session) })
	}},
	{name: "detach-client -a", do: func(w *wreck) {
		term := w.attach("-t", "main")
		w.server.run("detach-client", "-a", "-t", term.tty)
		w.waitAnswers(3)
		w.change("the terminal leaves", term.close)
	}},
	{name: "detach-client -s", do: func(w *wreck) {
		for _, g := range w.server.guests() {
			_, _ = w.server.try("detach-client", "-s", g.session) // the first may take the second along
		}
	}},
	{name: "kill-server, then new-session", do: func(w *wreck) {
		w.change("kill-server", func() {
			pid := w.server.pid()
			w.server.run("kill-server")
			eventually(w.t, "the server has ended", 10*time.Second, func() (bool, string) { return !alive(pid), "" })
		})
		w.waitAnswers(3)
		w.begin()
	}},
	{name: "kill-server and new-session at once", do: func(w *wreck) {
		begun := time.Now()
		old := w.server.pid()
		tmux := strings.Join(w.server.argv(), " ")
		// tmux itself may say "server exited unexpectedly" to a client that comes while the old one ends.
		script := tmux + " kill-server; until " + tmux + " new-session -d -s main -x 200 -y 50 sleep 9000 2>/dev/null; do :; done"
		if _, errs, err := command([]string{"sh", "-c", script}, w.server.home.environ(), w.server.home.dir, nil, 20*time.Second); err != nil {
			w.t.Fatalf("%v: %s", err, errs)
		}
		w.history.record("kill-server", begun, time.Now(), serverState{})
		w.record("new-session", begun, w.server)
		if pid := w.server.pid(); pid == old || pid == 0 {
			w.t.Fatalf("the server has not been restarted: pid %d", pid)
		}
		w.server.run("set-option", "-w", "-t", "main", "window-size", "manual")
		w.change("new-session other", func() { w.server.newFixedSession("other") })
	}},
	{name: "the socket is removed and made again", do: func(w *wreck) {
		pid := w.server.pid()
		if err := os.Remove(w.server.socket); err != nil {
			w.t.Fatal(err)
		}
		w.waitAnswers(5)
		if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
			w.t.Fatal(err)
		}
		eventually(w.t, "the socket is there again", 10*time.Second, func() (bool, string) {
			_, err := os.Lstat(w.server.socket)
			return err == nil, fmt.Sprint(err)
		})
		if now := w.server.pid(); now != pid {
			w.t.Fatalf("the server is pid %d, was %d", now, pid)
		}
	}},
	{name: "detached again and again", away: true, do: func(w *wreck) {
		// One-shot mode for a while: that is what is wanted of a server, or a
		// user, that throws us out as often as we come.
		// The back-off between the attempts before is at most 1.5 s.
		thrown, last := 0, time.Now()
		for time.Since(last) < 2*time.Second && thrown < 100 {
			for _, g := range w.server.guests() {
				_, _ = w.server.try("detach-client", "-t", g.name) // it may have gone
				last = time.Now()
				thrown++
			}
			time.Sleep(pollEvery)
		}
		w.t.Logf("gave up after %d times: %v", thrown, w.modes())
		w.change("rename-session", func() { w.server.run("rename-session", "-t", "other", fmt.Sprintf("other%d", len(w.history.changes))) })
		w.waitAnswers(3)
		w.change("rename-session", func() { w.server.run("rename-session", "-t", "other", "other") })
		w.waitAnswers(3)
		if guests := w.server.guests(); len(guests) != 0 {
			w.t.Errorf("%d clients of ours are still attached: %v; modes %v", len(guests), guests, w.modes())
		}
	}},
}

// newFixedSession is newSession with a window that no terminal resizes. As the
// server's own option "manual" would let tmux 3.3a crash at the next new-session.
func (s *tmuxServer) newFixedSession(name string) {
	s.home.t.Helper()
	s.newSession(name)
	s.run("set-option", "-w", "-t", name, "window-size", "manual")
}

// live waits until our clients have lived for so long that their end is no quick
// one: several of those in a row are another case.
func (w *wreck) live() {
	w.t.Helper()
	since := time.Now()
	eventually(w.t, "the connections have lived", 10*time.Second, func() (bool, string) { return time.Since(since) > 2100*time.Millisecond, "" })
}

// begin starts the server anew, with two sessions.
func (w *wreck) begin() {
	w.t.Helper()
	w.change("new-session main", func() { w.server.newFixedSession("main") })
	w.change("new-session other", func() { w.server.newFixedSession("other") })
}

// attach opens a terminal. The harness locks it for a moment, and a locked client
// does not count: three states for one change.
func (w *wreck) attach(args ...string) *terminal {
	w.t.Helper()
	before := w.history.changes[len(w.history.changes)-1].rows
	begun := time.Now()
	term := newTerminal(w.t, w.server, 80, 24, append([]string{"attach-session"}, args...)...)
	done := time.Now()
	after, err := w.server.read()
	if err != nil {
		w.t.Fatal(err)
	}
	w.history.record("attach", begun, done, after)
	w.history.record("lock", begun, done, serverState{panes: before["list_panes"], sessions: before["list_sessions"]})
	w.history.record("unlock", begun, done, after)
	return term
}

// modes are how the daemon asks the server, with the reason.
func (w *wreck) modes() []string {
	c, err := w.daemon.dial(w.t, map[string]string{"TMUX_TMPDIR": w.server.home.tmpdir})
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.close()
	s, err := c.status(w.server.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	return []string{s.Mode + ": " + s.Reason}
}

// TestRecovery breaks what can be broken about a tmux server and our clients in
// it while nine MCP clients ask. Each of them must get right answers all the
// time, or those of a server that is gone while it is gone.
func TestRecovery(t *testing.T) {
	for _, kill := range kills {
		t.Run(kill.name, func(t *testing.T) {
			t.Parallel()
			server := newTmuxServer(t)
			server.run("set-option", "-w", "-t", "main", "window-size", "manual")
			server.newFixedSession("other")
			d := startDaemon(t, server.home, nil)
			clients := map[string]*mcpClient{}
			for i := range crowdSize {
				c, err := d.dial(t, map[string]string{"TMUX_TMPDIR": server.home.tmpdir})
				if err != nil {
					t.Fatal(err)
				}
				clients[fmt.Sprintf("serve %d", i)] = c
			}
			clients["embedded"], _ = startStdio(t, server.home, nil, "--embedded")
			const guests = 2
			w := &wreck{newCrowd(t, server, clients), t, d}
			var answers, attached []time.Duration
			n := repeats()
			if kill.away {
				n = 1 // the second time nobody would be there
			}
			for range n {
				server.waitGuests(guests, 10*time.Second)
				begun := time.Now()
				kill.do(w)
				done := time.Now()
				w.waitAnswers(3)
				answers = append(answers, w.slowest(begun)...)
				if !kill.away {
					eventually(t, "our clients are back", 10*time.Second, func() (bool, string) {
						now := server.guests()
						return len(now) == guests, fmt.Sprint(now, w.modes())
					})
					attached = append(attached, time.Since(done))
					w.live()
				}
			}
			w.judge()
			t.Logf("slowest answer of each client: %s; all of ours attached again after: %s", spread(answers), spread(attached))
			for _, c := range clients {
				c.close()
			}
			d.stop()
			server.waitGuests(0, 10*time.Second)
		})
	}
}

// TestRecoveryOfDaemon: SIGKILL of the daemon under the bridges of eight hosts,
// and one that serves itself.
func TestRecoveryOfDaemon(t *testing.T) {
	tests := []struct {
		name    string
		restart bool
	}{
		{"a new daemon comes", true},
		{"no daemon comes", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := newTmuxServer(t)
			d := startDaemon(t, server.home, nil)
			clients := map[string]*mcpClient{}
			for i := range crowdSize {
				clients[fmt.Sprintf("bridge %d", i)], _ = startStdio(t, server.home, nil, "--socket", d.socket)
			}
			clients["embedded"], _ = startStdio(t, server.home, nil, "--embedded")
			c := newCrowd(t, server, clients)
			server.waitGuests(2, 10*time.Second)
			var answers []time.Duration
			n := repeats()
			if !tt.restart {
				n = 1 // there is one daemon to kill
			}
			for range n {
				begun := time.Now()
				d.crash()
				if tt.restart {
					d = restartDaemon(t, server.home, d.socket)
				}
				c.change("rename-session", func() { server.run("rename-session", "-t", "$0", fmt.Sprintf("main%d", len(c.history.changes))) })
				c.waitAnswers(5)
				answers = append(answers, c.slowest(begun)...)
			}
			want := 2
			if !tt.restart {
				want = crowdSize + 1 // each serves itself now
			}
			server.waitGuests(want, 20*time.Second)
			c.judge()
			t.Logf("slowest answer of each client: %s", spread(answers))
			for _, client := range clients {
				client.close()
			}
			if tt.restart {
				d.stop()
			}
			server.waitGuests(0, 10*time.Second)
		})
	}
}

// TestRecoveryFromUpgrade: the tmux program is another version than the server
// that runs. Answers are right or a clear error, never empty.
func TestRecoveryFromUpgrade(t *testing.T) {
	others := otherTmuxes(t)
	if len(others) == 0 {
		t.Skip("no tmux of another version here (TMUX_MCPD_TEST_OTHER_TMUX)")
	}
	for version, other := range others {
		for _, mode := range guestModes {
			t.Run(version+"/"+mode.name, func(t *testing.T) {
				t.Parallel()
				server := newTmuxServer(t)
				server.newSession("other")
				// A link, as a package manager changes it: first the server's own version.
				link := filepath.Join(server.home.dir, "tmux")
				point := func(to string) {
					t.Helper()
					if err := os.Symlink(to, link+".new"); err != nil {
						t.Fatal(err)
					}
					if err := os.Rename(link+".new", link); err != nil {
						t.Fatal(err)
					}
				}
				point(server.home.tmux)
				server.home.guestTmux = link
				g := mode.open(t, server.home)
				g.poll(t, server, 3)
				server.waitGuests(1, 10*time.Second)
				point(other)
				g.poll(t, server, 3)
				// The connection that was there is lost: the new program has to do.
				server.run("detach-client", "-t", server.guests()[0].name)
				outcome := "right answers"
				for range 3 {
					want, err := server.read()
					if err != nil {
						t.Fatal(err)
					}
					rows, err := g.client.list("list_panes", map[string]any{"socket_name": server.name})
					var failed *toolError
					switch {
					case errors.As(err, &failed):
						outcome = "a clear error: " + failed.result.text()
						if !strings.Contains(outcome, "another version") {
							t.Errorf("the error does not say what it is about: %v", err)
						}
					case err != nil:
						t.Fatal(err)
					default:
						if diff := diffRows(want.panes, withoutCaller(rows)); diff != "" {
							t.Errorf("list_panes differs from tmux: %s", diff)
						}
					}
				}
				t.Logf("server %s, program %s: %s, %d of our clients attached", server.format("", "#{version}"), version, outcome, len(server.guests()))
				// And the other way: the server is restarted with the new program.
				server.run("kill-server")
				eventually(t, "the server has ended", 10*time.Second, func() (bool, string) { return server.pid() == 0, "" })
				g.mustBeAbsent(t, server.name)
				g.leave()
			})
		}
	}
}

// otherTmuxes finds tmux programs of other versions than the one under test, by
// version: those of TMUX_MCPD_TEST_OTHER_TMUX (paths with : between), else those
// that cmd/setup has fetched and the one on PATH.
func otherTmuxes(t testing.TB) map[string]string {
	t.Helper()
	_, version, err := realTmux()
	if err != nil {
		t.Fatal(err)
	}
	paths := filepath.SplitList(os.Getenv("TMUX_MCPD_TEST_OTHER_TMUX"))
	if len(paths) == 0 {
		paths, _ = filepath.Glob("../.cache/tmux/*/tmux")
		paths = append(paths, "/usr/bin/tmux")
	}
	others := map[string]string{}
	for _, path := range paths {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := command([]string{path, "-V"}, os.Environ(), "/", nil, 10*time.Second)
		if err != nil {
			continue // not for this machine
		}
		if v := strings.TrimPrefix(strings.TrimSpace(string(out)), "tmux "); v != version {
			others[v] = path
		}
	}
	return others
}

// restartDaemon starts a daemon where another was.
func restartDaemon(t testing.TB, home *tmuxHome, socket string) *daemonProcess {
	t.Helper()
	argv := []string{requireProduct(t), "serve", "--socket", socket, "--tmux", home.guestTmux}
	d := &daemonProcess{home: home, socket: socket,
		process: startProcess(t, argv, home.clientEnviron(strangeIdentity...), home.dir)}
	t.Cleanup(func() {
		if !d.ended {
			d.stop()
		}
	})
	eventually(t, "the daemon is ready", 15*time.Second, func() (bool, string) {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return false, err.Error()
		}
		conn.Close()
		return true, ""
	})
	return d
}
