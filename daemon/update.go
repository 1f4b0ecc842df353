package daemon

import (
	"net"
	"slices"
	"sync"
	"time"
)

// sendUpdates tells the client of updates, until the session ends. A client
// that does not read is waited for without a bound and holds nobody up: its
// updates are merged meanwhile.
func (s *session) sendUpdates() {
	for {
		select {
		case <-s.live.Done():
			return
		case <-s.updates.ready:
		}
		for w := s.updates.next(); w != nil; w = s.updates.next() {
			if s.writeUpdate(w) != nil {
				return
			}
		}
	}
}

// writeUpdate tells the client of an update, unless it has still to read that
// there was one.
func (s *session) writeUpdate(w *watch) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if w.over.Load() || s.unread.has(w, s.stream) {
		return nil
	}
	s.pace.updateBegins(s.setWriteDeadline)
	defer s.pace.updateEnds()
	err := s.writeLocked(func() error {
		_, err := s.stream.Write(w.frame())
		return err
	})
	s.unread.updated(w, s.stream)
	return err
}

// pace is how long an update that is being written may take: for ever while
// the client wants nothing else, since it is not to be dropped for reading
// slowly; but no longer than an answer may take once one waits behind it.
type pace struct {
	limit time.Duration // of an answer; 0 for none

	mu       sync.Mutex // taken after writeMu, guards what follows; never held while waiting
	updating bool
	waiting  int // answers that wait for writeMu
}

type deadlineSetter func(time.Time) error

func (set deadlineSetter) in(d time.Duration) {
	switch {
	case set == nil: // a stream inside of the process
	case d == 0:
		_ = set(time.Time{})
	default:
		_ = set(time.Now().Add(d))
	}
}

func (p *pace) answerWaits(set deadlineSetter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting++; p.updating && p.waiting == 1 {
		set.in(p.limit) // which holds for a write that has begun as well
	}
}

func (p *pace) answerBegins(set deadlineSetter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
	set.in(p.limit)
}

func (p *pace) updateBegins(set deadlineSetter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updating = true
	if p.waiting > 0 {
		set.in(p.limit)
	} else {
		set.in(0)
	}
}

func (p *pace) updateEnds() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updating = false
}

// unread knows the updates that lie unread in the socket's buffer, so that a
// client that does not read finds one when it reads again, and not as many as
// the buffer holds. writeMu guards it.
//
// Linux tells how much of what was written has not been read. If that is as
// much as after our last write, nothing has been read since: the client will
// read the older update, and ask for the rows, after the change that we are
// about to tell it of. Elsewhere, and behind a bridge, which always reads, each
// update is written.
type unread struct {
	updates []*watch
	size    int // after the last update; 0 if it is not known or something else was written since
}

// written takes note that something else than an update is being written.
func (u *unread) written() { u.size = 0 }

// has reports whether an update of a watch has certainly not been read.
func (u *unread) has(w *watch, stream any) bool {
	if u.size == 0 || unreadBytes(stream) != u.size {
		u.updates = u.updates[:0]
		return false
	}
	return slices.Contains(u.updates, w)
}

func (u *unread) updated(w *watch, stream any) {
	u.updates = append(u.updates, w)
	u.size = unreadBytes(stream)
}

// unreadBytes is how much the client has not read, 0 where that is not known.
func unreadBytes(stream any) int {
	conn, ok := stream.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	if raw.Control(func(fd uintptr) { n = outQueue(int(fd)) }) != nil {
		return 0
	}
	return n
}
