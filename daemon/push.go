package daemon

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"tmux-mcpd/tools"
)

// Push: who subscribes to a resource is told when its rows have changed.
//
// tmux announces some changes, and after a notification the cache is dumped at
// once anyway (tend). What it does not announce is found by asking whether the
// counter has moved, pushInterval apart, and by a look at /proc for commands
// and directories; both only while somebody is subscribed. Rows are compared
// with those of the last look, so that an update is never sent without a
// change, and a change that undoes itself between two looks is none.

// pushInterval is the time between two looks for what tmux does not announce.
const pushInterval = 250 * time.Millisecond

// A pusher is the part of a tmuxServer that looks for changes.
type pusher struct {
	// poke says that there is a new snapshot, or none any more.
	poke chan struct{}

	// mu guards what follows. It is held while rows are read and compared, so
	// that a new subscriber starts from rows that all others have been told of;
	// never while waiting for a client, and before the server's turn.
	mu      sync.Mutex
	watched map[string]*watched // by the canonical URI without the socket
	running bool
}

// A watched is a resource that somebody is subscribed to.
type watched struct {
	resource tools.Resource
	rows     []byte // as of the last look; nil if it did not exist
	watches  map[*watch]struct{}
}

// A watch is one subscription.
type watch struct {
	session *session
	uri     string // as the client gave it
	listen  []byte // the id of its subscriptions/listen, nil for a classic one
	end     func() // ends it
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

// subscribe adds a watch of a resource, which must exist. The client is told of
// all that changes after the call.
func (s *tmuxServer) subscribe(ctx context.Context, w *watch, r tools.Resource) error {
	if _, err := s.snapshot(ctx, nil); err != nil {
		return err
	}
	r.Socket = nil
	key := r.URI()
	p := &s.push
	p.mu.Lock()
	defer p.mu.Unlock()
	entry := p.watched[key]
	if entry == nil {
		entry = &watched{resource: r, watches: make(map[*watch]struct{})}
		if err := s.look(ctx, entry); err != nil {
			return err
		}
		if entry.rows == nil {
			return tools.ErrResource
		}
		p.watched[key] = entry
	} else if err := s.look(ctx, entry); err != nil {
		return err
	}
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
	tick := time.NewTicker(pushInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-p.poke:
		case <-tick.C:
			s.watch()
		}
		p.mu.Lock()
		if len(p.watched) == 0 {
			p.running = false
			p.mu.Unlock()
			return
		}
		for _, entry := range p.watched {
			// What cannot be read now will be looked at again soon.
			if err := s.look(s.ctx, entry); err != nil {
				s.log.Debug("cannot look for changes", "uri", entry.resource.URI(), "err", err)
			}
		}
		p.mu.Unlock()
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
		return
	}
	if _, err := s.exchange(watchOnly, nil); err != nil {
		s.log.Debug("cannot watch", "err", err)
	}
}

// look compares a resource's rows with those of the last look, and tells its
// watches if they differ. The caller holds the pusher's mu.
func (s *tmuxServer) look(ctx context.Context, entry *watched) error {
	snapshot := s.published.Load()
	if snapshot == nil {
		return nil // between two connections: what is true is not known
	}
	rows, err := entry.resource.Rows(ctx, newView(s, ""), snapshot, tools.Caller{})
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
	for w := range entry.watches {
		w.session.updates.add(w)
	}
	return nil
}

// updates are the subscriptions of a session of which the client has still to
// be told: each at most once, however often it changes meanwhile.
type updates struct {
	mu      sync.Mutex
	pending []*watch
	ready   chan struct{} // made by the first subscription
}

func (u *updates) add(w *watch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.pending {
		if p == w {
			return
		}
	}
	u.pending = append(u.pending, w)
	select {
	case u.ready <- struct{}{}:
	default:
	}
}

func (u *updates) remove(w *watch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, p := range u.pending {
		if p == w {
			u.pending = append(u.pending[:i], u.pending[i+1:]...)
			return
		}
	}
}

// next takes the update that waits longest; nil if there is none.
func (u *updates) next() *watch {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.pending) == 0 {
		return nil
	}
	w := u.pending[0]
	u.pending = u.pending[1:]
	return w
}
