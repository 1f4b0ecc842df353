package tools

import (
	"context"

	"tmux-mcpd/daemon/state"
)

// listPanes answers list_panes: the rows of the target that the filters let
// through, in tmux's order.
func listPanes(ctx context.Context, r Request) (*Result, error) {
	args, err := readArguments(r, Panes, paneParameters)
	if err != nil {
		return nil, err
	}
	q, err := newQuery(r, args, Panes)
	if err != nil {
		return nil, err
	}
	return q.run(ctx, func(ctx context.Context, v view) (*Result, error) {
		panes, err := args.target(v.snapshot)
		if err != nil {
			return nil, err
		}
		if args.matchErr != nil {
			return nil, args.matchErr
		}
		if q.match == nil {
			processes, err := q.server.Processes(ctx, panes)
			if err != nil {
				return nil, err
			}
			if len(panes) == len(v.snapshot.Panes) {
				return q.server.Memo().allPanes(v.snapshot, processes, q.place), nil
			}
			return encodePanes(panes, processes, q.place), nil
		}
		rows := make([]candidate, len(panes))
		for i, p := range panes {
			rows[i] = candidate{pane: p}
		}
		if rows, err = q.filter(ctx, v, rows); err != nil {
			return nil, err
		}
		if err := q.readProcesses(ctx, v, rows); err != nil {
			return nil, err
		}
		kept, processes := make([]*state.Pane, len(rows)), make([]state.Process, len(rows))
		for i, r := range rows {
			kept[i], processes[i] = r.pane, r.process
		}
		return encodePanes(kept, processes, q.place), nil
	})
}

// encodePanes puts rows together from what the snapshot holds encoded and from
// what was read for this request.
func encodePanes(panes []*state.Pane, processes []state.Process, caller place) *Result {
	size := 2
	for i, p := range panes {
		size += len(p.Head.Escaped) + len(p.Tail.Escaped) + len(processes[i].Command) + len(processes[i].Path) + 96
	}
	plain, escaped := make([]byte, 0, size), make([]byte, 0, size)
	plain, escaped = append(plain, '['), append(escaped, '[')
	var middle []byte
	for i, p := range panes {
		if i > 0 {
			plain, escaped = append(plain, ','), append(escaped, ',')
		}
		middle = append(middle[:0], `,"pane_current_command":`...)
		middle = appendNullable(middle, processes[i].Command)
		middle = append(middle, `,"pane_current_path":`...)
		middle = appendNullable(middle, processes[i].Path)
		plain = append(append(append(plain, p.Head.Plain...), middle...), p.Tail.Plain...)
		escaped = append(escaped, p.Head.Escaped...)
		escaped = state.AppendEscaped(escaped, middle)
		escaped = append(escaped, p.Tail.Escaped...)
		is := caller.isCaller(p)
		plain = append(append(append(plain, `,"is_caller":`...), is...), '}')
		escaped = append(append(append(escaped, `,\"is_caller\":`...), is...), '}')
	}
	return &Result{Rows: state.Fragment{Plain: append(plain, ']'), Escaped: append(escaped, ']')}}
}

func appendNullable(dst []byte, value string) []byte {
	if value == "" {
		return append(dst, "null"...)
	}
	return state.AppendString(dst, value)
}
