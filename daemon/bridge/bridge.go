package bridge

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// FrameLimit is how long a line of the host may be, in bytes with its newline. The daemon has the same limit, and
	// ends the connection of who exceeds it.
	FrameLimit = 1 << 20
	// answerLimit only keeps a peer that never sends a newline from eating all memory.
	answerLimit = 256 << 20

	maxPending      = 64      // requests remembered for a replay
	maxWatched      = 256     // subscriptions remembered for a replay, which is what the daemon allows
	maxURI          = 1 << 10 // bytes of one of them; the daemon's own are much shorter
	maxPendingBytes = 8 << 20 // and their frames; a single one may always be kept
	// maxSends ends the case of a request that kills every daemon that reads it.
	maxSends = 8

	patience     = 3 * time.Second // how long a daemon may be away, or silent in the handshake
	minRetry     = 10 * time.Millisecond
	maxRetry     = 500 * time.Millisecond
	drainTime    = 5 * time.Second       // for pending answers, after the end of stdin
	partingTime  = 50 * time.Millisecond // for the daemon to close when nothing is pending
	embeddedTime = 2 * time.Second       // for the embedded server to detach from tmux

	// What a subscriptions/listen is answered with at first, and where the id of that request is in _meta.
	acknowledgedMethod = "notifications/subscriptions/acknowledged"
	subscriptionID     = "io.modelcontextprotocol/subscriptionId"

	helloMethod = "notifications/tmux-mcpd/hello"
	// ownID starts the ids of the bridge's own requests, in raw JSON; their answers are not for the host.
	ownID = `"tmux-mcpd/bridge/`
)

// Bridge says how to reach a daemon. A Bridge may be run once.
type Bridge struct {
	// Dial makes one attempt at every path where a daemon may listen. nil means there is none to look for.
	Dial func(ctx context.Context) (net.Conn, error)
	// Hello is the first frame on every connection to a daemon. The embedded server does not get it.
	Hello []byte
	// Version is compared with the one in the daemon's answer to Hello, if it sends any; a difference is logged once.
	Version string
	// Embedded serves the same tools in this process until the stream ends, half-closed streams included. nil means
	// that Run fails where no daemon is to be had.
	Embedded func(ctx context.Context, rwc io.ReadWriteCloser) error
	// Log is told what the user should know; stdout is never written to but for JSON-RPC. nil means slog.Default().
	Log *slog.Logger
}

// Run serves one host. It returns nil when stdin has ended and everything is answered, or when the reader of stdout has
// closed it; the cause of ctx's end when ctx ends; and another error if nobody is left to serve the host.
//
// A read of stdin may outlive Run where the host has not ended it: there is no way to call it back, so the process
// should end then. SIGPIPE is the caller's: a write to a broken descriptor 1 kills a Go program that neither catches
// nor ignores it, before Run can return.
func (b *Bridge) Run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := newSession(b, cancel, stdin, stdout)

	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		// A host that does not read may hold a write for ever.
		select {
		case err = <-done:
		case <-time.After(embeddedTime):
			err = context.Cause(ctx)
		}
	}
	switch {
	case errors.Is(err, errDrained):
		s.log.Warn("stdin has ended, answers are still missing: giving up", "after", drainTime)
		return nil
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe), errors.Is(err, os.ErrClosed):
		return nil
	}
	return err
}

var (
	errDrained = errors.New("answers did not come in time")
	errNotOurs = errors.New("what listens there does not speak JSON-RPC")
	errSilent  = errors.New("the daemon does not answer initialize")
	errRefused = errors.New("refused by the daemon")
)
