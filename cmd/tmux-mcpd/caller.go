package main

import (
	"encoding/json"
	"os"

	"tmux-mcpd/daemon"
)

// callerVariables are the variables that say in which pane a client runs and
// which tmux server it means. They are the caller's, so a bridge hands them
// over: the daemon's own say nothing.
var callerVariables = [...]string{"TMUX", "TMUX_PANE", "TMUX_TMPDIR", "LIBTMUX_SOCKET", "LIBTMUX_SOCKET_PATH"}

// callerEnv picks from the environment those that are set.
func (c console) callerEnv() map[string]string {
	env := make(map[string]string, len(callerVariables))
	for _, name := range callerVariables {
		if value, set := c.lookup(name); set {
			env[name] = value
		}
	}
	return env
}

// hello is the first frame on a connection to the daemon: a notification, so
// that the socket speaks nothing but JSON-RPC. readOnly asks for the tools'
// read-only hints on this connection.
func (c console) hello(readOnly bool) ([]byte, error) {
	type params struct {
		Version string            `json:"version"`
		Env     map[string]string `json:"env"`
		Hints   string            `json:"hints,omitempty"`
	}
	p := params{Version: versionText(), Env: c.callerEnv()}
	if readOnly {
		p.Hints = hintsReadOnly
	}
	frame, err := json.Marshal(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  params `json:"params"`
	}{"2.0", "notifications/tmux-mcpd/hello", p})
	return append(frame, '\n'), err
}

// identity is the same for a session that is served in this process.
func (c console) identity() daemon.Identity {
	env := c.callerEnv()
	return daemon.Identity{
		Tmux:       env["TMUX"],
		TmuxPane:   env["TMUX_PANE"],
		TmuxTmpdir: env["TMUX_TMPDIR"],
		SocketName: env["LIBTMUX_SOCKET"],
		SocketPath: env["LIBTMUX_SOCKET_PATH"],
		Known:      true,
		PID:        os.Getpid(),
	}
}
