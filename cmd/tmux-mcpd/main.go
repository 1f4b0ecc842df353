// Command tmux-mcpd answers MCP (Model Context Protocol) tools about this
// user's tmux sessions and panes.
//
// One file per subcommand; each file holds its flags and what it prints, and
// nothing that another program could want: that is in the packages daemon and
// daemon/bridge.
//
//	tmux-mcpd list panes     # what is there, as a table
//	tmux-mcpd stdio          # what an MCP host is configured with
//	tmux-mcpd serve          # the daemon that all hosts share
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes, as promised by --help.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// A console is what a command uses of the process it runs in. Tests run a
// whole command with one of their own.
type console struct {
	in       io.Reader
	out, err io.Writer
	lookup   func(name string) (value string, set bool) // the environment
}

func (c console) getenv(name string) string {
	value, _ := c.lookup(name)
	return value
}

// log writes to stderr only: stdout belongs to JSON-RPC or to the table.
func (c console) log(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: level}))
}

// A usageError is a mistake in the command line that cobra cannot see.
type usageError struct{ error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// From the first signal on the default applies again, so that a second
	// one ends a shutdown that hangs.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], console{os.Stdin, os.Stdout, os.Stderr, os.LookupEnv}))
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, c console) int {
	// Whatever fails before a command's own code has begun (an unknown
	// command or flag, a wrong number of arguments) is the caller's mistake.
	begun := false
	root := rootCommand(c)
	root.PersistentPreRun = func(*cobra.Command, []string) { begun = true }
	root.SetArgs(args)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)

	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case !begun, errors.As(err, &usage):
		fmt.Fprintf(c.err, "tmux-mcpd: %v\nSee '%s --help'.\n", err, cmd.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(c.err, "tmux-mcpd: %v\n", err)
		return exitFailed
	}
}

func rootCommand(c console) *cobra.Command {
	root := &cobra.Command{
		Use:   "tmux-mcpd",
		Short: "Tells AI agents what is in your tmux",
		Long: `tmux-mcpd tells AI agents what is in your tmux: which sessions, windows and
panes there are, what runs in them and where. Agents ask over MCP, the Model
Context Protocol; the tools are list_sessions and list_panes. It only reads: no
tmux server is started, no session touched.

It can run without any preparation ("tmux-mcpd stdio" does everything itself),
or as one daemon per user that all agents share ("tmux-mcpd serve"): then an
answer needs no new tmux process.`,
		Example: `  # See what an agent would see
  tmux-mcpd list panes

  # Plug it into Claude Code (other hosts: command "tmux-mcpd", argument "stdio")
  claude mcp add tmux -- /path/to/tmux-mcpd stdio

  # Run the daemon that all agents of this user share
  tmux-mcpd serve`,
		Args:          cobra.NoArgs,
		SilenceErrors: true, // run prints them, once
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetHelpTemplate(root.HelpTemplate() + exitCodes)
	root.AddCommand(listCommand(c), stdioCommand(c), serveCommand(c), statusCommand(c), doctorCommand(c), serviceCommand(c), versionCommand(c))
	root.AddCommand(buildCommands(c)...)
	return root
}

const exitCodes = `
Exit codes: 0 done, 1 failed (the reason is on stderr), 2 the command line is wrong.
`
