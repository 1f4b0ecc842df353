package main

import (
	"tmux-mcpd/daemon"
)

// hello is the first frame on a connection to the daemon: who the caller is.
// readOnly asks for the tools' read-only hints on this connection.
func (c console) hello(readOnly bool) []byte {
	return daemon.Hello(versionText(), c.lookup, readOnly)
}
