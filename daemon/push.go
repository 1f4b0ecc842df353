package daemon

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tmux-mcpd/daemon/state"
	"tmux-mcpd/tools"
)

// Push: who subscribes to a resource is told when its rows have changed.
//
// tmux announces some changes, and after a notification the cache is dumped at
// once anyway (tend). What it does not announce is found by asking whether the
// counter has moved, Config.PushInterval apart, and by a look at /proc for
// commands and directories; both only while somebody is subscribed. Rows are
// compared with those of the last look, so that an update is never sent without
// a change, and a change that undoes itself between two looks is none.

// DefaultPushInterval is the time between two looks for what tmux does not
// announce.
const DefaultPushInterval = 250 * time.Millisecond

// A pusher is the part of a tmuxServer that looks for changes. Lock order:
// looking, the server's turn, mu, the mu of a session's updates.
type pusher struct {
	// poke says that there is a new snapshot, or none any more.
	poke chan struct{}

	// looking is held while rows are read and compared (a channel of one, so
	// that waiting for it can be given up: reading may have to wait for tmux).
	// A new subscriber starts under it, from rows that all others have been told
	// of.
	looking chan struct{}

	// mu guards what follows; it is never held while waiting for anything.
	mu      sync.Mutex
	watched map[string]*watched // by the canonical URI without the socket
	running bool

	asked askedProcesses // the holder of looking owns it
}

// A watched is a resource that somebody is subscribed to.
type watched struct {
	resource tools.Resource
	rows     []byte              // as of the last look; nil if it did not exist. The holder of looking owns it
	watches  map[*watch]struct{} // the pusher's mu guards it
}

// A watch is one subscription.
type watch struct {
	session *session
	uri     string   // as the client gave it
	listen  *request // the subscriptions/listen that it is of, nil for a classic one
	end     func()   // ends it

	over atomic.Bool // it has ended: the client must not hear of it any more
	// The mu of the session's updates guards what follows.
	held  bool // until the client has been told that it is subscribed
	dirty bool // there is an update to send then
}

func (p *pusher) wake() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// active reports whether anybody is subscribed.
func (p *pusher) active() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

func (s *tmuxServer) beginLook(ctx context.Context) error {
	select {
	case s.push.looking <- struct{}{}:
		return nil
	case <-ctx.Done():
		return s.deadlineError(ctx)
	}
}

func (s *tmuxServer) endLook() { <-s.push.looking }

// subscribe adds a watch of a resource, which must exist. The client is told of
// all that changes after the call.
func (s *tmuxServer) subscribe(ctx context.Context, w *watch, r tools.Resource) error {
	r.Socket = nil
	ctx, cancel := context.WithTimeout(ctx, s.config.Deadline)
	defer cancel()
	for {
		if _, err := s.snapshot(ctx, nil); err != nil {
			return err
		}
		err := s.startWatch(ctx, w, r)
		switch {
		case !errors.Is(err, tools.ErrChanged):
			return err
		case ctx.Err() != nil:
			return s.deadlineError(ctx)
		}
	}
}

// startWatch fails with ErrChanged if tmux has to be asked once more.
func (s *tmuxServer) startWatch(ctx context.Context, w *watch, r tools.Resource) error {
	if err := s.beginLook(ctx); err != nil {
		return err
	}
	defer s.endLook()
	p, key := &s.push, r.URI()
	p.mu.Lock()
	entry := p.watched[key]
	p.mu.Unlock()
	if entry == nil {
		entry = &watched{resource: r, watches: make(map[*watch]struct{})}
	}
	g := s.glance()
	if g == nil {
		return tools.ErrChanged // the connection has just ended
	}
	if err := s.look(ctx, g, entry); err != nil {
		return err
	}
	if entry.rows == nil {
		return tools.ErrResource
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched[key] = entry // its last watch may have ended meanwhile
	entry.watches[w] = struct{}{}
	w.end = func() { s.unsubscribe(w, key) }
	if !p.running {
		p.running = true
		s.wg.Go(s.pushChanges)
	}
	return nil
}

func (s *tmuxServer) unsubscribe(w *watch, key string) {
	p := &s.push
	p.mu.Lock()
	defer p.mu.Unlock()
	if entry := p.watched[key]; entry != nil {
		delete(entry.watches, w)
		if len(entry.watches) == 0 {
			delete(p.watched, key)
		}
	}
	p.wake()
}

// pushChanges looks for changes until nobody is subscribed any more.
func (s *tmuxServer) pushChanges() {
	p := &s.push
	due := time.NewTimer(s.config.PushInterval)
	defer due.Stop()
	// cost is that of a look, smoothed: very slowly up, for a busy machine makes
	// every look dear, and quickly down.
	var cost time.Duration
	for {
		watching := false
		select {
		case <-s.ctx.Done():
			return
		case <-p.poke:
		case <-due.C:
			watching = true
		}
		begun := time.Now()
		if watching {
			s.watch()
			// What watch has published is looked at now.
			select {
			case <-p.poke:
			default:
			}
		}
		if !s.lookAll() {
			return
		}
		if watching {
			took := time.Since(begun)
			if cost == 0 {
				cost = took
			}
			cost = min(took, cost+cost/64)
			due.Reset(max(s.config.PushInterval-took, share*cost))
		}
	}
}

// watch asks tmux whether anything has changed. Without a connection it has to
// run a command for that, and does it more seldom.
func (s *tmuxServer) watch() {
	if s.takeTurn(s.ctx) != nil {
		return
	}
	defer s.endTurn()
	if s.conn == nil && s.attaching == nil && time.Since(s.surveyed) < maxAge {
		if file, err := fileID(s.socket); err == nil && file == s.surveyedAt {
			return
		}
	}
	if _, err := s.exchange(watchOnly, nil); err != nil {
		s.log.Debug("cannot watch", "err", err)
	}
}

// lookAll looks at all watched resources. It reports false, and pushing is over,
// if there are none.
func (s *tmuxServer) lookAll() bool {
	if s.beginLook(s.ctx) != nil {
		return false
	}
	defer s.endLook()
	p := &s.push
	p.mu.Lock()
	entries := make([]*watched, 0, len(p.watched))
	for _, entry := range p.watched {
		entries = append(entries, entry)
	}
	p.running = len(entries) > 0
	p.mu.Unlock()
	g := s.glance()
	if g == nil {
		return len(entries) > 0 // between two connections: what is true is not known
	}
	for _, entry := range entries {
		// What cannot be read now will be looked at again soon.
		if err := s.look(s.ctx, g, entry); err != nil {
			s.log.Debug("cannot look for changes", "uri", entry.resource.URI(), "err", err)
		}
	}
	return len(entries) > 0
}

// look compares a resource's rows with those of the last look, and tells its
// watches if they differ. The caller holds looking.
func (s *tmuxServer) look(ctx context.Context, g *glance, entry *watched) error {
	rows, err := entry.resource.Rows(ctx, g, g.snapshot, tools.Caller{})
	switch {
	case errors.Is(err, tools.ErrResource):
		rows = nil
	case err != nil:
		return err
	}
	if bytes.Equal(rows, entry.rows) {
		return nil
	}
	entry.rows = rows
	p := &s.push
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range entry.watches {
		w.session.updates.add(w)
	}
	return nil
}

// A glance is a server as one look sees it: at one snapshot, and with each
// pane's process read once for all resources that the pane is part of.
type glance struct {
	view
	snapshot *state.Snapshot
	read     map[*state.Pane]state.Process
}

// glance returns nil between two connections. The caller holds looking.
func (s *tmuxServer) glance() *glance {
	snapshot := s.published.Load()
	if snapshot == nil {
		return nil
	}
	return &glance{view: newView(s, ""), snapshot: snapshot, read: make(map[*state.Pane]state.Process)}
}

// Processes: see tools.Server. What the operating system cannot tell (on macOS
// nothing at all) is asked of tmux, but not at every look: to ask is to dump.
func (g *glance) Processes(ctx context.Context, panes []*state.Pane) ([]state.Process, error) {
	var unread []*state.Pane
	for _, p := range panes {
		if _, ok := g.read[p]; !ok {
			unread = append(unread, p)
		}
	}
	if err := g.readProcesses(ctx, unread); err != nil {
		return nil, err
	}
	processes := make([]state.Process, len(panes))
	for i, p := range panes {
		processes[i] = g.read[p]
	}
	return processes, nil
}

func (g *glance) readProcesses(ctx context.Context, panes []*state.Pane) error {
	s := g.server
	summary := s.summary.Load()
	processes, unknown := s.processes.read(g.arrived, panes, summary.ProcPID, summary.Version)
	if len(unknown) > 0 {
		processes = slices.Clone(processes)
		asked := &s.push.asked
		if !asked.cover(panes, unknown) {
			if err := asked.ask(ctx, g.view); err != nil {
				return err
			}
		}
		for _, i := range unknown {
			process, ok := asked.of(panes[i])
			if !ok {
				return tools.ErrChanged
			}
			processes[i] = process
		}
	}
	for i, p := range panes {
		g.read[p] = processes[i]
	}
	return nil
}

// askedProcesses are what tmux has said of what runs in panes.
type askedProcesses struct {
	until time.Time               // when they are too old
	panes map[string]askedProcess // by id
}

type askedProcess struct {
	pid     int
	dead    bool
	process state.Process
}

// of is what tmux has said of a pane, if it has not got another process since.
func (a *askedProcesses) of(p *state.Pane) (state.Process, bool) {
	said, ok := a.panes[p.Value(state.PaneID)]
	return said.process, ok && said.pid == p.PID && said.dead == p.Dead
}

// cover reports whether what tmux has said is recent and of all these panes.
func (a *askedProcesses) cover(panes []*state.Pane, unknown []int) bool {
	if !time.Now().Before(a.until) {
		return false
	}
	for _, i := range unknown {
		if _, ok := a.of(panes[i]); !ok {
			return false
		}
	}
	return true
}

func (a *askedProcesses) ask(ctx context.Context, v view) error {
	begun := time.Now()
	now, values, err := v.fetch(ctx, tools.Panes, []string{state.CurrentCommand, state.CurrentPath})
	if err != nil {
		return err
	}
	a.until = time.Now().Add(max(maxAge, share*time.Since(begun)))
	a.panes = make(map[string]askedProcess, len(now.Panes))
	for i, p := range now.Panes {
		a.panes[p.Value(state.PaneID)] = askedProcess{p.PID, p.Dead, state.Process{Command: values[i][0], Path: values[i][1]}}
	}
	return nil
}

// updates are the subscriptions of a session of which the client has still to
// be told: each at most once, however often it changes meanwhile.
type updates struct {
	mu      sync.Mutex
	pending []*watch
	ready   chan struct{} // made before the first subscription
}

func (u *updates) add(w *watch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if w.held {
		w.dirty = true
		return
	}
	u.addLocked(w)
}

func (u *updates) addLocked(w *watch) {
	if slices.Contains(u.pending, w) {
		return
	}
	u.pending = append(u.pending, w)
	select {
	case u.ready <- struct{}{}:
	default:
	}
}

// release lets the updates of a watch go that was held.
func (u *updates) release(w *watch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w.held = false
	if w.dirty {
		w.dirty = false
		u.addLocked(w)
	}
}

func (u *updates) remove(w *watch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w.held = true // nothing is added any more
	u.pending = slices.DeleteFunc(u.pending, func(p *watch) bool { return p == w })
}

// next takes the update that waits longest; nil if there is none.
func (u *updates) next() *watch {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.pending) == 0 {
		return nil
	}
	w := u.pending[0]
	u.pending = slices.Delete(u.pending, 0, 1)
	return w
}
