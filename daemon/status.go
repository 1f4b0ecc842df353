package daemon

import (
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"tmux-mcpd/daemon/state"
	"tmux-mcpd/tools"
)

// StatusMethod is the request, of our own, that a daemon answers with its
// Status.
const StatusMethod = "tmux-mcpd/status"

// A Status is what a daemon says of itself. Its JSON is stable: members are
// added, never renamed.
type Status struct {
	PID           int            `json:"pid"`
	Version       string         `json:"version"`
	StartedAt     time.Time      `json:"started_at"`
	UptimeSeconds float64        `json:"uptime_seconds"`
	Clients       []ClientStatus `json:"clients"`
	Servers       []ServerStatus `json:"servers"`
	Tools         []ToolStatus   `json:"tools"`
}

// A ClientStatus is one MCP client.
type ClientStatus struct {
	Name            string    `json:"name"` // as it introduced itself, "" if it did not
	Version         string    `json:"version"`
	ProtocolVersion string    `json:"protocol_version"` // "" before initialize and for stateless clients
	Bridge          string    `json:"bridge"`           // version of its tmux-mcpd stdio, "" for a direct client
	Pane            string    `json:"pane"`             // the tmux pane it runs in, "" if in none or unknown
	Calls           uint64    `json:"calls"`
	ConnectedAt     time.Time `json:"connected_at"`
}

// A ServerStatus is one tmux server.
type ServerStatus struct {
	Socket  string `json:"socket"`
	Version string `json:"version"`
	PID     int    `json:"pid"`
	// Mode is how the server is asked: "control" by a client of ours in it,
	// "one-shot" by a tmux process per request, "none" not at all right now.
	// Reason says why it is not "control", or what to know of it.
	Mode   string `json:"mode"`
	Reason string `json:"reason"`
	// What the newest snapshot holds.
	Sessions int `json:"sessions"`
	Windows  int `json:"windows"`
	Panes    int `json:"panes"`
	// How often each thing happened.
	Requests      uint64 `json:"requests"`
	Probes        uint64 `json:"probes"`
	Dumps         uint64 `json:"dumps"`
	Fetches       uint64 `json:"fetches"`
	OneShots      uint64 `json:"one_shots"`
	Notifications uint64 `json:"notifications"`
	Attaches      uint64 `json:"attaches"`
	Exits         uint64 `json:"exits"` // connections that tmux ended
	LastError     string `json:"last_error"`
}

// A ToolStatus is how a tool has been used. Times are those between having
// read a call and having its answer, in microseconds, over the daemon's life;
// they are read off a histogram whose steps are 9 % apart.
type ToolStatus struct {
	Name   string  `json:"name"`
	Calls  uint64  `json:"calls"`
	Errors uint64  `json:"errors"`
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
}

// Status reports what the daemon is doing.
func (d *Daemon) Status() Status {
	status := Status{
		PID: os.Getpid(), Version: d.config.Version,
		StartedAt: d.started, UptimeSeconds: math.Round(time.Since(d.started).Seconds()*10) / 10,
		Clients: []ClientStatus{}, Servers: []ServerStatus{}, Tools: []ToolStatus{},
	}
	d.mu.Lock()
	for s := range d.sessions {
		status.Clients = append(status.Clients, s.status())
	}
	for _, s := range d.servers {
		status.Servers = append(status.Servers, s.status())
	}
	d.mu.Unlock()
	slices.SortFunc(status.Clients, func(a, b ClientStatus) int { return a.ConnectedAt.Compare(b.ConnectedAt) })
	slices.SortFunc(status.Servers, func(a, b ServerStatus) int { return strings.Compare(a.Socket, b.Socket) })
	for i, t := range tools.All {
		status.Tools = append(status.Tools, d.usage[i].status(t.Name))
	}
	return status
}

func (s *session) status() ClientStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ClientStatus{
		Name: s.info.Name, Version: s.info.Version, ProtocolVersion: s.version,
		Bridge: s.bridge, Pane: s.caller.Env["TMUX_PANE"],
		Calls: s.callCount.Load(), ConnectedAt: s.since,
	}
}

func (s *tmuxServer) status() ServerStatus {
	m, c := s.summary.Load(), &s.counters
	status := ServerStatus{
		Socket: s.socket, Version: m.Version.String(), PID: m.PID, Mode: "none", Reason: m.Reason, LastError: m.LastError,
		Requests: c.requests.Load(), Probes: c.probes.Load(), Dumps: c.dumps.Load(), Fetches: c.fetches.Load(),
		OneShots: c.oneShots.Load(), Notifications: c.notifications.Load(), Attaches: c.attaches.Load(), Exits: c.exits.Load(),
	}
	snapshot := s.published.Load()
	switch {
	case m.Control:
		status.Mode = "control"
		switch {
		case m.SocketGone:
			status.Reason = "the socket's file is gone; kill -USR1 the server to have it made again"
		case c.unproven.Load() >= alwaysUnproven:
			status.Reason = "something runs in tmux with every dump (a hook on after-list-panes?), so that each request dumps"
		}
	case snapshot != nil && len(snapshot.Panes) > 0:
		status.Mode = "one-shot"
	}
	if snapshot != nil {
		status.Sessions, status.Panes = len(snapshot.Sessions), len(snapshot.Panes)
		windows := make(map[string]bool)
		for _, p := range snapshot.Panes {
			windows[p.Value(state.WindowID)] = true
		}
		status.Windows = len(windows)
	}
	return status
}

// alwaysUnproven is how many dumps in a row must have been no clean baseline
// for status to speak of it.
const alwaysUnproven = 20

// usage counts the calls of one tool.
type usage struct {
	calls, errors atomic.Uint64
	times         [timeSteps]atomic.Uint32
}

const (
	timeSteps   = 192
	stepsPerDbl = 8 // steps per doubling
)

func (u *usage) took(d time.Duration, failed bool) {
	u.calls.Add(1)
	if failed {
		u.errors.Add(1)
	}
	step := 0
	if us := float64(d) / float64(time.Microsecond); us > 1 {
		step = min(int(math.Log2(us)*stepsPerDbl), timeSteps-1)
	}
	u.times[step].Add(1)
}

func (u *usage) status(name string) ToolStatus {
	var counts [timeSteps]uint64
	total := uint64(0)
	for i := range u.times {
		counts[i] = uint64(u.times[i].Load())
		total += counts[i]
	}
	quantile := func(q float64) float64 {
		if total == 0 {
			return 0
		}
		rank, seen := uint64(q*float64(total-1)), uint64(0)
		for step, n := range counts {
			if seen += n; seen > rank {
				return math.Round(math.Exp2((float64(step)+0.5)/stepsPerDbl)*10) / 10
			}
		}
		return 0
	}
	return ToolStatus{Name: name, Calls: u.calls.Load(), Errors: u.errors.Load(), P50: quantile(0.5), P99: quantile(0.99)}
}
