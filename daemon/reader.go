package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A turnover lets the goroutine that reads a client's frames answer a call
// itself, and has another one read on if that takes long.
//
// Nearly every call is the only one of its client and is answered at once.
// Handing it to a goroutine of its own makes the runtime wake a thread to look
// for more work, with a stack that has to grow first: a third of the CPU that
// the whole answer takes. A call that waits (for a tmux that hangs, for a client
// that does not read) must not keep the ones after it from being read, nor its
// own cancellation: once a call is older than lookEvery its reader is relieved.
type turnover struct {
	// answering is the number of the call that the reader is answering, 0 while
	// it reads. Who makes it 0 is the reader from then on.
	answering atomic.Uint64
	calls     uint64 // so far; the reader's own

	look  *time.Timer // runs looked
	armed atomic.Bool // look will fire
	seen  uint64      // the call that was being answered at the last look
	ended chan error  // takes what the last reader read returns
}

// lookEvery is how long a call may keep its client's next frame from being read,
// at least; at most twice as long. The timer runs on between calls: set for each
// of them it would wake the thread that waits for events.
const lookEvery = 20 * time.Millisecond

// errRelieved ends the reading of a goroutine in whose place another one reads.
var errRelieved = errors.New("relieved")

// readToEnd reads frames until there are no more, whoever does it then.
func (s *session) readToEnd(ctx context.Context) error {
	t := &s.turnover
	t.ended = make(chan error, 1)
	t.look = time.AfterFunc(time.Hour, func() { s.looked(ctx) })
	t.look.Stop()
	defer t.look.Stop()
	s.readOn(ctx)
	return <-t.ended
}

func (s *session) readOn(ctx context.Context) {
	if err := s.read(ctx); err != errRelieved {
		s.turnover.ended <- err
	}
}

// answerHere answers a call on the reader's goroutine. Its error is errRelieved
// if that is not the reader's any more.
func (s *session) answerHere(ctx context.Context, r *request) error {
	t := &s.turnover
	t.calls++
	call := t.calls
	t.answering.Store(call)
	if !t.armed.Load() && t.armed.CompareAndSwap(false, true) {
		t.look.Reset(lookEvery)
	}
	s.answer(ctx, r)
	if !t.answering.CompareAndSwap(call, 0) {
		return errRelieved
	}
	return nil
}

// looked is run by the timer: it relieves the reader if it is still at the call
// that it was at before.
func (s *session) looked(ctx context.Context) {
	t := &s.turnover
	call := t.answering.Load()
	if call != 0 && call == t.seen && t.answering.CompareAndSwap(call, 0) {
		t.armed.Store(false)
		s.readOn(ctx)
		return
	}
	t.seen = call
	t.armed.Store(false)
	// Whoever begins a call now arms the timer, or is seen here.
	if t.answering.Load() != 0 && t.armed.CompareAndSwap(false, true) {
		t.look.Reset(lookEvery)
	}
}
