package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// insideVar is set in the process that runs the tests.
const insideVar = "TMUX_MCPD_TEST_INSIDE"

// leaveWithin is how long processes may take to end after the last test: panes
// end a moment after their server.
const leaveWithin = 5 * time.Second

// supervise runs the test binary once more as a child and reaps whatever that
// leaves behind. As the child subreaper it becomes the parent of every orphan, tmux
// servers (they daemonize) and clients of a killed daemon included. So no
// process can get away unseen, however the tests end, and a dead server is no
// zombie that looks alive. done is false in the child, which runs the tests.
func supervise() (code int, done bool) {
	if os.Getenv(insideVar) != "" {
		return 0, os.Unsetenv(insideVar) != nil
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "integration: cannot watch for orphans:", err)
		return 1, true
	}
	// The death signal follows the thread that started the child, not the process.
	runtime.LockOSThread()
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1, true
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVar+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1, true
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	go func() {
		for s := range signals {
			_ = syscall.Kill(cmd.Process.Pid, s.(syscall.Signal))
		}
	}()
	code = reapUntil(cmd.Process.Pid)
	for _, p := range strays() {
		fmt.Fprintln(os.Stderr, "integration: process left behind by the tests:", p)
		if code == 0 {
			code = 1
		}
	}
	return code, true
}

// reapUntil waits for every child that ends, until the one named does, and
// returns its exit code.
func reapUntil(pid int) int {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			fmt.Fprintln(os.Stderr, "integration: wait:", err)
			return 1
		case got == pid && status.Signaled():
			return 128 + int(status.Signal())
		case got == pid:
			return status.ExitStatus()
		}
	}
}

// strays gives the remaining children time to end, then kills those that are
// left, one by one, and returns what they were. Killing one can hand us its children.
func strays() []string {
	var found []string
	for end := time.Now().Add(leaveWithin); ; time.Sleep(pollEvery) {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.ECHILD) {
			return found
		}
		if pid != 0 || err != nil || time.Now().Before(end) {
			continue
		}
		for _, pid := range childrenOf(os.Getpid()) {
			found = append(found, describeProcess(pid))
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// childrenOf lists the direct children of a process, zombies not.
func childrenOf(parent int) []int {
	var pids []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // ended since the listing
		}
		// "pid (name) state ppid …"; the name may hold anything, so count from its end.
		rest := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(rest) < 2 || rest[0] == "Z" || rest[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(path, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func describeProcess(pid int) string {
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return fmt.Sprintf("%d %q", pid, strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " "))
}
