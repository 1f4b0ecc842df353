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
	PaneTitle
	PaneActive
	// sessionSeats says, in the row of the active pane of each session's current
	// window, what an answer and our own manners need to know of the session
	// beyond its fields: see Session.
	sessionSeats
	PanePID
	// DeadCommand is pane_current_command, but only of panes whose process has
	// ended: there it is fixed, and /proc must not be asked (the pid may be
	// another's by now).
	DeadCommand
	// The last column must be a plain field. From 3.7 on tmux gives up on a row
	// that has taken it 100 ms, as when the machine has stopped it: what is left
	// of the row is missing then, but a condition is just empty.
	PaneDead
	numColumns
)

// A column is one field of a dump.
type column struct {
	// name is the format, and the name in filters and in JSON. Those with
	// braces are no field names and cannot be named in a filter.
	name string
	// text may hold any byte: `new-window -n` takes a name as it is, with tabs
	// and newlines (3.3a). It ends with the framing's mark and not with a tab. Two
	// of them never stand side by side: a mark twice ends all rows (extraMark).
	text bool
}

// columns is the one table of what a dump holds.
var columns = [numColumns]column{
	SessionID:       {name: "session_id"},
	SessionName:     {name: "session_name", text: true},
	SessionWindows:  {name: "session_windows"},
	SessionAttached: {name: "session_attached"},
	SessionCreated:  {name: "session_created"},
	SessionGroup:    {name: "session_group", text: true},
	WindowID:        {name: "window_id"},
	WindowIndex:     {name: "window_index"},
	WindowName:      {name: "window_name", text: true},
	WindowWidth:     {name: "window_width"},
	WindowHeight:    {name: "window_height"},
	WindowActive:    {name: "window_active"},
	PaneID:          {name: "pane_id"},
	PaneIndex:       {name: "pane_index"},
	PaneWidth:       {name: "pane_width"},
	PaneHeight:      {name: "pane_height"},
	PaneLeft:        {name: "pane_left"},
	PaneTop:         {name: "pane_top"},
	PaneRight:       {name: "pane_right"},
	PaneBottom:      {name: "pane_bottom"},
	PaneAtLeft:      {name: "pane_at_left"},
	PaneAtRight:     {name: "pane_at_right"},
	PaneAtTop:       {name: "pane_at_top"},
	PaneAtBottom:    {name: "pane_at_bottom"},
	PaneTTY:         {name: "pane_tty"},
	PaneTitle:       {name: "pane_title", text: true},
	PaneActive:      {name: "pane_active"},
	sessionSeats: {text: true, name: "#{?window_active,#{?pane_active," +
		"#{destroy-unattached} #{exit-unattached} #{session_attached} #{session_attached_list},},}"},
	PanePID:     {name: "pane_pid"},
	DeadCommand: {name: "#{?pane_dead,#{pane_current_command},}", text: true},
	PaneDead:    {name: "pane_dead"},
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
	for c, column := range columns {
		if _, known := all[column.name]; known {
			all[column.name] = Field{Name: column.name, Where: Dump, Column: Column(c)}
		}
	}
	return all
}()

// Lookup finds the field of the given tmux format name. An option of the
// user's (@name) is an OnDemand field of any name that is made of letters,
// digits and -_./: the name goes into a format, and a format can run a
// shell command.
func Lookup(name string) (Field, bool) {
	if option, ok := strings.CutPrefix(name, "@"); ok {
		return Field{Name: name}, option != "" && strings.Trim(option, optionCharacters) == ""
	}
	f, ok := fields[name]
	return f, ok
}

const optionCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"

// Names lists the names of all fields in byte order, user options left out.
func Names() []string {
	return strings.Fields(fieldNames)
}
