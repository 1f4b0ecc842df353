package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// testFraming has a mark that no value of these tests holds.
var testFraming = Framing{Mark: "QZ7MARKX4WVB"}

// A testRow is a row of a dump by the columns that differ from plainRow.
type testRow map[Column]string

// plainRow is an ordinary pane: 200x50, alone in its window and session.
var plainRow = testRow{
	SessionID: "$0", SessionName: "main", SessionWindows: "1", SessionAttached: "0", SessionCreated: "1700000000",
	WindowID: "@0", WindowIndex: "0", WindowName: "sh", WindowWidth: "200", WindowHeight: "50", WindowActive: "1",
	PaneID: "%0", PaneIndex: "0", PaneWidth: "200", PaneHeight: "50",
	PaneLeft: "0", PaneTop: "0", PaneRight: "199", PaneBottom: "49",
	PaneAtLeft: "1", PaneAtRight: "1", PaneAtTop: "1", PaneAtBottom: "1",
	PaneTTY: "/dev/pts/1", PanePID: "1234", PaneTitle: "host", PaneActive: "1", PaneDead: "0",
}

func (r testRow) value(c Column) string {
	if v, ok := r[c]; ok {
		return v
	}
	return plainRow[c]
}

// block is what `list-panes -a -F PaneFormat()` prints for the rows.
func (f Framing) block(rows ...testRow) []byte {
	var b strings.Builder
	for i, r := range rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(paneMark)
		for c := range numColumns {
			b.WriteString(r.value(c))
			if columns[c].text {
				b.WriteString(f.Mark)
			} else {
				b.WriteByte(separator)
			}
		}
	}
	return []byte(b.String())
}

// clientRow is what `list-clients -F ClientFormat(…)` prints for a client.
func clientRow(name, pid, session, window string, ours bool, flags string) string {
	mine := "0"
	if ours {
		mine = "1"
	}
	return clientMark + strings.Join([]string{name, pid, session, window, "0", mine, flags, "1700000000"}, "\t") + "\n"
}

// build builds for the client with the pid 11.
func build(t *testing.T, prev *Snapshot, clients string, rows ...testRow) *Snapshot {
	t.Helper()
	s, err := testFraming.Build(testFraming.block(rows...), []byte(clients), prev, 11)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// decode decodes JSON of our making, numbers as they are written.
func decode(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %q", err, raw)
	}
	return v
}

// row is a pane's whole JSON without what is read per request.
func (p *Pane) row() []byte { return append(append(bytes.Clone(p.Head.Plain), p.Tail.Plain...), '}') }

// TestPaneFormat: what is asked for is what is read back.
func TestPaneFormat(t *testing.T) {
	if last := columns[numColumns-1]; last.text || strings.HasPrefix(last.name, "#{") {
		t.Errorf("the last column is %q: a row that tmux gives up on could look whole", last.name)
	}
	format := testFraming.PaneFormat()
	values := strings.NewReplacer("#{?pane_dead,#{pane_current_command},}", "<?>", columns[sessionSeats].name, "<seats>", "#{", "<", "}", ">").Replace(format)
	got := make(testRow)
	var buf [numColumns][]byte
	row, rest, err := testFraming.nextRow([]byte(values), &buf)
	if err != nil || len(row) != len(values) || len(rest) != 0 {
		t.Fatalf("the format is not read as one row: %v, %q left", err, rest)
	}
	for c := range numColumns {
		if columns[c].name == "" {
			t.Errorf("column %d has no name", c)
		}
		if c > 0 && columns[c].text && columns[c-1].text {
			t.Errorf("columns %d and %d both end with the mark", c-1, c)
		}
		got[c] = string(buf[c])
		want := "<" + columns[c].name + ">"
		switch c {
		case DeadCommand:
			want = "<?>"
		case sessionSeats:
			want = "<seats>"
		}
		if got[c] != want {
			t.Errorf("column %d is %q, want %q", c, got[c], want)
		}
	}
}

func TestBuild(t *testing.T) {
	type session struct {
		id, name, active string
		panes            []string
	}
	tests := []struct {
		name string
		rows []testRow
		want []session
	}{
		{"nothing", nil, nil},
		{"one pane", []testRow{{}}, []session{{"$0", "main", "%0", []string{"%0"}}}},
		{"the active pane is that of the current window", []testRow{
			{PaneActive: "0"},
			{PaneID: "%1", PaneIndex: "1", PaneActive: "0"},
			{WindowID: "@1", WindowIndex: "1", PaneID: "%2", WindowActive: "0"},
			{WindowID: "@2", WindowIndex: "2", PaneID: "%3", PaneActive: "0", WindowActive: "1"},
			{WindowID: "@2", WindowIndex: "2", PaneID: "%4", PaneIndex: "1", WindowActive: "1"},
		}, []session{{"$0", "main", "%4", []string{"%0", "%1", "%2", "%3", "%4"}}}},
		{"linked window", []testRow{
			{SessionID: "$1", SessionName: "a", WindowID: "@7", PaneID: "%7"},
			{SessionID: "$0", SessionName: "b", WindowActive: "1"},
			{SessionID: "$0", SessionName: "b", WindowID: "@7", WindowIndex: "5", PaneID: "%7", WindowActive: "0"},
		}, []session{{"$1", "a", "%7", []string{"%7"}}, {"$0", "b", "%0", []string{"%0", "%7"}}}},
		{"window linked twice into one session", []testRow{
			{WindowIndex: "0"}, {WindowIndex: "3", WindowActive: "0"},
		}, []session{{"$0", "main", "%0", []string{"%0", "%0"}}}},
		{"grouped sessions", []testRow{
			{SessionID: "$0", SessionName: "dev", SessionGroup: "dev"},
			{SessionID: "$3", SessionName: "dev-1", SessionGroup: "dev"},
		}, []session{{"$0", "dev", "%0", []string{"%0"}}, {"$3", "dev-1", "%0", []string{"%0"}}}},
		{"no window is current", []testRow{{WindowActive: "0"}}, []session{{"$0", "main", "", []string{"%0"}}}},
		{"a session without a name", []testRow{{SessionName: ""}}, []session{{"$0", "", "%0", []string{"%0"}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := build(t, nil, "", tt.rows...)
			var got []session
			var panes []*Pane
			for _, have := range s.Sessions {
				row := session{id: have.ID, name: have.Name}
				active := decode(t, have.JSON.Plain)["active_pane_id"]
				if have.Active != nil {
					row.active = have.Active.Value(PaneID)
				}
				if want := (any)(row.active); active != want && !(active == nil && row.active == "") {
					t.Errorf("active_pane_id is %v, want %v", active, want)
				}
				for _, p := range have.Panes {
					row.panes = append(row.panes, p.Value(PaneID))
					if p.Value(SessionID) != have.ID {
						t.Errorf("row of %s has session %s", have.ID, p.Value(SessionID))
					}
				}
				panes = append(panes, have.Panes...)
				got = append(got, row)
				if s.Session(have.ID) != have || s.SessionByName(have.Name) != have {
					t.Errorf("%s %q is not found", have.ID, have.Name)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("sessions are %v, want %v", got, tt.want)
			}
			if !slices.Equal(panes, s.Panes) {
				t.Error("the sessions' panes are not the snapshot's")
			}
			if s.Session("$9") != nil || s.SessionByName("mai") != nil {
				t.Error("a session that does not exist is found")
			}
		})
	}
}

// TestPaneJSON: the types and the nulls of the contract.
func TestPaneJSON(t *testing.T) {
	const plain = `{"pane_id":"%0","pane_index":"0","pane_width":"200","pane_height":"50","pane_left":0,"pane_top":0,` +
		`"pane_right":199,"pane_bottom":49,"pane_at_left":true,"pane_at_right":true,"pane_at_top":true,"pane_at_bottom":true,` +
		`"pane_tty":"/dev/pts/1","pane_pid":"1234","pane_title":"host","pane_active":"1","window_id":"@0","session_id":"$0"}`
	tests := []struct {
		name string
		row  testRow
		old  string // of plain …
		new  string // … is this here
		dead bool
		pid  int
	}{
		{"plain", testRow{}, "", "", false, 1234},
		{"zoomed and hidden: the layout's geometry", testRow{PaneLeft: "101", PaneAtLeft: "0", PaneActive: "0"},
			`"pane_left":0`, `"pane_left":101`, false, 1234},
		{"dead: pid and tty stay", testRow{PaneDead: "1", DeadCommand: "make"}, "", "", true, 1234},
		{"no process", testRow{PanePID: "0", PaneTTY: ""}, `"pane_tty":"/dev/pts/1","pane_pid":"1234"`, `"pane_tty":null,"pane_pid":"0"`, false, 0},
		{"no title", testRow{PaneTitle: ""}, `"pane_title":"host"`, `"pane_title":null`, false, 1234},
		{"unknown geometry", testRow{PaneLeft: "", PaneAtTop: ""}, "", "", false, 1234},
		{"title", testRow{PaneTitle: "\"q\" \\ \t\n\u241e\u0085\u202e☃😀\x7f"}, `"host"`, `"\"q\" \\ \t\n` + "\u241e\u0085\u202e☃😀\x7f" + `"`, false, 1234},
		{"title that is no UTF-8", testRow{PaneTitle: "a\xff\xfeb\xc3"}, `"host"`, "\"a\uFFFD\uFFFDb\uFFFD\"", false, 1234},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := build(t, nil, "", tt.row).Panes[0]
			if p.Dead != tt.dead || p.PID != tt.pid {
				t.Errorf("dead %v, pid %d, want %v, %d", p.Dead, p.PID, tt.dead, tt.pid)
			}
			got := string(p.row())
			switch tt.name {
			case "unknown geometry":
				if row := decode(t, p.row()); row["pane_left"] != nil || row["pane_at_top"] != nil || len(row) != 18 {
					t.Errorf("row is %s", got)
				}
				return
			case "zoomed and hidden: the layout's geometry":
				if row := decode(t, p.row()); row["pane_left"] != json.Number("101") || row["pane_at_left"] != false || row["pane_active"] != "0" {
					t.Errorf("row is %s", got)
				}
				return
			}
			if want := strings.Replace(plain, tt.old, tt.new, 1); got != want {
				t.Errorf("row is\n%s, want\n%s", got, want)
			}
		})
	}
}

// TestValuesForgeNothing: names and titles that look like fields, rows, guards
// and notifications are values and nothing else.
func TestValuesForgeNothing(t *testing.T) {
	whole := string(testFraming.block(testRow{PaneID: "%99", SessionID: "$99"}))
	values := []string{
		"a\tb", "a\nb", "\n", "\t", "\n\n\n", "%end 1 1 1", "x\n%end 1700000000 5 1\n%exit\ny", "%begin 1 2 1\n", "\n%sessions-changed\n",
		paneMark, "\n" + paneMark, "P\t$0\tmain", "C\tx\n", "QZ7MARKX4WV", "QZ7", "\x1f\x1e\x00", "\xff\n\xfe\t",
		strings.ReplaceAll(whole, testFraming.Mark, "OTHERMARKxxx"),
	}
	for _, v := range values {
		for c := range numColumns {
			if !columns[c].text {
				continue
			}
			odd := testRow{c: v, WindowID: "@1", WindowIndex: "1", PaneID: "%1", WindowActive: "0"}
			// Rows of one session have one name.
			first, last := testRow{}, testRow{WindowID: "@2", WindowIndex: "2", PaneID: "%2", WindowActive: "0"}
			if c == SessionName {
				first[c], last[c] = v, v
			}
			s, err := testFraming.Build(testFraming.block(first, odd, last), nil, nil, 0)
			if err != nil {
				t.Errorf("%s %q: %v", columns[c].name, v, err)
				continue
			}
			if len(s.Panes) != 3 || len(s.Sessions) != 1 || s.Panes[1].Value(c) != v || s.Panes[2].Value(PaneID) != "%2" {
				t.Errorf("%s %q: %d rows, value %q", columns[c].name, v, len(s.Panes), s.Panes[1].Value(c))
			}
		}
	}
}

// TestNotificationsInBlock: lines that tmux itself wrote between the rows (3.7,
// for a while) are passed over.
func TestNotificationsInBlock(t *testing.T) {
	rows := strings.Split(string(testFraming.block(testRow{}, testRow{PaneID: "%71"})), "\n")
	block := "%sessions-changed\n" + rows[0] + "\n%session-changed $0 x\n\n%window-add @3\n" + rows[1] + "\n%sessions-changed"
	s, err := testFraming.Build([]byte(block), []byte("%client-detached /dev/pts/1\n"+clientRow("c", "1", "$0", "@0", false, "")), nil, 0)
	if err != nil || len(s.Panes) != 2 || s.Panes[1].Value(PaneID) != "%71" || len(s.Clients) != 1 {
		t.Fatalf("%v, %+v", err, s)
	}
}

// TestBuildRefuses: an answer that is not what was asked for is an error, never
// some of the rows.
func TestBuildRefuses(t *testing.T) {
	good := string(testFraming.block(testRow{}, testRow{PaneID: "%1", PaneIndex: "1"}))
	tests := []struct{ name, panes, clients string }{
		{"tabs are underscores", strings.ReplaceAll(good, "\t", "_"), ""},
		{"tabs are gone", strings.ReplaceAll(good, "\t", ""), ""},
		{"marks are gone", strings.ReplaceAll(good, testFraming.Mark, ""), ""},
		{"another mark", strings.ReplaceAll(good, testFraming.Mark, "BVW4XKRAM7ZQ"), ""},
		{"the last field is missing", good[:len(good)-len(testFraming.Mark)], ""},
		{"cut in the middle", good[:len(good)*3/4], ""},
		{"a field too many", good + "x\t", ""},
		{"another line first", "usage: list-panes\n" + good, ""},
		{"another line last", good + "\nlost server", ""},
		{"no pane id", string(testFraming.block(testRow{PaneID: ""})), ""},
		{"no session id", string(testFraming.block(testRow{SessionID: ""})), ""},
		{"newline in a field that holds none", strings.Replace(good, "\t200\t", "\t200\n\t", 1), ""},
		{"client with tabs as underscores", good, strings.ReplaceAll(clientRow("c", "1", "$0", "@0", false, ""), "\t", "_")},
		{"client with a field too many", good, "C\t" + clientRow("c", "1", "$0", "@0", false, "")},
		{"client of another form", good, "/dev/pts/1: main\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := testFraming.Build([]byte(tt.panes), []byte(tt.clients), nil, 0)
			var row *RowError
			if !errors.As(err, &row) {
				t.Fatalf("%v, %+v", err, s)
			}
			// Titles and names are nobody's business who reads a log.
			if strings.Contains(err.Error(), "host") || strings.Contains(err.Error(), "main") {
				t.Errorf("the error repeats the row: %v", err)
			}
		})
	}
}

// TestBuildPanes: without a block of clients those of the snapshot before hold,
// as long as the rows say nothing else.
func TestBuildPanes(t *testing.T) {
	const pid = 11
	terminal := clientRow("/dev/pts/1", "10", "$0", "@0", false, "attached")
	ours := clientRow("client-11", "11", "$0", "@0", true, "attached,control-mode")
	asleep := clientRow("/dev/pts/2", "12", "$1", "@1", false, "attached,suspended")
	rows := func(counted, first, second string) []byte {
		return testFraming.block(
			testRow{SessionAttached: counted, sessionSeats: "off 0 " + counted + " " + first},
			testRow{SessionAttached: counted, PaneID: "%9", PaneActive: "0"},
			testRow{SessionID: "$1", SessionName: "other", SessionGroup: "pair", PaneID: "%1", sessionSeats: second})
	}
	prev, err := testFraming.Build(rows("2", "/dev/pts/1,client-11", "on 1 0 /dev/pts/2"), []byte(terminal+ours+asleep), nil, pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name                   string
		counted, first, second string
		changed                bool
	}{
		{"nothing new", "2", "/dev/pts/1,client-11", "on 1 0 /dev/pts/2", false},
		{"another order", "2", "client-11,/dev/pts/1", "on 1 0 /dev/pts/2", false},
		{"other options", "2", "/dev/pts/1,client-11", "keep-last 0 0 /dev/pts/2", false},
		{"one has gone", "1", "client-11", "on 1 0 /dev/pts/2", true},
		{"one has come", "3", "/dev/pts/1,/dev/pts/9,client-11", "on 1 0 /dev/pts/2", true},
		{"one has moved", "1", "client-11", "on 1 1 /dev/pts/1,/dev/pts/2", true},
		{"one is leaving", "1", "/dev/pts/1,client-11", "on 1 0 /dev/pts/2", true},
		{"one has resumed", "2", "/dev/pts/1,client-11", "on 1 1 /dev/pts/2", true},
		{"one has been replaced", "2", "/dev/pts/9,client-11", "on 1 0 /dev/pts/2", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := testFraming.BuildPanes(rows(tt.counted, tt.first, tt.second), prev, pid)
			if tt.changed {
				if !errors.Is(err, ErrClients) {
					t.Errorf("error %v, want ErrClients", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Panes[0].Value(SessionAttached); got != "1" || len(s.Clients) != 3 {
				t.Errorf("session_attached %s, %d clients; want 1, 3", got, len(s.Clients))
			}
			other, said := s.Session("$1"), strings.Fields(tt.second)
			if other.DestroyUnattached != said[0] || other.ExitUnattached != (said[1] == "1") {
				t.Errorf("options %q, %v; want %q", other.DestroyUnattached, other.ExitUnattached, tt.second)
			}
			if s.Session("$0").Group != "" || other.Group != "pair" {
				t.Errorf("groups %q, %q; want none, pair", s.Session("$0").Group, other.Group)
			}
		})
	}
	// A session that has gone takes its clients along.
	if _, err := testFraming.BuildPanes(testFraming.block(testRow{sessionSeats: "off 0 2 /dev/pts/1,client-11"}), prev, pid); !errors.Is(err, ErrClients) {
		t.Errorf("with a session less: %v, want ErrClients", err)
	}
}

// TestOursAreNotCounted: session_attached is without every tmux-mcpd.
func TestOursAreNotCounted(t *testing.T) {
	ours := clientRow("client-1", "11", "$0", "@0", true, "attached,control-mode,no-output")
	tests := []struct {
		name, counted, clients, want string
	}{
		{"nobody", "0", "", "0"},
		{"a terminal", "1", clientRow("/dev/pts/1", "10", "$0", "@0", false, "attached"), "1"},
		{"ours", "1", ours, "0"},
		{"two of ours", "2", ours + clientRow("client-2", "12", "$0", "@0", true, "attached"), "0"},
		{"two terminals and ours", "3", clientRow("/dev/pts/1", "10", "$0", "@0", false, "attached") + clientRow("/dev/pts/2", "12", "$0", "@0", false, "attached") + ours, "2"},
		{"ours in another session", "1", clientRow("/dev/pts/1", "10", "$0", "@0", false, "attached") + clientRow("client-1", "11", "$1", "@1", true, "attached"), "1"},
		{"one of ours that is leaving, listed and not counted", "2", clientRow("/dev/pts/1", "10", "$0", "@0", false, "attached") + ours + clientRow("client-2", "12", "$0", "@0", true, "attached"), "1"},
		{"a terminal that is leaving, listed and not counted", "1", clientRow("/dev/pts/1", "10", "$0", "@0", false, "attached") + ours, "0"},
		{"one that is leaving, counted and not listed", "3", clientRow("/dev/pts/1", "10", "$0", "@0", false, "attached") + ours, "1"},
		{"a terminal in a group's other session", "1", clientRow("/dev/pts/1", "10", "$0", "@0", false, "attached") + clientRow("/dev/pts/2", "12", "$1", "@0", false, "attached"), "1"},
		{"ours suspended, which tmux does not count", "0", clientRow("client-1", "11", "$0", "@0", true, "attached,suspended"), "0"},
		{"ours without a session", "0", clientRow("client-1", "11", "", "", true, ""), "0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := build(t, nil, tt.clients, testRow{SessionAttached: tt.counted})
			if got := decode(t, s.Sessions[0].JSON.Plain)["session_attached"]; got != tt.want {
				t.Errorf("session_attached is %v, want %s", got, tt.want)
			}
			if got := s.Panes[0].Value(SessionAttached); got != tt.want {
				t.Errorf("the filter sees %q, want %s", got, tt.want)
			}
		})
	}
}

// TestReuse: a row that is as it was is taken over with its JSON, and only such a
// row.
func TestReuse(t *testing.T) {
	rows := func(change func([]testRow) []testRow) []testRow {
		all := []testRow{
			{SessionID: "$1", SessionName: "a"},
			{WindowID: "@1", PaneID: "%1", PaneActive: "0"},
			{WindowID: "@1", PaneID: "%2", PaneIndex: "1"},
			{WindowID: "@2", WindowIndex: "1", PaneID: "%3", WindowActive: "0"},
		}
		if change != nil {
			all = change(all)
		}
		return all
	}
	first := build(t, nil, "", rows(nil)...)
	tests := []struct {
		name     string
		clients  string
		change   func([]testRow) []testRow
		reused   []int // rows of the new snapshot that are old ones
		sessions []int // sessions whose JSON is the old one's
	}{
		{"nothing", "", nil, []int{0, 1, 2, 3}, []int{0, 1}},
		{"a title", "", func(r []testRow) []testRow { r[2][PaneTitle] = "new"; return r }, []int{0, 1, 3}, []int{0}},
		{"a row less", "", func(r []testRow) []testRow { return slices.Delete(r, 1, 2) }, []int{0, 1, 2}, []int{0}},
		{"a row more", "", func(r []testRow) []testRow { return slices.Insert(r, 1, testRow{PaneID: "%9"}) }, []int{0, 2, 3, 4}, []int{0}},
		{"the active pane", "", func(r []testRow) []testRow { r[1][PaneActive], r[2][PaneActive] = "1", "0"; return r }, []int{0, 3}, []int{0}},
		{"a name", "", func(r []testRow) []testRow { r[0][SessionName] = "b"; return r }, []int{1, 2, 3}, []int{1}},
		{"rows change places", "", func(r []testRow) []testRow {
			return []testRow{r[1], r[2], r[3], r[0]}
		}, []int{0, 1, 2}, nil},
		// tmux counts our client in both rows' text or in none: the text is the
		// same when one of ours replaces a terminal.
		{"one of the clients is ours now", clientRow("c", "1", "$0", "@1", true, "attached"), nil, []int{0}, []int{0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := rows(tt.change)
			s := build(t, first, tt.clients, now...)
			fresh := build(t, nil, tt.clients, now...)
			for i, p := range s.Panes {
				if old := slices.Contains(first.Panes, p); old != slices.Contains(tt.reused, i) {
					t.Errorf("row %d: reused is %v", i, old)
				}
				if !bytes.Equal(p.row(), fresh.Panes[i].row()) || p.Value(SessionAttached) != fresh.Panes[i].Value(SessionAttached) {
					t.Errorf("row %d is %s, built anew it is %s", i, p.row(), fresh.Panes[i].row())
				}
			}
			for i, session := range s.Sessions {
				if !bytes.Equal(session.JSON.Plain, fresh.Sessions[i].JSON.Plain) || !bytes.Equal(session.JSON.Escaped, fresh.Sessions[i].JSON.Escaped) {
					t.Errorf("session %d is %s, built anew it is %s", i, session.JSON.Plain, fresh.Sessions[i].JSON.Plain)
				}
				old := i < len(first.Sessions) && &session.JSON.Plain[0] == &first.Sessions[i].JSON.Plain[0]
				if old != slices.Contains(tt.sessions, i) {
					t.Errorf("session %d: reused is %v", i, old)
				}
			}
			if same := s.Same(first); same != (len(tt.reused) == len(now) && len(now) == len(first.Panes)) {
				t.Errorf("Same is %v", same)
			}
		})
	}
}

// checkSnapshot fails the test for a snapshot that contradicts itself.
func checkSnapshot(t *testing.T, s *Snapshot) {
	t.Helper()
	n := 0
	for _, session := range s.Sessions {
		if len(session.Panes) == 0 {
			t.Fatal("a session without rows")
		}
		n += len(session.Panes)
		checkFragment(t, session.JSON)
		if len(decode(t, session.JSON.Plain)) != 6 {
			t.Fatalf("session row %s", session.JSON.Plain)
		}
	}
	if n != len(s.Panes) {
		t.Fatalf("%d rows, %d of them in sessions", len(s.Panes), n)
	}
	for _, p := range s.Panes {
		if row := decode(t, p.row()); len(row) != 18 || row["pane_id"] == nil || row["session_id"] == nil {
			t.Fatalf("row %s", p.row())
		}
		checkFragment(t, Fragment{Plain: p.row(), Escaped: append(append(bytes.Clone(p.Head.Escaped), p.Tail.Escaped...), '}')})
	}
}

// checkFragment wants valid UTF-8, and the escaped form to be a string of the
// plain one.
func checkFragment(t *testing.T, f Fragment) {
	t.Helper()
	if !utf8.Valid(f.Plain) || !utf8.Valid(f.Escaped) {
		t.Fatalf("not UTF-8: %q %q", f.Plain, f.Escaped)
	}
	var text string
	if err := json.Unmarshal([]byte(`"`+string(f.Escaped)+`"`), &text); err != nil || text != string(f.Plain) {
		t.Fatalf("%v: the escaped form is %q of %q", err, text, f.Plain)
	}
}

// FuzzBuild: whatever tmux prints, Build neither panics nor makes JSON that is
// none, and a second look at the same rows gives the same snapshot.
func FuzzBuild(f *testing.F) {
	good := testFraming.block(testRow{}, testRow{PaneID: "%1", PaneIndex: "1", PaneTitle: "a\tb\n%end 1 1 1\xff"})
	f.Add(good, []byte(clientRow("c", "1", "$0", "@0", true, "attached")))
	f.Add(testFraming.block(testRow{SessionID: "$1", SessionGroup: "g", PaneDead: "1", DeadCommand: "x\ny"}), []byte("%sessions-changed\n"))
	f.Add(bytes.ReplaceAll(good, []byte("\t"), []byte("_")), []byte(nil))
	f.Add(append([]byte("%window-add @1\n\n"), good...), []byte("C\t\t\t\t\t\t\t\t\t\t"))
	f.Add(good[:len(good)/2], []byte("C"))
	f.Fuzz(func(t *testing.T, panes, clients []byte) {
		s, err := testFraming.Build(panes, clients, nil, 0)
		if err != nil {
			return
		}
		checkSnapshot(t, s)
		again, err := testFraming.Build(panes, clients, s, 0)
		if err != nil || !again.Same(s) || len(again.Sessions) != len(s.Sessions) {
			t.Fatalf("%v: not the same the second time", err)
		}
		checkSnapshot(t, again)
		for i, p := range again.Panes {
			if !bytes.Equal(p.row(), s.Panes[i].row()) {
				t.Fatalf("row %d was %s, is %s", i, s.Panes[i].row(), p.row())
			}
		}
	})
}

// FuzzRow: names and titles come back as they are, if they do not hold the mark,
// and forge neither rows nor each other.
func FuzzRow(f *testing.F) {
	f.Add("main", "a\tb\nc", "t\u241eu", "")
	f.Add("%end 1 1 1\n%exit", "P\t$0\t", "\xff\xfe", "C\t")
	f.Add("QZ7", "QZ7MARKX4WV", "\nP\t", "MARKX4WVB")
	f.Fuzz(func(t *testing.T, session, window, title, command string) {
		values := []string{session, window, title, command}
		if slices.ContainsFunc(values, func(v string) bool {
			// A value that ends in a part of the mark, before the mark, may make an
			// earlier one.
			return strings.Index(v+testFraming.Mark, testFraming.Mark) < len(v)
		}) {
			return
		}
		row := testRow{SessionName: session, WindowName: window, PaneTitle: title, DeadCommand: command, PaneDead: "1"}
		s, err := testFraming.Build(testFraming.block(row, testRow{SessionID: "$1", PaneID: "%1"}), nil, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		checkSnapshot(t, s)
		if len(s.Panes) != 2 || s.Panes[1].Value(PaneID) != "%1" || s.Panes[1].Value(SessionName) != "main" {
			t.Fatalf("%d rows", len(s.Panes))
		}
		for i, c := range []Column{SessionName, WindowName, PaneTitle, DeadCommand} {
			if got := s.Panes[0].Value(c); got != values[i] {
				t.Errorf("%s is %q, want %q", columns[c].name, got, values[i])
			}
		}
	})
}
