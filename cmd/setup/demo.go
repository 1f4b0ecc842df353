package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// show lists the panes of this user's tmux, or of a demo server if there are
// none.
func show(ctx context.Context) error {
	probe := exec.CommandContext(ctx, binary, "list", "panes", "--json")
	probe.Stderr = os.Stderr
	answer, err := probe.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(probe.Args, " "), err)
	}
	var panes []json.RawMessage
	if err := json.Unmarshal(answer, &panes); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(probe.Args, " "), err)
	}
	if len(panes) > 0 {
		step("the panes of your tmux")
		fmt.Printf("\n$ %s list panes\n", binary)
		return runCommand(command(ctx, binary, "list", "panes"))
	}

	step("no tmux server is running: start a private demo server with three panes")
	d, err := startDemo(ctx)
	if err != nil {
		return err
	}
	fmt.Println()
	err = d.play(ctx, os.Stdout, []string{binary + " list panes"})
	fmt.Println()
	if stopErr := d.stop(); err == nil {
		err = stopErr
	}
	if err == nil {
		step("the demo server (pid %d, in %s) has ended and its directory is removed", d.pid, d.dir)
	}
	return err
}

// A demo is a tmux server of our own: its socket is in a directory of its
// own, no configuration is read and the user's servers are never met.
type demo struct {
	dir string
	pid int
	env []string
}

// demoScript makes the three panes. The programs are ones that are on every
// machine and change nothing. tmux starts a command of several words itself,
// without a shell that would show in its place.
var demoScript = [][]string{
	{"-f", "/dev/null", "new-session", "-d", "-s", "work", "-n", "notes", "-x", "120", "-y", "36", "-c", "/usr", "cat", "-"},
	{"select-pane", "-t", "work:notes.0", "-T", "notes"},
	{"split-window", "-d", "-h", "-t", "work:notes", "-c", "/tmp", "tail", "-f", "/dev/null"},
	{"select-pane", "-t", "work:notes.1", "-T", "log"},
	{"new-window", "-d", "-t", "work:", "-n", "build", "-c", "/", "sleep", "600"},
	{"select-pane", "-t", "work:build.0", "-T", "build"},
	{"select-pane", "-t", "work:notes.0"},
}

// demoCommands is what the panes run once all programs have started.
const demoCommands = "cat tail sleep"

func startDemo(ctx context.Context) (*demo, error) {
	// Not TMPDIR: on macOS that alone is half of the 104 bytes that a socket
	// path may have.
	dir, err := os.MkdirTemp("/tmp", "tmux-mcpd-demo-")
	if err != nil {
		return nil, err
	}
	d := &demo{dir: dir}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, "TMUX") && !strings.HasPrefix(name, "LIBTMUX") {
			d.env = append(d.env, variable)
		}
	}
	d.env = append(d.env,
		"LIBTMUX_SOCKET_PATH="+d.socket(),
		// No daemon of the user's is to hear of this server.
		"TMUX_MCPD_SOCKET="+filepath.Join(dir, "no-daemon.sock"))
	for _, args := range demoScript {
		if _, err = d.tmux(ctx, args...); err != nil {
			d.stop()
			return nil, err
		}
	}
	pid, err := d.tmux(ctx, "display-message", "-p", "#{pid}")
	if err == nil {
		d.pid, err = strconv.Atoi(strings.TrimSpace(pid))
	}
	if err == nil {
		err = d.settle(ctx)
	}
	if err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// settle waits until each pane runs its program and no longer the tmux that
// was forked for it, so that the listing is the same each time. Should that
// never show, it is no failure: the demo only looks less tidy.
func (d *demo) settle(ctx context.Context) error {
	for tries := 0; tries < 150; tries++ {
		commands, err := d.tmux(ctx, "list-panes", "-a", "-F", "#{pane_current_command}")
		if err != nil {
			return err
		}
		if strings.Join(strings.Fields(commands), " ") == demoCommands {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (d *demo) socket() string { return filepath.Join(d.dir, "tmux.sock") }

func (d *demo) tmux(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-u", "-S", d.socket()}, args...)...)
	cmd.Env = d.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("tmux %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

// play runs shell lines against the demo server as a user would and writes
// each with its output.
func (d *demo) play(ctx context.Context, w io.Writer, lines []string) error {
	for _, line := range lines {
		fmt.Fprintf(w, "$ %s\n", line)
		cmd := command(ctx, "sh", "-c", line)
		cmd.Env = d.env
		cmd.Stdout, cmd.Stderr = w, w
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	return nil
}

// stop ends the server, waits until it is really gone and removes its
// directory. It does so too when the context of the demo has ended.
func (d *demo) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := d.tmux(ctx, "kill-server")
	for err == nil && (d.answers() || alive(d.pid)) {
		select {
		case <-ctx.Done():
			err = fmt.Errorf("the demo server (pid %d, in %s) does not end", d.pid, d.dir)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(d.dir)
}

func (d *demo) answers() bool {
	conn, err := net.Dial("unix", d.socket())
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// alive reports whether a process still runs. One that has ended but is not
// collected by its parent (there may be no init in a container) does not.
func alive(pid int) bool {
	if pid == 0 || syscall.Kill(pid, 0) == syscall.ESRCH {
		return false
	}
	if runtime.GOOS == "linux" {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		// The state follows the name, which may itself hold parentheses.
		if end := bytes.LastIndexByte(stat, ')'); err == nil && end > 0 && bytes.HasPrefix(stat[end:], []byte(") Z")) {
			return false
		}
	}
	return true
}
