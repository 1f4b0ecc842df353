package main

import (
	"context"
	"fmt"
	"log/slog"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"tmux-mcpd/daemon"
)

func serveCommand(c console) *cobra.Command {
	var p place
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon that all MCP hosts of this user share",
		Long: `Run the daemon that all MCP hosts of this user share. It stays in the
foreground, logs to stderr and ends on SIGTERM or SIGINT after answering what it
has begun. It starts no tmux server and attaches to one only when asked about it.

The socket is --socket, else TMUX_MCPD_SOCKET, else tmux-mcpd/mcp.sock in the
user's runtime directory. A socket handed over by systemd is taken as it is.`,
		Example: `  tmux-mcpd serve
  tmux-mcpd serve --socket ~/.cache/tmux-mcpd.sock --tmux /opt/tmux/bin/tmux`,
		Args: cobra.NoArgs,
	}
	p.addFlags(cmd)
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
		log := c.log(slog.LevelInfo)
		listener, err := p.listen()
		if err != nil {
			return err
		}
		defer listener.Close()
		listener.Log = log

		ctx := cmd.Context()
		log.Info("serving", "socket", listener.Path(), "version", versionText())
		notify(log, sd.SdNotifyReady)
		stopping := make(chan struct{})
		context.AfterFunc(ctx, func() {
			defer close(stopping)
			notify(log, sd.SdNotifyStopping)
		})
		if err := daemon.New(p.config(c, log, readOnly, times)).Serve(ctx, listener); err != nil {
			return fmt.Errorf("serve: %w", err)
		}
		if ctx.Err() != nil {
			<-stopping
		}
		log.Info("stopped")
		return nil
	}
	return cmd
}

// listen takes the socket that the service manager opened for us, else opens
// our own. That fails, naming the pid, while another daemon holds it.
func (p place) listen() (*daemon.Listener, error) {
	inherited, err := daemon.Inherited()
	if err != nil || inherited != nil {
		return inherited, err
	}
	path, err := daemon.SocketPath(p.socket)
	if err != nil {
		return nil, err
	}
	return daemon.Listen(path)
}

// notify tells systemd about our state. Without systemd it does nothing.
func notify(log *slog.Logger, state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		log.Warn("cannot notify the service manager", "error", err)
	}
}
