package integration

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// twins are two tmux servers that get the same commands, terminals and keys. The
// guest is on one of them only: what differs between them is its doing. The
// other one is the judge of what tmux would have done without it.
type twins struct {
	t           testing.TB
	host, alone *tmuxServer
	terms       [][2]*terminal // of the host, of the other
}

// newTwins starts two servers with the sessions main (two windows) and other,
// with variables of update-environment set.
func newTwins(t testing.TB, conf ...string) *twins {
	t.Helper()
	// A window of a program that has just been started has the name of tmux itself for a moment.
	home := newTmuxHome(t, append(conf, "set -g automatic-rename off")...)
	tw := &twins{t: t, host: home.server("host"), alone: home.server("alone")}
	for _, s := range tw.both() {
		s.newSession("main")
		s.newSession("other")
		s.pid()
	}
	tw.run("new-window", "-d", "-t", "main:", "-n", "second", "-c", home.dir, "sleep", "9000")
	for _, session := range []string{"main", "other"} {
		tw.run("set-environment", "-t", session, "SSH_AUTH_SOCK", "/tmp/agent of "+session)
		tw.run("set-environment", "-t", session, "DISPLAY", ":"+session)
	}
	if err := home.settle(); err != nil {
		t.Fatal(err)
	}
	return tw
}

func (tw *twins) both() []*tmuxServer { return []*tmuxServer{tw.host, tw.alone} }

// run runs a tmux command on both.
func (tw *twins) run(args ...string) {
	tw.t.Helper()
	for _, s := range tw.both() {
		s.run(args...)
	}
}

// terminal opens a terminal on both.
func (tw *twins) terminal(width, height int, session string) {
	tw.t.Helper()
	var pair [2]*terminal
	for i, s := range tw.both() {
		pair[i] = newTerminal(tw.t, s, width, height, "attach-session", "-t", session)
	}
	tw.terms = append(tw.terms, pair)
}

// onTerminals does something to a terminal of both.
func (tw *twins) onTerminals(n int, do func(term *terminal)) {
	for _, term := range tw.terms[n] {
		do(term)
	}
}

// looks are what a user can see of a server, by the command that shows it and
// without what differs between any two servers (process ids, terminals).
var looks = [][]string{
	{"list-sessions", "-F", "#{session_id} #{session_name} windows #{session_windows} size #{window_width}x#{window_height}"},
	{"list-windows", "-a", "-F", "#{session_name}:#{window_index} #{window_id} #{window_name} #{window_width}x#{window_height} #{window_layout} active #{window_active} zoomed #{window_zoomed_flag}"},
	{"list-panes", "-a", "-F", "#{session_name}:#{window_index} #{pane_id} #{pane_width}x#{pane_height} #{pane_title} active #{pane_active} mode #{pane_mode} dead #{pane_dead}"},
	{"list-buffers", "-F", "#{buffer_name}"},
	{"show-environment", "-g"},
	{"show-environment", "-t", "main"},
	{"show-environment", "-t", "other"},
	{"show-options", "-s"},
	{"show-options", "-g"},
	{"show-options", "-gw"},
	{"show-options", "-t", "main"},
	{"show-options", "-t", "other"},
	// Where a command without a target goes that is run outside of tmux.
	{"display-message", "-p", "default session #{session_id} #{window_id} #{pane_id}"},
}

// look is what a user sees of a server now: the output of all looks, made by one
// command line. Lines of user options (the journal of the hooks) are left out.
func look(s *tmuxServer) []string {
	var args []string
	for _, l := range looks {
		args = append(append(args, l...), ";")
	}
	args = append(args, "list-clients", "-F", "client #{client_width}x#{client_height} in #{client_session}, #{client_termname}")
	out, err := s.try(args...)
	if err != nil {
		out += "failed: " + strings.ReplaceAll(err.Error(), s.socket, "SOCKET")
	}
	return slices.DeleteFunc(strings.Split(out, "\n"), func(l string) bool {
		return strings.HasPrefix(l, "@") || strings.HasPrefix(l, "client ") && strings.HasSuffix(l, ", "+productTermname)
	})
}

// difference says in what two looks differ, "" in nothing.
func difference(host, alone []string) string {
	var out []string
	for i := range max(len(host), len(alone)) {
		a, b := "", ""
		if i < len(host) {
			a = host[i]
		}
		if i < len(alone) {
			b = alone[i]
		}
		if a != b {
			out = append(out, "with tmux-mcpd: "+a, "without:        "+b)
		}
	}
	return strings.Join(out[:min(len(out), 12)], "\n")
}

// mustBeAlike fails the test unless both look the same soon: a terminal answers
// to what has been done to it a moment later.
func (tw *twins) mustBeAlike(when string) {
	tw.t.Helper()
	saw, ok := holdsWithin(3*time.Second, func() (bool, string) {
		d := difference(look(tw.host), look(tw.alone))
		return d == "", d
	})
	if !ok {
		tw.t.Errorf("%s, the server differs from the one without tmux-mcpd:\n%s", when, saw)
	}
}

// unheard are hooks that the commands of a test's own looks run, and set-option
// which the journal does itself.
var unheard = []string{"after-list-", "after-show-", "after-display-message", "after-set-option", "after-set-hook", "after-lock-server"}

// keepJournal lets every hook that this tmux has note its name.
func (s *tmuxServer) keepJournal() {
	s.home.t.Helper()
	var args []string
	for _, scope := range []string{"-g", "-gw"} {
		for _, name := range strings.Fields(s.run("show-hooks", scope)) {
			if strings.ContainsAny(name, "[\"") || slices.ContainsFunc(unheard, func(p string) bool { return strings.HasPrefix(name, p) }) {
				continue
			}
			args = append(args, "set-hook", scope, name, "set-option -ga @journal '"+name+" '", ";")
		}
	}
	if len(args) == 0 {
		s.home.t.Fatal("this tmux has no hooks")
	}
	s.run(args...)
}

// journal is how often each hook has been run.
func (s *tmuxServer) journal() map[string]int {
	s.home.t.Helper()
	counts := map[string]int{}
	out, _ := s.try("show-options", "-gqv", "@journal") // a server that is gone has none
	for _, name := range strings.Fields(out) {
		counts[name]++
	}
	return counts
}

// moreOrLess are hooks of what nothing does but the place of our client as the
// one that came last to its window, and has the focus.
var moreOrLess = []string{"client-active", "pane-focus-in", "pane-focus-out"}

// mustHaveHeard fails the test unless the host's hooks have run as those of the
// other, and more only; for those of moreOrLess it prints the difference.
func (tw *twins) mustHaveHeard(more map[string]int) {
	tw.t.Helper()
	split := func(counts map[string]int) (strict map[string]int, loose string) {
		strict = maps.Clone(counts)
		for _, name := range moreOrLess {
			loose += fmt.Sprintf(" %s %d", name, strict[name])
			delete(strict, name)
		}
		return strict, loose
	}
	want, loose := split(tw.alone.journal())
	for name, n := range more {
		want[name] += n
	}
	var gotLoose string
	saw, ok := holdsWithin(3*time.Second, func() (bool, string) {
		var got map[string]int
		got, gotLoose = split(tw.host.journal())
		return maps.Equal(got, want), fmt.Sprintf("%v", got)
	})
	if !ok {
		tw.t.Errorf("hooks have run\n%s, want\n%v", saw, want)
	}
	if gotLoose != loose {
		tw.t.Logf("hooks with tmux-mcpd:%s; without:%s", gotLoose, loose)
	}
}

// processes lists the command lines of the processes that have the server's
// socket among their arguments: the server itself and its clients.
func (s *tmuxServer) processes(t testing.TB) (lines []string) {
	t.Helper()
	// A client that is just ending, or a command of another goroutine, comes and goes.
	holdsWithin(2*time.Second, func() (bool, string) {
		out, _, err := command([]string{"ps", "-A", "-o", "args="}, s.home.environ(), "/", nil, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		old := lines
		lines = nil
		for line := range strings.Lines(string(out)) {
			// Our client may reach the server by a relay, whose socket is in the home.
			if strings.Contains(line, s.socket) || strings.Contains(line, filepath.Join(s.home.dir, "tmux-mcpd-")) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return slices.Equal(old, lines), ""
	})
	return lines
}

// messagesOf counts the lines of tmux-mcpd's client in show-messages. Up to 3.5a
// tmux shows them only to somebody who has a client; 0 without a terminal there.
func (s *tmuxServer) messagesOf(t testing.TB, tw *twins) int {
	t.Helper()
	args := []string{"show-messages"}
	if len(tw.terms) > 0 {
		args = append(args, "-t", tw.terms[0][0].tty)
	}
	out, err := s.try(args...)
	if err != nil && len(tw.terms) > 0 {
		t.Fatal(err)
	}
	n := 0
	for _, g := range s.guests() {
		// Not what hooks of the user run in the name of our client.
		n += strings.Count(out, " client-"+strconv.Itoa(g.pid)+" command: list-")
	}
	if n == 0 && len(tw.terms) > 0 {
		t.Errorf("show-messages has no line of ours; is it another form?\n%s", out)
	}
	return n
}

// lag watches how late this machine runs what is due: a bound on time is meant
// for a machine that has it.
type lag struct {
	stop chan struct{}
	most chan time.Duration
}

func watchLag() *lag {
	l := &lag{stop: make(chan struct{}), most: make(chan time.Duration, 1)}
	go func() {
		const every = 5 * time.Millisecond
		tick := time.NewTicker(every)
		defer tick.Stop()
		last, most := time.Now(), time.Duration(0)
		for {
			select {
			case <-l.stop:
				l.most <- most
				return
			case <-tick.C:
				now := time.Now()
				most = max(most, now.Sub(last)-every)
				last = now
			}
		}
	}()
	return l
}

// end returns the greatest delay since watchLag.
func (l *lag) end() time.Duration {
	close(l.stop)
	return <-l.most
}

// gone is what a server that does not run has for sessions.
const gone = "(no server)"

// sessionNames lists the sessions by name.
func (s *tmuxServer) sessionNames() string {
	out, err := s.try("list-sessions", "-F", "#{session_name}")
	if err != nil {
		return gone
	}
	return strings.Join(strings.Fields(out), " ")
}

// steady is how long both must have been alike to be believed: what one of them
// is about to do is then done.
const steady = 400 * time.Millisecond

// mustLiveAlike fails the test unless the same sessions live on both, from
// leaveWhen after begun on at the latest.
func (tw *twins) mustLiveAlike(when string, begun time.Time) {
	tw.t.Helper()
	lag := watchLag()
	alike, differ := time.Now(), ""
	for time.Since(alike) < steady && time.Since(begun) < 10*time.Second {
		// Of a group keep-group spares one session, the one that we are in: it has
		// the windows of its mate.
		host, alone := tw.host.sessionNames(), strings.ReplaceAll(tw.alone.sessionNames(), "mate", "main")
		host = strings.ReplaceAll(host, "mate", "main")
		if host != alone {
			alike, differ = time.Now(), fmt.Sprintf("with tmux-mcpd %s, without %s", host, alone)
		}
		time.Sleep(pollEvery)
	}
	late := lag.end()
	switch took := alike.Sub(begun); {
	case differ == "":
	case took > leaveWhen+late:
		tw.t.Errorf("%s, servers differ for %v (the machine was up to %v late): %s", when, took.Round(time.Millisecond), late.Round(time.Millisecond), differ)
	default:
		tw.t.Logf("%s, servers differed for %v: %s", when, took.Round(time.Millisecond), differ)
	}
}

// atLeast compares the version of the tmux under test; what has no number is new.
func (s *tmuxServer) atLeast(major, minor int) bool {
	_, version, err := realTmux()
	if err != nil {
		s.home.t.Fatal(err)
	}
	var haveMajor, haveMinor int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(version, "next-"), "%d.%d", &haveMajor, &haveMinor); n < 2 {
		return true
	}
	return haveMajor > major || haveMajor == major && haveMinor >= minor
}
