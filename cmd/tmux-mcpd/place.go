package main

import (
	"context"
	"log/slog"
	"net"
	"time"

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
func (p place) embedded(c console, log *slog.Logger, readOnly bool, t times) *daemon.Daemon {
	return daemon.New(p.config(c, log, readOnly, t))
}

func (p place) config(c console, log *slog.Logger, readOnly bool, t times) daemon.Config {
	tmux := p.tmux
	if tmux == "" {
		tmux = c.getenv("TMUX_MCPD_TMUX")
	}
	return daemon.Config{
		Tmux: tmux, Version: versionText(), Log: log, ReadOnlyHints: readOnly,
		IdleDetach: t.idleDetach, PushInterval: t.pushInterval,
	}
}

// times are how long and how often a daemon does what it does unasked.
type times struct{ idleDetach, pushInterval time.Duration }

var defaultTimes = times{daemon.DefaultIdleDetach, daemon.DefaultPushInterval}

// minPushInterval bounds what subscribers can cost tmux.
const minPushInterval = 10 * time.Millisecond

// addTimesFlags adds --idle-detach and --push-interval. The returned function
// gives their values after parsing.
func addTimesFlags(cmd *cobra.Command, c console) (values func() (times, error)) {
	t := defaultTimes
	flags := []struct {
		value                 *time.Duration
		name, variable, usage string
	}{
		{&t.idleDetach, "idle-detach", "TMUX_MCPD_IDLE_DETACH", "leave a tmux server that nobody has asked about for this `duration`; 0 for never"},
		{&t.pushInterval, "push-interval", "TMUX_MCPD_PUSH_INTERVAL", "while somebody is subscribed look at intervals of this `duration` for what tmux does not announce"},
	}
	for _, flag := range flags {
		cmd.Flags().DurationVar(flag.value, flag.name, *flag.value, flag.usage+" (or $"+flag.variable+")")
		completeFlag(cmd, flag.name, fixed(flag.value.String()))
	}
	return func() (times, error) {
		for _, flag := range flags {
			if value := c.getenv(flag.variable); value != "" && !cmd.Flags().Changed(flag.name) {
				if err := cmd.Flags().Set(flag.name, value); err != nil {
					return t, usagef("%s is %q; it must be a duration like 10m or 250ms", flag.variable, value)
				}
			}
		}
		switch {
		case t.idleDetach < 0:
			return t, usagef("--idle-detach is %v; the least is 0, for never", t.idleDetach)
		case t.pushInterval < minPushInterval:
			return t, usagef("--push-interval is %v; the least is %v", t.pushInterval, minPushInterval)
		}
		return t, nil
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
