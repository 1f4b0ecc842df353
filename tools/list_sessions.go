package tools

import (
	"context"

	"tmux-mcpd/daemon/state"
)

// listSessions answers list_sessions: the sessions that the filters let
// through, by name in byte order.
func listSessions(ctx context.Context, r Request) (*Result, error) {
	args, err := readArguments(r, Sessions, sessionParameters)
	if err != nil {
		return nil, err
	}
	q, err := newQuery(r, args, Sessions)
	if err != nil {
		return nil, err
	}
	return q.run(ctx, func(ctx context.Context, v view) (*Result, error) {
		if args.matchErr != nil {
			return nil, args.matchErr
		}
		if q.match == nil {
			return q.server.Memo().allSessions(v.snapshot), nil
		}
		rows := make([]candidate, len(v.snapshot.Sessions))
		for i, s := range v.snapshot.Sessions {
			rows[i] = candidate{session: s, index: i, pane: s.Active}
		}
		rows, err := q.filter(ctx, v, rows)
		if err != nil {
			return nil, err
		}
		kept := make([]*state.Session, len(rows))
		for i, r := range rows {
			kept[i] = r.session
		}
		return encodeSessions(kept), nil
	})
}

func encodeSessions(sessions []*state.Session) *Result {
	size := 2
	for _, s := range sessions {
		size += len(s.JSON.Escaped) + 1
	}
	plain, escaped := make([]byte, 0, size), make([]byte, 0, size)
	plain, escaped = append(plain, '['), append(escaped, '[')
	for i, s := range sessions {
		if i > 0 {
			plain, escaped = append(plain, ','), append(escaped, ',')
		}
		plain = append(plain, s.JSON.Plain...)
		escaped = append(escaped, s.JSON.Escaped...)
	}
	return &Result{Rows: state.Fragment{Plain: append(plain, ']'), Escaped: append(escaped, ']')}}
}
