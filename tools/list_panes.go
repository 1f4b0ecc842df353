package tools

import (
	"context"

	"tmux-mcpd/daemon/state"
)

// listPanes answers list_panes: the rows of the target that the filters let
// through, in tmux's order.
func listPanes(ctx context.Context, r Request) (*Result, error) {
	args, err := decodeArguments("list_panes", r, paneParameters)
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
		if q.filterErr != nil {
			return nil, q.filterErr
		}
		rows := make([]candidate, len(panes))
		for i, p := range panes {
			rows[i] = candidate{pane: p}
		}
		if rows, err = q.filter(ctx, v, rows); err != nil {
			return nil, err
		}
		if err := q.readProcesses(ctx, rows); err != nil {
			return nil, err
		}
		return encodePanes(rows, q), nil
	})
}

// encodePanes puts the rows together from what the snapshot holds encoded and
// from what was read for this request.
func encodePanes(rows []candidate, q *query) *Result {
	size := 2
	for _, r := range rows {
		size += len(r.pane.Head.Escaped) + len(r.pane.Tail.Escaped) + len(r.process.Command) + len(r.process.Path) + 96
	}
	plain, escaped := make([]byte, 0, size), make([]byte, 0, size)
	plain, escaped = append(plain, '['), append(escaped, '[')
	var middle []byte
	for i, r := range rows {
		if i > 0 {
			plain, escaped = append(plain, ','), append(escaped, ',')
		}
		middle = append(middle[:0], `,"pane_current_command":`...)
		middle = appendNullable(middle, r.process.Command)
		middle = append(middle, `,"pane_current_path":`...)
		middle = appendNullable(middle, r.process.Path)
		plain = append(append(append(plain, r.pane.Head.Plain...), middle...), r.pane.Tail.Plain...)
		escaped = append(escaped, r.pane.Head.Escaped...)
		escaped = state.AppendEscaped(escaped, middle)
		escaped = append(escaped, r.pane.Tail.Escaped...)
		is := q.isCaller(r.pane)
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
