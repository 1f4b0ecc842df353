package state

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// A Snapshot is what one dump said of a tmux server, all of it at one moment.
// It is never changed after Build.
type Snapshot struct {
	// Panes are the rows of `list-panes -a`, in tmux's order: sessions by name
	// in byte order, windows by index, panes by index. A linked window stands
	// once per link, each time with the session it is linked to.
	Panes []*Pane
	// Sessions are in the same order. Their panes are runs of Panes.
	Sessions []*Session
	// Clients are all clients of the server, ours included.
	Clients []Client
}

// A Session is one session and its rows.
type Session struct {
	ID, Name string
	Panes    []*Pane
	// Active is the active pane of the session's current window.
	Active *Pane
	// JSON is the whole row of list_sessions.
	JSON Fragment
}

// A Pane is one row of a dump.
type Pane struct {
	// Head and Tail are the row's JSON without what is read per request:
	// Head, the command, the path, Tail and is_caller make the row.
	Head, Tail Fragment

	PID  int  // 0 for a pane without a process
	Dead bool // the process has ended: its pid may be another's by now

	column [numColumns]string
	line   string // the row as tmux sent it
	ours   int    // how many of our own clients session_attached counted
}

// Value returns the value of a column as tmux prints it, session_attached
// without our own clients; "" where tmux has none.
func (p *Pane) Value(c Column) string { return p.column[c] }

// A Client is one client of the server.
type Client struct {
	Name, Session, Window string
	PID                   int
	Control               bool // a control mode client, not a terminal
	Ours                  bool // a tmux-mcpd, this process's or another's
	Attached              bool // counts in session_attached (a suspended one does not)
	// What tmux would do once this client's session has no clients left.
	DestroyUnattached string // "off" or "0" where nothing
	ExitUnattached    bool
}

// TermName is the TERM of every control client that a tmux-mcpd starts, by
// which all of them know each other in #{client_termname}.
const TermName = "tmux-mcpd"

// The first field of a row tells rows of panes and clients from anything else
// that may stand in a block, above all from lines that begin with '%'.
const (
	paneMark   = "P"
	clientMark = "C"
)

// Fields are separated by a tab: with a UTF-8 client every version passes it
// through, and no column can hold one (names are escaped by tmux, titles lose
// control characters).
const separator = "\t"

// PaneFormat is the -F of `list-panes -a` in a dump.
func PaneFormat() string {
	var f strings.Builder
	f.WriteString(paneMark)
	for _, c := range columns {
		f.WriteString(separator)
		if strings.HasPrefix(c, "#{") {
			f.WriteString(c)
		} else {
			f.WriteString("#{" + c + "}")
		}
	}
	return f.String()
}

// clientColumns are the fields of a client row. The TERM of a client may hold
// any byte, so only its comparison is asked for.
var clientColumns = []string{
	"#{client_name}",
	"#{client_pid}",
	"#{session_id}",
	"#{window_id}",
	"#{client_control_mode}",
	"#{==:#{client_termname}," + TermName + "}",
	"#{client_flags}",
	"#{destroy-unattached}",
	"#{exit-unattached}",
}

// ClientFormat is the -F of `list-clients` in a dump.
func ClientFormat() string {
	return clientMark + separator + strings.Join(clientColumns, separator)
}

// Build makes a snapshot of the two blocks of a dump. Rows that are as they
// were in prev (which may be nil) are taken from it with their JSON.
func Build(panes, clients []byte, prev *Snapshot) (*Snapshot, error) {
	s := &Snapshot{}
	var err error
	if s.Clients, err = parseClients(clients); err != nil {
		return nil, err
	}
	ours := make(map[string]int)
	for _, c := range s.Clients {
		if c.Ours && c.Attached {
			ours[c.Session]++
		}
	}
	var previous []*Pane
	if prev != nil {
		previous = prev.Panes
		s.Panes = make([]*Pane, 0, len(previous)+1)
	}
	for line := range rows(panes, paneMark, &err) {
		// Rows mostly stand where they stood: look at the next old row first,
		// then a little ahead (rows have gone), else parse.
		var row *Pane
		for i := range min(len(previous), 8) {
			if old := previous[i]; string(line) == old.line && ours[old.column[SessionID]] == old.ours {
				row, previous = old, previous[i+1:]
				break
			}
		}
		if row == nil {
			if row, err = parsePane(string(line), ours); err != nil {
				return nil, err
			}
		}
		s.add(row)
	}
	if err != nil {
		return nil, err
	}
	s.finish(prev)
	return s, nil
}

// rows yields the lines of a block that carry the mark. A line that begins
// with '%' is a notification that tmux wrote into the block (3.7 did, for a
// while); any other line means that tmux's answer cannot be read, and is the
// error: half of the rows would be a wrong answer.
func rows(block []byte, mark string, err *error) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for line := range bytes.Lines(block) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			switch {
			case bytes.HasPrefix(line, []byte(mark+separator)):
				if !yield(line) {
					return
				}
			case len(line) == 0 || line[0] == '%':
			default:
				*err = &RowError{Row: string(line)}
				return
			}
		}
	}
}

// A RowError is a row that has not the form that was asked for, such as one of
// a tmux that replaces tabs (a client without UTF-8 would be treated so).
type RowError struct {
	Row    string
	Fields int // how many there were; 0 if the row was not recognised at all
}

// Error does not repeat the row: it may hold what a terminal shows.
func (e *RowError) Error() string {
	if e.Fields == 0 {
		return fmt.Sprintf("tmux answered with a row of %d bytes in another form than asked for", len(e.Row))
	}
	return fmt.Sprintf("tmux answered with a row of %d fields in another form than asked for", e.Fields)
}

func parsePane(line string, ours map[string]int) (*Pane, error) {
	p := &Pane{line: line}
	n := 0
	rest := line[len(paneMark+separator):]
	for more := true; more; n++ {
		var value string
		value, rest, more = strings.Cut(rest, separator)
		if n < int(numColumns) {
			p.column[n] = value
		}
	}
	if n != int(numColumns) || p.column[PaneID] == "" || p.column[SessionID] == "" {
		return nil, &RowError{Row: line, Fields: n}
	}
	p.PID, _ = strconv.Atoi(p.column[PanePID])
	p.Dead = p.column[PaneDead] == "1"
	if p.ours = ours[p.column[SessionID]]; p.ours > 0 {
		if counted, err := strconv.Atoi(p.column[SessionAttached]); err == nil {
			p.column[SessionAttached] = strconv.Itoa(max(0, counted-p.ours))
		}
	}
	p.encode()
	return p, nil
}

func parseClients(block []byte) (clients []Client, err error) {
	for line := range rows(block, clientMark, &err) {
		f := strings.Split(string(line), separator)[1:]
		if len(f) != len(clientColumns) {
			return nil, &RowError{Row: string(line), Fields: len(f)}
		}
		c := Client{
			Name: f[0], Session: f[2], Window: f[3],
			Control: f[4] == "1", Ours: f[5] == "1",
			DestroyUnattached: f[7], ExitUnattached: f[8] == "1" || f[8] == "on",
		}
		c.PID, _ = strconv.Atoi(f[1])
		c.Attached = c.Session != "" && !hasFlag(f[6], "suspended")
		clients = append(clients, c)
	}
	return clients, err
}

func hasFlag(flags, name string) bool {
	for f := range strings.SplitSeq(flags, ",") {
		if f == name {
			return true
		}
	}
	return false
}

// add appends a row and opens its session if it is the first of it: the rows
// of a session follow each other.
func (s *Snapshot) add(p *Pane) {
	id := p.column[SessionID]
	if n := len(s.Sessions); n == 0 || s.Sessions[n-1].ID != id {
		s.Sessions = append(s.Sessions, &Session{ID: id, Name: p.column[SessionName]})
	}
	s.Panes = append(s.Panes, p)
	session := s.Sessions[len(s.Sessions)-1]
	session.Panes = append(session.Panes, p)
	if p.column[WindowActive] == "1" && p.column[PaneActive] == "1" && session.Active == nil {
		session.Active = p
	}
}

// finish encodes the sessions, or takes those over that are as they were.
func (s *Snapshot) finish(prev *Snapshot) {
	for i, session := range s.Sessions {
		if prev != nil && i < len(prev.Sessions) {
			if old := prev.Sessions[i]; old.ID == session.ID && old.Active == session.Active &&
				old.Panes[0] == session.Panes[0] {
				session.JSON = old.JSON
				continue
			}
		}
		session.encode()
	}
}

// Session finds a session by its id ("$1"), nil if there is none.
func (s *Snapshot) Session(id string) *Session {
	for _, session := range s.Sessions {
		if session.ID == id {
			return session
		}
	}
	return nil
}

// SessionByName finds a session by its exact name, nil if there is none.
func (s *Snapshot) SessionByName(name string) *Session {
	for _, session := range s.Sessions {
		if session.Name == name {
			return session
		}
	}
	return nil
}

// Same reports whether a request would get the same rows from both.
func (s *Snapshot) Same(other *Snapshot) bool {
	if other == nil || len(s.Panes) != len(other.Panes) {
		return false
	}
	for i, p := range s.Panes {
		if o := other.Panes[i]; p != o && (p.line != o.line || p.ours != o.ours) {
			return false
		}
	}
	return true
}
