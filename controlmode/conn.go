package controlmode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxLine    = 16 << 20 // bytes of one line, either way
	maxPending = 4096     // commands sent and not answered
	maxUnsent  = 32 << 20 // bytes of lines that tmux has not taken yet

	readBuffer = 64 << 10 // what a Linux pipe holds

	// lastWords is how long the reader may go on after the other side has
	// stopped: tmux that has gone away has mostly left "%exit reason" in the
	// pipe.
	lastWords = 300 * time.Millisecond
)

var (
	// ErrClosed is the end of a connection that this side closed.
	ErrClosed = errors.New("controlmode: connection closed")

	// ErrBusy is given for a command when too much is waiting already
	// because tmux does not take or does not answer what was sent.
	ErrBusy = errors.New("controlmode: too many commands waiting")

	errLine     = errors.New("controlmode: a command line must not be empty or hold a newline or NUL")
	errLineLong = errors.New("line longer than 16 MiB")
	errCount    = errors.New("controlmode: a line has at least one command")
	errUnasked  = errors.New("reply to a command that was not sent")
)

// An ExitError is the end of a connection that tmux closed in good order with
// %exit: the session is gone, the client was detached, the server ends.
type ExitError struct {
	Reason string // often empty; "server exited unexpectedly", "too far behind" …
}

func (e *ExitError) Error() string {
	if e.Reason == "" {
		return "controlmode: tmux ended the connection"
	}
	return "controlmode: tmux ended the connection: " + e.Reason
}

// A Conn runs commands over a control mode stream. Its methods may be called
// by any number of goroutines at once.
//
// One goroutine reads. It never sends and waits for nothing but the stream, so
// the stream is drained whatever callers do.
//
// Sending never blocks: a line is written at once as far as the kernel takes
// it without waiting, and a goroutine that lives only as long as there is
// something left writes the rest. Streams without a descriptor (net.Pipe) are
// always written that way. So a caller needs its context only in Wait, and a
// line is never half sent because somebody lost patience.
//
// Lock order: sendMu before mu. The reader takes only mu.
type Conn struct {
	rwc    io.ReadWriteCloser
	raw    syscall.RawConn // nil if rwc has no descriptor
	notify func(Notification)
	done   chan struct{}
	// opening closes at the first block that answers no line of ours: that of
	// the command that the client was started with.
	opening chan struct{}

	// sendMu covers "take a place and write", because tmux answers in the
	// order of the lines: two senders between those steps would swap replies.
	// Nothing blocks under it.
	sendMu   sync.Mutex
	line     []byte             // the line being sent
	try      func(uintptr) bool // writes line once, made once to save the allocation
	tried    int                // bytes that try wrote
	unsent   []byte             // lines for the flusher
	flushing bool               // a flusher runs; only it writes
	broken   bool               // a write failed; nothing is written any more

	// mu guards what follows.
	mu      sync.Mutex
	pending []*Call // sent and not answered, oldest first
	err     error   // why the connection ended or is ending; set once
	refusal *Reply  // failed block before the first own reply: why attach failed
	greeted bool    // an own reply has come
	opened  bool    // opening is closed
}

// NewConn starts a connection over rwc and owns it from then on. Close of rwc
// must end a Read that is under way.
//
// notify is called for every notification on the reader's goroutine, in the
// order of the stream and before any later reply is handed out; it must not
// block. After Done it is not called any more. It may be nil.
func NewConn(rwc io.ReadWriteCloser, notify func(Notification)) *Conn {
	c := &Conn{rwc: rwc, notify: notify, done: make(chan struct{}), opening: make(chan struct{})}
	if notify == nil {
		c.notify = func(Notification) {}
	}
	if sc, ok := rwc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	c.try = func(fd uintptr) bool {
		// Errors, EAGAIN too, are left to the flusher, which meets them
		// again.
		c.tried, _ = syscall.Write(int(fd), c.line)
		return true
	}
	go c.read()
	return c
}

// A Call is a line that was sent.
type Call struct {
	want    int
	replies []Reply
	err     error
	room    [2]Reply      // replies of nearly every call, without an allocation
	ready   chan struct{} // closed when replies and err are final
}

// Done is closed when the call is answered or the connection has ended.
func (call *Call) Done() <-chan struct{} { return call.ready }

// Wait gives the replies of a line, in order. There are as many as the line
// has commands, or fewer if one failed: that one is then the last. A context
// that ends first takes back nothing: the command runs, its reply is dropped.
func (call *Call) Wait(ctx context.Context) ([]Reply, error) {
	select {
	case <-call.ready:
		return call.replies, call.err
	default:
	}
	select {
	case <-call.ready:
		return call.replies, call.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Send sends a line of n commands and returns at once. n must be right: tmux
// does not say which line a block answers.
func (c *Conn) Send(line string, n int) (*Call, error) {
	// An empty line detaches the client.
	if line == "" || strings.ContainsAny(line, "\n\x00") {
		return nil, errLine
	}
	if len(line) > maxLine {
		return nil, fmt.Errorf("controlmode: %w", errLineLong)
	}
	if n < 1 {
		return nil, errCount
	}
	call := &Call{want: n, ready: make(chan struct{})}
	call.replies = call.room[:0]

	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	if len(c.unsent) > maxUnsent {
		return nil, ErrBusy
	}
	if err := c.takePlace(call); err != nil {
		return nil, err
	}
	c.write(line)
	return call, nil
}

// DoAll sends a line of n commands and waits for its replies, see [Call.Wait].
func (c *Conn) DoAll(ctx context.Context, line string, n int) ([]Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	call, err := c.Send(line, n)
	if err != nil {
		return nil, err
	}
	return call.Wait(ctx)
}

// Do sends a line of one command and waits for its reply. A command that tmux
// refused is a reply with Failed set, not an error.
func (c *Conn) Do(ctx context.Context, line string) (Reply, error) {
	replies, err := c.DoAll(ctx, line, 1)
	if err != nil {
		return Reply{}, err
	}
	return replies[0], nil
}

// Done is closed when the connection has ended and every call is answered.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection ended or is ending: [ErrClosed], an [*ExitError]
// or what went wrong with the stream. It is nil as long as commands are taken.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection. It does not wait; see Done.
func (c *Conn) Close() error {
	c.fail(ErrClosed)
	return nil
}

func (c *Conn) takePlace(call *Call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if len(c.pending) >= maxPending {
		return ErrBusy
	}
	c.pending = append(c.pending, call)
	return nil
}

// write is called with sendMu held and does not block.
func (c *Conn) write(line string) {
	if c.broken {
		return // the call is answered when the connection ends
	}
	c.line = append(append(c.line[:0], line...), '\n')
	rest := c.line
	if c.raw != nil && !c.flushing {
		c.tried = 0
		// On a closed stream try is not called; the flusher meets the error.
		_ = c.raw.Write(c.try)
		rest = rest[max(c.tried, 0):]
	}
	if len(rest) > 0 {
		c.unsent = append(c.unsent, rest...)
		if !c.flushing {
			c.flushing = true
			go c.flush()
		}
	}
	if cap(c.line) > keepScratch {
		c.line = nil
	}
}

// flush writes what Send left, and ends when nothing is left.
func (c *Conn) flush() {
	var spare []byte
	for {
		c.sendMu.Lock()
		chunk := c.unsent
		c.unsent = spare[:0]
		if len(chunk) == 0 {
			c.unsent = nil
			c.flushing = false
			c.sendMu.Unlock()
			return
		}
		c.sendMu.Unlock()
		if _, err := c.rwc.Write(chunk); err != nil {
			c.sendMu.Lock()
			c.broken, c.flushing, c.unsent = true, false, nil
			c.sendMu.Unlock()
			// What tmux said before it went explains more than EPIPE does.
			time.AfterFunc(lastWords, func() { c.fail(fmt.Errorf("controlmode: write: %w", err)) })
			return
		}
		spare = chunk
	}
}

// fail gives the connection its reason to end, the first one counts, and
// closes the stream, on which the reader ends it.
func (c *Conn) fail(err error) {
	c.setErr(err)
	c.rwc.Close()
}

func (c *Conn) setErr(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// read is the reader and, below the call of readLines, the only teardown.
func (c *Conn) read() {
	err := c.readLines()
	c.fail(err)

	// err is set, so nobody takes a place any more.
	c.mu.Lock()
	err = c.err
	calls := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, call := range calls {
		call.replies, call.err = nil, err
		close(call.ready)
	}
	close(c.done)
}

func (c *Conn) readLines() error {
	var p Parser
	lines := lineReader{br: bufio.NewReaderSize(c.rwc, readBuffer)}
	for {
		line, err := lines.next()
		if err != nil {
			if err == io.EOF { // in good order it is %exit that comes last
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("controlmode: read: %w", err)
		}
		event, err := p.Line(line)
		if err != nil {
			return fmt.Errorf("controlmode: %w", err)
		}
		switch event.Kind {
		case EventReply:
			if err := c.deliver(event.Reply); err != nil {
				return fmt.Errorf("controlmode: %w", err)
			}
		case EventNotification:
			c.notify(event.Notification)
		case EventExit:
			return &ExitError{Reason: event.Notification.Args}
		}
	}
}

// deliver hands a reply to the oldest call. It never blocks: what a caller
// that left would have read stays in its Call.
func (c *Conn) deliver(r Reply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.own() {
		if r.Failed && !c.greeted {
			refusal := r // a copy, so that no other reply has to be on the heap
			c.refusal = &refusal
		}
		if !c.opened {
			c.opened = true
			close(c.opening)
		}
		return nil
	}
	c.greeted = true
	if len(c.pending) == 0 {
		// The count of some line was wrong, perhaps by a command-alias of
		// the user: from here on replies would go to the wrong calls.
		return errUnasked
	}
	call := c.pending[0]
	call.replies = append(call.replies, r)
	// tmux drops the rest of a line after a failure (cmdq_remove_group), and
	// answers a line that does not parse with a single block.
	if r.Failed || len(call.replies) == call.want {
		n := copy(c.pending, c.pending[1:])
		c.pending[n] = nil
		c.pending = c.pending[:n]
		close(call.ready)
	}
	return nil
}

// A lineReader gives lines of any length up to maxLine without copying those
// that fit its buffer.
type lineReader struct {
	br   *bufio.Reader
	long []byte
}

// next returns a line without its newline. The line is good until the next
// call. What follows the last newline of the stream is not a line.
func (l *lineReader) next() ([]byte, error) {
	line, err := l.br.ReadSlice('\n')
	if err == nil {
		return line[:len(line)-1], nil
	}
	if cap(l.long) > keepScratch {
		l.long = nil
	}
	l.long = l.long[:0]
	for err == bufio.ErrBufferFull {
		if len(l.long)+len(line) > maxLine {
			return nil, errLineLong
		}
		l.long = append(l.long, line...)
		line, err = l.br.ReadSlice('\n')
	}
	if err != nil {
		return nil, err
	}
	l.long = append(l.long, line...)
	return l.long[:len(l.long)-1], nil
}
