package state

// A Process is what runs in the foreground of a pane: the fields that tmux
// never announces and that are therefore read per request.
type Process struct {
	Command string // pane_current_command, "" for none
	Path    string // pane_current_path, "" for none
}
