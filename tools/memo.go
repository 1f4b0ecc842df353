package tools

import (
	"slices"
	"sync/atomic"

	"tmux-mcpd/daemon/state"
)

// A Memo keeps a server's last whole answers: most polls find that nothing has
// changed, and then the bytes of the last answer are those of this one. Its
// zero value is empty. It may be used by any number of goroutines.
type Memo struct {
	panes    atomic.Pointer[panesMemo]
	sessions atomic.Pointer[sessionsMemo]
}

type panesMemo struct {
	snapshot  *state.Snapshot
	processes []state.Process
	caller    place
	result    *Result
}

type sessionsMemo struct {
	snapshot *state.Snapshot
	result   *Result
}

func (m *Memo) allPanes(s *state.Snapshot, processes []state.Process, caller place) *Result {
	if last := m.panes.Load(); last != nil && last.snapshot == s && last.caller == caller && slices.Equal(last.processes, processes) {
		return last.result
	}
	result := encodePanes(s.Panes, processes, caller)
	m.panes.Store(&panesMemo{s, processes, caller, result})
	return result
}

func (m *Memo) allSessions(s *state.Snapshot) *Result {
	if last := m.sessions.Load(); last != nil && last.snapshot == s {
		return last.result
	}
	result := encodeSessions(s.Sessions)
	m.sessions.Store(&sessionsMemo{s, result})
	return result
}
