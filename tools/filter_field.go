package tools

import (
	"slices"
	"strings"

	"tmux-mcpd/daemon/state"
)

// Names that Filter.Fields may hold beside tmux's formats. The names of
// formats come bare, "pane_title" and "@option", and mean the row itself.
const (
	IsCaller     = "is_caller"      // of a pane row: "true", "false" or unknown
	SocketName   = "socket_name"    // of the server, if the call or the environment gave one
	ActivePaneID = "active_pane_id" // the active pane of the current window of the row's session

	// A format after one of these prefixes means the active pane of the row's
	// window, or of the current window of the row's session: the filters
	// window__active_pane__pane_title, session__active_window__window_name.
	// Only rows of list_panes have them: a row of list_sessions is its own
	// active pane. Where both would be the same, the bare name is used.
	OfWindow  = "window."
	OfSession = "session."
)

// An object is a thing of which a filter key may name the fields.
type object uint8

const (
	onPane object = iota
	onWindow
	onSession
	onServer
	// onNothing is a value, which has no fields.
	onNothing
)

// objects is what each object has beside the formats, which all but the
// server have all of.
var objects = [...]struct {
	aliases map[string]string // short name → format
	related map[string]object // parts that lead on to another object
	lists   []string          // parts that stand for a list of objects
}{
	onPane: {
		aliases: map[string]string{
			"id": "pane_id", "index": "pane_index", "width": "pane_width", "height": "pane_height", "title": "pane_title",
			"at_top": "pane_at_top", "at_bottom": "pane_at_bottom", "at_left": "pane_at_left", "at_right": "pane_at_right",
		},
		related: map[string]object{"window": onWindow, "session": onSession, "server": onServer},
	},
	onWindow: {
		aliases: map[string]string{
			"id": "window_id", "name": "window_name", "index": "window_index", "width": "window_width", "height": "window_height",
		},
		related: map[string]object{"session": onSession, "active_pane": onPane, "server": onServer},
		lists:   []string{"panes"},
	},
	onSession: {
		aliases: map[string]string{"id": "session_id", "name": "session_name"},
		related: map[string]object{"active_window": onWindow, "active_pane": onPane, "server": onServer},
		lists:   []string{"windows", "panes"},
	},
	onServer:  {lists: []string{"sessions", "windows", "panes"}},
	onNothing: {},
}

// An operandKind says what a filter's value is compared with.
type operandKind uint8

const (
	aText   operandKind = iota // the raw text of a field
	aSwitch                    // the same, of a field that is shown as true or false
	aBool                      // an alias that is no text but a truth value: at_top …
	anObject
	aList
	absent // a name that is known and never has a value
)

// An operand is the left side of a filter.
type operand struct {
	kind  operandKind
	field string // for Fields; of aText, aSwitch and aBool
}

// root is the object that a row of the scope is.
func (s Scope) root() object {
	if s == Sessions {
		return onSession
	}
	return onPane
}

// resolve finds what the path of a filter key names. For an unknown part it
// returns the part and the nearest names.
func (s Scope) resolve(path string) (operand, *unknownField) {
	at, row := s.root(), ""
	found := operand{kind: anObject}
	rest, more := path, true
	for more {
		whole := rest
		var part string
		part, rest, more = strings.Cut(rest, "__")
		if strings.HasPrefix(part, "@") && at != onServer && at != onNothing {
			// The name of an option may hold a double underscore of its own.
			part, more = whole, false
		}
		next, related := objects[at].related[part]
		switch {
		case related:
			found = operand{kind: anObject}
			if s == Panes {
				row = rowOf(next, row)
			}
			at = next
			continue
		case slices.Contains(objects[at].lists, part):
			found = operand{kind: aList}
		default:
			var known bool
			if found, known = s.value(at, row, part); !known {
				return operand{}, &unknownField{part: part, path: path, near: s.nearest(at, row, part, path)}
			}
		}
		at = onNothing
	}
	return found, nil
}

// rowOf is the prefix of the row that stands for an object reached from
// another row.
func rowOf(next object, row string) string {
	switch {
	case next == onSession:
		return OfSession
	case next == onWindow && row == "":
		return OfWindow
	}
	return row
}

// value finds the field that an object has under the given name.
func (s Scope) value(at object, row, name string) (operand, bool) {
	switch at {
	case onNothing:
		return operand{}, false
	case onServer:
		switch name {
		case SocketName:
			return operand{aText, SocketName}, true
		case "socket_path":
			// Known to the published server, which has no value for it; the
			// format socket_path of every other object has one.
			return operand{kind: absent}, true
		}
		return operand{}, false
	}
	if at == s.root() && row == "" {
		switch {
		case name == IsCaller && s == Panes:
			return operand{aSwitch, IsCaller}, true
		case name == "window_count" && s == Sessions:
			return operand{aText, "session_windows"}, true
		case name == ActivePaneID && s == Sessions:
			return operand{aText, ActivePaneID}, true
		}
	}
	if slices.Contains(copyModeFormats[:], name) {
		return operand{kind: absent}, true
	}
	kind := aText
	if format, short := objects[at].aliases[name]; short {
		if strings.HasPrefix(name, "at_") {
			kind = aBool
		}
		name = format
	} else if _, known := state.Lookup(name); !known || name[0] == '@' && !isOption(name) {
		return operand{}, false
	} else if strings.HasPrefix(name, "pane_at_") {
		kind = aSwitch
	}
	return operand{kind, qualify(row, name)}, true
}

// isOption tells whether a name is one of a user option that can stand in a
// format as it is. tmux allows any name, but a format with one that holds
// "}#(…)" would run a command.
func isOption(name string) bool {
	for _, c := range []byte(name[1:]) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '_', c == '-', c == '.', c == '/':
		default:
			return false
		}
	}
	return true
}

// copyModeFormats are the formats that tmux has for a pane in copy mode only.
// Their names are good and no row has a value: in the recorded calls of the
// contract they find nothing even in such a pane, as the server of those calls
// never asked tmux for them.
var copyModeFormats = [...]string{
	"copy_cursor_line", "copy_cursor_word", "copy_cursor_x", "copy_cursor_y",
	"scroll_position", "search_match",
	"selection_end_x", "selection_end_y", "selection_start_x", "selection_start_y",
}

// qualify names a format of another row. Formats that both rows share come
// bare: they cost the caller nothing to find.
func qualify(row, format string) string {
	switch {
	case row == "" || strings.HasPrefix(format, "session_"):
		return format
	case row == OfWindow && strings.HasPrefix(format, "window_"):
		return format
	case row == OfSession && format == "pane_id":
		return ActivePaneID
	}
	switch format {
	case "pid", "version", "socket_path", "start_time", "uid", "user", "config_files":
		return format
	}
	return row + format
}

// An unknownField is a part of a filter key that names nothing.
type unknownField struct {
	part, path string
	near       []string
}

func (u *unknownField) error(key string) *Error {
	e := Refused("Unknown filter field '%s' in '%s'.", u.part, key)
	if len(u.near) > 0 {
		last := len(u.near) - 1
		quoted := "'" + strings.Join(u.near[:last], "', '") + "'"
		if last == 0 {
			quoted = ""
		} else {
			quoted += " or "
		}
		e.Suggestion = "Did you mean " + quoted + "'" + u.near[last] + "'?"
	}
	return e
}

// maxNear is how many names are suggested for one that is unknown.
const maxNear = 3

// nearest suggests names for an unknown part of a path.
func (s Scope) nearest(at object, row, part, path string) []string {
	if at == onNothing {
		// The part follows a value: the path is right without it.
		short, _, _ := strings.Cut(path, "__"+part)
		return []string{short}
	}
	// One underscore before the operator is the commonest slip.
	for _, op := range operators {
		if name, ok := strings.CutSuffix(part, "_"+op.name); ok {
			if _, known := s.value(at, row, name); known {
				return []string{name + "__" + op.name}
			}
		}
	}
	var names []string
	for name := range objects[at].aliases {
		names = append(names, name)
	}
	for name := range objects[at].related {
		names = append(names, name)
	}
	for _, name := range [...]string{IsCaller, "window_count", ActivePaneID, SocketName} {
		if _, known := s.value(at, row, name); known {
			names = append(names, name)
		}
	}
	if at != onServer {
		names = append(names, state.Names()...)
	}
	slices.Sort(names)

	// A name that has the part as one of its words is near whatever the
	// distance, as its last word most of all: "command" means
	// pane_current_command.
	word := strings.ToLower(part)
	rank := make(map[string]int, len(names))
	for _, name := range names {
		rank[name] = distance(word, name)
		switch {
		case word == "":
		case strings.HasSuffix(name, "_"+word):
			rank[name] = 0
		case strings.Contains("_"+name, "_"+word+"_"):
			rank[name] = min(rank[name], 1)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank[a] - rank[b] })
	return names[:min(maxNear, len(names))]
}

// maxDistanceInput bounds the work of distance: no name is nearly as long.
const maxDistanceInput = 64

// distance is the number of single edits (insert, delete, replace, swap two
// neighbours) that make b of a.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	s = s[:min(len(s), maxDistanceInput)]
	before, last, now := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range last {
		last[j] = j
	}
	for i := range s {
		now[0] = i + 1
		for j := range t {
			replace := 1
			if s[i] == t[j] {
				replace = 0
			}
			now[j+1] = min(last[j+1]+1, now[j]+1, last[j]+replace)
			if i > 0 && j > 0 && s[i] == t[j-1] && s[i-1] == t[j] {
				now[j+1] = min(now[j+1], before[j-1]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(t)]
}
