package daemon

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"tmux-mcpd/controlmode"
	"tmux-mcpd/daemon/state"
)

// A connection is our client in a tmux server, and the cache that it keeps.
// The holder of the server's turn owns what is no atomic.
type connection struct {
	client     *controlmode.Client
	counters   *counters
	pid        int // of the tmux server
	version    controlmode.Version
	file       socketID // of the socket when we attached
	socketGone bool
	procPID    int // pid if our /proc shows that process, else 0
	since      time.Time
	probe      string // the line that asks for the counter
	framing    state.Framing
	lines      lines
	schedule   *schedule

	session    string // where our client is
	attachedAt string // what attaching made of its session_last_attached

	fresh  freshness
	cost   time.Duration // of a dump, smoothed
	budget budget        // for dumps after notifications
	// asked is the time of the request that came last before such a dump,
	// unasked how many of them no request has made use of.
	asked   int64
	unasked int

	// hints counts the notifications that may mean a change.
	hints atomic.Uint64
	// urgent: a client has come, gone or moved, and with it perhaps the reason
	// why we may stay.
	urgent atomic.Bool
	// wake wakes the goroutine that tends the connection; one place, because
	// it looks at everything when it wakes.
	wake chan struct{}
	// For tend, which does not hold the turn: when tmux was last asked, when it
	// was last asked for a dump, and when the cache comes of age, in UnixNano;
	// and the hints that the last dump knew of.
	exchanged, dumped, due atomic.Int64
	seen                   atomic.Uint64
	lone                   atomic.Bool // we are our session's only client
}

// The lines of a probe. A lone brace cannot be parsed, so tmux runs nothing
// for it: no hook, no line in its message log.
const (
	probeUnparsable = "}"
	probeCommand    = "refresh"
)

// tmux's commands, by their short names: a user's command-alias for the long
// one (measured: 3.3a, 3.8) would change what we run and how many blocks it
// answers with.
const (
	listPanes     = "lsp"
	listClients   = "lsc"
	listSessions  = "ls"
	displayFormat = "display"
	switchClient  = "switchc"
)

// lines are those of a dump. Each command of it leaves a line in tmux's log, so
// the clients are asked for only if they may have changed.
type lines struct {
	panes string // one command
	whole string // two commands that tmux runs as one: panes, clients
}

func dumpLines(f state.Framing) lines {
	panes := listPanes + " -a -F " + controlmode.Quote(f.PaneFormat())
	return lines{panes, panes + " ; " + listClients + " -F " + controlmode.Quote(state.ClientFormat(controlmode.TermName))}
}

const (
	// maxAge is how old a clean cache may get before it is dumped again, for
	// what the counter does not prove.
	maxAge = time.Second
	// share is the part of tmux's time that background dumps may take: 1/50.
	share = 50
)

// interval is how old the cache may get: maxAge, longer where dumps are so dear
// that they would take more than their share of tmux's time.
func (c *connection) interval() time.Duration { return max(maxAge, share*c.cost) }

// A budget bounds what dumps in the background cost tmux: its share of the time
// that passes, which may be saved up to a burst.
type budget struct {
	credit time.Duration
	since  time.Time
}

// burst is worth five seconds: some hundred dumps of a small server, so that a
// change after a quiet time is always dumped at once.
const burst = 5 * time.Second / share

// take takes the cost of a dump, or says how long to wait for it.
func (b *budget) take(cost time.Duration) (wait time.Duration) {
	now := time.Now()
	if b.since.IsZero() {
		b.credit = burst
	} else {
		b.credit = min(burst, b.credit+now.Sub(b.since)/share)
	}
	b.since = now
	if cost > burst {
		cost = burst
	}
	if b.credit < cost {
		return (cost - b.credit) * share
	}
	b.credit -= cost
	return 0
}

// maxUnasked is how many dumps notifications may lead to while nobody asks:
// after that, one in maxAge. A hook on list-panes that changes something which
// is announced (a rename) makes each dump the reason of the next, and what the
// hook costs tmux is in no budget.
const maxUnasked = 16

// irrelevant are the notifications that never mean a change of anything that
// the cache holds. What is not known is relevant.
var irrelevant = map[string]bool{
	"output":               true,
	"extended-output":      true,
	"pause":                true,
	"continue":             true,
	"pane-mode-changed":    true,
	"paste-buffer-changed": true,
	"paste-buffer-deleted": true,
	"subscription-changed": true,
	"message":              true,
	"config-error":         true,
}

// notify is called by the connection's reader. It must not wait.
func (c *connection) notify(n controlmode.Notification) {
	c.counters.notifications.Add(1)
	if irrelevant[n.Name] {
		return
	}
	switch n.Name {
	case "client-detached", "client-session-changed", "session-changed":
		c.urgent.Store(true)
	}
	c.hints.Add(1)
	c.wakeUp()
}

func (c *connection) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// ended reports whether tmux takes no commands from us any more. It is true
// before a call fails for that reason, which Done does not promise.
func (c *connection) ended() bool { return c.client.Err() != nil }

// refresh returns a snapshot of what tmux has at a moment after the call.
func (c *connection) refresh(ctx context.Context, h how, meanwhile func(context.Context, *state.Snapshot)) (*state.Snapshot, error) {
	f := &c.fresh
	// What is known to be out of date already is not worth working with.
	hopeful := f.snapshot != nil && h != dump && f.proven(&c.hints) &&
		(h == watchOnly || time.Since(f.sent) < c.interval()) && !c.schedule.moved()
	if h != dump {
		c.counters.probes.Add(1)
		call, err := c.client.Send(c.probe, 1)
		if err != nil {
			return nil, err
		}
		if hopeful && meanwhile != nil {
			meanwhile(withoutTmux(ctx), f.snapshot)
		}
		replies, err := call.Wait(ctx)
		if err != nil {
			return nil, err
		}
		if c.probe == probeUnparsable && !replies[0].Failed {
			// Replies have got out of step with what was sent.
			c.client.Close()
			return nil, errors.New("tmux: a line that cannot be parsed was run")
		}
		f.reply(replies[0])
		c.exchanged.Store(time.Now().UnixNano())
		if hopeful && f.proven(&c.hints) {
			c.schedule.mark()
			return f.snapshot, nil
		}
	}
	// Who only watches can wait: where something changes all the time (keys are
	// typed, a hook of the user follows each dump) the budget for dumps in the
	// background holds.
	if h == watchOnly && f.snapshot != nil && c.budget.take(c.cost) > 0 {
		return f.snapshot, nil
	}
	if f.snapshot != nil && !c.urgent.Load() {
		snapshot, err := c.dump(ctx, c.lines.panes, 1, nil)
		if !errors.Is(err, state.ErrClients) {
			return snapshot, err
		}
	}
	return c.dump(ctx, c.lines.whole, 2, nil)
}

// dump sends a line that begins with a dump, of n commands, publishes what they
// say in c.fresh, and hands the replies of further commands to more. A line of
// one command does not ask for the clients: it is state.ErrClients if it has to.
//
// Rows that cannot be read are asked for once more before it gives up: see
// dumpTries.
func (c *connection) dump(ctx context.Context, line string, n int, more func(*state.Snapshot, []controlmode.Reply) error) (snapshot *state.Snapshot, err error) {
	for range dumpTries {
		snapshot, err = c.tryDump(ctx, line, n, more)
		var odd *state.RowError
		if !errors.As(err, &odd) {
			return snapshot, err
		}
	}
	return nil, c.giveUp(err)
}

// dumpTries is how often rows are asked for that come in another form than asked
// for. From 3.7 on tmux stops in the middle of a row when formatting it has taken
// 100 ms: a busy machine has not let it run meanwhile (seen with 3.8).
const dumpTries = 3

func (c *connection) tryDump(ctx context.Context, line string, n int, more func(*state.Snapshot, []controlmode.Reply) error) (*state.Snapshot, error) {
	f := &c.fresh
	hints := c.hints.Load()
	if n > 1 {
		c.urgent.Store(false)
	}
	sent := time.Now()
	c.counters.dumps.Add(1)
	replies, err := c.client.DoAll(ctx, line, n)
	if err != nil {
		return nil, err
	}
	took := time.Since(sent)
	clean := true
	for _, r := range replies {
		clean = f.reply(r) && clean
		if r.Failed {
			return nil, c.giveUp(errRefused)
		}
	}
	var snapshot *state.Snapshot
	if n > 1 {
		snapshot, err = c.framing.Build(replies[0].Body, replies[1].Body, f.snapshot, c.client.PID())
	} else {
		snapshot, err = c.framing.BuildPanes(replies[0].Body, f.snapshot, c.client.PID())
	}
	if err == nil && more != nil {
		err = more(snapshot, replies[2:])
	}
	if err != nil {
		return nil, err
	}
	f.dumped(snapshot, clean, hints, sent)
	if clean {
		c.counters.unproven.Store(0)
	} else {
		c.counters.unproven.Add(1)
	}
	c.schedule.begin()
	if c.cost == 0 {
		c.cost = took
	}
	// Slowly up, quickly down: a noisy machine must not make us lazy.
	c.cost = min(took, c.cost+c.cost/8)
	c.seen.Store(hints)
	c.exchanged.Store(sent.UnixNano())
	c.dumped.Store(sent.UnixNano())
	c.due.Store(sent.Add(c.interval()).UnixNano())
	c.wakeUp()
	return snapshot, nil
}

// errRefused does not repeat what tmux said: it may be no error of tmux's.
var errRefused = errors.New("tmux refused to list what it has")

// giveUp ends a connection whose replies cannot be what tmux was asked for. A
// value with newlines may hold the very line that ends its block, by a guess at
// time and number; the output of a one-shot command has no such lines.
func (c *connection) giveUp(err error) error {
	c.fresh.clean = false
	c.client.Close()
	return err
}

// refused is the error of a command that tmux did not carry out.
func refused(r controlmode.Reply) error {
	return &controlmode.CommandError{Stderr: string(r.Body), ExitCode: 1}
}

// do runs one command that is no part of a dump.
func (c *connection) do(ctx context.Context, line string) (controlmode.Reply, error) {
	r, err := c.client.Do(ctx, line)
	if err != nil {
		return r, err
	}
	c.fresh.reply(r)
	if r.Failed {
		return r, refused(r)
	}
	return r, nil
}

// greet finds out whom we are connected to and how its counter can be read.
func (c *connection) greet(ctx context.Context) error {
	r, err := c.do(ctx, displayFormat+" -p "+controlmode.Quote("#{version}\t#{pid}\t#{session_id}\t#{session_last_attached}"))
	if err != nil {
		return err
	}
	said := strings.Split(string(r.Body), "\t")
	if len(said) != 4 {
		return &state.RowError{Row: string(r.Body), Fields: len(said)}
	}
	c.version = controlmode.ParseVersion(said[0])
	if c.pid, err = strconv.Atoi(said[1]); err != nil {
		return &state.RowError{Row: string(r.Body), Fields: len(said)}
	}
	c.session, c.attachedAt = said[2], said[3]
	// The counter must move by exactly one for a probe. Others may be at work
	// meanwhile, so that one failure proves nothing.
	c.probe = probeUnparsable
	for range 8 {
		first, err := c.client.Do(ctx, c.probe)
		if err != nil {
			return err
		}
		second, err := c.client.Do(ctx, c.probe)
		if err != nil {
			return err
		}
		c.fresh.reply(second)
		if first.Failed && second.Failed && second.Number == first.Number+1 {
			return nil
		}
	}
	c.probe = probeCommand
	return nil
}
