package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// cpu is how long a process has run, by the system's own count; 0 and false
// where /proc does not tell.
func cpu(pid int) (time.Duration, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(text)
	if len(fields) < 3 {
		return 0, false
	}
	ns, err := strconv.ParseInt(string(fields[0]), 10, 64)
	return time.Duration(ns), err == nil
}

// eventsAreUncounted reports whether the tmux under test, 3.8 or newer, does what
// programs and terminals make it do without counting it.
func eventsAreUncounted() bool {
	_, version, _ := realTmux()
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n < 2 {
		return true // a version between two releases
	}
	return major > 3 || major == 3 && minor >= 8
}

// load is what goes on on a server by itself: somebody types, and programs change
// their titles.
type load struct {
	spinners []string // panes
	stop     func() error
}

const (
	keysPerSecond   = 30
	titlesPerSecond = 10
)

// startLoad types 30 keys a second into a terminal and changes the titles of five
// panes ten times a second: "spin-1", "spin-2", …
func startLoad(t testing.TB, server *tmuxServer) *load {
	t.Helper()
	server.run("new-session", "-d", "-s", "typed", "-x", "100", "-y", "30", "cat")
	server.run(append([]string{"new-session", "-d", "-s", "spin", "-x", "200", "-y", "50"}, program...)...)
	for range 4 {
		server.run(append([]string{"split-window", "-d", "-t", "spin:"}, program...)...)
		server.run("select-layout", "-t", "spin:", "tiled")
	}
	if err := server.home.settle(); err != nil {
		t.Fatal(err)
	}
	term := newTerminal(t, server, 100, 30, "attach-session", "-t", "typed")
	l := &load{}
	var ttys []string
	for _, row := range splitRows(server.run("list-panes", "-t", "spin:", "-F", joinFormats("pane_id", "pane_tty"))) {
		l.spinners, ttys = append(l.spinners, row[0]), append(ttys, row[1])
	}
	ctx, cancel := context.WithCancel(context.Background())
	var working errgroup.Group
	every := func(d time.Duration, do func(n int) error) {
		working.Go(func() error {
			tick := time.NewTicker(d)
			defer tick.Stop()
			for n := 1; ; n++ {
				if err := do(n); err != nil {
					return err
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return nil
				}
			}
		})
	}
	every(time.Second/keysPerSecond, func(n int) error {
		key := "k"
		if n%40 == 0 {
			key = "\r"
		}
		_, err := term.master.WriteString(key)
		return err
	})
	for _, tty := range ttys {
		every(time.Second/titlesPerSecond, func(n int) error {
			return sayTo(tty, fmt.Sprintf("\x1b]2;spin-%d\a", n))
		})
	}
	l.stop = func() error { cancel(); return working.Wait() }
	return l
}

// TestBackgroundLoad: somebody types and titles spin. While nobody asks, all that
// tmux does for tmux-mcpd may take 2 % of its time; when somebody asks, answers
// are what tmux says.
func TestBackgroundLoad(t *testing.T) {
	hooks := []struct {
		name string
		set  []string
	}{
		{"no hook", nil},
		{"a hook on each dump", []string{"set-hook", "-g", "after-list-panes", "set-option -g @dumped 1"}},
		// Each dump announces a change, which is a reason to dump again.
		{"a hook on each dump that renames", []string{"set-hook", "-g", "after-list-panes", "rename-window -t main: hooked"}},
	}
	const window = 3 * time.Second
	for _, h := range hooks {
		t.Run(h.name, func(t *testing.T) {
			server := newTmuxServer(t, "set -g automatic-rename off")
			if _, ok := cpu(server.pid()); !ok {
				t.Skip("the system does not tell how long a process has run")
			}
			if h.set != nil {
				server.run(h.set...)
			}
			l := startLoad(t, server)
			// used is tmux's share of a core over the window.
			used := func() float64 {
				before, _ := cpu(server.pid())
				begin := time.Now()
				time.Sleep(window)
				after, _ := cpu(server.pid())
				return float64(after-before) / float64(time.Since(begin))
			}
			without := used()
			c := startDaemon(t, server.home, nil).dialDefault(t)
			settleCache(t, c)
			server.waitGuests(1, 5*time.Second)
			with := used()
			t.Logf("tmux runs %.2f %% of the time without tmux-mcpd, %.2f %% with it attached and nobody asking: %.2f %% more",
				100*without, 100*with, 100*(with-without))
			if more := with - without; more > 0.02 {
				t.Errorf("tmux runs %.2f %% more of the time", 100*more)
			}
			answers, late, worst := 0, 0, 0
			for begin := time.Now(); time.Since(begin) < window; time.Sleep(40 * time.Millisecond) {
				before, err := server.read()
				if err != nil {
					t.Fatal(err)
				}
				rows, err := c.list("list_panes", nil)
				if err != nil {
					t.Fatal(err)
				}
				after, err := server.read()
				if err != nil {
					t.Fatal(err)
				}
				answers++
				behind, err := l.between(before.panes, rows, after.panes)
				if err != nil {
					t.Fatal(err)
				}
				if behind > 0 {
					late++
					worst = max(worst, behind)
				}
			}
			if err := l.stop(); err != nil {
				t.Error(err)
			}
			t.Logf("%d answers compared, %d with a title that was older than the question, by up to %d/%d s", answers, late, worst, titlesPerSecond)
			// Two titles more than a second's: those that were on their way.
			if worst > titlesPerSecond+2 {
				t.Errorf("a title in an answer was %d/%d s old", worst, titlesPerSecond)
			}
			if late > 0 && !eventsAreUncounted() {
				t.Errorf("%d answers had an older title, although this tmux counts titles", late)
			}
		})
	}
}

var spinTitle = regexp.MustCompile(`^spin-(\d+)$`)

// between compares an answer with what tmux said before and after: all that does
// not spin must be the same, and titles must lie between. It returns by how many
// titles the answer lies before the first.
func (l *load) between(before, answer, after []row) (behind int, err error) {
	titles := func(rows []row) (map[string]int, []row) {
		spins := map[string]int{}
		var rest []row
		for _, r := range stable(withoutCaller(rows)) {
			if m := spinTitle.FindStringSubmatch(fmt.Sprint(r["pane_title"])); m != nil {
				spins[r["pane_id"].(string)], _ = strconv.Atoi(m[1])
				delete(r, "pane_title")
			}
			rest = append(rest, r)
		}
		return spins, rest
	}
	was, restBefore := titles(before)
	is, rest := titles(answer)
	will, _ := titles(after)
	if diff := diffRows(restBefore, rest); diff != "" {
		return 0, fmt.Errorf("an answer differs from tmux: %s", diff)
	}
	for _, pane := range l.spinners {
		if is[pane] > will[pane] {
			return 0, fmt.Errorf("the title of %s is spin-%d in the answer and spin-%d afterwards", pane, is[pane], will[pane])
		}
		behind = max(behind, was[pane]-is[pane])
	}
	return behind, nil
}

// TestPollingIsCheap counts what a quiet server has to do for a thousand polls, by
// tmux's own counter: a probe counts one, a dump two, and this test's own control
// client one each time it looks.
func TestPollingIsCheap(t *testing.T) {
	for _, clients := range []int{1, 8} {
		t.Run(fmt.Sprintf("%d clients", clients), func(t *testing.T) {
			const polls = 1000
			server := newTmuxServer(t, "set -g automatic-rename off")
			server.newSession("work")
			server.splitPane("work:")
			d := startDaemon(t, server.home, nil)
			watch := newCommandClient(t, server, "work")
			var readers []*mcpClient
			for range clients {
				c := d.dialDefault(t)
				settleCache(t, c)
				readers = append(readers, c)
			}
			server.waitGuests(1, 5*time.Second)
			settleCache(t, readers[0])
			dumps := func() int {
				log := server.run("show-messages")
				return strings.Count(log, "lsp") + strings.Count(log, "list-panes")
			}
			logged := dumps()
			settleCache(t, readers[0])

			first := watch.number(t)
			begin := time.Now()
			var asking errgroup.Group
			for _, c := range readers {
				asking.Go(func() error {
					for i := range polls / clients {
						if i%(50/clients) == 0 {
							time.Sleep(150 * time.Millisecond) // three seconds in all
						}
						if _, err := c.list("list_panes", nil); err != nil {
							return err
						}
					}
					return nil
				})
			}
			if err := asking.Wait(); err != nil {
				t.Fatal(err)
			}
			took := time.Since(begin)
			items := int(watch.number(t)-first) - 1
			dumped := dumps() - logged
			t.Logf("%d polls by %d clients in %v: tmux ran %d items for us, by its log %d dumps, so %d probes",
				polls, clients, took.Round(time.Millisecond), items, dumped, items-dumped)
			// The dumps counted are also those after this test's own commands and
			// up to its last. From 3.8 on there are a few false hints where several
			// ask at once (0 to 6 in 1000): the server need not go to sleep between
			// two questions.
			most := int(took/time.Second) + 7
			if eventsAreUncounted() {
				most += polls / 100
			}
			if dumped > most {
				t.Errorf("%d dumps in %v, want at most %d", dumped, took, most)
			}
			if items-dumped > polls {
				t.Errorf("%d probes for %d polls", items-dumped, polls)
			}
		})
	}
}
