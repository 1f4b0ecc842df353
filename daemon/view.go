package daemon

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"tmux-mcpd/controlmode"
	"tmux-mcpd/daemon/state"
	"tmux-mcpd/tools"
)

// A view is a server as one request asked for it.
type view struct {
	server  *tmuxServer
	name    string
	arrived uint64 // readings of processes begun before the request
}

func newView(server *tmuxServer, name string) view {
	return view{server: server, name: name, arrived: server.processes.arrival()}
}

var _ tools.Server = view{}

// Socket is the path of the server's socket with all links resolved.
func (v view) Socket() string { return v.server.socket }

// SocketName is the name that was asked for, "" for none.
func (v view) SocketName() string { return v.name }

// Memo keeps the server's last answers.
func (v view) Memo() *tools.Memo { return &v.server.memo }

// Snapshot: see tools.Server.
func (v view) Snapshot(ctx context.Context, meanwhile func(context.Context, *state.Snapshot)) (*state.Snapshot, error) {
	return v.server.snapshot(ctx, meanwhile)
}

// Processes reads what runs in panes from the operating system, and asks tmux
// about those of which it cannot tell.
func (v view) Processes(ctx context.Context, panes []*state.Pane) ([]state.Process, error) {
	s := v.server
	summary := s.summary.Load()
	processes, unknown := s.processes.read(v.arrived, panes, summary.ProcPID, summary.Version)
	if len(unknown) == 0 {
		return processes, nil
	}
	processes = slices.Clone(processes)
	if tmuxIsBusy(ctx) {
		return nil, tools.ErrLater
	}
	now, values, err := v.Fetch(ctx, tools.Panes, []string{state.CurrentCommand, state.CurrentPath})
	if err != nil {
		return nil, err
	}
	places := make(map[string]int, len(now.Panes))
	for place, p := range now.Panes {
		places[p.Value(state.PaneID)] = place
	}
	for _, i := range unknown {
		place, ok := places[panes[i].Value(state.PaneID)]
		if !ok || now.Panes[place].PID != panes[i].PID || now.Panes[place].Dead != panes[i].Dead {
			return nil, tools.ErrChanged
		}
		processes[i] = state.Process{Command: values[place][0], Path: values[place][1]}
	}
	return processes, nil
}

// Fetch dumps and asks for further fields in one line, which tmux runs as one:
// see tools.Server.
func (v view) Fetch(ctx context.Context, scope tools.Scope, fields []string) (*state.Snapshot, [][]string, error) {
	v.server.lastRequest.Store(time.Now().UnixNano())
	return v.fetch(ctx, scope, fields)
}

// fetch is Fetch for what is no request: it does not put off our leaving.
func (v view) fetch(ctx context.Context, scope tools.Scope, fields []string) (*state.Snapshot, [][]string, error) {
	s := v.server
	s.counters.fetches.Add(1)
	ctx, cancel := context.WithTimeout(ctx, s.config.Deadline)
	defer cancel()
	if err := s.takeTurn(ctx); err != nil {
		return nil, nil, err
	}
	defer s.endTurn()
	var snapshot *state.Snapshot
	var values [][]string
	answered, err := s.overConnection(ctx, func(c *connection) (err error) {
		snapshot, values, err = s.fetchControl(ctx, c, scope, fields)
		return err
	})
	if answered || err != nil {
		return snapshot, values, err
	}
	f := newFraming(scope, fields, s.framing.Mark)
	reply, err := s.runOneShot(ctx, f.arguments())
	if err != nil {
		return nil, nil, err
	}
	if reply == nil {
		return s.empty(), nil, nil
	}
	values, err = f.parse(reply.extra, reply.snapshot)
	if err != nil {
		return nil, nil, s.fail(err)
	}
	s.hideTraces(f, values, reply.snapshot)
	return reply.snapshot, values, nil
}

func (s *tmuxServer) fetchControl(ctx context.Context, c *connection, scope tools.Scope, fields []string) (*state.Snapshot, [][]string, error) {
	f := newFraming(scope, fields, c.framing.Mark)
	line := c.lines.whole + " ;"
	for _, arg := range f.arguments() {
		line += " " + controlmode.Quote(arg)
	}
	var values [][]string
	snapshot, err := c.dump(ctx, line, 3, func(snapshot *state.Snapshot, replies []controlmode.Reply) (err error) {
		values, err = f.parse(replies[0].Body, snapshot)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	handedOn, err := s.stand(ctx, c, snapshot)
	switch {
	case err != nil:
		return nil, nil, err
	case handedOn:
		return s.fetchControl(ctx, c, scope, fields)
	}
	s.hideTraces(f, values, snapshot)
	return snapshot, values, nil
}

// A framing asks for values that may hold any byte, newlines and what looks
// like a guard among them: each value ends with a nonce that nobody who chooses
// a value can know.
type framing struct {
	scope  tools.Scope
	fields []string
	nonce  string
}

func newFraming(scope tools.Scope, fields []string, nonce string) framing {
	return framing{scope, fields, nonce}
}

// arguments are those of the tmux command that prints the values.
func (f framing) arguments() []string {
	var format strings.Builder
	format.WriteString("F" + f.nonce)
	for _, name := range f.fields {
		format.WriteString("#{" + name + "}" + f.nonce)
	}
	if f.scope == tools.Sessions {
		return []string{listSessions, "-F", format.String()}
	}
	return []string{listPanes, "-a", "-F", format.String()}
}

// parse reads the values: one row for each of the snapshot's panes or sessions.
func (f framing) parse(out []byte, s *state.Snapshot) ([][]string, error) {
	parts := bytes.Split(out, []byte(f.nonce))
	parts = parts[:len(parts)-1] // what follows the last nonce is a newline
	width := len(f.fields) + 1
	rows := len(s.Panes)
	if f.scope == tools.Sessions {
		rows = len(s.Sessions)
	}
	if len(parts) != rows*width {
		return nil, &state.RowError{Row: string(out), Fields: len(parts)}
	}
	values := make([][]string, rows)
	for i := range values {
		row := make([]string, len(f.fields))
		for j := range row {
			row[j] = string(parts[i*width+1+j])
		}
		values[i] = row
	}
	subtractOurs(f, values, s)
	return values, nil
}
