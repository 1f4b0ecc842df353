package integration

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Changes that no command completes. Some of them tmux's counter of commands does
// not see: titles, exits and sizes from 3.8 on, and in every version what is typed
// into a prompt, the resume of a suspended client, and what waits behind a hook
// that blocks the queue. An answer may miss them, but not for longer than this.
const eventBound = time.Second

// paces are the ways to ask for what has happened: all the time, now and then, and
// once, late.
var paces = []time.Duration{2 * time.Millisecond, 60 * time.Millisecond, eventBound + 10*time.Millisecond}

// delays are how long changes took to be shown, by kind.
type delays struct {
	mu    sync.Mutex
	kinds []string // in the order in which they came
	taken map[string][]time.Duration
}

func newDelays() *delays { return &delays{taken: map[string][]time.Duration{}} }

// await asks at the given pace until the claim holds. An answer to a question that
// was sent more than eventBound after the change must show it. The first question
// comes at once, except at the slowest pace.
func (d *delays) await(t testing.TB, kind string, c *mcpClient, pace time.Duration, claim claim, since time.Time) {
	t.Helper()
	if pace > eventBound {
		time.Sleep(pace - time.Since(since))
	}
	for late := false; ; {
		sent := time.Since(since)
		rows, err := c.list(claim.tool, claim.args)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if claim.holds(rows) {
			break
		}
		if sent > eventBound && !late {
			late = true
			t.Errorf("%s: a question %v after the change is not answered with it: want %s", kind, sent.Round(time.Millisecond), claim.what)
		}
		if sent > 3*eventBound {
			t.Fatalf("%s: no answer shows that %s; last: %v", kind, claim.what, rows)
		}
		time.Sleep(pace)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.kinds, kind) {
		d.kinds = append(d.kinds, kind)
	}
	// How long the slowest pace takes says nothing.
	if took := time.Since(since); pace <= eventBound {
		d.taken[kind] = append(d.taken[kind], took)
	}
}

// print prints how soon changes were shown, at the paces that tell.
func (d *delays) print(t testing.TB) {
	var table strings.Builder
	for _, kind := range d.kinds {
		all := slices.Sorted(slices.Values(d.taken[kind]))
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(&table, "%-40s %3d times, shown after p50 %v, max %v\n", kind, len(all),
			all[len(all)/2].Round(time.Microsecond*100), all[len(all)-1].Round(time.Microsecond*100))
	}
	t.Logf("changes that no command completes:\n%s", table.String())
}

// settleCache asks for a while, as a client does that polls: what has been before
// is then in the cache and proven.
func settleCache(t testing.TB, c *mcpClient) {
	t.Helper()
	for range 10 {
		if _, err := c.list("list_panes", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pollEvery)
	}
}

// paneShows claims one value of one pane of any session.
func paneShows(pane, key, want string) claim {
	return claim{"list_panes", nil, fmt.Sprintf("%s of %s is %s", key, pane, want), func(rows []row) bool {
		r := find(rows, "pane_id", pane)
		return r != nil && fmt.Sprint(r[key]) == want
	}}
}

func paneGone(pane string) claim {
	return claim{"list_panes", nil, pane + " is gone", func(rows []row) bool {
		return len(rows) > 0 && find(rows, "pane_id", pane) == nil
	}}
}

func filterGives(field, value, pane string) claim {
	return claim{"list_panes", map[string]any{"filters": map[string]string{field: value}},
		fmt.Sprintf("%s=%s gives %s", field, value, pane), func(rows []row) bool { return find(rows, "pane_id", pane) != nil }}
}

// sayTo writes to a terminal what a program there would print.
func sayTo(tty, text string) error {
	f, err := os.OpenFile(tty, os.O_WRONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// dialDefault opens an MCP session for a client whose tmux server is the home's
// default one.
func (d *daemonProcess) dialDefault(t testing.TB) *mcpClient {
	t.Helper()
	c, err := d.dial(t, map[string]string{"TMUX_TMPDIR": d.home.tmpdir})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// splitPane makes a pane and returns its id and its program's pid.
func (s *tmuxServer) splitPane(target string) (pane string, pid int) {
	s.home.t.Helper()
	out := s.run(append([]string{"split-window", "-d", "-t", target, "-P", "-F", "#{pane_id} #{pane_pid}"}, program...)...)
	if err := s.home.settle(); err != nil {
		s.home.t.Fatal(err)
	}
	pane, number, _ := strings.Cut(strings.TrimSpace(out), " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		s.home.t.Fatal(err)
	}
	return pane, pid
}

// TestEventsShowSoon: what programs and terminals do without a command shows at
// once as a rule, and always within a second. Nothing else happens on the server,
// so that nothing but the event itself can make tmux-mcpd look again.
func TestEventsShowSoon(t *testing.T) {
	t.Parallel()
	server := newTmuxServer(t, "set -g automatic-rename off", "set -g status off", "set -g allow-rename on")
	server.newSession("work")
	c := startDaemon(t, server.home, nil).dialDefault(t)
	pane := server.format("work:", "#{pane_id}")
	tty := server.format("work:", "#{pane_tty}")
	d := newDelays()
	rounds := max(1, freshnessChecks(t)/2000)
	n := 0
	for range rounds {
		for _, pace := range paces {
			n++
			settleCache(t, c)
			title := fmt.Sprintf("title-%d", n)
			now := time.Now()
			if err := sayTo(tty, "\x1b]2;"+title+"\a"); err != nil {
				t.Fatal(err)
			}
			d.await(t, "title by a program", c, pace, paneShows(pane, "pane_title", title), now)

			settleCache(t, c)
			now = time.Now()
			if err := sayTo(tty, "\x1bk"+title+"\x1b\\"); err != nil {
				t.Fatal(err)
			}
			d.await(t, "window name by a program", c, pace, filterGives("window_name", title, pane), now)

			ends, pid := server.splitPane("work:")
			settleCache(t, c)
			now = time.Now()
			_ = syscall.Kill(pid, syscall.SIGKILL)
			d.await(t, "program ends", c, pace, paneGone(ends), now)

			ends, pid = server.splitPane("work:")
			server.run("set-option", "-p", "-t", ends, "remain-on-exit", "on")
			settleCache(t, c)
			now = time.Now()
			_ = syscall.Kill(pid, syscall.SIGKILL)
			d.await(t, "program ends, pane remains", c, pace, filterGives("pane_dead", "1", ends), now)
			server.run("kill-pane", "-t", ends)

			term := newTerminal(t, server, 100, 30, "attach-session", "-t", "work")
			work := server.format("work:", "#{session_id}")
			settleCache(t, c)
			now = time.Now()
			if err := setSize(term.master, 90, 25); err != nil {
				t.Fatal(err)
			}
			d.await(t, "terminal changes its size", c, pace, paneShows(pane, "pane_width", "90"), now)

			settleCache(t, c)
			now = time.Now()
			term.hangup()
			d.await(t, "terminal is closed", c, pace, sessionHas(work, "session_attached", "0"), now)
			term.waitGone()

			term = newTerminal(t, server, 100, 30, "attach-session", "-t", "work")
			settleCache(t, c)
			now = time.Now()
			_ = term.cmd.Process.Kill()
			d.await(t, "client is killed", c, pace, sessionHas(work, "session_attached", "0"), now)
			term.waitGone()
		}
	}
	d.print(t)
}

// TestUnseenBehindHook: a hook that waits holds up tmux's global queue, and with
// it each event's item that the counter would count. Commands go on meanwhile, and
// are never missed.
func TestUnseenBehindHook(t *testing.T) {
	t.Parallel()
	server := newTmuxServer(t, "set -g automatic-rename off")
	server.newSession("work")
	c := startDaemon(t, server.home, nil).dialDefault(t)
	pane := server.format("work:", "#{pane_id}")
	tty := server.format("work:", "#{pane_tty}")
	ends, pid := server.splitPane("work:")
	wait := strings.Join(server.argv("wait-for", "blocked"), " ")
	server.run("set-hook", "-g", "session-created", "run-shell '"+wait+"'")
	settleCache(t, c)
	server.newSession("blocks")
	free := func() { _, _ = server.try("wait-for", "-S", "blocked") }
	t.Cleanup(free)

	d := newDelays()
	for i, pace := range paces {
		settleCache(t, c)
		title := fmt.Sprintf("title-%d", i)
		now := time.Now()
		if err := sayTo(tty, "\x1b]2;"+title+"\a"); err != nil {
			t.Fatal(err)
		}
		d.await(t, "title behind a hook", c, pace, paneShows(pane, "pane_title", title), now)
	}
	settleCache(t, c)
	now := time.Now()
	_ = syscall.Kill(pid, syscall.SIGKILL)
	d.await(t, "program ends behind a hook", c, paces[0], paneGone(ends), now)

	all := newTally()
	e := &editor{name: "editor", server: server, tally: all, budget: &budget{left: len(steps)}, change: server.try, readers: []*mcpClient{c}, noHooks: true}
	server.run("set-hook", "-gu", "session-created") // the editor makes sessions
	if err := e.setUp(); err != nil {
		t.Fatal(err)
	}
	if err := e.run(t.Context()); err != nil {
		t.Error(err)
	}
	free()
	d.print(t)
	if checks, stale := all.print(t); stale > 0 || checks == 0 {
		t.Errorf("behind the hook %d of %d answers were stale", stale, checks)
	}
}

// choice is something a person picks with keys.
type choice struct {
	name string
	// open opens what the choice is made in, by a command for the terminal.
	open func(s *tmuxServer, term *terminal) []string
	// keys lead to the choice, last makes it.
	keys, last string
	claim      func(s *tmuxServer) claim
}

// typeKeys types one key after the other, like somebody in a hurry. Keys that come
// all at once go where the first of them would have gone: tmux decides that before
// it has acted on any.
func (term *terminal) typeKeys(keys string) {
	term.t.Helper()
	for keys != "" {
		n := 1
		if strings.HasPrefix(keys, keyF5) {
			n = len(keyF5)
		}
		term.write(keys[:n])
		keys = keys[n:]
		time.Sleep(25 * time.Millisecond)
		_ = term.server.format("", "x") // on a loaded machine: tmux has had its turn
	}
}

const (
	keyF5     = "\x1b[15~"
	keyPrefix = "\x02"
	keyCtrlS  = "\x13"
	keyCtrlU  = "\x15"
)

var choices = []choice{
	{name: "customize-mode",
		open: func(*tmuxServer, *terminal) []string { return []string{"customize-mode", "-t", "main:"} },
		keys: keyCtrlS + "pane-base-index\rs" + keyCtrlU + "7", last: "\r",
		claim: func(s *tmuxServer) claim { return paneShows(s.format("main:", "#{pane_id}"), "pane_index", "7") }},
	{name: "choose-tree, kill a session",
		open: func(*tmuxServer, *terminal) []string { return []string{"choose-tree", "-s", "-t", "main:"} },
		keys: keyCtrlS + "victim\rx", last: "y",
		claim: func(s *tmuxServer) claim { return hasSession(s.format("victim:", "#{session_id}"), false) }},
	{name: "command prompt, rename a window",
		keys: keyPrefix + "," + keyCtrlU + "prompted", last: "\r",
		claim: func(s *tmuxServer) claim {
			return filterGives("window_name", "prompted", s.format("main:", "#{pane_id}"))
		}},
	{name: "confirmation, kill a pane",
		open: func(s *tmuxServer, _ *terminal) []string {
			return append([]string{"split-window", "-t", "main:"}, program...)
		},
		keys: keyPrefix + "x", last: "y",
		claim: func(s *tmuxServer) claim { return paneGone(s.format("main:", "#{pane_id}")) }},
	{name: "menu, rename a window",
		open: func(*tmuxServer, *terminal) []string {
			return []string{"bind-key", "-n", "F5", "display-menu", "-T", "menu", "rename", "r", "rename-window -t main: chosen"}
		},
		keys: keyF5, last: "r",
		claim: func(s *tmuxServer) claim {
			return filterGives("window_name", "chosen", s.format("main:", "#{pane_id}"))
		}},
	{name: "popup, a shell that runs tmux",
		open: func(s *tmuxServer, _ *terminal) []string {
			// PATH may have another tmux than the one under test.
			return []string{"bind-key", "-n", "F5", "display-popup", "-E", "-e", "TMUXPATH=" + s.home.tmux, "sh"}
		},
		keys: keyF5 + "$TMUXPATH kill-session -t victim", last: "\r",
		claim: func(s *tmuxServer) claim { return hasSession(s.format("victim:", "#{session_id}"), false) }},
	{name: "popup, a shell that sets a title",
		open: func(s *tmuxServer, _ *terminal) []string {
			tty := s.format("main:", "#{pane_tty}")
			return []string{"bind-key", "-n", "F5", "display-popup", "-E", "-e", "PANE=" + tty, "sh"}
		},
		keys: keyF5 + `printf '\033]2;popped\007' >$PANE`, last: "\r",
		claim: func(s *tmuxServer) claim { return paneShows(s.format("main:", "#{pane_id}"), "pane_title", "popped") }},
}

// TestUnseenChoices: what a person chooses with keys in a mode, a prompt, a menu
// or a popup shows within a second, and as tmux itself has it.
func TestUnseenChoices(t *testing.T) {
	d := newDelays()
	t.Cleanup(func() { d.print(t) })
	for _, ch := range choices {
		for _, pace := range paces {
			t.Run(fmt.Sprintf("%s/every %v", ch.name, pace), func(t *testing.T) {
				t.Parallel()
				server := newTmuxServer(t, "set -g automatic-rename off")
				server.newSession("victim")
				term := newTerminal(t, server, 100, 30, "attach-session", "-t", "main")
				c := startDaemon(t, server.home, nil).dialDefault(t)
				settleCache(t, c)
				if ch.open != nil {
					server.run(ch.open(server, term)...)
				}
				claim := ch.claim(server)
				term.typeKeys(ch.keys)
				settleCache(t, c)
				settleCache(t, c)
				now := time.Now()
				term.write(ch.last)
				d.await(t, ch.name, c, pace, claim, now)
				if t.Failed() {
					t.Logf("the terminal shows %q", term.screen.text())
				}
			})
		}
	}
}

// TestUnseenResume: a suspended client does not count as attached; that it comes
// back is no command.
func TestUnseenResume(t *testing.T) {
	t.Parallel()
	server := newTmuxServer(t)
	term := newTerminal(t, server, 100, 30, "attach-session", "-t", "main")
	c := startDaemon(t, server.home, nil).dialDefault(t)
	session := server.format("main:", "#{session_id}")
	attached := func() string {
		state, err := server.read()
		if err != nil {
			t.Fatal(err)
		}
		return find(state.sessions, "session_id", session)["session_attached"].(string)
	}
	d := newDelays()
	for _, pace := range paces {
		settleCache(t, c)
		server.run("suspend-client", "-t", term.tty)
		now := time.Now()
		d.await(t, "client is suspended", c, paces[0], sessionHas(session, "session_attached", "0"), now)
		if got := attached(); got != "0" {
			t.Errorf("tmux itself says session_attached %s of a session whose client is suspended", got)
		}
		settleCache(t, c)
		now = time.Now()
		if err := term.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		d.await(t, "suspended client resumes", c, pace, sessionHas(session, "session_attached", "1"), now)
		if got := attached(); got != "1" {
			t.Errorf("tmux itself says session_attached %s of a session whose client has resumed", got)
		}
	}
	d.print(t)
}
