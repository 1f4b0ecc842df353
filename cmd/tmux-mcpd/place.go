package main

import (
	"context"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"tmux-mcpd/daemon"
)

// A place says where answers come from: the daemon's socket, and the tmux
// binary for when we read tmux ourselves.
type place struct {
	socket string
	tmux   string
}

func (p *place) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.socket, "socket", "", "`path` of the daemon's socket (or $TMUX_MCPD_SOCKET)")
	cmd.Flags().StringVar(&p.tmux, "tmux", "", "`path` of the tmux binary (or $TMUX_MCPD_TMUX)")
}

// dial connects to the daemon, if one runs at any of the places where this
// user's may be.
func (p place) dial(ctx context.Context) (net.Conn, error) {
	paths, err := daemon.SocketPaths(p.socket)
	if err != nil {
		return nil, err
	}
	return daemon.Dial(ctx, paths...)
}

// embedded is a daemon inside this process, for when none can be reached.
func (p place) embedded(c console, log *slog.Logger, readOnly bool) *daemon.Daemon {
	return daemon.New(p.config(c, log, readOnly))
}

func (p place) config(c console, log *slog.Logger, readOnly bool) daemon.Config {
	tmux := p.tmux
	if tmux == "" {
		tmux = c.getenv("TMUX_MCPD_TMUX")
	}
	return daemon.Config{
		Tmux: tmux, Version: versionText(), Log: log, ReadOnlyHints: readOnly,
		IdleDetach: daemon.DefaultIdleDetach,
	}
}

const (
	hintsVariable = "TMUX_MCPD_HINTS"
	hintsReadOnly = "read-only"
)

// addHintsFlag adds --hints. The returned function says after parsing
// whether the tools are to be announced as read-only.
func addHintsFlag(cmd *cobra.Command, c console) (readOnly func() (bool, error)) {
	hints := cmd.Flags().String("hints", "", "`read-only` announces the tools as read-only, so that hosts need not ask before each call (or $"+hintsVariable+")")
	completeFlag(cmd, "hints", fixed(hintsReadOnly))
	return func() (bool, error) {
		value, from := *hints, "--hints"
		if value == "" {
			value, from = c.getenv(hintsVariable), hintsVariable
		}
		switch value {
		case "":
			return false, nil
		case hintsReadOnly:
			return true, nil
		default:
			return false, usagef("%s is %q; the only value is %q", from, value, hintsReadOnly)
		}
	}
}
