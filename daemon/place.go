package daemon

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"tmux-mcpd/controlmode"
	"tmux-mcpd/daemon/state"
)

// A survey is what is asked of a tmux server before attaching to it.
type survey struct {
	Default  string // the session that un-targeted commands go to
	Version  string
	PID      int
	Started  string // with PID the server's identity
	Sessions []surveyedSession
	Clients  []state.Client
}

type surveyedSession struct {
	ID                string
	DestroyUnattached string
	ExitUnattached    bool
	LastAttached      string
}

// place chooses the session to attach to, or says why none may be:
//
//   - Not where leaving would destroy something: destroy-unattached on for the
//     session, or exit-unattached on for the server (our client would hold the
//     server up, and end it when it leaves).
//   - Best in tmux's own default session: a session that a client attaches to
//     becomes the one that un-targeted commands of others go to, and that must
//     stay the one it was (shown by TestGuestPolled with two terminals: the
//     session that a real client is in is the wrong place if it is another).
//   - Else where a real client already is, so that its attached mark changes
//     nothing for anybody, and there where one terminal shows the window: tmux
//     takes the client that came last for the one that a window follows.
func (v *survey) place() (session, reason string) {
	if len(v.Sessions) == 0 {
		return "", "the server has no session"
	}
	if v.Sessions[0].ExitUnattached {
		return "", "exit-unattached is on: the server would end when we leave"
	}
	var free []string
	for _, s := range v.Sessions {
		if off(s.DestroyUnattached) {
			free = append(free, s.ID)
		}
	}
	if len(free) == 0 {
		return "", "destroy-unattached is on: a session would be destroyed when we leave"
	}
	if slices.Contains(free, v.Default) {
		return v.Default, ""
	}
	shows := make(map[string]int) // window → terminals that show it
	for _, c := range v.Clients {
		if c.Attached && !c.Ours && !c.Control {
			shows[c.Window]++
		}
	}
	best, bestScore := "", 0
	for _, c := range v.Clients {
		if !c.Attached || c.Ours || !slices.Contains(free, c.Session) {
			continue
		}
		score := 1
		switch {
		case !c.Control && shows[c.Window] == 1:
			score = 3
		case !c.Control:
			score = 2
		}
		if score > bestScore {
			best, bestScore = c.Session, score
		}
	}
	return cmp.Or(best, free[0]), ""
}

// off reports whether a destroy-unattached leaves an unattached session alone.
// It is a flag up to 3.3a and a choice later, of which keep-last and keep-group
// destroy too.
func off(destroyUnattached string) bool {
	switch destroyUnattached {
	case "", "0", "off":
		return true
	}
	return false
}

// A standing is how our client stands among the clients of its server.
type standing struct {
	me      state.Client
	destroy string // destroy-unattached of our session
	exit    bool   // exit-unattached is on
	alone   bool   // nobody else, other tmux-mcpd aside, is in our session
	only    bool   // nobody else is attached at all
}

// standingOf finds our client by its pid; false if it is not there.
func standingOf(snapshot *state.Snapshot, pid int) (standing, bool) {
	clients := snapshot.Clients
	i := slices.IndexFunc(clients, func(c state.Client) bool { return c.PID == pid })
	if i < 0 {
		return standing{}, false
	}
	s := standing{me: clients[i], alone: true, only: true}
	for _, c := range clients {
		if !c.Ours && c.Attached {
			s.only = false
			s.alone = s.alone && c.Session != s.me.Session
		}
	}
	if session := snapshot.Session(s.me.Session); session != nil {
		s.destroy, s.exit = session.DestroyUnattached, session.ExitUnattached
	}
	return s, true
}

// mustLeave reports why our client may not stay: staying holds up what tmux
// would end without us, and our leaving later would destroy what had come to
// be meant to stay. Where destroy-unattached is on we do not wait for the last
// other client to go first: see refuge.
func (s standing) mustLeave() (reason string) {
	switch {
	case s.exit && s.only:
		return "exit-unattached is on and nobody else is attached"
	case !off(s.destroy):
		return "destroy-unattached is on for the session"
	}
	return ""
}

// refuge finds the session that a client which stands so must move to before
// it leaves, "" if it may leave from where it is or if there is none.
//
// tmux destroys an unattached session while a client that is about to exit
// still points to it, and then crashes, taking all sessions along: seen in one
// of ten cases in 3.3a, 3.5a and 3.7c, for any control client that is the last of
// a session with destroy-unattached; not when the client has moved away first.
func (s standing) refuge(snapshot *state.Snapshot) string {
	if off(s.destroy) || !s.alone {
		return ""
	}
	for _, c := range snapshot.Clients {
		if !c.Ours && c.Attached && c.Session != s.me.Session {
			return c.Session
		}
	}
	for _, other := range snapshot.Sessions {
		if other.ID != s.me.Session && off(other.DestroyUnattached) {
			return other.ID
		}
	}
	// keep-last and keep-group spare the last session of a group (3.4 on).
	group := ""
	if own := snapshot.Session(s.me.Session); own != nil {
		group = own.Group
	}
	for _, other := range snapshot.Sessions {
		keeps := strings.HasPrefix(other.DestroyUnattached, "keep-")
		if other.ID != s.me.Session && keeps && other.Group != "" && (group == "" || other.Group == group) {
			return other.ID
		}
	}
	return "" // this one is kept, or all end without us
}

// stoodIn finds the client that a switch-client without -c would have moved if
// ours had not been there. tmux takes the client with the latest activity, of
// the session's clients if it has any; a client that has just attached, ours,
// is the latest until somebody types. from is the session that we were in.
func stoodIn(clients []state.Client, from string) (name string) {
	var best state.Client
	for _, inSession := range []bool{true, false} {
		for _, c := range clients {
			if c.Ours || !c.Attached || inSession && c.Session != from {
				continue
			}
			if best.Name == "" || len(c.Activity) > len(best.Activity) || len(c.Activity) == len(best.Activity) && c.Activity > best.Activity {
				best = c
			}
		}
		if best.Name != "" {
			break
		}
	}
	return best.Name
}

// The survey's formats. A row of each kind has a mark of its own, so that the
// output of all commands can be read as one.
const (
	serverMark  = "V"
	sessionMark = "S"
)

var (
	serverFormat  = strings.Join([]string{serverMark, "#{session_id}", "#{version}", "#{pid}", "#{start_time}"}, "\t")
	sessionFormat = strings.Join([]string{sessionMark, "#{session_id}", "#{destroy-unattached}", "#{exit-unattached}", "#{session_last_attached}"}, "\t")
)

// surveyArguments are those of the one tmux command that surveys and dumps.
func surveyArguments(f state.Framing) []string {
	return []string{
		listClients, "-F", state.ClientFormat(controlmode.TermName), ";",
		listSessions, "-F", sessionFormat, ";",
		displayFormat, "-p", serverFormat, ";",
		listPanes, "-a", "-F", f.PaneFormat(),
	}
}

// parseSurvey reads the output of surveyArguments into the survey and the two
// blocks of a dump.
func parseSurvey(out []byte) (panes, clients []byte, v *survey, err error) {
	v = &survey{}
	for len(out) > 0 {
		line, rest, _ := bytes.Cut(out, []byte("\n"))
		f := strings.Split(string(line), "\t")
		switch {
		case f[0] == serverMark && len(f) == 5:
			v.Default, v.Version, v.Started = f[1], f[2], f[4]
			if v.PID, err = strconv.Atoi(f[3]); err != nil {
				return nil, nil, nil, &state.RowError{Row: string(line), Fields: len(f)}
			}
			// What follows are panes, whose names may look like anything.
			return rest, clients, v, nil
		case f[0] == sessionMark && len(f) == 5:
			v.Sessions = append(v.Sessions, surveyedSession{f[1], f[2], f[3] == "1" || f[3] == "on", f[4]})
		default:
			clients = append(append(clients, line...), '\n')
		}
		out = rest
	}
	return nil, nil, nil, &state.RowError{}
}
