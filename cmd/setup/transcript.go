package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/creack/pty"
)

// A screen is what a terminal shows in one place of the README. It is played on
// the demo server, so that the README can only show what really happens.
type screen struct {
	name  string
	lines []string
	// meanwhile is set where the last line goes on until it is interrupted. It
	// is done in another terminal, and the screen is shown before and after.
	meanwhile string
}

var screens = []screen{
	{name: "transcript", lines: []string{
		`tmux-mcpd list panes`,
		`tmux split-window -d -t work:build -c /usr/share sleep 600`,
		`tmux-mcpd list panes --window @1     # the next answer has it`,
		`tmux-mcpd list sessions --json`,
	}},
	{name: "watch", lines: []string{`tmux-mcpd list panes --watch`}, meanwhile: `tmux new-session -d -s scratch -c /var sleep 600`},
	{name: "status", lines: []string{`tmux-mcpd status`}},
	{name: "doctor", lines: []string{`tmux-mcpd doctor`}},
}

const readme = "README.md"

// cut finds the screen's place in a text, and what stands there.
func (s screen) cut(text []byte) (before, shown, after []byte, found bool) {
	begin := []byte("<!-- " + s.name + ": made by `go run ./cmd/setup transcript`, do not edit -->\n```console\n")
	end := []byte("```\n<!-- end of " + s.name + " -->\n")
	at := bytes.Index(text, begin) + len(begin)
	length := bytes.Index(text[max(at, 0):], end)
	if at < len(begin) || length < 0 {
		return nil, nil, nil, false
	}
	return text[:at], text[at : at+length], text[at+length:], true
}

// transcript plays the screens and puts them into the README.
func transcript(ctx context.Context, root string) error {
	if err := need(ctx, tmuxPackage); err != nil {
		return err
	}
	// Not "dirty": what is about to be changed is this text.
	version := strings.TrimSuffix(describe(ctx), "-dirty")
	step("build %s (%s)", binary, version)
	if err := buildFor(ctx, target{runtime.GOOS, runtime.GOARCH}, binary, version); err != nil {
		return err
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	played, err := playScreens(ctx, filepath.Join(root, binary))
	if err != nil {
		return err
	}
	for i, s := range screens {
		os.Stdout.Write(played[i])
		before, _, after, found := s.cut(text)
		if !found {
			return fmt.Errorf("%s has no place for the %s", readme, s.name)
		}
		text = slices.Concat(before, played[i], after)
	}
	step("write the screens to %s", readme)
	return os.WriteFile(readme, text, 0o644)
}

// playScreens returns what the screens show of a program.
func playScreens(ctx context.Context, program string) (played [][]byte, err error) {
	d, err := startDemo(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	// For the reader "tmux" is the demo server's and "tmux-mcpd" the binary
	// just built; the latter itself gets the real tmux.
	realTmux, err := exec.LookPath("tmux")
	if err != nil {
		return nil, err
	}
	path := os.Getenv("PATH")
	script := fmt.Sprintf("#!/bin/sh\nPATH='%s' exec tmux -u -S '%s' \"$@\"\n", path, d.socket())
	home := filepath.Join(d.dir, "home")
	for _, file := range []struct {
		path, text string
		mode       os.FileMode
	}{
		{filepath.Join(d.dir, "bin/tmux"), script, 0o755},
		{filepath.Join(home, ".claude.json"), `{"mcpServers":{"tmux":{"command":"` + program + `","args":["stdio"]}}}`, 0o600},
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file.path), 0o700), os.WriteFile(file.path, []byte(file.text), file.mode)); err != nil {
			return nil, err
		}
	}
	reader := *d
	reader.env = append(slices.Clip(d.env), "TMUX_MCPD_TMUX="+realTmux, "HOME="+home, "XDG_RUNTIME_DIR="+d.dir, "XDG_CONFIG_HOME=", "TERM=xterm-256color",
		"TMUX_MCPD_SOCKET="+d.daemonSocket(), "PATH="+filepath.Join(d.dir, "bin")+":"+filepath.Dir(program)+":"+path)
	stop, err := reader.serve(ctx, program)
	if err != nil {
		return nil, err
	}
	defer stop()
	for _, s := range screens {
		var output bytes.Buffer
		if err := reader.show(ctx, &output, s); err != nil {
			return nil, err
		}
		played = append(played, reader.usualPlaces(output.Bytes(), program))
	}
	return played, nil
}

func (d *demo) daemonSocket() string { return filepath.Join(d.dir, "tmux-mcpd/mcp.sock") }

// serve runs a daemon and one host that has asked it something.
func (d *demo) serve(ctx context.Context, program string) (stop func(), err error) {
	daemon := command(ctx, program, "serve")
	daemon.Env, daemon.Stdout, daemon.Stderr = d.env, nil, nil
	if err := daemon.Start(); err != nil {
		return nil, err
	}
	stopDaemon := func() {
		daemon.Process.Signal(os.Interrupt)
		daemon.Wait()
	}
	for tries := 0; ; tries++ {
		if _, err := os.Stat(d.daemonSocket()); err == nil {
			break
		}
		if tries > 250 {
			stopDaemon()
			return nil, errors.New("the daemon does not start")
		}
		time.Sleep(20 * time.Millisecond)
	}
	host := command(ctx, program, "stdio")
	host.Env, host.Stdout = append(slices.Clip(d.env), "TMUX="+d.socket()+","+strconv.Itoa(d.pid)+",0", "TMUX_PANE=%0"), nil
	stdin, err := host.StdinPipe()
	var stdout io.ReadCloser
	if err == nil {
		stdout, err = host.StdoutPipe()
	}
	if err == nil {
		err = host.Start()
	}
	if err != nil {
		stopDaemon()
		return nil, err
	}
	stop = func() {
		stdin.Close()
		io.Copy(io.Discard, stdout)
		host.Wait()
		stopDaemon()
	}
	answers := bufio.NewReader(stdout)
	for id := 1; id <= 20; id++ {
		request := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"list_panes","arguments":{}}}`, id)
		if id == 1 {
			request = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"demo-host","version":"1.0"}}}`
		}
		if _, err := io.WriteString(stdin, request+"\n"); err != nil {
			stop()
			return nil, err
		}
		if _, err := answers.ReadString('\n'); err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

// show plays a screen.
func (d *demo) show(ctx context.Context, w io.Writer, s screen) error {
	for _, line := range s.lines {
		fmt.Fprintf(w, "$ %s\n", line)
		if s.meanwhile != "" {
			return d.watch(ctx, w, line, s.meanwhile)
		}
		output, err := d.read(ctx, line)
		if err != nil {
			return err
		}
		w.Write(output)
	}
	return nil
}

// The terminal on which the screens are played.
const columns, rows = 100, 40

// read returns what a line prints on a terminal.
func (d *demo) read(ctx context.Context, line string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env = d.env
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: columns})
	if err != nil {
		return nil, err
	}
	output, _ := io.ReadAll(terminal) // ends with an error when the last process has gone
	terminal.Close()
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", line, err, output)
	}
	return bytes.ReplaceAll(output, []byte("\r\n"), []byte("\n")), nil
}

// watch shows the screen of a line with --watch, and how it looks after another
// line. What is drawn takes a terminal to become a picture: that is a second
// tmux server, whose only pane the line runs in. Either picture must be what
// the line prints without --watch.
func (d *demo) watch(ctx context.Context, w io.Writer, line, meanwhile string) (err error) {
	terminal := demo{dir: filepath.Join(d.dir, "terminal"), env: d.env}
	if err := os.Mkdir(terminal.dir, 0o700); err != nil {
		return err
	}
	if _, err := terminal.tmux(ctx, "-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(columns), "-y", "12",
		"unset TMUX TMUX_PANE; exec "+line); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, terminal.stop()) }()
	for _, change := range []string{"", meanwhile} {
		if change != "" {
			fmt.Fprintf(w, "# now, in another terminal: %s\n", change)
			if _, err := d.read(ctx, change); err != nil {
				return err
			}
		}
		var picture string
		for tries := 0; ; tries++ {
			want, err := d.read(ctx, strings.TrimSuffix(line, " --watch"))
			if err != nil {
				return err
			}
			if picture, err = terminal.tmux(ctx, "capture-pane", "-p"); err != nil {
				return err
			}
			picture = strings.TrimRight(picture, "\n") + "\n"
			if picture == string(want) {
				break
			}
			if tries > 100 {
				return fmt.Errorf("%s shows\n%sand without --watch\n%s", line, picture, want)
			}
			time.Sleep(50 * time.Millisecond)
		}
		io.WriteString(w, picture)
	}
	return nil
}

// usualPlaces puts the paths that a user would see in the place of the demo's
// own, and leaves out what belongs to other servers of this machine.
func (d *demo) usualPlaces(text []byte, program string) []byte {
	uid := strconv.Itoa(os.Getuid())
	var kept []string
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "/tmp/tmux-"+uid+"/") {
			kept = append(kept, line)
		}
	}
	return []byte(strings.NewReplacer(
		program, "/usr/local/bin/tmux-mcpd",
		d.socket(), "/tmp/tmux-1000/default",
		d.daemonSocket(), "/run/user/1000/tmux-mcpd/mcp.sock",
		filepath.Join(d.dir, "home"), "/home/me",
	).Replace(strings.Join(kept, "")))
}
