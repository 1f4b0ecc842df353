package integration

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The escape sequences with which list --watch takes a terminal and gives it back.
const (
	takesTerminal = "\x1b[?1049h\x1b[?25l"
	givesTerminal = "\x1b[?25h\x1b[?1049l"
)

// watcher is tmux-mcpd list --watch on a terminal of its own.
type watcher struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	screen *screen
	exited chan struct{}
}

func startWatcher(t *testing.T, home *tmuxHome, env []string, args ...string) *watcher {
	t.Helper()
	master, slave, err := openPTY()
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{t: t, master: master, screen: newScreen(), exited: make(chan struct{})}
	w.cmd = exec.Command(requireProduct(t), append([]string{"list"}, args...)...)
	w.cmd.Env, w.cmd.Dir = home.clientEnviron(append(env, "TERM=xterm-256color")...), home.dir
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = slave, slave, slave
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := setSize(slave, 120, 20); err != nil {
		t.Fatal(err)
	}
	err = w.cmd.Start()
	slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = w.cmd.Wait() // its code is asked for
		close(w.exited)
	}()
	drawn := make(chan struct{})
	go func() {
		defer close(drawn)
		buf := make([]byte, 32<<10)
		for {
			n, err := master.Read(buf)
			w.screen.add(buf[:n])
			if err != nil {
				return // EIO: the program has ended
			}
		}
	}()
	t.Cleanup(func() {
		select {
		case <-w.exited:
		default:
			_ = w.cmd.Process.Kill()
			<-w.exited
		}
		master.Close()
		<-drawn
	})
	return w
}

// wait waits until the newest picture shows all the texts and none of those that
// begin with "!".
func (w *watcher) wait(texts ...string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the terminal shows %q", texts), 20*time.Second, func() (bool, string) {
		all := w.screen.text()
		picture := all[strings.LastIndex(all, "\x1b[H")+1:]
		for _, text := range texts {
			unwanted, not := strings.CutPrefix(text, "!")
			if not && strings.Contains(picture, unwanted) || !not && !strings.Contains(picture, text) {
				return false, fmt.Sprintf("%q", picture)
			}
		}
		return true, ""
	})
}

// wantEnd waits for the end, which must be a success and give the terminal back.
func (w *watcher) wantEnd() {
	w.t.Helper()
	select {
	case <-w.exited:
	case <-time.After(20 * time.Second):
		w.t.Fatalf("does not end; the terminal shows %q", w.screen.text())
	}
	if code := w.cmd.ProcessState.ExitCode(); code != 0 {
		w.t.Errorf("ended with code %d: %q", code, w.screen.text())
	}
	if !w.screen.wait(givesTerminal, 5*time.Second) {
		w.t.Errorf("the terminal is not given back: %q", w.screen.text())
	}
}

// TestListWatch follows a server on a terminal, through what may happen to it,
// to the daemon and to the terminal.
func TestListWatch(t *testing.T) {
	besideOthers(t)
	s := newTmuxServer(t)
	s.newSession("second")
	d := startDaemon(t, s.home, nil)
	w := startWatcher(t, s.home, []string{"NO_COLOR=1"}, "panes", "--watch", "--socket", d.socket)
	w.wait("%0", "%1", "main", "second")
	if text := w.screen.text(); !strings.HasPrefix(text, takesTerminal) || strings.Contains(text, "\x1b[1m") {
		t.Errorf("the terminal got %q", text)
	}
	s.run("select-pane", "-t", "%0", "-T", "a new title")
	w.wait("a new title")
	s.run("split-window", "-d", "-t", "main", "sleep", "9000")
	w.wait("%2")
	s.run("rename-session", "-t", "second", "deuxième") // a row of tmux://sessions only
	w.wait("deuxième", "!second")
	s.run("kill-pane", "-t", "%2")
	w.wait("!%2")

	if err := setSize(w.master, 30, 2); err != nil {
		t.Fatal(err)
	}
	w.wait("… 2 more", "!a new title") // one of three lines fits beside that
	if err := setSize(w.master, 120, 20); err != nil {
		t.Fatal(err)
	}
	w.wait("a new title", "%1")

	d.stop()
	d = startDaemonAt(t, s.home, d.socket, []string{requireProduct(t)}, nil)
	s.run("select-pane", "-t", "%0", "-T", "from the second daemon")
	w.wait("from the second daemon")
	d.stop() // for good
	w.wait("no daemon to be reached")
	s.run("select-pane", "-t", "%0", "-T", "without a daemon")
	w.wait("without a daemon")

	// Stopped by the user, it gives the terminal back and takes it again.
	if _, err := w.master.WriteString("\x1a"); err != nil {
		t.Fatal(err)
	}
	if !w.screen.wait(givesTerminal, 10*time.Second) {
		t.Fatalf("stopped without giving the terminal back: %q", w.screen.text())
	}
	// A shell goes on with what it has seen stop. Sent earlier, the signal would
	// be over before the stop.
	eventually(t, "it has stopped", 10*time.Second, func() (bool, string) {
		out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(w.cmd.Process.Pid)).Output()
		return strings.HasPrefix(strings.TrimSpace(string(out)), "T"), fmt.Sprintf("%q %v", out, err)
	})
	if err := w.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.run("select-pane", "-t", "%0", "-T", "after a break")
	w.wait("after a break")

	if _, err := w.master.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	w.wantEnd()
	s.waitGuests(0, 10*time.Second)
}

// TestListWatchTarget: one session is watched; other sessions do not draw it
// anew, and when it has gone that is said.
func TestListWatchTarget(t *testing.T) {
	besideOthers(t)
	s := newTmuxServer(t)
	s.newSession("second")
	w := startWatcher(t, s.home, nil, "panes", "--watch", "--session", "second", "--socket", s.home.dir+"/none")
	w.wait("%1", "!%0", "\x1b[1m")
	before := w.screen.text()
	s.run("select-pane", "-t", "%0", "-T", "not shown")
	s.run("select-pane", "-t", "%1", "-T", "shown")
	w.wait("shown", "!not shown")
	if n := strings.Count(strings.TrimPrefix(w.screen.text(), before), "\x1b[H"); n != 1 {
		t.Errorf("drawn %d times for one change", n)
	}
	s.run("kill-session", "-t", "second")
	w.wait("Object not found", "none", "!%1")
	s.newSession("second")
	w.wait("%2", "!Object not found")
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.wantEnd()
}

// TestListWatchLines: into a pipe, a line per change, by socket name and filter;
// the end of the reader ends it, and our client in tmux with it.
func TestListWatchLines(t *testing.T) {
	besideOthers(t)
	h := newTmuxHome(t)
	s := h.server("named")
	s.newSession("main")
	p := startProcess(t, []string{requireProduct(t), "list", "panes", "--watch", "-L", "named", "--filter", "pane_title__startswith=t",
		"--socket", h.dir + "/none"}, h.clientEnviron(), h.dir)
	lines := make(chan string, 100)
	in := bufio.NewReader(p)
	go func() {
		defer close(lines)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	want := func(start string) {
		t.Helper()
		select {
		case line := <-lines:
			if !strings.HasPrefix(line, start) {
				t.Fatalf("line %q, want %q", line, start)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no line, want %q; stderr: %s", start, p.stderr)
		}
	}
	s.waitGuests(1, 10*time.Second)
	s.run("select-pane", "-t", "main", "-T", "t 1")
	want("+ %0 session=main")
	s.run("select-pane", "-t", "main", "-T", "t 2")
	want(`~ %0 title: "t 1" → "t 2"` + "\n")
	s.run("select-pane", "-t", "main", "-T", "x")
	want("- %0 ")
	p.stdout.Close()
	if !p.waitExit(10 * time.Second) {
		t.Fatal("it outlives its reader")
	}
	if code := p.exitCode(); code != 0 {
		t.Errorf("ended with code %d; stderr: %s", code, p.stderr)
	}
	for range lines {
	}
	s.waitGuests(0, 10*time.Second)
}
