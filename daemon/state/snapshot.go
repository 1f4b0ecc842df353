package state

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
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
	Group    string // "" for none
	Panes    []*Pane
	// Active is the active pane of the session's current window.
	Active *Pane
	// What tmux would do once the session has no clients left.
	DestroyUnattached string // "off" or "0" where nothing
	ExitUnattached    bool

	counted string // session_attached as tmux says it
	clients string // their names, with commas between them

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
	seats  seats  // of the session
}

// Value returns the value of a column as tmux prints it, session_attached
// without our own clients; "" where tmux has none.
func (p *Pane) Value(c Column) string { return p.column[c] }

// seats are the clients that are attached to a session.
type seats struct {
	ours, others int
	self         bool // one of ours is the client that is asking
}

// attached is session_attached without our own clients. For some milliseconds
// it differs from the list of clients while one of them leaves. Up to 3.6 such a
// client is listed and not counted any more: if it can be one of ours, it is
// taken for one. From 3.7 on it is counted and not listed any more, and nobody
// can tell whose it is: then the list is right.
func (s seats) attached(counted string) string {
	n, err := strconv.Atoi(counted)
	if err != nil || n == 0 {
		return counted
	}
	staying := s.ours
	if leaving := s.ours + s.others - n; leaving > 0 {
		mayLeave := s.ours
		if s.self {
			mayLeave--
		}
		staying -= min(leaving, mayLeave)
	}
	return strconv.Itoa(max(0, min(n-staying, s.others)))
}

// A Client is one client of the server.
type Client struct {
	Name, Session, Window string
	PID                   int
	Control               bool   // a control mode client, not a terminal
	Ours                  bool   // a tmux-mcpd, this process's or another's
	Attached              bool   // counts in session_attached (a suspended one does not)
	Activity              string // when it was last typed in, in seconds
}

// The first field of a row tells rows of panes and clients from anything else
// that may stand in a block, above all from lines that begin with '%'.
const (
	paneMark   = "P\t"
	clientMark = "C\t"
)

// Fields end with a tab: with a UTF-8 client every version passes it through,
// and the fields that end so cannot hold one.
const separator = '\t'

// A Framing is how the rows of a dump are asked for and read.
type Framing struct {
	// Mark ends the fields that may hold any byte. It must not be known to
	// anybody who can choose the value of such a field: random letters.
	Mark string
}

// PaneFormat is the -F of `list-panes -a` in a dump.
func (f Framing) PaneFormat() string {
	var b strings.Builder
	b.WriteString(paneMark)
	for _, c := range columns {
		if strings.HasPrefix(c.name, "#{") {
			b.WriteString(c.name)
		} else {
			b.WriteString("#{" + c.name + "}")
		}
		if c.text {
			b.WriteString(f.Mark)
		} else {
			b.WriteByte(separator)
		}
	}
	return b.String()
}

// clientColumns are the fields of a client row.
var clientColumns = []string{
	"#{client_name}",
	"#{client_pid}",
	"#{session_id}",
	"#{window_id}",
	"#{client_control_mode}",
	oursColumn,
	"#{client_flags}",
	"#{client_activity}",
}

// oursColumn is where ClientFormat asks whether the client is a tmux-mcpd's. The
// TERM of a client may hold any byte, so only its comparison is asked for.
const oursColumn = "#{==:#{client_termname},TERM}"

// ClientFormat is the -F of `list-clients` in a dump. ours is the TERM of every
// client that a tmux-mcpd starts, by which all of them know each other.
func ClientFormat(ours string) string {
	return clientMark + strings.Replace(strings.Join(clientColumns, string(separator)), "TERM", ours, 1)
}

// Build makes a snapshot of the two blocks of a dump. Rows that are as they
// were in prev (which may be nil) are taken from it with their JSON. self is the
// pid of the client that asked, 0 if none stays.
func (f Framing) Build(panes, clients []byte, prev *Snapshot, self int) (*Snapshot, error) {
	all, err := parseClients(clients)
	if err != nil {
		return nil, err
	}
	return f.build(panes, all, prev, self)
}

// ErrClients says that a snapshot cannot be made without asking for the clients.
var ErrClients = errors.New("the clients of the tmux server have changed")

// BuildPanes is Build for a dump that has not asked for the clients, which are
// taken to be those of prev: ErrClients if the rows tell that they are not.
func (f Framing) BuildPanes(panes []byte, prev *Snapshot, self int) (*Snapshot, error) {
	s, err := f.build(panes, prev.Clients, prev, self)
	if err == nil && !s.clientsStay() {
		return nil, ErrClients
	}
	return s, err
}

func (f Framing) build(panes []byte, clients []Client, prev *Snapshot, self int) (*Snapshot, error) {
	s := &Snapshot{Clients: clients}
	taken := make(map[string]seats)
	for _, c := range s.Clients {
		if c.Attached {
			t := taken[c.Session]
			if c.Ours {
				t.ours++
				t.self = t.self || c.PID == self
			} else {
				t.others++
			}
			taken[c.Session] = t
		}
	}
	var previous []*Pane
	if prev != nil {
		previous = prev.Panes
		s.Panes = make([]*Pane, 0, len(previous)+1)
	}
	var values [numColumns][]byte
	for rest := panes; ; {
		row, after, err := f.nextRow(rest, &values)
		if err != nil {
			return nil, err
		}
		if row == nil {
			break
		}
		rest = after
		// Rows mostly stand where they stood: look at the next old row first,
		// then a little ahead (rows have gone), else parse.
		var p *Pane
		for i := range min(len(previous), 8) {
			if old := previous[i]; string(row) == old.line && taken[old.column[SessionID]] == old.seats {
				p, previous = old, previous[i+1:]
				break
			}
		}
		if p == nil {
			if p, err = f.newPane(row, &values, taken); err != nil {
				return nil, err
			}
		}
		s.add(p)
	}
	s.finish(prev)
	return s, nil
}

// clientsStay reports whether the clients are in the sessions that the rows tell,
// and are as many as tmux counts (a suspended one is not counted). What else
// there is to know of a client never changes, or is of use only when one has
// moved (its activity).
func (s *Snapshot) clientsStay() bool {
	type told struct {
		names   []string
		counted int
	}
	known := make(map[string]*told, len(s.Sessions))
	for _, c := range s.Clients {
		t := known[c.Session]
		if t == nil {
			t = &told{}
			known[c.Session] = t
		}
		t.names = append(t.names, c.Name)
		if c.Attached {
			t.counted++
		}
	}
	for _, session := range s.Sessions {
		t := known[session.ID]
		delete(known, session.ID)
		if t == nil {
			t = &told{}
		}
		names := strings.FieldsFunc(session.clients, func(r rune) bool { return r == ',' })
		slices.Sort(names)
		slices.Sort(t.names)
		if session.counted != strconv.Itoa(t.counted) || !slices.Equal(names, t.names) {
			return false
		}
	}
	delete(known, "") // a client without a session
	return len(known) == 0
}

// nextRow splits the next row off a block and its fields into values; nil at
// the end of the block. A line that begins with '%' is a notification that tmux
// wrote into the block (3.7 did, for a while); anything else that is no row
// means that tmux's answer cannot be read, and is the error: half of the rows
// would be a wrong answer.
func (f Framing) nextRow(block []byte, values *[numColumns][]byte) (row, rest []byte, err error) {
	for len(block) > 0 && (block[0] == '%' || block[0] == '\n') {
		_, block, _ = bytes.Cut(block, newline)
	}
	if len(block) == 0 {
		return nil, nil, nil
	}
	if !bytes.HasPrefix(block, []byte(paneMark)) {
		line, _, _ := bytes.Cut(block, newline)
		return nil, nil, &RowError{Row: string(line)}
	}
	at := len(paneMark)
	for c := range columns {
		end, width := -1, 1
		if columns[c].text {
			end, width = bytes.Index(block[at:], []byte(f.Mark)), len(f.Mark)
		} else if end = bytes.IndexByte(block[at:], separator); bytes.IndexByte(block[at:at+max(end, 0)], '\n') >= 0 {
			end = -1
		}
		if end < 0 {
			line, _, _ := bytes.Cut(block, newline)
			return nil, nil, &RowError{Row: string(line), Fields: c}
		}
		values[c] = block[at : at+end]
		at += end + width
	}
	row = block[:at]
	rest, ok := bytes.CutPrefix(block[at:], newline)
	if !ok && len(rest) > 0 {
		return nil, nil, &RowError{Row: string(row), Fields: int(numColumns) + 1}
	}
	return row, rest, nil
}

var newline = []byte{'\n'}

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

func (f Framing) newPane(row []byte, values *[numColumns][]byte, taken map[string]seats) (*Pane, error) {
	// One string holds the row; the values are parts of it.
	p := &Pane{line: string(row)}
	at := len(paneMark)
	for c, v := range values {
		p.column[c] = p.line[at : at+len(v)]
		at += len(v) + 1
		if columns[c].text {
			at += len(f.Mark) - 1
		}
	}
	if p.column[PaneID] == "" || p.column[SessionID] == "" {
		return nil, &RowError{Row: p.line, Fields: int(numColumns)}
	}
	p.PID, _ = strconv.Atoi(p.column[PanePID])
	p.Dead = p.column[PaneDead] == "1"
	p.seats = taken[p.column[SessionID]]
	p.column[SessionAttached] = p.seats.attached(p.column[SessionAttached])
	p.encode()
	return p, nil
}

func parseClients(block []byte) (clients []Client, err error) {
	for line := range bytes.Lines(block) {
		line, ok := bytes.CutPrefix(bytes.TrimSuffix(line, newline), []byte(clientMark))
		switch {
		case !ok && (len(line) == 0 || line[0] == '%'):
			continue
		case !ok:
			return nil, &RowError{Row: string(line)}
		}
		f := strings.Split(string(line), string(separator))
		if len(f) != len(clientColumns) {
			return nil, &RowError{Row: string(line), Fields: len(f)}
		}
		c := Client{
			Name: f[0], Session: f[2], Window: f[3],
			Control: f[4] == "1", Ours: f[5] == "1",
			Activity: f[7],
		}
		c.PID, _ = strconv.Atoi(f[1])
		c.Attached = c.Session != "" && !hasFlag(f[6], "suspended")
		clients = append(clients, c)
	}
	return clients, nil
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
		s.Sessions = append(s.Sessions, &Session{ID: id, Name: p.column[SessionName], Group: p.column[SessionGroup]})
	}
	s.Panes = append(s.Panes, p)
	session := s.Sessions[len(s.Sessions)-1]
	session.Panes = append(session.Panes, p)
	if p.column[WindowActive] == "1" && p.column[PaneActive] == "1" && session.Active == nil {
		session.Active = p
		if said := strings.SplitN(p.column[sessionSeats], " ", 4); len(said) == 4 {
			session.DestroyUnattached, session.ExitUnattached = said[0], said[1] == "1" || said[1] == "on"
			session.counted, session.clients = said[2], said[3]
		}
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
		if o := other.Panes[i]; p != o && (p.line != o.line || p.seats != o.seats) {
			return false
		}
	}
	return true
}
