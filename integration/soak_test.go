package integration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	soakClients = 16
	// soakRound is after how long the answers are judged and the history begins
	// anew: those of ten minutes would not fit into memory.
	soakRound = 15 * time.Second
	soakPause = 50 * time.Millisecond // between two calls of one client
	soakFault = time.Second
)

// sample is what a daemon has at some time of a soak.
type sample struct {
	after       time.Duration
	kb, sockets int
	fds         int // of all kinds: some for each pane that there is
}

// TestSoak is the load test for as long as one likes, with a fault each second:
//
//	TMUX_MCPD_TEST_SOAK=10m go test -timeout 15m -v -run TestSoak ./integration
//
// Half of the clients are hosts behind bridges. Every answer must be what tmux had
// before or after it; memory, descriptors and goroutines of the daemon must not grow.
func TestSoak(t *testing.T) {
	text := os.Getenv("TMUX_MCPD_TEST_SOAK")
	if text == "" {
		t.Skip("takes as long as TMUX_MCPD_TEST_SOAK says, 10m for example")
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	m := newMutator(t)
	quiet := startDaemon(t, m.server.home, nil)
	dialGuest(t, quiet, m.server.home).poll(t, m.server, 2)
	m.server.waitGuests(1, 10*time.Second)
	sockets := quiet.fds("socket:") - 1
	wantGoroutines, _ := quiet.quit()

	d := startDaemon(t, m.server.home, nil)
	args := map[string]any{"socket_name": m.server.name}
	var askers []asker
	var clients []*mcpClient
	for i := range soakClients {
		var c *mcpClient
		if i%2 == 0 {
			c = d.host(t, launch{}).mcpClient
		} else if c, err = d.dial(t, map[string]string{"TMUX_TMPDIR": m.server.home.tmpdir}); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		askers = append(askers, func(tool string) ([]row, error) { return c.list(tool, args) })
	}
	calls, changes, begun := 0, 0, time.Now()
	done := map[string]int{}
	var samples []sample
	for len(samples) < 3 || time.Since(begun) < duration {
		c, n := m.soak(t, d, askers, done)
		calls, changes = calls+c, changes+n
		samples = append(samples, sample{time.Since(begun).Round(time.Second), d.residentKB(), d.fds("socket:"), d.fds("")})
		if t.Failed() {
			break
		}
	}
	first, middle, last := samples[0], samples[len(samples)/2], samples[len(samples)-1]
	faultsDone := 0
	for _, n := range done {
		faultsDone += n
	}
	fmt.Printf("soak: %d clients, %d calls, %d changes, %d faults of %d kinds\n", soakClients, calls, changes, faultsDone, len(done))
	for _, s := range []sample{first, middle, last} {
		fmt.Printf("soak: after %v: %d kB, %d descriptors, %d of them sockets\n", s.after, s.kb, s.fds, s.sockets)
	}
	if last.kb > first.kb+flatKB() || last.sockets > first.sockets+2 {
		t.Errorf("the daemon has grown: %v", samples)
	}
	for _, c := range clients {
		c.close()
	}
	eventually(t, "all connections are closed", 10*time.Second, func() (bool, string) {
		n := d.fds("socket:")
		return n <= sockets, fmt.Sprintf("%d sockets, %d at rest", n, sockets)
	})
	n, stacks := d.quit()
	fmt.Printf("soak: %d goroutines at the end, %d after one client at rest\n", n, wantGoroutines)
	if n > wantGoroutines+4 {
		t.Errorf("%d goroutines at the end; stacks:\n%s", n, stacks)
	}
}

// soak is one round: changes, calls and faults at the same time, then the
// judgement. It counts the faults by name in done.
func (m *mutator) soak(t *testing.T, d *daemonProcess, askers []asker, done map[string]int) (calls, changes int) {
	t.Helper()
	start, err := m.server.read()
	if err != nil {
		t.Fatal(err)
	}
	m.history = &history{}
	m.history.record("start", time.Time{}, time.Now(), start)
	m.history.settle(start.panes, time.Now())
	ctx, stop := context.WithTimeout(context.Background(), soakRound)
	defer stop()
	seen := make([][]observation, len(askers))
	var running errgroup.Group
	running.Go(func() error { return m.run(ctx) })
	running.Go(func() error { m.maltreat(ctx, t, d, done); return nil })
	for i, ask := range askers {
		running.Go(func() error {
			tick := time.NewTicker(soakPause)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				o := observation{tool: []string{"list_panes", "list_sessions"}[n%2], begun: time.Now()}
				var err error
				if o.rows, err = ask(o.tool); err != nil {
					return fmt.Errorf("client %d: %s: %w", i, o.tool, err)
				}
				o.got = time.Now()
				seen[i] = append(seen[i], o)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
			return nil
		})
	}
	if err := running.Wait(); err != nil {
		t.Error(err)
	}
	for i := range seen {
		calls += len(seen[i])
		if err := m.history.check(seen[i]); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	}
	return calls, len(m.history.changes) - 1
}

// maltreat does one fault a second, and waits for all of them at the end.
func (m *mutator) maltreat(ctx context.Context, t *testing.T, d *daemonProcess, done map[string]int) {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(soakFault)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		f := faults[m.chosen%len(faults)]
		m.chosen++
		for f.alone {
			f = faults[m.chosen%len(faults)]
			m.chosen++
		}
		done[f.name]++
		running.Go(func() {
			seen := f.run(t, d, m.server)
			// Memory is judged over the whole soak: here others use it as well.
			seen, _, _ = strings.Cut(seen, ";")
			if want, _, _ := strings.Cut(f.expected, ";"); seen != want {
				t.Errorf("%s: want %s, saw %s", f.name, want, seen)
			}
		})
	}
}
