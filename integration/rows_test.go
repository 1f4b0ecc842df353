package integration

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// diffRows says how two row lists differ, "" if they do not. Order counts.
func diffRows(want, got []row) string {
	if len(want) == 0 && len(got) == 0 || reflect.DeepEqual(want, got) {
		return ""
	}
	var out []string
	if a, b := rowIDs(want), rowIDs(got); !slices.Equal(a, b) {
		out = append(out, fmt.Sprintf("rows want %v got %v", a, b))
	}
	for i := range min(len(want), len(got)) {
		for _, key := range rowKeys(want[i], got[i]) {
			a, inA := want[i][key]
			b, inB := got[i][key]
			if inA != inB || !reflect.DeepEqual(a, b) {
				out = append(out, fmt.Sprintf("row %d (%s) %s want %#v (present %v) got %#v (present %v)", i, rowID(want[i]), key, a, inA, b, inB))
			}
		}
	}
	return strings.Join(out[:min(len(out), 12)], "; ")
}

func rowIDs(rows []row) []string {
	var ids []string
	for _, r := range rows {
		ids = append(ids, rowID(r))
	}
	return ids
}

// rowID names a row in a message: its pane, session or tool.
func rowID(r row) string {
	for _, key := range []string{"pane_id", "session_id", "name"} {
		if id, ok := r[key].(string); ok {
			return id
		}
	}
	return "?"
}

func rowKeys(a, b row) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
