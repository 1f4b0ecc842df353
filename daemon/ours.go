package daemon

import (
	"slices"
	"strconv"
	"strings"

	"tmux-mcpd/daemon/state"
	"tmux-mcpd/tools"
)

// clientFields are the fields, besides session_attached, that count or name
// clients: our own ones are taken out of each. Which clients a field speaks of
// is told by the row's session, by the sessions of its group, or by its window.
var clientFields = map[string]struct {
	of   func(c state.Client, session, window string, group []string) bool
	kind clientFieldKind
}{
	"session_many_attached":       {ofSession, manyClients},
	"session_attached_list":       {ofSession, clientNames},
	"session_group_attached":      {ofGroup, clientCount},
	"session_group_many_attached": {ofGroup, manyClients},
	"session_group_attached_list": {ofGroup, clientNames},
	"window_active_clients":       {ofWindow, clientCount},
	"window_active_clients_list":  {ofWindow, clientNames},
}

type clientFieldKind uint8

const (
	clientCount clientFieldKind = iota // a number
	clientNames                        // names with commas between them
	manyClients                        // "1" for more than one
)

func ofSession(c state.Client, session, _ string, _ []string) bool { return c.Session == session }
func ofWindow(c state.Client, _, window string, _ []string) bool   { return c.Window == window }
func ofGroup(c state.Client, _, _ string, group []string) bool {
	return slices.Contains(group, c.Session)
}

// subtractOurs takes our own clients out of the fields that count clients.
func subtractOurs(f framing, values [][]string, s *state.Snapshot) {
	if !slices.ContainsFunc(s.Clients, func(c state.Client) bool { return c.Ours }) {
		return
	}
	for i, name := range f.fields {
		field, ok := clientFields[name]
		if !ok {
			continue
		}
		for place, row := range values {
			pane := rowPane(f.scope, s, place)
			if pane == nil || row[i] == "" {
				continue
			}
			session, window := pane.Value(state.SessionID), pane.Value(state.WindowID)
			group := groupOf(s, pane)
			var ours []string
			all := 0
			for _, c := range s.Clients {
				if !c.Attached || !field.of(c, session, window, group) {
					continue
				}
				all++
				if c.Ours {
					ours = append(ours, c.Name)
				}
			}
			if len(ours) == 0 {
				continue
			}
			switch field.kind {
			case clientCount:
				if n, err := strconv.Atoi(row[i]); err == nil {
					row[i] = strconv.Itoa(max(0, n-len(ours)))
				}
			case manyClients:
				if all-len(ours) < 2 {
					row[i] = "0"
				}
			case clientNames:
				names := slices.DeleteFunc(strings.Split(row[i], ","), func(n string) bool { return slices.Contains(ours, n) })
				row[i] = strings.Join(names, ",")
			}
		}
	}
}

func rowPane(scope tools.Scope, s *state.Snapshot, place int) *state.Pane {
	if scope == tools.Panes {
		return s.Panes[place]
	}
	if active := s.Sessions[place].Active; active != nil {
		return active
	}
	return s.Sessions[place].Panes[0]
}

// groupOf lists the sessions that are in one group with the pane's session.
func groupOf(s *state.Snapshot, pane *state.Pane) []string {
	group := pane.Value(state.SessionGroup)
	if group == "" {
		return []string{pane.Value(state.SessionID)}
	}
	var ids []string
	for _, session := range s.Sessions {
		if session.Group == group {
			ids = append(ids, session.ID)
		}
	}
	return ids
}

// A trace is what attaching left of us in a session: its session_last_attached,
// and what that was before.
type trace struct{ ours, before string }

// leftTrace takes note of an attach. before may be our own trace of earlier.
func (s *tmuxServer) leftTrace(session, before, ours string) {
	if old, ok := s.traces[session]; ok && old.ours == before {
		before = old.before
	}
	if s.traces == nil {
		s.traces = make(map[string]trace)
	}
	s.traces[session] = trace{ours: ours, before: before}
}

// hideTraces puts back what session_last_attached was before we attached, as
// long as nobody else has attached since.
func (s *tmuxServer) hideTraces(f framing, values [][]string, snapshot *state.Snapshot) {
	i := slices.Index(f.fields, "session_last_attached")
	if i < 0 {
		return
	}
	for place, row := range values {
		if pane := rowPane(f.scope, snapshot, place); pane != nil {
			if t, ok := s.traces[pane.Value(state.SessionID)]; ok && row[i] == t.ours {
				row[i] = t.before
			}
		}
	}
}
