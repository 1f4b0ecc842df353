package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tmux-mcpd/controlmode"
	"tmux-mcpd/daemon/state"
	"tmux-mcpd/tools"
)

// A tmuxServer is one tmux server as the daemon sees it: it attaches on the first
// request, keeps the cache true, and leaves when nobody asks any more.
//
// There is no goroutine that owns it. Whoever has something to ask of tmux
// takes the turn and is the owner for one exchange; a lone client's request
// thus goes to tmux and back without waking anybody else.
type tmuxServer struct {
	socket string // with all links resolved
	config *Config
	log    *slog.Logger
	// framing is that of all that is asked of the server; its mark is random.
	framing state.Framing
	ctx     context.Context // ends with the daemon
	wg      *sync.WaitGroup // of the daemon: goroutines that must end with it

	// turn is held for an exchange with tmux (a channel of one, so that waiting
	// for it can be given up).
	turn chan struct{}

	// mu guards next. It is never held while waiting for anything.
	mu   sync.Mutex
	next *round // the requests that wait for the turn together

	counters counters
	// published is the newest snapshot, for those who must not wait.
	published   atomic.Pointer[state.Snapshot]
	lastRequest atomic.Int64 // UnixNano
	processes   *processTable
	memo        tools.Memo
	push        pusher
	summary     atomic.Pointer[modeSummary]

	// The holder of turn owns what follows.
	conn       *connection // nil: not attached
	attaching  *attachment // nil: not under way
	attach     backOff
	traces     map[string]trace // by session
	surveyed   time.Time        // when a one-shot command was run last
	surveyedAt socketID         // and the socket that it went to
}

// A round is one exchange that several requests wait for. It is sealed when it
// begins: a request that comes later may know of a change that the exchange
// does not see, and waits for the next round.
type round struct {
	done     chan struct{}
	snapshot *state.Snapshot
	err      error
}

// modeSummary is what status shows of a server.
type modeSummary struct {
	Control    bool
	Reason     string // why one-shot
	Version    controlmode.Version
	PID        int
	ProcPID    int // PID if /proc here shows that process, else 0
	SocketGone bool
	LastError  string
}

// How an exchange finds out what tmux has.
type how uint8

const (
	// prove asks whether the cache is true, and dumps if it is not.
	prove how = iota
	// dump dumps: the cache has come of age.
	dump
	// watchOnly is prove for a cache that need not be young: for those who want
	// to be told of changes, not to be answered.
	watchOnly
)

func newServer(d *Daemon, socket string) *tmuxServer {
	s := &tmuxServer{
		socket:    socket,
		config:    &d.config,
		framing:   state.Framing{Mark: rand.Text()[:12]},
		log:       d.log.With("socket", socket),
		ctx:       d.ctx,
		wg:        &d.wg,
		turn:      make(chan struct{}, 1),
		processes: newProcessTable(),
		push:      pusher{poke: make(chan struct{}, 1), looking: make(chan struct{}, 1), watched: make(map[string]*watched)},
	}
	s.summary.Store(&modeSummary{})
	s.lastRequest.Store(time.Now().UnixNano()) // one is about to come: do not forget it before
	return s
}

// snapshot returns what tmux has at a moment after the call. See
// tools.Server.Snapshot for meanwhile.
func (s *tmuxServer) snapshot(ctx context.Context, meanwhile func(context.Context, *state.Snapshot)) (*state.Snapshot, error) {
	s.lastRequest.Store(time.Now().UnixNano())
	s.counters.requests.Add(1)
	select {
	case s.turn <- struct{}{}:
		defer s.endTurn()
		return s.exchange(prove, meanwhile) // which has a deadline of its own
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Deadline)
	defer cancel()
	r := s.join()
	if cached := s.published.Load(); cached != nil && meanwhile != nil {
		meanwhile(withoutTmux(ctx), cached)
	}
	select {
	case <-r.done:
		return r.snapshot, r.err
	case <-ctx.Done():
		return nil, s.deadlineError(ctx)
	}
}

// join joins the round that waits for the turn, or starts one.
func (s *tmuxServer) join() *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		return s.next
	}
	r := &round{done: make(chan struct{})}
	s.next = r
	s.wg.Go(func() {
		defer close(r.done)
		select {
		case s.turn <- struct{}{}:
		case <-s.ctx.Done():
			r.err = errStopping
			return
		}
		defer s.endTurn()
		s.mu.Lock()
		s.next = nil
		s.mu.Unlock()
		r.snapshot, r.err = s.exchange(prove, nil)
	})
	return r
}

func (s *tmuxServer) endTurn() { <-s.turn }

// idle reports whether the server can be forgotten: there is nothing in tmux
// that is ours, and no request has come for longer than one may take.
func (s *tmuxServer) idle() bool {
	if time.Since(time.Unix(0, s.lastRequest.Load())) < 2*s.config.Deadline || s.push.active() {
		return false
	}
	select {
	case s.turn <- struct{}{}:
		defer s.endTurn()
		return s.conn == nil && s.attaching == nil
	default:
		return false
	}
}

// takeTurn waits for the turn. The caller ends it with endTurn.
func (s *tmuxServer) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return s.deadlineError(ctx)
	}
}

var errStopping = errors.New("the daemon is stopping")

// deadlineError is the error of a caller whose context has ended.
func (s *tmuxServer) deadlineError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return s.fail(fmt.Errorf("no answer within %v", s.config.Deadline))
	}
	return ctx.Err()
}

// fail makes the error of a tool of what hides a server.
func (s *tmuxServer) fail(err error) error {
	return tools.ServerError(s.socket, err)
}

// exchange finds out what tmux has now. The caller holds the turn.
//
// It is not bound to the context of a request: what has been sent will be
// answered, and the next request is better off for it.
func (s *tmuxServer) exchange(h how, meanwhile func(context.Context, *state.Snapshot)) (*state.Snapshot, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.config.Deadline)
	defer cancel()
	var snapshot *state.Snapshot
	answered, err := s.overConnection(ctx, func(c *connection) (err error) {
		snapshot, err = s.ask(ctx, c, h, meanwhile)
		meanwhile = nil // of use for the first connection only
		return err
	})
	if answered || err != nil {
		return snapshot, err
	}
	return s.oneShot(ctx)
}

// overConnection has tmux asked through our client. It reports false if there is
// none, so that a one-shot command has to do. The caller holds the turn.
//
// A connection may end at any moment (attach -d, kill-session, a restart): the
// one that comes after it is asked again. Only a server that ends connections
// faster than they can be used is left to a one-shot command.
func (s *tmuxServer) overConnection(ctx context.Context, ask func(*connection) error) (answered bool, err error) {
	for range 3 {
		c, err := s.connected(ctx)
		if err != nil || c == nil {
			return false, err
		}
		err = ask(c)
		switch {
		case err == nil:
			return true, nil
		case c.ended() || noSessions(err):
			s.drop(c)
		case ctx.Err() != nil:
			return false, s.deadlineError(ctx)
		default:
			return false, s.fail(err)
		}
	}
	return false, nil
}

// connected returns the connection to the server that listens at the socket
// now, nil if there is none and a one-shot command has to do.
func (s *tmuxServer) connected(ctx context.Context) (*connection, error) {
	if err := s.finishAttach(ctx); err != nil {
		return nil, err
	}
	c := s.conn
	if c == nil {
		return nil, nil
	}
	id, err := fileID(s.socket)
	switch {
	case c.ended():
		s.drop(c)
		return nil, nil
	case err == nil && id != c.file:
		// Another server has taken the place of ours, which may live on without
		// a socket. Nothing of it is carried over.
		s.log.Info("another tmux server listens at the socket", "old_pid", c.pid)
		s.leave(c, "the socket is another server's now")
		return nil, nil
	case (err != nil) != c.socketGone:
		c.socketGone = err != nil
		if c.socketGone {
			s.log.Warn("the socket of a live tmux server is gone; clients cannot reach it", "pid", c.pid,
				"mend", fmt.Sprintf("kill -USR1 %d", c.pid))
		}
		s.summarize("")
	}
	return c, nil
}

// ask asks tmux through the connection.
func (s *tmuxServer) ask(ctx context.Context, c *connection, h how, meanwhile func(context.Context, *state.Snapshot)) (*state.Snapshot, error) {
	old := c.fresh.snapshot
	snapshot, err := c.refresh(ctx, h, meanwhile)
	if err != nil || snapshot == old {
		return snapshot, err
	}
	handedOn, err := s.stand(ctx, c, snapshot)
	if handedOn && err == nil {
		return s.ask(ctx, c, dump, nil)
	}
	return snapshot, err
}

// stand sees to where our client stands by a snapshot that was just dumped, and
// publishes that. It leaves if our client is in somebody's way. If something has
// been handed on, the snapshot is out of date.
func (s *tmuxServer) stand(ctx context.Context, c *connection, snapshot *state.Snapshot) (handedOn bool, err error) {
	me, ok := standingOf(snapshot, c.client.PID())
	if ok && me.me.Session != c.session {
		from := c.session
		c.session = me.me.Session
		if handedOn, err = s.handOn(ctx, c, snapshot, from); handedOn || err != nil {
			return handedOn, err
		}
	}
	s.publish(snapshot)
	c.lone.Store(ok && me.alone)
	if reason := me.mustLeave(); ok && reason != "" {
		s.moveAway(ctx, c, me, snapshot)
		s.leave(c, reason)
	}
	return false, nil
}

// moveAway moves our client to a session that it may leave from. That it cannot
// be done is no reason to stay.
func (s *tmuxServer) moveAway(ctx context.Context, c *connection, me standing, snapshot *state.Snapshot) {
	if off(me.destroy) || !me.alone {
		return
	}
	if to := me.refuge(snapshot); to != "" {
		_, err := c.do(ctx, switchClient+" -E -t "+controlmode.Quote(to))
		s.log.Debug("moved to leave", "session", to, "err", err)
	}
}

// handOn hands a switch-client that hit our client on to the client that it
// was meant for. Somebody outside of tmux who names no client gets the one that
// was active last, and that is ours from its attaching until somebody types
// (3.2a to 3.8); nothing in tmux makes a client stand back. Without this the
// user's terminal would not move, and the new session would have the variables
// of update-environment from us. Beside moveAway it is all of ours that changes
// anything. A session that was destroyed under us is no switch.
func (s *tmuxServer) handOn(ctx context.Context, c *connection, snapshot *state.Snapshot, from string) (bool, error) {
	client := stoodIn(snapshot.Clients, from)
	if client == "" || snapshot.Session(from) == nil {
		return false, nil
	}
	s.log.Info("handing a switch-client on", "client", client, "session", c.session)
	_, err := c.do(ctx, switchClient+" -c "+controlmode.Quote(client)+" -t "+controlmode.Quote(c.session))
	if err != nil && !c.ended() {
		err = nil // the client has gone
	}
	return true, err
}

func (s *tmuxServer) publish(snapshot *state.Snapshot) {
	s.published.Store(snapshot)
	s.processes.prune(snapshot)
	s.push.wake()
}

// drop forgets a connection that has ended by itself, or is about to: a server
// that is being killed still answers, without a session, before it says %exit.
func (s *tmuxServer) drop(c *connection) {
	if s.conn != c {
		return
	}
	reason := "the server has no session"
	if err := c.client.Err(); err != nil {
		reason = err.Error()
	}
	s.log.Debug("control client ended", "reason", reason)
	s.attach.ended(c.since)
	s.counters.exits.Add(1)
	s.forget(c)
	s.summarize("not attached: " + reason)
}

// leave ends our client.
func (s *tmuxServer) leave(c *connection, reason string) {
	if s.conn != c {
		return
	}
	s.log.Info("leaving tmux", "reason", reason)
	s.forget(c)
	s.summarize("not attached: " + reason)
}

func (s *tmuxServer) forget(c *connection) {
	s.conn = nil
	c.schedule.close()
	s.published.Store(nil)
	gone := make(chan struct{})
	s.wg.Go(func() { defer close(gone); c.client.Close() })
	// A client that is about to exit does not count in session_attached any
	// more but is listed (3.3a to 3.8): what is asked next would have it
	// subtracted once too often. With a tmux that hangs nobody has to wait for
	// the whole stop ladder.
	timer := time.NewTimer(partingTime)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C:
	}
}

// partingTime is how long what comes next waits for our client to be gone. It
// takes a few milliseconds.
const partingTime = 300 * time.Millisecond

func (s *tmuxServer) summarize(reason string) {
	m := modeSummary{Reason: reason}
	old := s.summary.Load()
	m.LastError, m.Version, m.PID, m.ProcPID = old.LastError, old.Version, old.PID, old.ProcPID
	if c := s.conn; c != nil {
		m.Control, m.Version, m.PID, m.ProcPID, m.SocketGone = true, c.version, c.pid, c.procPID, c.socketGone
	}
	s.summary.Store(&m)
}

// stop ends what the server runs. The daemon's context has ended.
func (s *tmuxServer) stop() {
	s.turn <- struct{}{}
	defer s.endTurn()
	if a := s.attaching; a != nil {
		<-a.done
		s.attaching = nil
		if a.conn != nil {
			a.conn.client.Close()
		}
	}
	if s.conn != nil {
		s.conn.client.Close()
		s.conn.schedule.close()
		s.conn = nil
	}
	s.processes.close()
}

// laterKey marks the context of work that is done while tmux is being asked.
type laterKey struct{}

func withoutTmux(ctx context.Context) context.Context {
	return context.WithValue(ctx, laterKey{}, true)
}

func tmuxIsBusy(ctx context.Context) bool { return ctx.Value(laterKey{}) != nil }

// counters are what status shows.
type counters struct {
	requests, probes, dumps, oneShots, fetches, notifications, attaches, exits atomic.Uint64
	// unproven is how many dumps in a row were no clean baseline.
	unproven atomic.Uint64
}
