package integration

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// freshnessChecks is how many answers TestFreshness judges; TMUX_MCPD_TEST_CHECKS
// sets another number.
func freshnessChecks(t testing.TB) int {
	t.Helper()
	text := os.Getenv("TMUX_MCPD_TEST_CHECKS")
	if text == "" {
		return 2000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("TMUX_MCPD_TEST_CHECKS=%q is no number of checks", text)
	}
	return n
}

// editor changes sessions of its own, one command at a time, and knows from each
// command what an answer must show as soon as the command has completed. Nobody
// else touches these sessions, whatever others do to theirs.
type editor struct {
	// change runs one command line to its completion: the end of its process, or
	// its reply on a control client.
	change func(args ...string) (string, error)
	// readers ask at the same time after each change.
	readers []*mcpClient
	tally   *tally
	budget  *budget
	server  *tmuxServer
	noHooks bool // tmux runs no notification hooks now: leave out what they do

	name            string // of its first session, until that is renamed
	session, second string // their ids
	window, window2 string
	p0, p1, p2, q   string // p0 to p2 begin in window, q in window2
	group           string // the session made last
	label           string // the text made last
	turn            int    // the round of steps
	changes, wholes int
}

// claim is what must hold in the answer to one question.
type claim struct {
	tool  string
	args  map[string]any
	what  string
	holds func(rows []row) bool
}

// step is one kind of change: the command, and the claim that its output leads to.
type step struct {
	kind string
	// silent: no notification tells of it to a client of another session, in any
	// tmux version (facts: notifications.tsv).
	silent bool
	hooked bool // done by a notification hook
	args   func(e *editor) []string
	claim  func(e *editor, out string) claim
}

// inSession asks for the panes of the editor's session.
func (e *editor) inSession(what string, holds func(rows []row) bool) claim {
	return claim{"list_panes", map[string]any{"session_id": e.session}, what, holds}
}

// filtered asks for the panes of the editor's session that a filter lets through.
func (e *editor) filtered(field, value string, panes ...string) claim {
	args := map[string]any{"session_id": e.session, "filters": map[string]string{field: value}}
	return claim{"list_panes", args, fmt.Sprintf("%s=%s gives %v", field, value, panes), func(rows []row) bool {
		ids := rowIDs(rows)
		return slices.Equal(slices.Sorted(slices.Values(ids)), slices.Sorted(slices.Values(panes)))
	}}
}

// paneHas claims one value of one pane.
func (e *editor) paneHas(pane, key, want string) claim {
	return e.inSession(fmt.Sprintf("%s of %s is %s", key, pane, want), func(rows []row) bool {
		r := find(rows, "pane_id", pane)
		return r != nil && fmt.Sprint(r[key]) == want
	})
}

func (e *editor) hasPane(pane string) claim {
	return e.inSession(pane+" is there", func(rows []row) bool { return find(rows, "pane_id", pane) != nil })
}

func (e *editor) lacksPane(pane string) claim {
	return e.inSession(pane+" is gone", func(rows []row) bool { return len(rows) > 0 && find(rows, "pane_id", pane) == nil })
}

// sessionHas claims one value of one session.
func sessionHas(session, key, want string) claim {
	return claim{"list_sessions", nil, fmt.Sprintf("%s of %s is %s", key, session, want), func(rows []row) bool {
		r := find(rows, "session_id", session)
		return r != nil && fmt.Sprint(r[key]) == want
	}}
}

func hasSession(session string, has bool) claim {
	return claim{"list_sessions", nil, fmt.Sprintf("%s is there: %v", session, has), func(rows []row) bool {
		return len(rows) > 0 && (find(rows, "session_id", session) != nil) == has
	}}
}

func find(rows []row, key, value string) row {
	if i := slices.IndexFunc(rows, func(r row) bool { return r[key] == value }); i >= 0 {
		return rows[i]
	}
	return nil
}

// number is a number of an answer, given as one or as text; -1 if it is none.
func number(v any) int {
	n, err := strconv.Atoi(fmt.Sprint(v))
	if err != nil {
		return -1
	}
	return n
}

// all claims something of every pane of the window.
func (e *editor) all(what string, is func(r row) bool) claim {
	return e.inSession(what, func(rows []row) bool {
		n := 0
		for _, r := range rows {
			if r["window_id"] != e.window {
				continue
			}
			if n++; !is(r) {
				return false
			}
		}
		return n > 0
	})
}

// widest claims the width of the window, as its panes show it.
func (e *editor) widest(width int) claim {
	return e.inSession(fmt.Sprintf("the window is %d wide", width), func(rows []row) bool {
		right := -1
		for _, r := range rows {
			if r["window_id"] == e.window {
				right = max(right, number(r["pane_right"]))
			}
		}
		return right == width-1
	})
}

// before claims the order of two panes in their window.
func (e *editor) before(first, second string) claim {
	return e.inSession(first+" is before "+second, func(rows []row) bool {
		a, b := find(rows, "pane_id", first), find(rows, "pane_id", second)
		return a != nil && b != nil && number(a["pane_index"]) < number(b["pane_index"])
	})
}

// The first word of a command that starts a program in a pane, and the program.
var program = []string{"sleep", "9000"}

func words(args ...string) func(*editor) []string {
	return func(*editor) []string { return args }
}

// steps are one round of changes, in this order: at its end the sessions are as
// at its beginning.
var steps = []step{
	{"split-window -d", true, false,
		func(e *editor) []string {
			return append([]string{"split-window", "-v", "-d", "-t", e.p0, "-P", "-F", "#{pane_id}"}, program...)
		},
		func(e *editor, out string) claim { e.p2 = out; return e.hasPane(e.p2) }},
	{"select-pane -T", true, false,
		func(e *editor) []string { return []string{"select-pane", "-t", e.p2, "-T", e.fresh("title")} },
		func(e *editor, _ string) claim { return e.paneHas(e.p2, "pane_title", e.label) }},
	{"resize-pane", true, false,
		func(e *editor) []string {
			return []string{"resize-pane", "-t", e.p0, "-x", strconv.Itoa(60 + 10*(e.turn%2))}
		},
		func(e *editor, _ string) claim {
			return e.paneHas(e.p0, "pane_width", strconv.Itoa(60+10*(e.turn%2)))
		}},
	{"zoom", false, false,
		func(e *editor) []string { return []string{"resize-pane", "-Z", "-t", e.p1} },
		func(e *editor, _ string) claim { return e.paneHas(e.p1, "pane_width", "200") }},
	{"unzoom", true, false,
		func(e *editor) []string { return []string{"resize-pane", "-Z", "-t", e.p1} },
		func(e *editor, _ string) claim {
			return e.inSession("the zoom is over", func(rows []row) bool {
				r := find(rows, "pane_id", e.p1)
				return r != nil && number(r["pane_width"]) < 200
			})
		}},
	{"select-pane", false, false,
		func(e *editor) []string { return []string{"select-pane", "-t", e.p0} },
		func(e *editor, _ string) claim { return e.paneHas(e.p0, "pane_active", "1") }},
	{"swap-pane -d", false, false,
		func(e *editor) []string { return []string{"swap-pane", "-d", "-s", e.p0, "-t", e.p1} },
		func(e *editor, _ string) claim { return e.before(e.p1, e.p0) }},
	{"swap-pane -d", false, false,
		func(e *editor) []string { return []string{"swap-pane", "-d", "-s", e.p0, "-t", e.p1} },
		func(e *editor, _ string) claim { return e.before(e.p0, e.p1) }},
	{"respawn-pane -k", true, false,
		func(e *editor) []string {
			return append(append([]string{"respawn-pane", "-k", "-t", e.p1}, program...), ";", "display-message", "-p", "-t", e.p1, "#{pane_pid}")
		},
		func(e *editor, out string) claim { return e.paneHas(e.p1, "pane_pid", out) }},
	{"select-layout", true, false,
		func(e *editor) []string { return []string{"select-layout", "-t", e.window, "even-vertical"} },
		func(e *editor, _ string) claim {
			return e.all("panes lie one below the other", func(r row) bool { return number(r["pane_left"]) == 0 && r["pane_width"] == "200" })
		}},
	{"select-layout", true, false,
		func(e *editor) []string { return []string{"select-layout", "-t", e.window, "even-horizontal"} },
		func(e *editor, _ string) claim {
			return e.all("panes lie side by side", func(r row) bool { return number(r["pane_top"]) == 0 && r["pane_height"] == "50" })
		}},
	{"resize-window", true, false,
		func(e *editor) []string { return []string{"resize-window", "-t", e.window, "-x", "180", "-y", "50"} },
		func(e *editor, _ string) claim { return e.widest(180) }},
	{"resize-window", true, false,
		func(e *editor) []string { return []string{"resize-window", "-t", e.window, "-x", "200", "-y", "50"} },
		func(e *editor, _ string) claim { return e.widest(200) }},
	{"rotate-window", false, false,
		words("rotate-window", "-U", "-t", "WINDOW"),
		func(e *editor, _ string) claim { return e.before(e.p1, e.p0) }},
	{"rotate-window", false, false,
		words("rotate-window", "-D", "-t", "WINDOW"),
		func(e *editor, _ string) claim { return e.before(e.p0, e.p1) }},
	{"set pane-border-status", true, false,
		words("set-option", "-w", "-t", "WINDOW", "pane-border-status", "top"),
		func(e *editor, _ string) claim {
			return e.all("a border lies above the panes", func(r row) bool { return number(r["pane_top"]) == 1 })
		}},
	{"set pane-border-status", true, false,
		words("set-option", "-w", "-t", "WINDOW", "pane-border-status", "off"),
		func(e *editor, _ string) claim {
			return e.all("no border lies above the panes", func(r row) bool { return number(r["pane_top"]) == 0 })
		}},
	{"set pane-base-index", true, false,
		words("set-option", "-w", "-t", "WINDOW", "pane-base-index", "5"),
		func(e *editor, _ string) claim {
			return e.all("panes count from 5", func(r row) bool { return number(r["pane_index"]) >= 5 })
		}},
	{"set pane-base-index", true, false,
		words("set-option", "-w", "-u", "-t", "WINDOW", "pane-base-index"),
		func(e *editor, _ string) claim {
			return e.all("panes count from 0", func(r row) bool { return number(r["pane_index"]) < 5 })
		}},
	{"set user option", true, false,
		func(e *editor) []string { return []string{"set-option", "-p", "-t", e.p0, "@x", e.fresh("x")} },
		func(e *editor, _ string) claim { return e.filtered("@x", e.label, e.p0) }},
	{"rename-window", false, false,
		func(e *editor) []string { return []string{"rename-window", "-t", e.window, e.fresh("w")} },
		func(e *editor, _ string) claim { return e.filtered("window_name", e.label, e.p0, e.p1, e.p2) }},
	{"rename-session", false, false,
		func(e *editor) []string { return []string{"rename-session", "-t", e.session, e.fresh(e.name)} },
		func(e *editor, _ string) claim { return sessionHas(e.session, "session_name", e.label) }},
	{"new-window -d", false, false,
		func(e *editor) []string {
			return append([]string{"new-window", "-d", "-t", e.session + ":", "-P", "-F", "#{window_id} #{pane_id}"}, program...)
		},
		func(e *editor, out string) claim {
			e.window2, e.q, _ = strings.Cut(out, " ")
			return sessionHas(e.session, "window_count", "2")
		}},
	{"swap-pane -d between windows", false, false,
		func(e *editor) []string { return []string{"swap-pane", "-d", "-s", e.p1, "-t", e.q} },
		func(e *editor, _ string) claim { return e.paneHas(e.p1, "window_id", e.window2) }},
	{"swap-pane -d between windows", false, false,
		func(e *editor) []string { return []string{"swap-pane", "-d", "-s", e.p1, "-t", e.q} },
		func(e *editor, _ string) claim { return e.paneHas(e.q, "window_id", e.window2) }},
	{"link-window", false, false,
		words("link-window", "-d", "-s", "WINDOW2", "-t", "SECOND:5"),
		func(e *editor, _ string) claim { return sessionHas(e.second, "window_count", "2") }},
	{"unlink-window", false, false,
		words("unlink-window", "-t", "SECOND:5"),
		func(e *editor, _ string) claim { return sessionHas(e.second, "window_count", "1") }},
	{"select-window", false, false,
		words("select-window", "-t", "SESSION:1"),
		func(e *editor, _ string) claim { return sessionHas(e.session, "active_pane_id", e.q) }},
	{"last-window", false, false,
		words("last-window", "-t", "SESSION"),
		func(e *editor, _ string) claim { return sessionHas(e.session, "active_pane_id", e.p0) }},
	{"move-window", false, false,
		words("move-window", "-d", "-s", "SESSION:1", "-t", "SESSION:9"),
		func(e *editor, _ string) claim { return e.filtered("window_index", "9", e.q) }},
	{"move-window -r", true, false,
		words("move-window", "-r", "-t", "SESSION"),
		func(e *editor, _ string) claim { return e.filtered("window_index", "1", e.q) }},
	{"swap-window -d", false, false,
		words("swap-window", "-d", "-s", "SESSION:0", "-t", "SESSION:1"),
		func(e *editor, _ string) claim { return e.filtered("window_index", "0", e.q) }},
	{"swap-window -d", false, false,
		words("swap-window", "-d", "-s", "SESSION:0", "-t", "SESSION:1"),
		func(e *editor, _ string) claim { return e.filtered("window_index", "1", e.q) }},
	{"move-pane -d", true, false,
		func(e *editor) []string { return []string{"move-pane", "-d", "-s", e.p2, "-t", e.q} },
		func(e *editor, _ string) claim { return e.paneHas(e.p2, "window_id", e.window2) }},
	{"break-pane -d", false, false,
		func(e *editor) []string {
			return []string{"break-pane", "-d", "-P", "-F", "#{window_id}", "-s", e.p2, "-t", e.session + ":"}
		},
		func(e *editor, out string) claim { return e.paneHas(e.p2, "window_id", out) }},
	{"join-pane -d (window closes)", false, false,
		func(e *editor) []string { return []string{"join-pane", "-d", "-s", e.p2, "-t", e.p0} },
		func(e *editor, _ string) claim { return e.paneHas(e.p2, "window_id", e.window) }},
	{"kill-pane (inactive)", true, false,
		func(e *editor) []string { return []string{"kill-pane", "-t", e.p2} },
		func(e *editor, _ string) claim { return e.lacksPane(e.p2) }},
	{"respawn-window -k", false, false,
		func(e *editor) []string {
			return append(append([]string{"respawn-window", "-k", "-t", e.window2}, program...), ";", "display-message", "-p", "-t", e.q, "#{pane_pid}")
		},
		func(e *editor, out string) claim { return e.paneHas(e.q, "pane_pid", out) }},
	{"kill-window (not current)", false, false,
		words("kill-window", "-t", "WINDOW2"),
		func(e *editor, _ string) claim { return sessionHas(e.session, "window_count", "1") }},
	// What a notification hook does is announced to nobody up to 3.7.
	{"window-linked hook", true, true,
		func(e *editor) []string {
			return append([]string{
				"set-hook", "-t", e.session, "window-linked", "select-pane -t " + e.p1 + " -T " + e.fresh("hook"), ";",
				"new-window", "-d", "-t", e.session + ":", "-P", "-F", "#{window_id}"}, program...)
		},
		func(e *editor, out string) claim { e.window2 = out; return e.paneHas(e.p1, "pane_title", e.label) }},
	{"kill-window (not current)", false, false,
		words("set-hook", "-u", "-t", "SESSION", "window-linked", ";", "kill-window", "-t", "WINDOW2"),
		func(e *editor, _ string) claim { return sessionHas(e.session, "window_count", "1") }},
	{"new-session -d -t (group)", false, false,
		words("new-session", "-d", "-t", "SESSION", "-P", "-F", "#{session_id}"),
		func(e *editor, out string) claim { e.group = out; return hasSession(e.group, true) }},
	{"kill-session", false, false,
		words("kill-session", "-t", "GROUP"),
		func(e *editor, _ string) claim { return hasSession(e.group, false) }},
	{"new-session -d", false, false,
		words(append([]string{"new-session", "-d", "-P", "-F", "#{session_id}"}, program...)...),
		func(e *editor, out string) claim { e.group = out; return hasSession(e.group, true) }},
	{"kill-session", false, false,
		words("kill-session", "-t", "GROUP"),
		func(e *editor, _ string) claim { return hasSession(e.group, false) }},
}

// hookless takes the place of a step that needs a hook.
var hookless = step{"new-window -d", false, false,
	func(e *editor) []string {
		return append([]string{"new-window", "-d", "-t", e.session + ":", "-P", "-F", "#{window_id}"}, program...)
	},
	func(e *editor, out string) claim { e.window2 = out; return sessionHas(e.session, "window_count", "2") }}

// fresh makes a text that no earlier answer can have shown.
func (e *editor) fresh(prefix string) string {
	e.label = fmt.Sprintf("%s-%d-%d", prefix, e.turn, e.changes)
	return e.label
}

// expand puts the ids into a fixed command line.
func (e *editor) expand(args []string) []string {
	ids := strings.NewReplacer("SESSION", e.session, "SECOND", e.second, "WINDOW2", e.window2, "WINDOW", e.window, "GROUP", e.group)
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = ids.Replace(a)
	}
	return out
}

// setUp makes the editor's sessions: one with two panes side by side, one with a
// single pane.
func (e *editor) setUp() error {
	for _, s := range []struct {
		name string
		args []string
		into []*string
	}{
		{e.name, []string{"#{session_id} #{window_id} #{pane_id}"}, []*string{&e.session, &e.window, &e.p0}},
		{e.name + "-second", []string{"#{session_id}"}, []*string{&e.second}},
	} {
		out, err := e.server.try(append([]string{"new-session", "-d", "-s", s.name, "-x", "200", "-y", "50", "-P", "-F", s.args[0]}, program...)...)
		if err != nil {
			return err
		}
		for i, f := range strings.Fields(out) {
			*s.into[i] = f
		}
	}
	out, err := e.server.try(append([]string{"split-window", "-h", "-d", "-t", e.p0, "-P", "-F", "#{pane_id}"}, program...)...)
	e.p1 = strings.TrimSpace(out)
	return err
}

// run makes changes and checks until the budget is spent.
func (e *editor) run(ctx context.Context) error {
	for e.turn = 1; ; e.turn++ {
		for _, s := range steps {
			if s.hooked && e.noHooks {
				s = hookless
			}
			if ctx.Err() != nil || !e.budget.take(len(e.readers)) {
				return nil
			}
			if err := e.step(s); err != nil {
				return fmt.Errorf("%s: %s: %w", e.name, s.kind, err)
			}
		}
		if err := e.whole(); err != nil {
			return fmt.Errorf("%s: after round %d: %w", e.name, e.turn, err)
		}
	}
}

// step makes one change and lets all readers ask at once. An answer that does not
// show the change is stale; what never shows it is an error of the test.
func (e *editor) step(s step) error {
	e.changes++
	args := e.expand(s.args(e))
	out, err := e.change(args...)
	if err != nil {
		return err
	}
	done := time.Now()
	c := s.claim(e, strings.TrimSpace(out))
	var asking errgroup.Group
	for _, reader := range e.readers {
		asking.Go(func() error {
			rows, err := reader.list(c.tool, c.args)
			if err != nil {
				return err
			}
			if c.holds(rows) {
				e.tally.add(s, true)
				return nil
			}
			first := rows
			for time.Since(done) < 3*time.Second {
				if rows, err = reader.list(c.tool, c.args); err != nil {
					return err
				}
				if c.holds(rows) {
					e.tally.add(s, false)
					e.tally.stale(fmt.Sprintf("%s: after %q the first answer does not show that %s, the right one came %v after the change; first: %v",
						e.name, args, c.what, time.Since(done).Round(time.Millisecond), first))
					return nil
				}
			}
			state, _ := e.server.read()
			return fmt.Errorf("after %q no answer shows that %s; tmux: %v; answer: %v", args, c.what, state.panes, rows)
		})
	}
	return asking.Wait()
}

// whole compares all that answers say of the editor's sessions with what tmux
// says. tmux is asked last: its being asked would itself make the cache be renewed.
func (e *editor) whole() error {
	answers := map[string][]row{}
	for _, tool := range []string{"list_panes", "list_sessions"} {
		rows, err := e.readers[0].list(tool, nil)
		if err != nil {
			return err
		}
		answers[tool] = e.mine(rows)
	}
	want, err := e.server.read()
	if err != nil {
		return err
	}
	e.wholes++
	for tool, rows := range map[string][]row{"list_panes": want.panes, "list_sessions": want.sessions} {
		if diff := diffRows(e.mine(rows), answers[tool]); diff != "" {
			return fmt.Errorf("%s differs from tmux: %s", tool, diff)
		}
	}
	return nil
}

// mine keeps the rows of the editor's sessions, without what changes by itself
// after a program was started.
func (e *editor) mine(rows []row) []row {
	var kept []row
	for _, r := range stable(withoutCaller(rows)) {
		if r["session_id"] == e.session || r["session_id"] == e.second {
			kept = append(kept, r)
		}
	}
	return kept
}

// budget is the number of checks still to be made, shared by all editors.
type budget struct {
	mu   sync.Mutex
	left int
}

func (b *budget) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left <= 0 {
		return false
	}
	b.left -= n
	return true
}

// tally counts answers by the kind of change that they had to show.
type tally struct {
	mu     sync.Mutex
	kinds  map[string]*count
	stales []string
}

type count struct {
	silent        bool
	checks, stale int
}

func newTally() *tally { return &tally{kinds: map[string]*count{}} }

func (y *tally) add(s step, ok bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	c := y.kinds[s.kind]
	if c == nil {
		c = &count{silent: s.silent}
		y.kinds[s.kind] = c
	}
	c.checks++
	if !ok {
		c.stale++
	}
}

func (y *tally) stale(how string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.stales = append(y.stales, how)
}

// print prints the table and the totals, and returns the number of stale answers.
func (y *tally) print(t testing.TB) (checks, stale int) {
	var table strings.Builder
	names := make([]string, 0, len(y.kinds))
	for name := range y.kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c := y.kinds[name]
		mark := ""
		if c.silent {
			mark = "no notification"
		}
		fmt.Fprintf(&table, "%-32s %6d checks %4d stale  %s\n", name, c.checks, c.stale, mark)
		checks, stale = checks+c.checks, stale+c.stale
	}
	t.Logf("kinds of change:\n%s%-32s %6d checks %4d stale", table.String(), fmt.Sprintf("all %d kinds", len(names)), checks, stale)
	for _, how := range y.stales[:min(len(y.stales), 10)] {
		t.Error(how)
	}
	return checks, stale
}

// TestFreshness is the promise "never stale": an answer to a question that was
// asked after a change had completed shows the change, whoever makes it and
// however many changes and questions there are at once. Two parts: one editor
// alone, so that nothing but its own change can make tmux-mcpd look again, and
// many at once.
//
// More checks, as in the README:
//
//	TMUX_MCPD_TEST_CHECKS=20000 go test -run TestFreshness -v -timeout 30m ./integration
func TestFreshness(t *testing.T) {
	total := freshnessChecks(t)
	all := newTally()
	parts := []struct {
		name             string
		spawn, control   int // editors that run tmux processes, and that are control clients
		pollers, readers int
		share            int // of the checks, in percent
	}{
		{"a process alone", 1, 0, 0, 1, 10},
		{"a process among questions", 1, 0, 2, 1, 15},
		{"a control client alone", 0, 1, 0, 1, 10},
		{"a control client among questions", 0, 1, 2, 1, 15},
		{"many at once", 4, 2, 2, 2, 50},
	}
	begin := time.Now()
	changes, polls := 0, 0
	for _, part := range parts {
		t.Run(strings.ReplaceAll(part.name, " ", "_"), func(t *testing.T) {
			server := newTmuxServer(t, "set -g automatic-rename off", "set -g default-shell /bin/sh")
			home := server.home
			d := startDaemon(t, home, nil)
			dial := func() *mcpClient {
				c, err := d.dial(t, map[string]string{"TMUX_TMPDIR": home.tmpdir})
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			spend := &budget{left: total * part.share / 100}
			var editors []*editor
			for i := range part.spawn + part.control {
				e := &editor{name: fmt.Sprintf("process%d", i), server: server, tally: all, budget: spend, change: server.try}
				if i >= part.spawn {
					e.name = fmt.Sprintf("control%d", i)
					client := newCommandClient(t, server, "main")
					e.change = func(args ...string) (string, error) { return client.do(commandLine(args)) }
				}
				for range part.readers {
					e.readers = append(e.readers, dial())
				}
				if err := e.setUp(); err != nil {
					t.Fatal(err)
				}
				editors = append(editors, e)
			}
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			var polling errgroup.Group
			var mu sync.Mutex
			for range part.pollers {
				c := dial()
				polling.Go(func() error {
					n := 0
					defer func() { mu.Lock(); polls += n; mu.Unlock() }()
					for ctx.Err() == nil {
						if _, err := c.list("list_sessions", nil); err != nil {
							return err
						}
						n++
					}
					return nil
				})
			}
			editing, editCtx := errgroup.WithContext(ctx)
			for _, e := range editors {
				editing.Go(func() error { return e.run(editCtx) })
			}
			err := editing.Wait()
			stop()
			if pollErr := polling.Wait(); pollErr != nil {
				t.Error(pollErr)
			}
			if err != nil {
				t.Error(err)
			}
			for _, e := range editors {
				changes += e.changes
			}
		})
	}
	checks, stale := all.print(t)
	t.Logf("%d changes, %d checks, %d stale, %d further questions, in %v", changes, checks, stale, polls, time.Since(begin).Round(time.Millisecond))
	if stale > 0 {
		t.Errorf("%d of %d answers were stale", stale, checks)
	}
	if len(all.kinds) < 15 {
		t.Errorf("only %d kinds of change", len(all.kinds))
	}
}
