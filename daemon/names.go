package daemon

import (
	"tmux-mcpd/daemon/state"
	"tmux-mcpd/tools"
)

// FilterNames lists what the key of a filter is made of: the fields that it
// may name (user options, @name, left out) and the operators that may follow a
// field and two underscores. The command line completes with them.
func FilterNames() (fields, operators []string) {
	return state.Names(), tools.Operators()
}
