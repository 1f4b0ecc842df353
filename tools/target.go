package tools

import "tmux-mcpd/daemon/state"

// target picks the rows that the arguments of list_panes name. The first of
// window_id, window_index, session_id and session_name that is given decides;
// those that lose are not looked at, except that a session tells among the
// links of a window. Everything is compared exactly: tmux's own -t would match
// prefixes and patterns, and an agent that asks for a session that has gone
// must not get another one.
func (a *arguments) target(s *state.Snapshot) ([]*state.Pane, error) {
	switch {
	case a.windowID.set:
		return a.window(s)
	case a.windowIndex.set:
		session, err := a.session(s)
		if err != nil {
			return nil, err
		}
		if rows := firstLink(session.Panes, state.WindowIndex, a.windowIndex.value); rows != nil {
			return rows, nil
		}
		return nil, NotFound("window_index", a.windowIndex.value)
	case a.sessionID.set, a.sessionName.set:
		session, err := a.session(s)
		if err != nil {
			return nil, err
		}
		return session.Panes, nil
	}
	return s.Panes, nil
}

// window finds a window by its id, which is unique in the server. The rows of
// one link are returned: the link in the session asked for, else the first.
func (a *arguments) window(s *state.Snapshot) ([]*state.Pane, error) {
	if session := a.namedSession(s); session != nil {
		if rows := firstLink(session.Panes, state.WindowID, a.windowID.value); rows != nil {
			return rows, nil
		}
	}
	for _, session := range s.Sessions {
		if rows := firstLink(session.Panes, state.WindowID, a.windowID.value); rows != nil {
			return rows, nil
		}
	}
	return nil, NotFound("window_id", a.windowID.value)
}

// session finds the session asked for, or the first if none is asked for.
func (a *arguments) session(s *state.Snapshot) (*state.Session, error) {
	if session := a.namedSession(s); session != nil {
		return session, nil
	}
	switch {
	case a.sessionID.set:
		return nil, NotFound("session_id", a.sessionID.value)
	case a.sessionName.set:
		return nil, NotFound("session_name", a.sessionName.value)
	case len(s.Sessions) == 0:
		return nil, NotFound("session", "(any)")
	}
	return s.Sessions[0], nil
}

// namedSession is the session that session_id or else session_name names, nil
// if neither is given or the session does not exist.
func (a *arguments) namedSession(s *state.Snapshot) *state.Session {
	switch {
	case a.sessionID.set:
		return s.Session(a.sessionID.value)
	case a.sessionName.set:
		return s.SessionByName(a.sessionName.value)
	}
	return nil
}

// firstLink returns the rows of the first window link of a session whose
// column has the value. A window may be linked twice into one session: its
// links differ in their index, and the rows of one stand together.
func firstLink(rows []*state.Pane, column state.Column, value string) []*state.Pane {
	for i, p := range rows {
		if p.Value(column) != value {
			continue
		}
		end := i + 1
		for end < len(rows) && rows[end].Value(state.WindowIndex) == p.Value(state.WindowIndex) {
			end++
		}
		return rows[i:end]
	}
	return nil
}
