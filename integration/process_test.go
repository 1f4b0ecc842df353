package integration

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a child on pipes: its stdin and stdout are ours to use, its stderr
// is kept for the message of a failed test.
type process struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *output
	exited chan struct{} // closed once the process has been waited for
}

// startProcess starts argv. It is ended, if it still runs, when the test ends.
func startProcess(t testing.TB, argv, env []string, dir string) *process {
	t.Helper()
	// Not cmd.StdoutPipe: Wait would close that, and with it lose the last frames.
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: strings.Join(argv, " "), cmd: exec.Command(argv[0], argv[1:]...),
		stdin: inW, stdout: outR, stderr: &output{}, exited: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = env, dir
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, p.stderr
	p.cmd.WaitDelay = 2 * time.Second // a grandchild may hold stderr open
	err = p.cmd.Start()
	inR.Close()
	outW.Close()
	if err != nil {
		inW.Close()
		outR.Close()
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the outcome is in ProcessState
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.end(10 * time.Second)
		p.stdout.Close()
		p.inspect()
	})
	return p
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// Read, Write and Close make the process a stream for mcpClient. Close is what an
// MCP host does to end a stdio server: it closes the server's stdin.
func (p *process) Read(b []byte) (int, error)  { return p.stdout.Read(b) }
func (p *process) Write(b []byte) (int, error) { return p.stdin.Write(b) }
func (p *process) Close() error                { return p.stdin.Close() }

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// waitExit reports whether the process ended in time.
func (p *process) waitExit(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// end walks the stop ladder: end of input, SIGTERM, SIGKILL, each with the same
// bound. Needing SIGKILL is an error of the test.
func (p *process) end(within time.Duration) {
	p.t.Helper()
	p.stdin.Close()
	if p.waitExit(within) {
		return
	}
	p.signal(syscall.SIGTERM)
	if p.waitExit(within) {
		return
	}
	p.t.Errorf("%s: ended neither by end of input nor by SIGTERM", p.name)
	p.kill()
}

// kill ends the process at once.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	if !p.waitExit(10 * time.Second) {
		p.t.Errorf("%s: pid %d survived SIGKILL", p.name, p.pid())
	}
}

// exitCode is -1 for a process that a signal ended.
func (p *process) exitCode() int {
	<-p.exited
	return p.cmd.ProcessState.ExitCode()
}

// inspect fails the test for what the process wrote if that shows a fault of the
// process itself, and shows it if the test has failed.
func (p *process) inspect() {
	text := p.stderr.String()
	for _, sign := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		if strings.Contains(text, sign) {
			p.t.Errorf("%s: stderr has %q", p.name, sign)
		}
	}
	text, _, _ = strings.Cut(text, stacksFollow) // asked for by a test, which shows them itself
	if p.t.Failed() && text != "" {
		p.t.Logf("%s: stderr:\n%s", p.name, text)
	}
}

// stacksFollow begins what the Go runtime prints at SIGQUIT.
const stacksFollow = "SIGQUIT: quit"

// outputLimit bounds what is kept of one process's stderr.
const outputLimit = 4 << 20

// output collects what a process writes, up to outputLimit.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if room := outputLimit - o.text.Len(); room > 0 {
		o.text.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// command runs argv to its end and returns what it printed; input is its stdin.
func command(argv, env []string, dir string, input io.Reader, within time.Duration) (stdout, stderr []byte, err error) {
	var out, errs bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, dir, input, &out, &errs
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	timer := time.AfterFunc(within, func() { _ = cmd.Process.Kill() })
	err = cmd.Wait()
	if !timer.Stop() && err != nil {
		err = errors.Join(err, os.ErrDeadlineExceeded)
	}
	return out.Bytes(), errs.Bytes(), err
}

// alive reports whether a process with this id exists.
func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
