package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tmux-mcpd/controlmode"
	"tmux-mcpd/daemon/state"
)

// An attachment is an attach under way. conn and err are set when done closes.
type attachment struct {
	before string // session_last_attached of the session
	begun  time.Time
	done   chan struct{}
	conn   *connection
	err    error
}

// backOff says when to try to attach again after connections that ended soon
// or failed. A client that is detached (attach -d, kill-session) comes back at
// once; one that is thrown out again and again stays away for a while.
type backOff struct {
	failures int
	until    time.Time
	server   string // which the failures are of: its pid and start
}

const (
	quickExit   = 2 * time.Second
	backOffMin  = 50 * time.Millisecond
	backOffMax  = time.Second
	quickExits  = 5
	stayAwayFor = 30 * time.Second
)

// ended takes note of a connection that ended, having begun at since.
func (b *backOff) ended(since time.Time) {
	if time.Since(since) > quickExit {
		*b = backOff{server: b.server}
		return
	}
	b.failed()
}

// meets takes note of which server it is about: what the one before did, ending
// above all, is nothing that a new one is to be blamed for.
func (b *backOff) meets(server string) {
	if b.server != server {
		*b = backOff{server: server}
	}
}

func (b *backOff) failed() {
	b.failures++
	switch {
	case b.failures == 1:
		b.until = time.Time{}
	case b.failures >= quickExits:
		b.until = time.Now().Add(stayAwayFor)
	default:
		wait := min(backOffMin<<(b.failures-2), backOffMax)
		b.until = time.Now().Add(wait/2 + rand.N(wait))
	}
}

func (b *backOff) allows() bool { return !time.Now().Before(b.until) }

// tmux is the command line of this server.
func (s *tmuxServer) tmux() (controlmode.Tmux, error) {
	path, err := s.config.tmuxPath()
	if err != nil {
		return controlmode.Tmux{}, s.fail(err)
	}
	return controlmode.Tmux{Path: path, Socket: s.socket}, nil
}

// attachPatience is how long requests wait for an attach. It takes some
// milliseconds, or for ever: a tmux program of another version than the server,
// as an upgrade leaves it, may hang in control mode (3.8 and 3.7c with 3.5a, and
// the other way) where all its other commands work.
const attachPatience = 300 * time.Millisecond

// attachTimeout ends an attach that hangs. Its client is in the server all the
// while, and does not let it end at a kill-server.
const attachTimeout = 1500 * time.Millisecond

// finishAttach takes over the result of an attach that is under way, waiting
// for it a while. An attach that failed, or takes longer, is no error: a one-shot
// command answers.
func (s *tmuxServer) finishAttach(ctx context.Context) error {
	a := s.attaching
	if a == nil {
		return nil
	}
	patience := time.NewTimer(time.Until(a.begun.Add(attachPatience)))
	defer patience.Stop()
	select {
	case <-a.done:
	case <-ctx.Done():
		return s.deadlineError(ctx)
	case <-patience.C:
		select {
		case <-a.done:
		default:
			return nil
		}
	}
	s.attaching = nil
	if a.err != nil {
		s.attach.failed()
		s.log.Debug("cannot attach", "err", a.err)
		s.noteError(a.err)
		return nil
	}
	s.conn = a.conn
	s.leftTrace(s.conn.session, a.before, s.conn.attachedAt)
	s.counters.attaches.Add(1)
	s.summarize("")
	s.wg.Go(func() { s.tend(a.conn) })
	return nil
}

// startAttach begins to attach to a session, without waiting.
func (s *tmuxServer) startAttach(t controlmode.Tmux, session, before string, file socketID, peer int) {
	a := &attachment{before: before, begun: time.Now(), done: make(chan struct{})}
	s.attaching = a
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, min(s.config.Deadline, attachTimeout))
		defer cancel()
		a.conn, a.err = s.attachTo(ctx, t, session, file, peer)
		close(a.done)
		// If no request comes to take the connection over, it is done here.
		if s.takeTurn(s.ctx) == nil {
			defer s.endTurn()
			if s.attaching == a {
				_ = s.finishAttach(s.ctx)
			}
		}
	})
}

func (s *tmuxServer) attachTo(ctx context.Context, t controlmode.Tmux, session string, file socketID, peer int) (*connection, error) {
	c := &connection{
		counters: &s.counters,
		file:     file,
		wake:     make(chan struct{}, 1),
		since:    time.Now(),
		framing:  s.framing,
		lines:    dumpLines(s.framing),
	}
	var err error
	if c.client, err = t.Attach(ctx, session, c.notify); err != nil {
		return nil, err
	}
	if err := c.greet(ctx); err != nil {
		c.client.Close()
		return nil, err
	}
	// The system says who listens at the socket, in numbers of our own
	// namespace: a server in a container has another one in its own.
	if peer == c.pid {
		c.procPID = c.pid
	}
	c.schedule = openSchedule(c.procPID, c.procPID != 0 && c.version.AtLeast(3, 8))
	return c, nil
}

// oneShot asks a server that we are not attached to by a tmux command of its
// own, and begins to attach if that harms nobody.
func (s *tmuxServer) oneShot(ctx context.Context) (*state.Snapshot, error) {
	reply, err := s.runOneShot(ctx, nil)
	if err != nil || reply == nil {
		return s.empty(), err
	}
	return reply.snapshot, nil
}

// empty is what a server has that is not running.
func (s *tmuxServer) empty() *state.Snapshot {
	snapshot := &state.Snapshot{}
	s.publish(snapshot)
	return snapshot
}

// A surveyReply is what the one-shot command said.
type surveyReply struct {
	snapshot *state.Snapshot
	extra    []byte // the output of further commands
}

// extraMark is the line between the rows of panes and the output of further
// commands. Names may hold any line that can be known, and no two fields that
// end with the mark stand side by side.
func (s *tmuxServer) extraMark() string { return s.framing.Mark + s.framing.Mark }

// runOneShot surveys the server, with further commands if there are any; nil
// for a server that is not running or has no session.
func (s *tmuxServer) runOneShot(ctx context.Context, further []string) (*surveyReply, error) {
	begun := time.Now()
	odd := 0
	for wait := exitWaitMin; ; wait = min(2*wait, exitWaitMax) {
		reply, err := s.tryOneShot(ctx, further)
		var row *state.RowError
		switch {
		case errors.As(err, &row):
			if odd++; odd < dumpTries {
				continue
			}
			return nil, s.fail(err)
		case !errors.Is(err, controlmode.ErrServerExited):
			return reply, err
		}
		// It was about to end when it took our connection. Whether it has gone,
		// or another has come, the next attempt tells.
		if time.Since(begun) > exitPatience {
			// A server that does not talk to an older program says the same.
			return nil, s.fail(fmt.Errorf("%w (is it of another version than the tmux program? Restart it, or name its program with --tmux or TMUX_MCPD_TMUX)", err))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				// A client of another version gets this answer for ever.
				return nil, s.fail(fmt.Errorf("no answer within %v: %w", s.config.Deadline, err))
			}
			return nil, ctx.Err()
		}
	}
}

const (
	exitWaitMin = 2 * time.Millisecond
	exitWaitMax = time.Second
	// Twice this, for the attempt of a request and one of our own before it, is
	// less than a request's time.
	exitPatience = attachTimeout + 500*time.Millisecond
)

// tryOneShot is runOneShot, and ErrServerExited or a state.RowError where trying
// again may tell.
func (s *tmuxServer) tryOneShot(ctx context.Context, further []string) (*surveyReply, error) {
	file, _ := fileID(s.socket)
	peer, running, err := dialTmux(s.socket)
	if err != nil {
		s.noteError(err)
		return nil, s.fail(err)
	}
	if !running {
		s.summarize("no tmux server is running")
		return nil, nil
	}
	t, err := s.tmux()
	if err != nil {
		return nil, err
	}
	s.surveyed, s.surveyedAt = time.Now(), file
	s.counters.oneShots.Add(1)
	args := surveyArguments(s.framing)
	if further != nil {
		args = append(append(args, ";", displayFormat, "-p", s.extraMark(), ";"), further...)
	}
	out, err := t.Run(ctx, args...)
	switch {
	case err == nil:
	case errors.Is(err, controlmode.ErrNoServer):
		s.summarize("no tmux server is running")
		return nil, nil
	case errors.Is(err, controlmode.ErrServerExited):
		return nil, err
	case noSessions(err):
		s.summarize("the server has no session")
		return nil, nil
	case ctx.Err() != nil:
		return nil, s.deadlineError(ctx)
	default:
		s.noteError(err)
		return nil, s.fail(s.config.explain(ctx, t.Path, err))
	}
	out, extra, _ := bytes.Cut(out, []byte(s.extraMark()+"\n"))
	panes, clients, v, err := parseSurvey(out)
	if err != nil {
		return nil, err
	}
	snapshot, err := s.framing.Build(panes, clients, s.published.Load(), 0)
	if err != nil {
		return nil, err
	}
	v.Clients = snapshot.Clients
	s.publish(snapshot)
	s.consider(t, v, file, peer)
	return &surveyReply{snapshot, extra}, nil
}

// consider begins to attach if the survey allows it.
func (s *tmuxServer) consider(t controlmode.Tmux, v *survey, file socketID, peer int) {
	session, reason := v.place()
	before := ""
	for _, surveyed := range v.Sessions {
		if surveyed.ID == session {
			before = surveyed.LastAttached
		}
	}
	s.attach.meets(strconv.Itoa(v.PID) + " " + v.Started)
	if session != "" && !s.attach.allows() {
		session, reason = "", "connections end as soon as they begin"
	}
	m := *s.summary.Load()
	m.Control, m.Reason, m.Version, m.PID, m.ProcPID, m.SocketGone = false, reason, controlmode.ParseVersion(v.Version), v.PID, 0, false
	if peer == v.PID {
		m.ProcPID = peer
	}
	s.summary.Store(&m)
	if session != "" && s.attaching == nil && s.conn == nil {
		t.Server = m.Version
		s.startAttach(t, session, before, file, peer)
	}
}

func (s *tmuxServer) noteError(err error) {
	m := *s.summary.Load()
	m.LastError = err.Error()
	s.summary.Store(&m)
}

// noSessions reports whether a command failed because the server, alive, has
// no session for it to look at (exit-empty off).
func noSessions(err error) bool {
	var e *controlmode.CommandError
	return errors.As(err, &e) &&
		(strings.Contains(e.Stderr, "no current target") || strings.Contains(e.Stderr, "no sessions") ||
			strings.Contains(e.Stderr, "no current session"))
}

// dialTmux finds out cheaply whether a tmux server listens at the socket, and
// its pid where the system tells (0 else). Nobody listening is no error;
// anything that hides a server is.
func dialTmux(socket string) (pid int, running bool, err error) {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err == nil {
		defer conn.Close()
		pid, _ := PeerPID(conn)
		return pid, true, nil
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		switch errno {
		case syscall.ENOENT, syscall.ECONNREFUSED:
			return 0, false, nil
		case syscall.EAGAIN:
			// The backlog is full: it lives, the command will wait its turn.
			return 0, true, nil
		}
		return 0, false, errno
	}
	return 0, false, err
}

// tend keeps a connection's cache warm, sees to it that our client is in
// nobody's way, and leaves when nobody has asked for long.
func (s *tmuxServer) tend(c *connection) {
	tick := time.NewTicker(maxAge)
	defer tick.Stop()
	due := time.NewTimer(maxAge)
	defer due.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-c.client.Done():
			s.revive(c)
			return
		case <-c.wake:
		case <-due.C:
		case <-tick.C:
			if s.tick(c) {
				return
			}
		}
		next := s.keepWarm(c)
		due.Reset(max(next, time.Millisecond))
	}
}

// keepWarm dumps in the background after notifications, and when the cache
// comes of age while requests come. It returns when to look again.
func (s *tmuxServer) keepWarm(c *connection) time.Duration {
	const never = time.Hour
	if due := c.due.Load(); due != 0 && c.hints.Load() == c.seen.Load() {
		if age := time.Until(time.Unix(0, due)); age > 0 {
			return age
		}
		if s.lastRequest.Load() < c.dumped.Load() {
			return never
		}
	}
	if s.takeTurn(s.ctx) != nil {
		return never
	}
	defer s.endTurn()
	if s.conn != c || c.ended() {
		return never
	}
	since := time.Since(c.fresh.sent)
	dirty := c.hints.Load() != c.fresh.hints
	if last := s.lastRequest.Load(); last != c.asked || s.push.active() {
		c.asked, c.unasked = last, 0
	}
	h := prove
	switch {
	case c.urgent.Load() && since >= urgentPause:
	case dirty:
		if c.unasked >= maxUnasked && since < maxAge {
			return maxAge - since
		}
		if wait := c.budget.take(c.cost); wait > 0 {
			return wait
		}
		c.unasked++
	case since >= c.interval() && time.Unix(0, s.lastRequest.Load()).After(c.fresh.sent):
		h = dump
	default:
		return c.interval() - since
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.config.Deadline)
	defer cancel()
	if _, err := s.ask(ctx, c, h, nil); err != nil && !c.ended() {
		s.log.Debug("background dump failed", "err", err)
	}
	return c.interval()
}

// urgentPause is the least time between dumps that do not wait for the budget: a
// hook of the user's may move a client with every dump.
const urgentPause = 100 * time.Millisecond

// tick does once a second what must not depend on requests. It reports whether
// the connection has been left.
func (s *tmuxServer) tick(c *connection) bool {
	idle := time.Since(time.Unix(0, s.lastRequest.Load()))
	limit := s.config.IdleDetach
	lone := c.lone.Load()
	leave := limit > 0 && !s.push.active() && (idle > limit || lone && s.nobodyAttached() && idle > min(limit, loneIdle))
	// tmux does not announce options: while we are a session's only client,
	// somebody may set one that makes us the reason for which it lives on.
	// What is skipped now is looked at one tick later: 1.4 s at most.
	watch := lone && time.Since(time.Unix(0, c.exchanged.Load())) >= maxAge*2/5
	if !leave && !watch {
		return false
	}
	if s.takeTurn(s.ctx) != nil {
		return true
	}
	defer s.endTurn()
	if s.conn != c {
		return true
	}
	if leave {
		s.leave(c, "nobody has asked for "+limit.String())
		return true
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.config.Deadline)
	defer cancel()
	if _, err := s.ask(ctx, c, watchOnly, nil); err != nil && !c.ended() {
		s.log.Debug("watch failed", "err", err)
	}
	return s.conn != c
}

// loneIdle is the idle time after which we leave a server that no real client
// is attached to.
const loneIdle = time.Minute

func (s *tmuxServer) nobodyAttached() bool {
	snapshot := s.published.Load()
	if snapshot == nil {
		return true
	}
	for _, c := range snapshot.Clients {
		if !c.Ours {
			return false
		}
	}
	return true
}

// revive attaches again after a connection has ended by itself, if it has been
// of use lately, so that the next request finds it, or is of use to a
// subscriber.
func (s *tmuxServer) revive(c *connection) {
	if time.Since(time.Unix(0, s.lastRequest.Load())) > maxAge*10 && !s.push.active() {
		return
	}
	if s.takeTurn(s.ctx) != nil {
		return
	}
	defer s.endTurn()
	s.drop(c)
	if s.conn == nil && s.attaching == nil {
		ctx, cancel := context.WithTimeout(s.ctx, s.config.Deadline)
		defer cancel()
		if _, err := s.oneShot(ctx); err != nil {
			s.log.Debug("cannot look at the server again", "err", err)
		}
	}
}
