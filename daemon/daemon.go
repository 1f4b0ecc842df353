package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"tmux-mcpd/tools"
)

// Config is what a daemon is started with. Its zero value works.
type Config struct {
	// Tmux is the path of the tmux program, "" for the one that TmuxPath finds.
	Tmux string
	// Version is the program's own, as shown to clients.
	Version string
	// Log takes what an operator may want to know; nil for nothing.
	Log *slog.Logger
	// ReadOnlyHints shows the tools as read-only, idempotent and closed to the
	// world, which they are as far as we can tell, instead of as published.
	ReadOnlyHints bool
	// IdleDetach is after how long without requests we leave a tmux server;
	// 0 for never. DefaultIdleDetach is a good value.
	IdleDetach time.Duration
	// Deadline bounds the time that anything may take with tmux; 0 for 5 s.
	Deadline time.Duration
	// PushInterval is how often a tmux server is looked at for what it does not
	// announce, while somebody is subscribed; 0 for DefaultPushInterval.
	PushInterval time.Duration
	// MaxClients bounds the connections that are served at once; 0 for 512.
	MaxClients int
}

// DefaultIdleDetach is after how long without requests a daemon should leave
// a tmux server.
const DefaultIdleDetach = 10 * time.Minute

const (
	defaultDeadline   = 5 * time.Second
	defaultMaxClients = 512
)

// A Daemon answers MCP clients about tmux servers. It is made by New and lives
// for one call of Serve or ServeConn.
type Daemon struct {
	config  Config
	log     *slog.Logger
	started time.Time
	// The protocol side, with the tools announced as published and as read-only.
	mcp *mcpserver.MCPServer
	// readOnlyMCP is made when it is first wanted: making one takes longer than
	// an answer (0.3 ms), and most processes never want it.
	readOnlyMCP func() *mcpserver.MCPServer
	// modernAddition is what results of the modern protocol have more.
	modernAddition tools.Addition

	ctx    context.Context // ends when the daemon stops
	cancel context.CancelFunc
	wg     sync.WaitGroup // goroutines that talk to tmux

	nextSession atomic.Uint64
	usage       []usage // of the tools, in the order of tools.All
	repeats     tools.Repeats

	// mu guards what follows. It is never held while waiting for tmux or for a
	// client.
	mu      sync.Mutex
	servers map[string]*tmuxServer // by the real path of the socket
	// direct are the servers that have been found by a path without links. It
	// need not be walked again: should a link come into it, it still leads to
	// the socket that is meant.
	direct   map[string]*tmuxServer
	sessions map[*session]struct{}
	admitted int // clients of Serve, each from before its session begins
}

// New makes a daemon that serves nobody yet.
func New(config Config) *Daemon {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Deadline == 0 {
		config.Deadline = defaultDeadline
	}
	if config.PushInterval == 0 {
		config.PushInterval = DefaultPushInterval
	}
	if config.MaxClients == 0 {
		config.MaxClients = defaultMaxClients
	}
	if config.Version == "" {
		config.Version = "devel"
	}
	d := &Daemon{
		config:   config,
		log:      config.Log,
		started:  time.Now(),
		servers:  make(map[string]*tmuxServer),
		direct:   make(map[string]*tmuxServer),
		sessions: make(map[*session]struct{}),
		usage:    make([]usage, len(tools.All)),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.modernAddition = modernAddition(config.Version)
	d.readOnlyMCP = sync.OnceValue(func() *mcpserver.MCPServer { return newMCP(config.Version, true) })
	if config.ReadOnlyHints {
		d.mcp = d.readOnlyMCP()
	} else {
		d.mcp = newMCP(config.Version, false)
	}
	return d
}

// Serve serves the clients that connect to ln until ctx ends, which is the only
// way to stop it and no error. It then closes ln, lets running calls be
// answered for up to two seconds, and leaves all tmux servers.
func (d *Daemon) Serve(ctx context.Context, ln net.Listener) error {
	defer d.stop()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			// Out of descriptors or memory: those who are served go on.
			d.log.Warn("cannot accept a connection", "err", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		if !d.admit() {
			clients.Go(func() { refuse(conn, d.config.MaxClients) })
			continue
		}
		clients.Go(func() {
			defer d.dismiss()
			caller := peerCaller(conn)
			if err := d.serveSession(ctx, conn, caller); err != nil {
				d.log.Debug("client ended", "err", err)
			}
		})
	}
}

// ServeConn serves one client over a stream until the stream or ctx ends, and
// then leaves all tmux servers. Caller is who the client is unless it says so
// itself.
func (d *Daemon) ServeConn(ctx context.Context, rwc io.ReadWriteCloser, caller tools.Caller) error {
	defer d.stop()
	return d.serveSession(ctx, rwc, caller)
}

// stop leaves all tmux servers. No session is served any more.
func (d *Daemon) stop() {
	d.cancel()
	d.mu.Lock()
	servers := make([]*tmuxServer, 0, len(d.servers))
	for _, s := range d.servers {
		servers = append(servers, s)
	}
	d.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range servers {
		wg.Go(s.stop)
	}
	wg.Wait()
	d.wg.Wait()
}

// admit reports whether one more client may be served, and counts it: those who
// come in one burst have no sessions yet.
func (d *Daemon) admit() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.admitted >= d.config.MaxClients {
		return false
	}
	d.admitted++
	return true
}

// dismiss takes back what admit has counted.
func (d *Daemon) dismiss() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.admitted--
}

// Server finds the tmux server that a caller means: see tools.Servers.
func (d *Daemon) Server(caller tools.Caller, socketName *string) (tools.Server, error) {
	server, name, err := d.find(caller, socketName)
	if err != nil {
		return nil, err
	}
	return newView(server, name), nil
}

// find finds a server, and the name that it was asked for by.
func (d *Daemon) find(caller tools.Caller, socketName *string) (*tmuxServer, string, error) {
	path, name, err := callerSocket(caller, socketName)
	if err != nil {
		return nil, "", err
	}
	return d.server(path), name, nil
}

// server returns the one server of a socket, by whatever path it was asked for.
func (d *Daemon) server(path string) *tmuxServer {
	d.mu.Lock()
	s := d.direct[path]
	d.mu.Unlock()
	if s != nil {
		return s
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path // it does not exist, or cannot be reached: asking will tell
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s = d.servers[real]; s == nil {
		if len(d.servers) >= maxServers {
			d.forgetIdle()
		}
		s = newServer(d, real)
		d.servers[real] = s
	}
	if err == nil && real == path {
		d.direct[path] = s
	}
	return s
}

// maxServers is how many tmux servers are known before those are forgotten that
// nobody has asked about for a while: a client may name any socket it likes.
const maxServers = 256

// forgetIdle forgets servers that we are not attached to. The caller holds mu.
func (d *Daemon) forgetIdle() {
	for path, s := range d.servers {
		if s.idle() {
			delete(d.servers, path)
			delete(d.direct, path)
		}
	}
}
