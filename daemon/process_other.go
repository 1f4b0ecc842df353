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

func (*processTable) arrival() uint64 { return 0 }

func (*processTable) read(_ uint64, panes []*state.Pane, _ int, _ controlmode.Version) (processes []state.Process, unknown []int) {
	processes = make([]state.Process, len(panes))
	for i, p := range panes {
		if p.Dead {
			processes[i] = state.Process{Command: p.Value(state.DeadCommand)}
		} else {
			unknown = append(unknown, i)
		}
	}
	return processes, unknown
}

func (*processTable) prune(*state.Snapshot) {}
func (*processTable) close()                {}
