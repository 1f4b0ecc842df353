package bridge

import (
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// link is one connection to a server, the daemon or the embedded one.
type link struct {
	rwc      io.ReadWriteCloser
	embedded bool
	born     time.Time
	dead     chan struct{} // closed with the connection
	ready    chan struct{} // closed when initialize is answered
	odd      atomic.Bool   // something was sent whose answer has no id

	// Used by the goroutine that reads the link.
	isReady bool
	served  bool // has answered at least once

	mu     sync.Mutex // guards what follows
	asked  [][]byte   // the uris that greet has subscribed to, by the number in the id
	term   *time.Timer
	cause  error // of the term that ended it
	closed bool
}

func newLink(rwc io.ReadWriteCloser) *link {
	return &link{rwc: rwc, born: time.Now(), dead: make(chan struct{}), ready: make(chan struct{})}
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked()
}

func (l *link) closeLocked() {
	if l.closed {
		return
	}
	l.closed = true
	if l.term != nil {
		l.term.Stop()
	}
	close(l.dead)
	l.rwc.Close()
}

// closeIn gives the other end d to do its part; cause is what expired tells if it does not. It replaces an earlier term.
func (l *link) closeIn(d time.Duration, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if l.term != nil {
		l.term.Stop()
	}
	var term *time.Timer
	term = time.AfterFunc(d, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.term != term || l.closed { // replaced or taken back while it fired
			return
		}
		l.cause = cause
		l.closeLocked()
	})
	l.term = term
}

// stay takes the term back.
func (l *link) stay() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != nil {
		l.term.Stop()
		l.term = nil
	}
}

// expired returns the cause of the term that ended the link, if one did.
func (l *link) expired() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// closeWrite tells the server that no more requests come. What it still has to say can be read.
func (l *link) closeWrite() {
	if c, ok := l.rwc.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
	}
}

// replayed returns the uri that greet has subscribed to under an id of ours, nil if it is the id of something else.
func (l *link) replayed(id []byte) []byte {
	number, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(string(id), ownID), `"`))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || number < 0 || number >= len(l.asked) {
		return nil
	}
	return l.asked[number]
}

// stream is one end of a connection inside the process. Unlike net.Pipe it can be half-closed, as a socket can.
type stream struct {
	*io.PipeReader
	w *io.PipeWriter
}

func streamPair() (a, b stream) {
	ar, bw := io.Pipe()
	br, aw := io.Pipe()
	return stream{ar, aw}, stream{br, bw}
}

func (s stream) Write(p []byte) (int, error) { return s.w.Write(p) }

func (s stream) CloseWrite() error { return s.w.Close() }

func (s stream) Close() error {
	s.w.Close()
	return s.PipeReader.Close()
}
