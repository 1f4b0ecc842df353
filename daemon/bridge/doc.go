// Package bridge is the stdio side of tmux-mcpd: what an MCP host starts, and what talks to the daemon for it.
//
// It copies whole newline-framed JSON-RPC messages from stdin to the daemon and back, and promises the host that a
// request is answered once, whatever becomes of the daemon: when the connection ends, the bridge connects again, repeats
// the handshake and the subscriptions, and asks again what is unanswered (the daemon's tools only read, so asking twice
// is safe). The host is then told that what it is subscribed to may have changed: nobody looked meanwhile. With no
// daemon to be had it serves the same tools in its own process. It ends with the host: on the end of stdin once
// everything is answered, on a broken stdout at once.
//
//	b := &bridge.Bridge{
//		Dial:     func(ctx context.Context) (net.Conn, error) { return daemon.Dial(ctx, paths...) },
//		Hello:    hello,
//		Embedded: serveInProcess,
//	}
//	err := b.Run(ctx, os.Stdin, os.Stdout)
//
// Two goroutines do the work: one reads the host, the other reads the daemon and replaces the connection when it ends.
// A third lives only while a new connection is greeted.
package bridge
