package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal is a tmux client on a pseudo-terminal, as a person has one.
type terminal struct {
	t      testing.TB
	server *tmuxServer
	tty    string
	cmd    *exec.Cmd
	master *os.File
	screen *screen
	exited chan struct{} // closed once the client has been waited for
	drawn  chan struct{} // closed once nothing more can be drawn
	hangup func()
}

// newTerminal opens a terminal of the given size, runs tmux argv in it
// (attach-session if there is none) and waits until tmux lists the client with
// that size.
func newTerminal(t testing.TB, server *tmuxServer, width, height int, argv ...string) *terminal {
	t.Helper()
	term, err := openTerminal(t, server, width, height, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func openTerminal(t testing.TB, server *tmuxServer, width, height int, argv ...string) (*terminal, error) {
	if len(argv) == 0 {
		argv = []string{"attach-session"}
	}
	master, slave, err := openPTY()
	if err != nil {
		return nil, err
	}
	term := &terminal{t: t, server: server, tty: slave.Name(), master: master, screen: newScreen(),
		exited: make(chan struct{}), drawn: make(chan struct{})}
	term.hangup = sync.OnceFunc(func() { master.Close() })
	args := server.argv(argv...)
	term.cmd = exec.Command(args[0], args[1:]...)
	term.cmd.Env, term.cmd.Dir = server.home.environ(), server.home.dir
	term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = slave, slave, slave
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = setSize(slave, width, height)
	if err == nil {
		err = term.cmd.Start()
	}
	slave.Close()
	if err != nil {
		master.Close()
		return nil, err
	}
	go func() {
		_ = term.cmd.Wait() // it ends by signals and hang-ups, all of them expected
		close(term.exited)
	}()
	go func() {
		defer close(term.drawn)
		buf := make([]byte, 32<<10)
		for {
			n, err := master.Read(buf)
			term.screen.add(buf[:n])
			if err != nil {
				return // EIO: the client has closed its side
			}
		}
	}()
	t.Cleanup(term.close)
	if err := term.waitSize(width, height); err != nil {
		return term, err
	}
	return term, term.waitReady()
}

// waitReady waits until tmux has heard all that this client has to say about its
// attaching. A client that has been told "ready" answers with its size, and that
// makes it the latest one: on a loaded machine this can come after the next
// terminal's attaching and change the size of the window once more. Locking is a
// message to the client that it answers after those before it.
func (term *terminal) waitReady() error {
	s := term.server
	for _, command := range [][]string{
		{"set-option", "-g", "lock-command", "true"}, {"lock-client", "-t", term.tty}, {"set-option", "-gu", "lock-command"},
	} {
		if _, err := s.try(command...); err != nil {
			return err
		}
	}
	saw, ok := holdsWithin(10*time.Second, func() (bool, string) {
		out, err := s.try("list-clients", "-F", joinFormats("client_tty", "client_flags"))
		for _, v := range splitRows(out) {
			if v[0] == term.tty {
				return !strings.Contains(v[1], "suspended"), v[1]
			}
		}
		return false, fmt.Sprint(out, err)
	})
	if !ok {
		return fmt.Errorf("client on %s does not answer: %s", term.tty, saw)
	}
	return nil
}

// openPTY is pty.Open with a master whose Close ends a Read. The library's calls
// leave it in blocking mode, where Close waits for the next output.
func openPTY() (master, slave *os.File, err error) {
	blocking, slave, err := pty.Open()
	if err != nil {
		return nil, nil, err
	}
	defer blocking.Close()
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		slave.Close()
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), blocking.Name()), slave, nil
}

// setSize is pty.Setsize for the descriptors of openPTY.
func setSize(f *os.File, width, height int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var sizeErr error
	err = conn.Control(func(fd uintptr) {
		sizeErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(width), Row: uint16(height)})
	})
	return errors.Join(err, sizeErr)
}

// waitSize waits until tmux lists this client, attached and with this size.
func (term *terminal) waitSize(width, height int) error {
	want := fmt.Sprintf("%dx%d", width, height)
	saw, ok := holdsWithin(10*time.Second, func() (bool, string) {
		clients, err := term.server.clients()
		i := slices.IndexFunc(clients, func(c tmuxClient) bool { return c.tty == term.tty })
		if i < 0 {
			return false, fmt.Sprint(clients, err)
		}
		return clients[i].session != "" && clients[i].size == want, fmt.Sprint(clients[i])
	})
	if !ok {
		return fmt.Errorf("client on %s is not attached with size %s: %s; screen: %q", term.tty, want, saw, term.screen.text())
	}
	return nil
}

// resize changes the size of the terminal and waits until tmux knows.
func (term *terminal) resize(width, height int) {
	term.t.Helper()
	if err := setSize(term.master, width, height); err != nil {
		term.t.Fatal(err)
	}
	if err := term.waitSize(width, height); err != nil {
		term.t.Fatal(err)
	}
}

// write types keys.
func (term *terminal) write(keys string) {
	term.t.Helper()
	if _, err := term.master.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

// waitText waits until a text has been drawn.
func (term *terminal) waitText(want string, within time.Duration) {
	term.t.Helper()
	if !term.screen.wait(want, within) {
		term.t.Fatalf("terminal does not show %q within %v; it got %q", want, within, term.screen.text())
	}
}

// hangUp takes the terminal away from its client, as closing its window does.
func (term *terminal) hangUp() {
	term.t.Helper()
	term.hangup()
	term.waitGone()
}

// close detaches the client and waits until tmux does not list it any more.
func (term *terminal) close() {
	term.t.Helper()
	select {
	case <-term.exited:
	default:
		_ = term.cmd.Process.Signal(syscall.SIGTERM)
	}
	term.waitGone()
	term.hangup()
	<-term.drawn
}

func (term *terminal) waitGone() {
	term.t.Helper()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-term.exited:
	case <-timer.C:
		term.t.Errorf("tmux client on %s does not end", term.tty)
		_ = term.cmd.Process.Kill()
		<-term.exited
	}
	saw, ok := holdsWithin(10*time.Second, func() (bool, string) {
		clients, _ := term.server.clients() // a server that is gone has no clients
		return !slices.ContainsFunc(clients, func(c tmuxClient) bool { return c.tty == term.tty }), fmt.Sprint(clients)
	})
	if !ok {
		term.t.Errorf("tmux still lists the client on %s: %s", term.tty, saw)
	}
}

// screenLimit bounds what is kept of a terminal's output; the newest counts.
const screenLimit = 1 << 20

// screen is what a terminal has been sent so far, escape sequences included.
type screen struct {
	mu   sync.Mutex
	seen []byte
	wake chan struct{} // closed and replaced at every output
}

func newScreen() *screen { return &screen{wake: make(chan struct{})} }

func (s *screen) add(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, p...)
	if extra := len(s.seen) - screenLimit; extra > 0 {
		s.seen = append([]byte(nil), s.seen[extra:]...)
	}
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.seen)
}

// wait reports whether the text is seen in time.
func (s *screen) wait(want string, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		s.mu.Lock()
		found, wake := bytes.Contains(s.seen, []byte(want)), s.wake
		s.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-wake:
		case <-timer.C:
			return false
		}
	}
}

// controlClient is a bare tmux -C client, not the product's. Its output is always
// read: a client that does not read can keep a tmux server from ending.
type controlClient struct {
	t       testing.TB
	server  *tmuxServer
	process *process
	screen  *screen
	drained chan struct{}
}

// newControlClient starts tmux -C argv and waits until tmux lists the client.
func newControlClient(t testing.TB, server *tmuxServer, argv ...string) *controlClient {
	t.Helper()
	c, err := openControlClient(t, server, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func openControlClient(t testing.TB, server *tmuxServer, argv ...string) (*controlClient, error) {
	args := server.argv(append([]string{"-C"}, argv...)...)
	c := &controlClient{t: t, server: server, screen: newScreen(), drained: make(chan struct{}),
		process: startProcess(t, args, server.home.environ(), server.home.dir)}
	go func() {
		defer close(c.drained)
		buf := make([]byte, 32<<10)
		for {
			n, err := c.process.Read(buf)
			c.screen.add(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(c.close)
	saw, ok := holdsWithin(10*time.Second, func() (bool, string) {
		clients, err := server.clients()
		return slices.ContainsFunc(clients, func(listed tmuxClient) bool {
			return listed.pid == c.process.pid() && listed.session != ""
		}), fmt.Sprint(clients, err)
	})
	if !ok {
		return c, fmt.Errorf("control client %q is not attached: %s; it printed %q", argv, saw, c.screen.text())
	}
	return c, nil
}

// send writes one command line.
func (c *controlClient) send(line string) {
	c.t.Helper()
	if _, err := c.process.Write([]byte(strings.TrimRight(line, "\n") + "\n")); err != nil {
		c.t.Fatal(err)
	}
}

// waitText waits until tmux has sent a text.
func (c *controlClient) waitText(want string, within time.Duration) {
	c.t.Helper()
	if !c.screen.wait(want, within) {
		c.t.Fatalf("control client got no %q within %v; it got %q", want, within, c.screen.text())
	}
}

// close ends the client by the end of its input and waits until tmux does not
// list it any more.
func (c *controlClient) close() {
	c.t.Helper()
	pid := c.process.pid()
	c.process.end(10 * time.Second)
	<-c.drained
	saw, ok := holdsWithin(10*time.Second, func() (bool, string) {
		clients, _ := c.server.clients() // a server that is gone has no clients
		return !slices.ContainsFunc(clients, func(listed tmuxClient) bool { return listed.pid == pid }), fmt.Sprint(clients)
	})
	if !ok {
		c.t.Errorf("tmux still lists the control client %d: %s", pid, saw)
	}
}
