// Package daemon is the process: it serves MCP clients on a unix socket, keeps
// what is known of each tmux server in memory, and proves for every request
// that it is still true.
//
//	d := daemon.New(daemon.Config{Version: "1.0", IdleDetach: daemon.DefaultIdleDetach})
//	listener, err := daemon.Listen(path)
//	…
//	err = d.Serve(ctx, listener) // until ctx ends
//
// # The way of a request
//
// A client's line is read by its session (session.go). The usual tools/call is
// recognised without decoding it (call.go) and answered from prepared bytes;
// everything else goes to mcp-go, which knows the protocol (mcp.go). The tool
// (package tools) asks for a snapshot of the server that the caller means
// (daemon.go finds it, tmux.go knows the rules for sockets) and answers from it.
// The snapshot comes from a tmuxServer (server.go):
//
//   - Who asks takes the turn, which is what makes one exchange with tmux at a
//     time. A lone request thus goes to tmux and back by itself; requests that
//     come while an exchange is under way wait for the next one together,
//     because the one under way may be older than what they know of.
//   - The exchange (connection.go) sends a probe, a line that tmux cannot parse
//     and for which it runs nothing. The number in the answer tells whether
//     anything has run in tmux since our last exchange (fresh.go has the proof).
//     If nothing has, the cached snapshot is what tmux has now; else a dump
//     replaces it.
//   - While tmux is thinking about the probe, the answer is made from the cache
//     and from /proc (process_linux.go: what runs in the panes, which tmux never
//     announces). If the cache was true, the answer is ready.
//   - Without a connection (attach.go) one tmux command answers, and surveys the
//     server for a session to attach to (place.go); attaching goes on behind it.
//
// # What goes on without requests
//
// Each connection is tended by one goroutine (attach.go, tend): it dumps after
// notifications, within a budget; when requests come and the cache is a second
// old, it dumps for what the counter does not prove; it leaves when our client
// holds something up, and when nobody has asked for long. Resources that
// somebody is subscribed to are looked at after every dump, and four times a
// second (push.go).
//
// # Two guarantees
//
// Commands: an answer has in it every command and key binding, of any client,
// that had completed before the request was sent. Always. Events, which happen
// without a command (a program sets its title or ends, a terminal is resized, a
// choice is made in a menu): at once as a rule, after a second at most, longer
// only where looking more often would take more than 2 % of tmux's time.
//
// # What differs from the design, and why
//
//   - Names are not free of tabs and newlines: 3.3a takes the name of
//     `new-window -n` as it is. The columns that hold text end with a random mark
//     (daemon/state, Framing).
//   - tmux's commands are sent by their short names: a user's command-alias for
//     list-panes would change what a dump is.
//   - From 3.7 on tmux leaves the rest of a row out when the system has not let it
//     run for 100 ms in the middle of it. Such a dump is asked for again, and a row
//     ends with a plain field, whose absence shows (state/fields.go).
//   - Up to 3.3a tmux reads control lines before it has attached the client.
//     Nothing is sent before the attach is over (controlmode, Client.open).
//   - We attach to tmux's default session even if a real client is in another one:
//     the session that a client attaches to becomes the default (place.go).
//   - Up to 3.6b a control client that is just connecting can crash tmux, and all
//     sessions with it, if a session is renamed, made or ended meanwhile. There we
//     attach through a socket of our own, which passes on what the client says
//     of itself in an order that cannot (controlmode, relay).
//   - A switch-client from outside that names no client hits ours, having the
//     latest activity until somebody types. It is handed on to the client that it
//     would have hit without us (server.go, handOn). That and moving our own
//     client away before it leaves (moveAway: tmux can crash otherwise) are all of
//     ours that changes anything in tmux.
//   - Our attach would show in session_last_attached; it is taken out (ours.go).
//
// Tried and not done: a control client that suspends itself is not counted in
// session_attached (3.3a, 3.8) and goes on working, so that even the "(attached)"
// mark would go. But a SIGCONT to it, which systemd sends to every process of a
// unit that it stops, makes tmux start a terminal that is not there.
//
// # Files
//
// daemon.go the daemon and its clients; session.go, frame.go, call.go one
// client; mcp.go, subscription.go the protocol; identity.go who asks;
// server.go, connection.go, fresh.go, attach.go, place.go, view.go, ours.go,
// schedule.go one tmux server; process_*.go, command.go, environ_*.go the
// operating system; push.go subscriptions; status.go what is shown of all this;
// socket.go, listen*.go our own socket; tmux.go where tmux is.
package daemon
