// Package controlmode speaks tmux's control mode (tmux -C) as a Go connection.
//
// It promises four things. A reply is handed to the command it belongs to, or
// to nobody: a block ends only on the guard that equals its %begin, so nothing
// that a pane, a title or a directory name holds can end it early. Every call
// honours its context, also when tmux does not read. The stream is always
// drained, so tmux never has to buffer for us. And when the connection ends,
// every caller learns why.
//
// There is no policy here: which session to sit in, when to leave and what to
// ask is the caller's business.
//
//	t := controlmode.Tmux{Path: "/usr/bin/tmux", Socket: "/tmp/tmux-1000/default"}
//	client, err := t.Attach(ctx, "$0", func(n controlmode.Notification) {
//		// on the reader's goroutine, in stream order: note it and return
//	})
//	if err != nil {
//		return err // errors.Is(err, controlmode.ErrNoServer) and so on
//	}
//	defer client.Close()
//	reply, err := client.Do(ctx, "display-message -p "+controlmode.Quote("#{session_name}"))
//
// The pieces: [Parser] turns lines into events and does no I/O; [Conn] runs
// commands over any stream; [Tmux] starts the tmux process and gives a
// [Client], which is a Conn with a process behind it; [Quote] makes any string
// one argument. Behaviour of tmux named in comments was read in its source and
// measured with versions 3.2a to 3.8.
package controlmode
