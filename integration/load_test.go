package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	loadClients = 16
	loadPolls   = 200
)

// mutator changes one tmux server as fast as it can and keeps the history of it.
type mutator struct {
	server  *tmuxServer
	random  *rand.Rand
	history *history
	names   int
	chosen  int // faults, in a soak
}

// permanent is the session that a mutator never kills: with no session left there
// would be no server.
const permanent = "main"

// run changes the server until the context ends.
func (m *mutator) run(ctx context.Context) error {
	for ctx.Err() == nil {
		command, ok := m.choose()
		if !ok {
			continue
		}
		if err := m.change(command); err != nil {
			return err
		}
	}
	return nil
}

// change carries one command out and records the state after it. A command that
// tmux refuses (no room for another pane) leaves a state like any other.
func (m *mutator) change(command []string) error {
	begun := time.Now()
	_, _ = m.server.try(command...)
	done := time.Now()
	state, err := m.server.read()
	if err != nil {
		return fmt.Errorf("after %q: %w", command, err)
	}
	m.history.record(fmt.Sprint(command), begun, done, state)
	if err := m.server.home.settle(); err != nil {
		return err
	}
	settled, err := m.server.read()
	if err != nil {
		return err
	}
	m.history.settle(settled.panes, time.Now())
	return nil
}

// choose picks the next command from what there is. ok is false where the picked
// kind of command would do too much.
func (m *mutator) choose() (command []string, ok bool) {
	last := m.history.changes[len(m.history.changes)-1].rows
	panes, sessions := last["list_panes"], last["list_sessions"]
	pane := panes[m.random.IntN(len(panes))]
	id := pane["pane_id"].(string)
	session := sessions[m.random.IntN(len(sessions))]
	sessionID := session["session_id"].(string)
	mainPanes := 0
	for _, r := range panes {
		if r["session_id"] == "$0" {
			mainPanes++
		}
	}
	spare := pane["session_id"] != "$0" || mainPanes > 1 // killing it leaves the permanent session alive
	m.names++
	name := "n" + strconv.Itoa(m.names)
	sleep := []string{"-c", m.server.home.dir, "sleep", "9000"}
	const few, many = 4, 12
	switch m.random.IntN(14) {
	case 0, 1:
		return slices.Concat([]string{"split-window", "-d", "-t", id}, sleep), len(panes) < many
	case 2:
		return slices.Concat([]string{"split-window", "-h", "-t", id}, sleep), len(panes) < many
	case 3, 4:
		return []string{"kill-pane", "-t", id}, spare && len(panes) > few
	case 5:
		return []string{"rename-session", "-t", sessionID, name}, sessionID != "$0"
	case 6:
		return []string{"rename-window", "-t", id, name}, true
	case 7, 8:
		return slices.Concat([]string{"respawn-pane", "-k", "-t", id}, sleep), true
	case 9:
		return []string{"select-pane", "-t", id, "-T", "title " + name}, true
	case 10:
		return []string{"resize-pane", "-Z", "-t", id}, true
	case 11:
		return slices.Concat([]string{"new-window", "-d", "-t", sessionID + ":"}, sleep), len(panes) < many
	case 12:
		return slices.Concat([]string{"new-session", "-d", "-s", name, "-x", "160", "-y", "48"}, sleep), len(sessions) < 4
	default:
		return []string{"kill-session", "-t", sessionID}, sessionID != "$0" && len(sessions) > 2
	}
}

// newMutator prepares a server with three sessions and a few panes. The seed is
// logged, so that a run can be repeated.
func newMutator(t testing.TB) *mutator {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("TMUX_MCPD_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("TMUX_MCPD_TEST_SEED=%d", seed)
	server := newTmuxServer(t, "set -g automatic-rename off", "set -g default-shell /bin/sh")
	server.newSession("work")
	server.newSession("build")
	server.run("split-window", "-d", "-t", permanent, "sleep", "9000")
	if err := server.home.settle(); err != nil {
		t.Fatal(err)
	}
	return &mutator{server: server, random: rand.New(rand.NewPCG(seed, 1)), history: &history{}}
}

// asker answers a tool call; the load is put on it.
type asker func(tool string) ([]row, error)

// underChange lets every asker ask for both tools in turn, polls times each,
// while the server is changed, and judges all answers afterwards.
func (m *mutator) underChange(t *testing.T, askers []asker, polls int) {
	t.Helper()
	start, err := m.server.read()
	if err != nil {
		t.Fatal(err)
	}
	m.history.record("start", time.Time{}, time.Now(), start)
	m.history.settle(start.panes, time.Now())
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	changing := make(chan error, 1)
	go func() { changing <- m.run(ctx) }()
	seen := make([][]observation, len(askers))
	var asking errgroup.Group
	for i, ask := range askers {
		asking.Go(func() error {
			for range polls {
				for _, tool := range []string{"list_panes", "list_sessions"} {
					o := observation{tool: tool, begun: time.Now()}
					var err error
					if o.rows, err = ask(tool); err != nil {
						return fmt.Errorf("client %d, call %d: %s: %w", i, len(seen[i])+1, tool, err)
					}
					o.got = time.Now()
					seen[i] = append(seen[i], o)
				}
			}
			return nil
		})
	}
	err = asking.Wait()
	stop()
	if changeErr := <-changing; changeErr != nil {
		t.Error(changeErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	wrong, calls, differing := 0, 0, map[string]bool{}
	for i := range seen {
		calls += len(seen[i])
		for _, o := range seen[i] {
			differing[o.tool+fingerprint(o.rows)] = true
		}
		if err := m.history.check(seen[i]); err != nil {
			wrong++
			t.Errorf("client %d: %v", i, err)
		}
	}
	t.Logf("%d clients, %d calls, %d changes, %d different answers, %d clients with a wrong one",
		len(askers), calls, len(m.history.changes)-1, len(differing), wrong)
	// Without change between the calls the test would show nothing.
	if len(m.history.changes) < 10 || len(differing) < 10 {
		t.Errorf("only %d changes and %d different answers", len(m.history.changes)-1, len(differing))
	}
}

// TestLoadOnTmuxItself judges tmux's own answers: a check of the check.
func TestLoadOnTmuxItself(t *testing.T) {
	m := newMutator(t)
	ask := func(tool string) ([]row, error) {
		state, err := m.server.read()
		if tool == "list_panes" {
			return state.panes, err
		}
		return state.sessions, err
	}
	m.underChange(t, []asker{ask, ask}, 60)
}

// TestLoad is the main promise under load: many clients of one daemon, one server
// that changes all the time, every answer exact and none stale, and nothing left.
func TestLoad(t *testing.T) {
	m := newMutator(t)
	home := m.server.home
	serverPID := m.server.pid()

	// A daemon that served one client at rest is the measure for what is left.
	quiet := startDaemon(t, home, nil)
	g := dialGuest(t, quiet, home)
	g.poll(t, m.server, 3)
	m.server.waitGuests(1, 10*time.Second) // which may hold two sockets, of its relay
	sockets := quiet.fds("socket:") - 1
	g.client.close()
	eventually(t, "the connection is closed", 10*time.Second, func() (bool, string) {
		n := quiet.fds("socket:")
		return n == sockets, fmt.Sprintf("%d sockets, want %d", n, sockets)
	})
	wantGoroutines, _ := quiet.quit()

	d := startDaemon(t, home, nil)
	var askers []asker
	var clients []*mcpClient
	for i := range loadClients {
		// Two ways to name the same server: both must find one cache.
		env, args := map[string]string{"TMUX_TMPDIR": home.tmpdir}, map[string]any{"socket_name": m.server.name}
		if i%2 == 1 {
			env, args = map[string]string{"LIBTMUX_SOCKET_PATH": m.server.socket}, map[string]any{}
		}
		c, err := d.dial(t, env)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		askers = append(askers, func(tool string) ([]row, error) { return c.list(tool, args) })
	}
	begin := time.Now()
	m.underChange(t, askers, loadPolls)
	t.Logf("%v for all calls; daemon: %d kB resident, %d descriptors", time.Since(begin).Round(time.Millisecond), d.residentKB(), d.fds(""))

	if pid := m.server.pid(); pid != serverPID {
		t.Errorf("the tmux server is another one: pid %d, was %d", pid, serverPID)
	}
	for _, c := range clients {
		c.close()
	}
	eventually(t, "all connections are closed", 10*time.Second, func() (bool, string) {
		n := d.fds("socket:")
		return n <= sockets, fmt.Sprintf("%d sockets, %d at rest", n, sockets)
	})
	eventually(t, "the daemon has at most one child", 10*time.Second, func() (bool, string) {
		children := childrenOf(d.pid())
		return len(children) <= 1, fmt.Sprint(children)
	})
	if guests := m.server.guests(); len(guests) > 1 {
		t.Errorf("%d clients of one daemon are attached: %v", len(guests), guests)
	}
	// Sixteen leaked sessions would be sixteen more; the slack is for what the
	// runtime keeps for a while.
	if n, stacks := d.quit(); n > wantGoroutines+4 {
		t.Errorf("the daemon has %d goroutines after the load, %d after one client; stacks:\n%s", n, wantGoroutines, stacks)
	}
	m.server.waitGuests(0, 10*time.Second)
}
