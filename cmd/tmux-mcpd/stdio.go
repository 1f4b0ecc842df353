package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"tmux-mcpd/daemon"
	"tmux-mcpd/daemon/bridge"
)

func stdioCommand(c console) *cobra.Command {
	var p place
	var alone bool
	cmd := &cobra.Command{
		Use:   "stdio",
		Short: "Serve one MCP host on stdin and stdout",
		Long: `Serve one MCP host on stdin and stdout. This is the command that a host is
configured with. It passes everything on to the daemon of this user; if none
can be reached it says so on stderr and serves the same tools itself.

Which pane the host runs in is taken from TMUX and TMUX_PANE, the tmux server it
means from LIBTMUX_SOCKET_PATH, LIBTMUX_SOCKET, TMUX or TMUX_TMPDIR.`,
		Example: `  claude mcp add tmux -- /path/to/tmux-mcpd stdio
  ssh host tmux-mcpd stdio`,
		Args: cobra.NoArgs,
	}
	p.addFlags(cmd)
	cmd.Flags().BoolVar(&alone, "embedded", false, "do not look for a daemon: serve the tools in this process")
	readOnly := addHintsFlag(cmd, c)
	times := addTimesFlags(cmd, c)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		readOnly, err := readOnly()
		if err != nil {
			return err
		}
		times, err := times()
		if err != nil {
			return err
		}
		hello := c.hello(readOnly)
		// A host that goes away breaks our stdout. Caught (and not ignored,
		// which tmux would inherit), SIGPIPE becomes an error of the write, and
		// there is time to leave tmux in order.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

		log := c.log(slog.LevelWarn)
		b := bridge.Bridge{
			Hello:   hello,
			Version: versionText(),
			Embedded: func(ctx context.Context, stream io.ReadWriteCloser) error {
				return p.embedded(c, log, readOnly, times).ServeConn(ctx, stream, daemon.CallerFrom(c.lookup))
			},
			Log: log,
		}
		if !alone {
			b.Dial = p.dial
		}
		return b.Run(cmd.Context(), c.in, c.out)
	}
	return cmd
}
