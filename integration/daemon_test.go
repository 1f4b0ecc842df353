package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stopWithin bounds how long a daemon may take to end after SIGTERM.
const stopWithin = 10 * time.Second

// daemonProcess is a running tmux-mcpd serve.
type daemonProcess struct {
	*process
	home   *tmuxHome
	socket string
	ended  bool // by the test; else the cleanup stops it
}

// strangeIdentity is put into the environment of every daemon: whom it serves is
// told by its clients, never by where it was started.
var strangeIdentity = []string{
	"TMUX=/nonexistent/daemon,1,0", "TMUX_PANE=%0", "TMUX_TMPDIR=/nonexistent", "LIBTMUX_SOCKET=nonexistent",
}

// startDaemon starts a daemon with its socket in the home and waits until it
// accepts connections. env is added to its environment, prefix goes before argv.
func startDaemon(t testing.TB, home *tmuxHome, env []string, prefix ...string) *daemonProcess {
	t.Helper()
	dir, err := os.MkdirTemp(home.dir, "d") // mode 0700, as the daemon demands
	if err != nil {
		t.Fatal(err)
	}
	return startDaemonAt(t, home, filepath.Join(dir, "mcp.sock"), slices.Concat(prefix, []string{requireProduct(t)}), env)
}

// startDaemonAt is startDaemon for a given socket and program.
func startDaemonAt(t testing.TB, home *tmuxHome, socket string, program, env []string) *daemonProcess {
	t.Helper()
	argv := slices.Concat(program, []string{"serve", "--socket", socket, "--tmux", home.guestTmux})
	d := &daemonProcess{home: home, socket: socket,
		process: startProcess(t, argv, home.clientEnviron(slices.Concat(strangeIdentity, env)...), home.dir)}
	t.Cleanup(func() {
		if !d.ended {
			d.stop()
		}
	})
	saw, ok := holdsWithin(15*time.Second, func() (bool, string) {
		select {
		case <-d.exited:
			return true, "it has ended"
		default:
		}
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return false, err.Error()
		}
		conn.Close()
		return true, ""
	})
	if !ok || saw != "" {
		t.Fatalf("daemon is not ready: %s; stderr:\n%s", saw, d.stderr)
	}
	return d
}

// dial opens an MCP session on the daemon's socket, for a client with the given
// tmux variables, and initializes it.
func (d *daemonProcess) dial(t testing.TB, env map[string]string) (*mcpClient, error) {
	conn, err := net.Dial("unix", d.socket)
	if err != nil {
		return nil, err
	}
	c := newMCPClient(t, conn)
	return c, errors.Join(c.hello(env), c.initialize())
}

// stop ends the daemon by SIGTERM. It must end in time and call that a success.
func (d *daemonProcess) stop() {
	d.t.Helper()
	d.ended = true
	d.signal(syscall.SIGTERM)
	if !d.waitExit(stopWithin) {
		d.t.Errorf("daemon does not end within %v of SIGTERM", stopWithin)
		d.kill()
		return
	}
	if code := d.exitCode(); code != 0 {
		d.t.Errorf("daemon ended with code %d; stderr:\n%s", code, d.stderr)
	}
}

// crash ends the daemon by SIGKILL.
func (d *daemonProcess) crash() {
	d.t.Helper()
	d.ended = true
	d.kill()
}

// goroutineHeader begins each stack in what the Go runtime prints at SIGQUIT.
var goroutineHeader = regexp.MustCompile(`(?m)^goroutine \d+ .*\[`)

// quit ends the daemon by SIGQUIT and returns the number of goroutines that it
// had, and their stacks: the runtime prints them.
func (d *daemonProcess) quit() (int, string) {
	d.t.Helper()
	d.ended = true
	d.signal(syscall.SIGQUIT)
	if !d.waitExit(stopWithin) {
		d.t.Errorf("daemon does not end within %v of SIGQUIT", stopWithin)
		d.kill()
	}
	text := d.stderr.String()
	_, stacks, found := strings.Cut(text, stacksFollow)
	if !found {
		d.t.Errorf("daemon printed no stacks at SIGQUIT; stderr:\n%s", text)
	}
	// Goroutine 0 is the scheduler's stack of a thread.
	n := 0
	for _, header := range goroutineHeader.FindAllString(stacks, -1) {
		if !strings.HasPrefix(header, "goroutine 0 ") {
			n++
		}
	}
	return n, stacks
}

// fds counts the open descriptors of the daemon whose target starts with the
// prefix ("socket:", "pipe:", "" for all). Linux only: -1 elsewhere.
func (d *daemonProcess) fds(prefix string) int {
	dir := fmt.Sprintf("/proc/%d/fd", d.pid())
	entries, err := os.ReadDir(dir)
	if err != nil {
		return -1
	}
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.HasPrefix(target, prefix) {
			n++
		}
	}
	return n
}

// residentKB is the resident memory in kB. Linux only: -1 elsewhere.
func (d *daemonProcess) residentKB() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.pid()))
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if kb, err := strconv.Atoi(strings.Fields(value)[0]); err == nil {
				return kb
			}
		}
	}
	return -1
}

// startStdio starts tmux-mcpd stdio with the given flags and initializes a
// session with it. env is added to its environment.
func startStdio(t testing.TB, home *tmuxHome, env []string, flags ...string) (*mcpClient, *process) {
	t.Helper()
	argv := append([]string{requireProduct(t), "stdio"}, flags...)
	p := startProcess(t, argv, home.clientEnviron(env...), home.dir)
	c := newMCPClient(t, p)
	if err := c.initialize(); err != nil {
		t.Fatalf("%s: %v; stderr:\n%s", p.name, err, p.stderr)
	}
	return c, p
}

// guest is tmux-mcpd at work for one client, whichever way it runs.
type guest struct {
	client *mcpClient
	leave  func() // ends it as intended
	crash  func() // ends it by SIGKILL
}

// dialGuest is a guest served by a daemon that the guest then ends.
func dialGuest(t testing.TB, d *daemonProcess, home *tmuxHome) guest {
	t.Helper()
	c, err := d.dial(t, map[string]string{"TMUX_TMPDIR": home.tmpdir})
	if err != nil {
		t.Fatal(err)
	}
	return guest{c, func() { c.close(); d.stop() }, d.crash}
}

// guestModes are the ways to run the product; tests of what tmux users see run in each.
var guestModes = []struct {
	name string
	// open starts the product; env (NAME=value) is in its own environment.
	open func(t testing.TB, home *tmuxHome, env ...string) guest
}{
	{"embedded", func(t testing.TB, home *tmuxHome, env ...string) guest {
		c, p := startStdio(t, home, env, "--embedded")
		return guest{c, func() {
			c.close()
			if !p.waitExit(stopWithin) {
				t.Errorf("stdio --embedded does not end within %v of the end of its input", stopWithin)
			}
		}, p.kill}
	}},
	{"serve", func(t testing.TB, home *tmuxHome, env ...string) guest {
		d := startDaemon(t, home, env)
		return dialGuest(t, d, home)
	}},
}

// poll calls both tools n times and fails the test if an answer differs from what
// tmux says. It is for servers that nobody else changes meanwhile.
func (g guest) poll(t testing.TB, server *tmuxServer, n int) {
	t.Helper()
	for range n {
		args := map[string]any{"socket_name": server.name}
		want, err := server.read()
		if err != nil {
			t.Fatal(err)
		}
		panes, err := g.client.list("list_panes", args)
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffRows(want.panes, withoutCaller(panes)); diff != "" {
			t.Fatalf("list_panes differs from tmux: %s", diff)
		}
		sessions, err := g.client.list("list_sessions", args)
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffRows(want.sessions, sessions); diff != "" {
			t.Fatalf("list_sessions differs from tmux: %s", diff)
		}
	}
}
