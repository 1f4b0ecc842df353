package controlmode

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestParentDeath kills -9 a process that is attached and has not read all
// that tmux said. Without the parent-death signal the tmux client then stays
// for ever (facts 2d).
func TestParentDeath(t *testing.T) {
	eachTmux(t, func(t *testing.T, path string) {
		s := newServer(t, path)
		helper := exec.Command(os.Args[0])
		helper.Env = append(os.Environ(), "CONTROLMODE_HELPER="+path, "CONTROLMODE_SOCKET="+s.Socket)
		stdin, err := helper.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stdin.Close()
		stdout, err := helper.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := helper.Start(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("helper said %q", line)
		}
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
		eventually(t, "tmux to run what it was sent", func() bool { return s.run("show-options", "-gqv", "@filled") == "yes" })
		helper.Process.Kill()
		helper.Wait()
		eventually(t, "the end of the tmux client", func() bool { return !running(pid) })
		eventually(t, "tmux to forget the client", func() bool { return s.run("list-clients") == "" })
	})
}

// TestThreadsComeAndGo ends the OS threads that called Attach, as the runtime
// may at any time: the parent-death signal must not take that for our end.
func TestThreadsComeAndGo(t *testing.T) {
	s := newServer(t, tmuxPaths(t)[0])
	clients := make([]*Client, 4)
	threads := make([]int, len(clients))
	var callers sync.WaitGroup
	for i := range clients {
		callers.Add(1)
		go func() {
			defer callers.Done()
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			threads[i] = syscall.Gettid()
			c, err := s.Attach(testContext(t), "$0", nil)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { c.Close() })
			clients[i] = c
		}()
	}
	callers.Wait()
	if t.Failed() {
		return
	}
	for i, c := range clients {
		task := fmt.Sprintf("/proc/self/task/%d", threads[i])
		if threads[i] != os.Getpid() { // the main thread never ends
			eventually(t, "the end of the thread", func() bool { _, err := os.Stat(task); return err != nil })
		}
		if _, err := c.Do(testContext(t), "}"); err != nil {
			t.Fatal(err)
		}
	}
}
