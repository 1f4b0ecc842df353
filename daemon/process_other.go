//go:build !linux

package daemon

import (
	"tmux-mcpd/controlmode"
	"tmux-mcpd/daemon/state"
)

// processTable reads what runs in panes. Without /proc only dead panes are
// known; for all others tmux is asked.
type processTable struct{}

func newProcessTable() *processTable { return &processTable{} }

func (*processTable) read(panes []*state.Pane, processes []state.Process, _ int, _ controlmode.Version) (unknown []int) {
	for i, p := range panes {
		if p.Dead {
			processes[i] = state.Process{Command: p.Value(state.DeadCommand)}
		} else {
			unknown = append(unknown, i)
		}
	}
	return unknown
}

func (*processTable) prune(*state.Snapshot) {}
func (*processTable) close()                {}
