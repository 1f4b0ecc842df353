package controlmode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// TermName is the TERM of every tmux process started here. tmux shows it as
// #{client_termname}, by which such clients know each other.
const TermName = "tmux-mcpd"

const (
	// stopStep is the patience with each step of the stop ladder. A tmux
	// that works leaves within a few milliseconds of the end of its input.
	stopStep = 300 * time.Millisecond

	keepStderr = 4 << 10 // bytes of stderr kept for an error
)

var (
	// ErrNoServer says that nothing serves the socket.
	ErrNoServer = errors.New("no tmux server")

	// ErrServerExited says that the server took the connection and dropped
	// it: it was about to end, or hangs in its own end. Trying again tells.
	ErrServerExited = errors.New("tmux server exited")

	// ErrNoSession says that the server has no such session (any more).
	ErrNoSession = errors.New("no such tmux session")
)

// causes are the messages of tmux on which a caller acts. All others, a socket
// of another user or another protocol version, stay text.
var causes = []struct {
	prefix, suffix string
	cause          error
}{
	{"no server running on ", "", ErrNoServer},
	{"error connecting to ", "(No such file or directory)", ErrNoServer},
	{"error connecting to ", "(Connection refused)", ErrNoServer},
	{"server exited", "", ErrServerExited}, // "server exited unexpectedly"
	{"lost server", "", ErrServerExited},
	{"can't find session", "", ErrNoSession},
	{"no sessions", "", ErrNoSession},
}

// A CommandError is the failure of a tmux command in tmux's own words. With
// errors.Is it is ErrNoServer, ErrServerExited or ErrNoSession where the words
// say so.
type CommandError struct {
	Stderr   string // without newline at the end; at most 4 KiB
	ExitCode int    // -1 if a signal ended the process
}

func (e *CommandError) Error() string {
	if e.Stderr == "" {
		return fmt.Sprintf("tmux failed with exit code %d and no message", e.ExitCode)
	}
	return "tmux: " + e.Stderr
}

// Unwrap gives the cause, if it is one that callers act on.
func (e *CommandError) Unwrap() error {
	for _, c := range causes {
		if strings.HasPrefix(e.Stderr, c.prefix) && strings.HasSuffix(e.Stderr, c.suffix) {
			return c.cause
		}
	}
	return nil
}

// Tmux is a tmux program and the socket of one server.
type Tmux struct {
	Path   string // of the program
	Socket string // as for tmux -S

	// Server is the version of the server, if it is known. It decides how
	// Attach has to go about it.
	Server Version
}

// argv is the only place that builds a tmux command line. Without -u tmux
// replaces every byte of its output that is not ASCII, or a tab, by '_' unless
// the locale says UTF-8, which it does not in a service. Without -N attach
// would start a server where there is none.
func (t Tmux) argv(args ...string) []string {
	return append([]string{"-u", "-N", "-S", t.Socket}, args...)
}

// command prepares a tmux process.
func (t Tmux) command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	switch {
	case t.Path == "":
		return nil, errors.New("controlmode: no tmux program given")
	case t.Socket == "":
		return nil, errors.New("controlmode: no tmux socket given")
	case strings.IndexByte(t.Socket, 0) >= 0:
		return nil, errors.New("controlmode: tmux socket path holds a NUL byte")
	case len(t.Socket) > maxSocketPath:
		// tmux 3.3a cuts the path instead and asks the wrong socket.
		return nil, fmt.Errorf("controlmode: tmux socket path has %d bytes, the system takes %d", len(t.Socket), maxSocketPath)
	}
	cmd := exec.CommandContext(ctx, t.Path, t.argv(args...)...)
	cmd.Env = environ(os.Environ())
	cmd.SysProcAttr = sysProcAttr()
	cmd.WaitDelay = stopStep
	return cmd, nil
}

// environ takes from env what belongs to the process that we are and not to
// the client that we start: the pane we may run in, and what systemd handed to
// us.
func environ(env []string) []string {
	kept := make([]string, 0, len(env)+1)
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case name == "TMUX", name == "TMUX_PANE", name == "NOTIFY_SOCKET", name == "TERM",
			strings.HasPrefix(name, "LISTEN_"):
		default:
			kept = append(kept, kv)
		}
	}
	return append(kept, "TERM="+TermName)
}

// Run runs one tmux command in a process of its own and gives what it printed.
// If tmux fails the error is a [*CommandError].
func (t Tmux) Run(ctx context.Context, args ...string) ([]byte, error) {
	cmd, err := t.command(ctx, args...)
	if err != nil {
		return nil, err
	}
	var stdout bytes.Buffer
	var stderr headBuffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = startAndWait(cmd, nil)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, &CommandError{Stderr: stderr.text(), ExitCode: exit.ExitCode()}
	}
	if err != nil {
		return nil, fmt.Errorf("controlmode: %w", err)
	}
	return stdout.Bytes(), nil
}

// startAndWait starts cmd, says so, and waits for its end. All of it happens
// on one OS thread: on Linux the parent-death signal comes when the thread
// that started the process ends, and the Go runtime may end any thread that
// is not held.
func startAndWait(cmd *exec.Cmd, started chan<- error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	if started != nil {
		started <- err
	}
	if err != nil {
		return err
	}
	return cmd.Wait()
}

// A Client is a Conn whose other end is a tmux process of our own.
type Client struct {
	*Conn
	cmd    *exec.Cmd
	stream *stdio
	stderr headBuffer
	relay  *relay        // that it reaches the server by, or nil
	exited chan struct{} // closed when the process is reaped
	gone   chan struct{} // closed when process, relay, stream and reader are gone
}

// Attach starts a tmux client in control mode that sits in session, an id like
// "$0". It returns when tmux has answered a first command, so the attaching
// and its hooks are over, or with what tmux said against it; ctx bounds that
// time only. See [NewConn] for notify, which is called from the start.
//
// The client takes no part in window sizes, gets no pane output, leaves the
// environment of the session alone, never starts a server and dies with us.
func (t Tmux) Attach(ctx context.Context, session string, notify func(Notification)) (*Client, error) {
	if len(session) == 0 || session[0] != '$' || !IsID(session) {
		return nil, fmt.Errorf("controlmode: attach: %q is not a session id", session)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &Client{exited: make(chan struct{}), gone: make(chan struct{})}
	var err error
	if needsRelay(t.Server) {
		if c.relay, err = newRelay(t.Socket); err != nil {
			return nil, fmt.Errorf("controlmode: attach: %w", err)
		}
		if c.relay != nil {
			t.Socket = c.relay.socket()
		}
	}
	// Without -E update-environment would take SSH_AUTH_SOCK, DISPLAY … out of
	// the session for every pane to come, because we have none.
	c.cmd, err = t.command(context.Background(),
		"-C", "attach-session", "-E", "-t", session, "-f", "ignore-size,no-output")
	if err == nil {
		if err = c.start(notify); err != nil {
			err = fmt.Errorf("controlmode: attach: %w", err)
		}
	}
	if err != nil {
		c.relay.close()
		return nil, err
	}
	if err := c.open(ctx); err != nil {
		c.Close()
		return nil, c.explain(err)
	}
	return c, nil
}

// open waits until the attaching is over. Nothing may be sent before: up to
// 3.3a tmux reads our lines as soon as the client has introduced itself, and
// when it is busy runs them before attach-session, outside of any session.
func (c *Client) open(ctx context.Context) error {
	select {
	case <-c.Conn.opening:
	case <-c.Conn.Done():
		return c.Conn.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
	// A lone brace cannot parse: tmux answers, but runs nothing, so no hook,
	// no alias and no line in show-messages.
	_, err := c.Do(ctx, "}")
	return err
}

// start starts the process and the connection over its pipes.
func (c *Client) start(notify func(Notification)) error {
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return err
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		theirIn.Close()
		ourOut.Close()
		return err
	}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirIn, theirOut, &c.stderr
	started := make(chan error, 1)
	go func() {
		defer close(c.exited)
		_ = startAndWait(c.cmd, started) // ProcessState holds the outcome
	}()
	err = <-started
	theirIn.Close()
	theirOut.Close()
	c.stream = &stdio{in: ourIn, out: ourOut, outClosed: make(chan struct{})}
	if err != nil {
		c.stream.Close()
		<-c.exited
		return err
	}
	c.Conn = NewConn(c.stream, notify)
	go c.stop()
	return nil
}

// stop waits for the end of the stream or of the process, whichever is first,
// and then sees to it that both end. It is the only place that does.
func (c *Client) stop() {
	defer close(c.gone)
	select {
	case <-c.stream.outClosed:
	case <-c.Conn.Done():
	case <-c.exited:
	}

	// The ladder. The reader still runs, because tmux leaves only when all it
	// had to say is read (3.3a to 3.8: control_all_done).
	c.stream.closeOut()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Kill} {
		if within(stopStep, c.exited) {
			break
		}
		_ = c.cmd.Process.Signal(signal) // it may be gone by now
	}
	<-c.exited
	c.relay.close()

	// The server holds our pipe too, and a server that hangs never closes it.
	if !within(stopStep, c.Conn.Done()) {
		c.Conn.fail(fmt.Errorf("controlmode: tmux client ended: %v", c.cmd.ProcessState))
		<-c.Conn.Done()
	}
}

func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// explain finds tmux's words for an attach that failed with err.
func (c *Client) explain(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("controlmode: attach: %w", err)
	}
	text := c.stderr.text()
	c.Conn.mu.Lock()
	refusal := c.Conn.refusal
	c.Conn.mu.Unlock()
	var exit *ExitError
	if why := c.relay.failure(); why != nil {
		return fmt.Errorf("controlmode: attach: %w", why)
	}
	if text == "" && refusal != nil {
		text = string(refusal.Body)
	}
	if text == "" && errors.As(err, &exit) {
		text = exit.Reason
	}
	if text == "" {
		return fmt.Errorf("controlmode: attach: %w (%v)", err, c.cmd.ProcessState)
	}
	return fmt.Errorf("controlmode: attach: %w", &CommandError{Stderr: text, ExitCode: c.cmd.ProcessState.ExitCode()})
}

// PID is that of the tmux client process, #{client_pid} in tmux.
func (c *Client) PID() int { return c.cmd.Process.Pid }

// Close lets tmux leave the session and returns when the process is reaped:
// after a few milliseconds, or after about a second at most if tmux hangs.
// It must not be called from the notify callback.
func (c *Client) Close() error {
	c.Conn.setErr(ErrClosed)
	c.stream.closeOut()
	<-c.gone
	return nil
}

// stdio is the two pipes of a process as one stream.
type stdio struct {
	in        *os.File // we read
	out       *os.File // we write
	once      sync.Once
	outClosed chan struct{}
}

func (s *stdio) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *stdio) Write(p []byte) (int, error) { return s.out.Write(p) }

// SyscallConn is that of the side we write.
func (s *stdio) SyscallConn() (syscall.RawConn, error) { return s.out.SyscallConn() }

func (s *stdio) closeOut() {
	s.once.Do(func() {
		s.out.Close()
		close(s.outClosed)
	})
}

func (s *stdio) Close() error {
	s.closeOut()
	return s.in.Close()
}

// headBuffer keeps the first bytes written to it and swallows the rest.
type headBuffer struct {
	mu   sync.Mutex
	head []byte
}

func (b *headBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.head = append(b.head, p[:min(len(p), keepStderr-len(b.head))]...)
	return len(p), nil
}

func (b *headBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(bytes.TrimRight(b.head, "\n"))
}
