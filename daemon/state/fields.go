package state

import (
	_ "embed"
	"strings"
)

// A Where says how the value of a field is come by.
type Where uint8

const (
	// OnDemand fields change without tmux's command counter moving (cursor,
	// history, flags …) or are rarely asked for: they are fetched by a command
	// of their own when a filter names them.
	OnDemand Where = iota
	// Dump fields are the columns of every dump. Each of their changes moves
	// the counter, so a cached value is proven by one probe.
	Dump
	// Request fields change without tmux noticing (the foreground command and
	// its directory): they are read from the operating system per request.
	Request
)

// A Column numbers the Dump fields, in the order in which they are asked for.
type Column uint8

// The columns of a dump, one row per pane and link of its window.
const (
	SessionID Column = iota
	SessionName
	SessionWindows
	SessionAttached
	SessionCreated
	SessionGroup
	WindowID
	WindowIndex
	WindowName
	WindowWidth
	WindowHeight
	WindowActive
	PaneID
	PaneIndex
	PaneWidth
	PaneHeight
	PaneLeft
	PaneTop
	PaneRight
	PaneBottom
	PaneAtLeft
	PaneAtRight
	PaneAtTop
	PaneAtBottom
	PaneTTY
	PanePID
	PaneTitle
	PaneActive
	PaneDead
	// DeadCommand is pane_current_command, but only of panes whose process has
	// ended: there it is fixed, and /proc must not be asked (the pid may be
	// another's by now).
	DeadCommand
	numColumns
)

// columns is the one table of what a dump holds: the format of each column,
// which is also its name in filters and in JSON. The two with braces are no
// field names and cannot be named in a filter.
var columns = [numColumns]string{
	SessionID:       "session_id",
	SessionName:     "session_name",
	SessionWindows:  "session_windows",
	SessionAttached: "session_attached",
	SessionCreated:  "session_created",
	SessionGroup:    "session_group",
	WindowID:        "window_id",
	WindowIndex:     "window_index",
	WindowName:      "window_name",
	WindowWidth:     "window_width",
	WindowHeight:    "window_height",
	WindowActive:    "window_active",
	PaneID:          "pane_id",
	PaneIndex:       "pane_index",
	PaneWidth:       "pane_width",
	PaneHeight:      "pane_height",
	PaneLeft:        "pane_left",
	PaneTop:         "pane_top",
	PaneRight:       "pane_right",
	PaneBottom:      "pane_bottom",
	PaneAtLeft:      "pane_at_left",
	PaneAtRight:     "pane_at_right",
	PaneAtTop:       "pane_at_top",
	PaneAtBottom:    "pane_at_bottom",
	PaneTTY:         "pane_tty",
	PanePID:         "pane_pid",
	PaneTitle:       "pane_title",
	PaneActive:      "pane_active",
	PaneDead:        "pane_dead",
	DeadCommand:     "#{?pane_dead,#{pane_current_command},}",
}

// The names of the Request fields.
const (
	CurrentCommand = "pane_current_command"
	CurrentPath    = "pane_current_path"
)

// A Field is one tmux format that a filter may name.
type Field struct {
	Name   string
	Where  Where
	Column Column // of a Dump field
}

//go:embed fields.txt
var fieldNames string

var fields = func() map[string]Field {
	all := make(map[string]Field)
	for name := range strings.FieldsSeq(fieldNames) {
		all[name] = Field{Name: name}
	}
	all[CurrentCommand] = Field{Name: CurrentCommand, Where: Request}
	all[CurrentPath] = Field{Name: CurrentPath, Where: Request}
	for c, name := range columns {
		if _, known := all[name]; known {
			all[name] = Field{Name: name, Where: Dump, Column: Column(c)}
		}
	}
	return all
}()

// Lookup finds the field of the given tmux format name. An option of the
// user's (@name) is an OnDemand field of any name that is made of letters,
// digits, '-' and '_': the name goes into a format, and a format can run a
// shell command.
func Lookup(name string) (Field, bool) {
	if option, ok := strings.CutPrefix(name, "@"); ok {
		return Field{Name: name}, option != "" && strings.Trim(option, optionCharacters) == ""
	}
	f, ok := fields[name]
	return f, ok
}

const optionCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// Names lists the names of all fields in byte order, user options left out.
func Names() []string {
	return strings.Fields(fieldNames)
}
