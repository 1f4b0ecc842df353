// Command setup makes a fresh machine that has Go ready for tmux-mcpd.
//
//	go run ./cmd/setup               # install tmux if missing, build, list this machine's panes, show how to plug in
//	go run ./cmd/setup test          # install what tests need, run the linters, then all tests
//	go run ./cmd/setup tmux          # fetch other tmux versions into .cache, for the tests
//	go run ./cmd/setup transcript    # run what the README shows and put the output there
//	go run ./cmd/setup man           # write the manual pages to dist/man
//	go run ./cmd/setup dist          # build what is published, into dist
//
// It is a Go program and not a script, so that nothing but Go is needed to
// start. Everything it makes is in bin, dist and .cache, except system packages,
// which it installs as root only, by the system's package manager.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: go run ./cmd/setup [test [go test flags] | tmux [VERSION...] | transcript | man | dist]
`

func main() {
	// However we are ended, also by a reader of our output that goes away: a
	// demo server must not stay behind.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err := run(ctx, os.Args[1:])
	stop()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		fmt.Fprintf(os.Stderr, "setup: %v\n", err)
		os.Exit(exit.ExitCode())
	default:
		fmt.Fprintf(os.Stderr, "setup: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch {
	case command == "" && len(args) == 0:
		return start(ctx, root)
	case command == "test":
		return test(ctx, args)
	case command == "tmux":
		return fetchTmux(ctx, args)
	case command == "transcript" && len(args) == 0:
		return transcript(ctx, root)
	case command == "man" && len(args) == 0:
		r, err := newRelease(ctx, distDir)
		if err != nil {
			return err
		}
		return r.man(ctx, manDir)
	case command == "dist" && len(args) == 0:
		return dist(ctx)
	case command == "help", command == "-h", command == "--help":
		fmt.Print(usage)
		return nil
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
		return nil
	}
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	gomod := strings.TrimSpace(string(out))
	if filepath.Base(gomod) != "go.mod" {
		return "", errors.New("run this inside a checkout of tmux-mcpd")
	}
	return filepath.Dir(gomod), nil
}

const binary = "bin/tmux-mcpd"

// start is the newcomer's command: everything up to the first listing.
func start(ctx context.Context, root string) error {
	if err := need(ctx, tmuxPackage); err != nil {
		return err
	}
	if err := build(ctx); err != nil {
		return err
	}
	if err := show(ctx); err != nil {
		return err
	}
	plugIn(filepath.Join(root, binary))
	return nil
}

// build makes the binary for this machine.
func build(ctx context.Context) error {
	version := describe(ctx)
	step("build %s (%s)", binary, version)
	return buildFor(ctx, target{runtime.GOOS, runtime.GOARCH}, binary, version)
}

func plugIn(path string) {
	fmt.Printf(`
Plug it into an MCP host. Claude Code:

    claude mcp add --scope user tmux -- %[1]s stdio

Most others (Claude Desktop, Cursor, Gemini CLI ...; the README has each one's file):

    {"mcpServers": {"tmux": {"command": "%[1]s", "args": ["stdio"]}}}

That works as it is. To let all hosts share one daemon in the background:

    %[1]s service install

Should something not work:

    %[1]s doctor
`, path)
}

// step says what comes next, with the time, so that a log shows what is slow.
func step(format string, args ...any) {
	fmt.Printf("== %s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// command starts a program whose output goes to ours. When ctx ends it gets
// SIGTERM first, so that it can clean up.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func runCommand(cmd *exec.Cmd) error {
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return nil
}
