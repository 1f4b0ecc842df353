package controlmode

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain counts goroutines at the end: whatever a test started is over when
// the last of them is.
func TestMain(m *testing.M) {
	if os.Getenv("CONTROLMODE_HELPER") != "" {
		attachAndHang()
	}
	before := runtime.NumGoroutine()
	code := m.Run()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		os.Exit(code) // the fuzz driver leaves goroutines of its own
	}
	deadline := time.Now().Add(5 * time.Second)
	for code == 0 && runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			fmt.Fprintf(os.Stderr, "%d goroutines left, %d at the start:\n%s\n", runtime.NumGoroutine(), before,
				stacks[:runtime.Stack(stacks, true)])
			code = 1
		}
		time.Sleep(time.Millisecond)
	}
	os.Exit(code)
}

// testContext ends every wait of a test that hangs.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition of another process.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 s for: %s", what)
		}
	}
}

// alive reports whether there is a process, even one that only waits to be
// reaped.
func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// running is alive without zombies: the init of a container takes seconds to
// reap what is not a child of ours.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return alive(pid)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// tmuxPaths are the tmux programs to test with: those of CONTROLMODE_TMUX,
// separated by colons, or the one in PATH.
func tmuxPaths(t testing.TB) []string {
	t.Helper()
	if list := os.Getenv("CONTROLMODE_TMUX"); list != "" {
		return strings.Split(list, ":")
	}
	path, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("no tmux in PATH and none in CONTROLMODE_TMUX")
	}
	return []string{path}
}

// eachTmux runs a test once per tmux program.
func eachTmux(t *testing.T, test func(t *testing.T, path string)) {
	for _, path := range tmuxPaths(t) {
		version, err := exec.Command(path, "-V").Output()
		if err != nil {
			t.Fatal(err)
		}
		t.Run(ParseVersion(string(version)).String(), func(t *testing.T) { test(t, path) })
	}
}

// A server is a private tmux server with one session, $0, that runs cat.
type server struct {
	Tmux
	t   testing.TB
	pid int
}

func newServer(t testing.TB, path string, env ...string) *server {
	t.Helper()
	// Not t.TempDir, whose names can be too long for a socket.
	dir, err := os.MkdirTemp("", "cm")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Tmux: Tmux{Path: path, Socket: filepath.Join(dir, "s")}, t: t}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.Command(path, "-S", s.Socket, "-f", "/dev/null",
		"new-session", "-d", "-s", "main", "-x", "80", "-y", "24", "cat")
	cmd.Env = append(environ(os.Environ()), env...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("start of tmux: %v: %s", err, out)
	}
	if _, err := fmt.Sscan(s.run("display-message", "-p", "#{pid}"), &s.pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(s.pid, syscall.SIGCONT)
		syscall.Kill(s.pid, syscall.SIGTERM)
		eventually(t, "the end of the tmux server", func() bool { return !running(s.pid) })
	})
	return s
}

// run runs a tmux command from outside.
func (s *server) run(args ...string) string {
	s.t.Helper()
	out, err := s.Run(testContext(s.t), args...)
	if err != nil {
		s.t.Fatalf("tmux %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// attach attaches to $0 and closes at the end of the test.
func (s *server) attach(notify func(Notification)) *Client {
	s.t.Helper()
	c, err := s.Attach(testContext(s.t), "$0", notify)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		c.Close()
		if alive(c.PID()) {
			s.t.Errorf("tmux client %d is left after Close", c.PID())
		}
	})
	return c
}
