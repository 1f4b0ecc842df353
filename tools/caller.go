package tools

import (
	"path/filepath"
	"strings"

	"tmux-mcpd/daemon/state"
)

// A place is where a caller is on a server.
type place struct {
	known bool   // false: is_caller is null
	pane  string // the id of the caller's pane, "" for none of this server
}

// on finds the caller's place on the server with the given socket.
func (c Caller) on(socket string) place {
	pane, set := c.Env["TMUX_PANE"]
	if !set || pane == "" && c.Env["TMUX"] == "" {
		return place{}
	}
	own := c.TmuxSocket()
	if own == "" {
		return place{known: true}
	}
	if own != socket {
		real, err := filepath.EvalSymlinks(own)
		if err != nil || real != socket {
			return place{known: true}
		}
	}
	return place{known: true, pane: pane}
}

// isCaller is the JSON of is_caller.
func (p place) isCaller(pane *state.Pane) string {
	switch {
	case !p.known:
		return "null"
	case p.pane != "" && pane.Value(state.PaneID) == p.pane:
		return "true"
	}
	return "false"
}

// TmuxSocket is the path of the socket in the caller's $TMUX
// (path,pid,session), "" without one.
func (c Caller) TmuxSocket() string {
	socket, _, _ := strings.Cut(c.Env["TMUX"], ",")
	return socket
}
