package tools

import (
	"path/filepath"
	"strings"
)

// place tells what is_caller says about the panes of the server with the given
// socket: nothing (known is false: null), or that the caller is in the pane
// of that id, "" for none of this server.
func (c Caller) place(socket string) (pane string, known bool) {
	pane, set := c.Env["TMUX_PANE"]
	if !set || pane == "" && c.Env["TMUX"] == "" {
		return "", false
	}
	own := c.TmuxSocket()
	if own == "" {
		return "", true
	}
	if own != socket {
		real, err := filepath.EvalSymlinks(own)
		if err != nil || real != socket {
			return "", true
		}
	}
	return pane, true
}

// TmuxSocket is the path of the socket in the caller's $TMUX
// (path,pid,session), "" without one.
func (c Caller) TmuxSocket() string {
	socket, _, _ := strings.Cut(c.Env["TMUX"], ",")
	return socket
}
