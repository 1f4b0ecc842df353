package tools

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"tmux-mcpd/daemon/state"
)

// A query is one call, its arguments read: which server, which filter, and
// where the filter's values come from.
type query struct {
	server Server
	scope  Scope
	match  *Filter // nil lets every row through

	sources   []source // of match's fields, in their order
	fetch     []string // the fields that are not part of a snapshot
	processes bool     // match looks at what runs in the rows' panes
	others    bool     // match looks at what runs in panes that rows are related to

	place place // of the caller
}

// A candidate is a row that may become part of the answer.
type candidate struct {
	session *state.Session // of list_sessions
	index   int            // of session in the snapshot
	pane    *state.Pane    // the session's active pane there; may be nil
	process state.Process
	read    bool // process has been read
}

// A view is the moment of which an answer speaks.
type view struct {
	snapshot *state.Snapshot
	// values of query.fetch, by the place of the row in the snapshot
	values [][]string
}

// A source says where the value of a filter's field comes from.
type source struct {
	kind   sourceKind
	of     related
	column state.Column // of fromColumn
	index  int          // of fromFetch: which field of query.fetch
}

// related says whose value it is: the row's own, or that of the active pane of
// the row's window or of its session's current window.
type related uint8

const (
	own related = iota
	ofWindow
	ofSession
)

type sourceKind uint8

const (
	fromColumn sourceKind = iota
	fromCommand
	fromPath
	fromCaller
	fromSocketName
	fromFetch
)

func newQuery(r Request, args arguments, scope Scope) (*query, error) {
	server, err := r.Servers.Server(r.Caller, args.socketName.pointer())
	if err != nil {
		return nil, err
	}
	q := &query{server: server, scope: scope, match: args.match, place: r.Caller.on(server.Socket())}
	if q.match != nil {
		for _, name := range q.match.Fields() {
			q.sources = append(q.sources, q.source(name))
		}
	}
	return q, nil
}

// source finds out where the values of a field come from and notes in the
// query what has to be read for it.
func (q *query) source(name string) source {
	var s source
	if of, ok := strings.CutPrefix(name, OfWindow); ok {
		s.of, name = ofWindow, of
	} else if of, ok := strings.CutPrefix(name, OfSession); ok {
		s.of, name = ofSession, of
	}
	switch name {
	case IsCaller:
		s.kind = fromCaller
		return s
	case SocketName:
		s.kind = fromSocketName
		return s
	case ActivePaneID:
		return source{kind: fromColumn, of: ofSession, column: state.PaneID}
	case state.CurrentCommand:
		s.kind = fromCommand
	case state.CurrentPath:
		s.kind = fromPath
	}
	if s.kind == fromCommand || s.kind == fromPath {
		q.processes = q.processes || s.of == own
		q.others = q.others || s.of != own
		return s
	}
	if f, ok := state.Lookup(name); ok && f.Where == state.Dump {
		s.column = f.Column
		return s
	}
	s.kind, s.index = fromFetch, slices.Index(q.fetch, name)
	if s.index < 0 {
		q.fetch = append(q.fetch, name)
		s.index = len(q.fetch) - 1
	}
	return s
}

// run gets a view that is not older than the call and answers from it. While
// tmux is being asked whether the cache is true, the answer is made from the
// cache: if it was true, the answer is ready.
func (q *query) run(ctx context.Context, answer func(context.Context, view) (*Result, error)) (*Result, error) {
	for {
		result, err := q.try(ctx, answer)
		if !errors.Is(err, ErrChanged) || ctx.Err() != nil {
			return result, err
		}
	}
}

func (q *query) try(ctx context.Context, answer func(context.Context, view) (*Result, error)) (*Result, error) {
	if len(q.fetch) > 0 {
		s, values, err := q.server.Fetch(ctx, q.scope, q.fetch)
		if err != nil {
			return nil, err
		}
		return answer(ctx, view{snapshot: s, values: values})
	}
	var draft *state.Snapshot
	var result *Result
	var answerErr error
	s, err := q.server.Snapshot(ctx, func(ctx context.Context, cached *state.Snapshot) {
		draft = cached
		result, answerErr = answer(ctx, view{snapshot: cached})
	})
	if err != nil {
		return nil, err
	}
	if s != draft || errors.Is(answerErr, ErrLater) {
		return answer(ctx, view{snapshot: s})
	}
	return result, answerErr
}

// filter returns the rows that the filter lets through.
func (q *query) filter(ctx context.Context, v view, rows []candidate) ([]candidate, error) {
	if q.match == nil {
		return rows, nil
	}
	if q.processes {
		if err := q.readProcesses(ctx, v, rows); err != nil {
			return nil, err
		}
	}
	e := evaluation{query: q, view: v}
	if err := e.prepare(ctx, rows); err != nil {
		return nil, err
	}
	kept := rows[:0]
	for _, r := range rows {
		ok, err := q.match.Match(func(field int) string { return shown(e.value(r, q.sources[field])) })
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, r)
		}
	}
	return kept, nil
}

// An evaluation is a filter at work on the rows of one view.
type evaluation struct {
	*query
	view
	// places are those of the rows in the snapshot; only where values were
	// fetched.
	places map[*state.Pane]int
	// running is what runs in the panes that rows are related to.
	running map[*state.Pane]state.Process
}

// prepare reads what values need beyond the rows themselves.
func (e *evaluation) prepare(ctx context.Context, rows []candidate) error {
	if len(e.fetch) > 0 && e.scope == Panes {
		e.places = make(map[*state.Pane]int, len(e.snapshot.Panes))
		for i, p := range e.snapshot.Panes {
			e.places[p] = i
		}
	}
	if !e.others {
		return nil
	}
	e.running = make(map[*state.Pane]state.Process)
	var panes []*state.Pane
	for _, r := range rows {
		for _, s := range e.sources {
			p := e.pane(r, s.of)
			if _, known := e.running[p]; s.of == own || p == nil || known {
				continue
			}
			e.running[p] = state.Process{}
			panes = append(panes, p)
		}
	}
	processes, err := e.server.Processes(ctx, panes)
	if err != nil {
		return err
	}
	for i, p := range panes {
		e.running[p] = processes[i]
	}
	return nil
}

// pane is the pane of which a row's value speaks, nil if there is none.
func (e *evaluation) pane(r candidate, of related) *state.Pane {
	if of == own || r.pane == nil {
		return r.pane
	}
	session := r.session
	if session == nil {
		session = e.snapshot.Session(r.pane.Value(state.SessionID))
	}
	if of == ofSession {
		return session.Active
	}
	for _, p := range session.Panes {
		if p.Value(state.WindowIndex) == r.pane.Value(state.WindowIndex) && p.Value(state.PaneActive) == "1" {
			return p
		}
	}
	return nil
}

// value is the value of a row's field as tmux prints it, "" for none.
func (e *evaluation) value(r candidate, s source) string {
	if s.kind == fromSocketName {
		return e.server.SocketName()
	}
	if s.kind == fromFetch && e.scope == Sessions {
		return e.values[r.index][s.index]
	}
	pane := e.pane(r, s.of)
	if pane == nil {
		// A session that is being torn down has no active pane, but any of its
		// rows knows the session.
		if s.kind == fromColumn && s.column <= state.SessionGroup && r.session != nil {
			return r.session.Panes[0].Value(s.column)
		}
		return ""
	}
	switch s.kind {
	case fromColumn:
		return pane.Value(s.column)
	case fromFetch:
		return e.values[e.places[pane]][s.index]
	case fromCaller:
		if is := e.query.place.isCaller(pane); is != "null" {
			return is
		}
		return ""
	}
	process := r.process
	if s.of != own {
		process = e.running[pane]
	}
	if s.kind == fromCommand {
		return process.Command
	}
	return process.Path
}

// shown is a value as the answer shows it, which is all that a caller can ask
// for: JSON has no bytes that are not UTF-8.
func shown(value string) string {
	if utf8.ValidString(value) {
		return value
	}
	return string([]rune(value))
}

// readProcesses reads what runs in the panes of the rows that have not been
// read yet.
func (q *query) readProcesses(ctx context.Context, v view, rows []candidate) error {
	panes := make([]*state.Pane, 0, len(rows))
	for _, r := range rows {
		if !r.read && r.pane != nil {
			panes = append(panes, r.pane)
		}
	}
	if len(panes) == 0 {
		return nil
	}
	if slices.Equal(panes, v.snapshot.Panes) {
		panes = v.snapshot.Panes // by which the server knows that it is all of them
	}
	processes, err := q.server.Processes(ctx, panes)
	if err != nil {
		return err
	}
	for i := range rows {
		if r := &rows[i]; !r.read && r.pane != nil {
			r.process, processes = processes[0], processes[1:]
			r.read = true
		}
	}
	return nil
}
