package daemon

import (
	"testing"

	"tmux-mcpd/daemon/state"
)

// Clients as a dump shows them.
func terminalAt(session, window string) state.Client {
	return state.Client{Session: session, Window: window, Attached: true}
}

func controlAt(session, window string) state.Client {
	return state.Client{Session: session, Window: window, Attached: true, Control: true}
}

func oursAt(session string) state.Client {
	return state.Client{Session: session, Window: "@0", Attached: true, Control: true, Ours: true}
}

func suspendedAt(session, window string) state.Client {
	return state.Client{Session: session, Window: window}
}

func TestPlace(t *testing.T) {
	free := func(ids ...string) (all []surveyedSession) {
		for _, id := range ids {
			all = append(all, surveyedSession{ID: id, DestroyUnattached: "off"})
		}
		return all
	}
	destroyed := func(id, how string) surveyedSession { return surveyedSession{ID: id, DestroyUnattached: how} }
	const exit, destroy = "exit-unattached is on: the server would end when we leave",
		"destroy-unattached is on: a session would be destroyed when we leave"
	tests := []struct {
		name            string
		survey          survey
		session, reason string // why none
	}{
		{"nothing there", survey{}, "", "the server has no session"},
		{"the default session", survey{Default: "$1", Sessions: free("$0", "$1")}, "$1", ""},
		{"the default is not listed", survey{Default: "$9", Sessions: free("$0", "$1")}, "$0", ""},
		{"no default", survey{Sessions: free("$0", "$1")}, "$0", ""},
		{"the default before where a terminal is", survey{Default: "$0", Sessions: free("$0", "$1"),
			Clients: []state.Client{terminalAt("$1", "@1")}}, "$0", ""},
		{"where a terminal is", survey{Sessions: free("$0", "$1"),
			Clients: []state.Client{terminalAt("$1", "@1")}}, "$1", ""},
		{"a terminal before a control client", survey{Sessions: free("$0", "$1", "$2"),
			Clients: []state.Client{controlAt("$1", "@1"), terminalAt("$2", "@2")}}, "$2", ""},
		{"a control client before nobody", survey{Sessions: free("$0", "$1"),
			Clients: []state.Client{controlAt("$1", "@1")}}, "$1", ""},
		// Attaching makes us the latest client of the window, and the window
		// follows the latest of two terminals that disagree.
		{"one terminal before two that share a window", survey{Sessions: free("$0", "$1", "$2"),
			Clients: []state.Client{terminalAt("$1", "@1"), terminalAt("$1", "@1"), terminalAt("$2", "@2")}}, "$2", ""},
		{"two that share a window across sessions", survey{Sessions: free("$0", "$1", "$2"),
			Clients: []state.Client{terminalAt("$1", "@1"), terminalAt("$0", "@1"), terminalAt("$2", "@2")}}, "$2", ""},
		{"two terminals on two windows of one session", survey{Sessions: free("$0", "$1"),
			Clients: []state.Client{terminalAt("$1", "@1"), terminalAt("$1", "@2")}}, "$1", ""},
		{"a control client does not disagree", survey{Sessions: free("$0", "$1"),
			Clients: []state.Client{terminalAt("$0", "@0"), terminalAt("$0", "@0"), controlAt("$1", "@1"), terminalAt("$1", "@1")}}, "$1", ""},
		{"two that share a window before nobody", survey{Sessions: free("$0", "$1"),
			Clients: []state.Client{terminalAt("$1", "@1"), terminalAt("$1", "@1")}}, "$1", ""},
		{"another tmux-mcpd is no client", survey{Sessions: free("$0", "$1"),
			Clients: []state.Client{oursAt("$1")}}, "$0", ""},
		{"a suspended client is none", survey{Sessions: free("$0", "$1"),
			Clients: []state.Client{suspendedAt("$1", "@1")}}, "$0", ""},
		{"a suspended client shows no window", survey{Sessions: free("$0", "$1"),
			Clients: []state.Client{suspendedAt("$1", "@1"), terminalAt("$1", "@1"), controlAt("$0", "@0")}}, "$1", ""},

		{"exit-unattached", survey{Default: "$0", Sessions: []surveyedSession{{ID: "$0", DestroyUnattached: "off", ExitUnattached: true}}}, "", exit},
		{"exit-unattached with a terminal", survey{Default: "$0", Sessions: []surveyedSession{{ID: "$0", DestroyUnattached: "off", ExitUnattached: true}},
			Clients: []state.Client{terminalAt("$0", "@0")}}, "", exit},
		{"destroy-unattached on the default", survey{Default: "$0", Sessions: append(free("$1"), destroyed("$0", "on"))}, "$1", ""},
		{"destroy-unattached on the default, a terminal elsewhere", survey{Default: "$0", Sessions: append(free("$1", "$2"), destroyed("$0", "on")),
			Clients: []state.Client{terminalAt("$2", "@2")}}, "$2", ""},
		{"destroy-unattached where the terminal is", survey{Default: "$0", Sessions: append(free("$0"), destroyed("$1", "on")),
			Clients: []state.Client{terminalAt("$1", "@1")}}, "$0", ""},
		{"destroy-unattached everywhere", survey{Default: "$0", Sessions: []surveyedSession{destroyed("$0", "on"), destroyed("$1", "1")}}, "", destroy},
		{"keep-last destroys", survey{Default: "$0", Sessions: []surveyedSession{destroyed("$0", "keep-last")}}, "", destroy},
		{"keep-group destroys", survey{Default: "$0", Sessions: []surveyedSession{destroyed("$0", "keep-group")}}, "", destroy},
		{"what is not known may destroy", survey{Default: "$0", Sessions: []surveyedSession{destroyed("$0", "of-the-future")}}, "", destroy},
		{"off as a flag", survey{Default: "$0", Sessions: []surveyedSession{destroyed("$0", "0")}}, "$0", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			session, reason := tt.survey.place()
			if session != tt.session || reason != tt.reason {
				t.Errorf("place() = %q, %q; want %q, %q", session, reason, tt.session, tt.reason)
			}
		})
	}
}

func TestMustLeave(t *testing.T) {
	const pid = 7
	us := oursAt("$0")
	us.PID = pid
	session := func(destroy string, exit bool) *state.Session {
		return &state.Session{ID: "$0", DestroyUnattached: destroy, ExitUnattached: exit}
	}
	const stays, leaves = false, true
	tests := []struct {
		name        string
		session     *state.Session
		others      []state.Client
		leaves      bool
		alone, only bool
	}{
		{"nothing set", session("off", false), nil, stays, true, true},
		{"destroy-unattached, alone", session("on", false), nil, leaves, true, true},
		{"destroy-unattached as a flag, alone", session("1", false), nil, leaves, true, true},
		{"keep-last, alone", session("keep-last", false), nil, leaves, true, true},
		{"destroy-unattached, another in the session", session("on", false), []state.Client{terminalAt("$0", "@0")}, leaves, false, false},
		{"destroy-unattached, a control client in the session", session("on", false), []state.Client{controlAt("$0", "@0")}, leaves, false, false},
		{"destroy-unattached, another elsewhere", session("on", false), []state.Client{terminalAt("$1", "@1")}, leaves, true, false},
		{"destroy-unattached, another tmux-mcpd", session("on", false), []state.Client{oursAt("$0")}, leaves, true, true},
		{"destroy-unattached, a suspended client", session("on", false), []state.Client{suspendedAt("$0", "@0")}, leaves, true, true},
		{"exit-unattached, alone", session("off", true), nil, leaves, true, true},
		{"exit-unattached, another elsewhere", session("off", true), []state.Client{terminalAt("$1", "@1")}, stays, true, false},
		{"exit-unattached, another tmux-mcpd elsewhere", session("off", true), []state.Client{oursAt("$1")}, leaves, true, true},
		{"exit-unattached, another in the session", session("off", true), []state.Client{terminalAt("$0", "@0")}, stays, false, false},
		{"both, another in the session", session("on", true), []state.Client{terminalAt("$0", "@0")}, leaves, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, ok := standingOf(&state.Snapshot{Clients: append(tt.others, us), Sessions: []*state.Session{tt.session}}, pid)
			if !ok || s.me.PID != pid {
				t.Fatalf("our client is not found: %+v, %v", s, ok)
			}
			if s.alone != tt.alone || s.only != tt.only {
				t.Errorf("alone %v, only %v; want %v, %v", s.alone, s.only, tt.alone, tt.only)
			}
			if reason := s.mustLeave(); (reason != "") != tt.leaves {
				t.Errorf("mustLeave() = %q", reason)
			}
		})
	}
	if _, ok := standingOf(&state.Snapshot{Clients: []state.Client{terminalAt("$0", "@0")}}, pid); ok {
		t.Error("our client is found where it is not")
	}
}

func TestRefuge(t *testing.T) {
	us := oursAt("$0")
	us.PID = 7
	on, no := &state.Session{ID: "$1", DestroyUnattached: "on"}, &state.Session{ID: "$2", DestroyUnattached: "off"}
	own := &state.Session{ID: "$0", DestroyUnattached: "off"}
	tests := []struct {
		name     string
		clients  []state.Client
		sessions []*state.Session
		want     string
	}{
		{"somebody stays", []state.Client{us, terminalAt("$0", "@0")}, []*state.Session{own, no}, ""},
		{"a session that stays", []state.Client{us}, []*state.Session{own, on, no}, "$2"},
		{"where somebody is", []state.Client{us, terminalAt("$1", "@1")}, []*state.Session{own, on, no}, "$1"},
		{"not where another of us is", []state.Client{us, oursAt("$1")}, []*state.Session{own, on}, ""},
		{"not where one is suspended", []state.Client{us, suspendedAt("$1", "@1")}, []*state.Session{own, on}, ""},
		{"a mate of the group, that is kept then", []state.Client{us}, []*state.Session{
			{ID: "$0", DestroyUnattached: "keep-group", Group: "g"}, {ID: "$1", DestroyUnattached: "keep-group", Group: "h"},
			{ID: "$2", DestroyUnattached: "keep-group", Group: "g"}}, "$2"},
		{"any group, out of none", []state.Client{us}, []*state.Session{
			{ID: "$0", DestroyUnattached: "keep-group"}, {ID: "$1", DestroyUnattached: "keep-group"},
			{ID: "$2", DestroyUnattached: "keep-group", Group: "g"}}, "$2"},
		{"the last of its group is kept", []state.Client{us}, []*state.Session{
			{ID: "$0", DestroyUnattached: "keep-last", Group: "g"}, {ID: "$1", DestroyUnattached: "keep-last"}}, ""},
		{"nowhere", []state.Client{us}, []*state.Session{own, on}, ""},
	}
	standing := func(destroy string, clients []state.Client) standing {
		s, _ := standingOf(&state.Snapshot{Clients: clients, Sessions: []*state.Session{{ID: "$0", DestroyUnattached: destroy}}}, 7)
		return s
	}
	if got := standing("off", []state.Client{us}).refuge(&state.Snapshot{Clients: []state.Client{us}, Sessions: []*state.Session{own, no}}); got != "" {
		t.Errorf("nothing to fear: refuge() = %q", got)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := standing("on", tt.clients)
			if got := s.refuge(&state.Snapshot{Clients: tt.clients, Sessions: tt.sessions}); got != tt.want {
				t.Errorf("refuge() = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestStoodIn(t *testing.T) {
	client := func(name, session, activity string) state.Client {
		c := terminalAt(session, "@0")
		c.Name, c.Activity = name, activity
		return c
	}
	us := oursAt("$0")
	us.Name, us.Activity = "us", "1700000100"
	suspended := client("asleep", "$0", "1700000099")
	suspended.Attached = false
	tests := []struct {
		name    string
		clients []state.Client
		want    string
	}{
		{"nobody else", []state.Client{us}, ""},
		{"nobody at all", nil, ""},
		{"the only one", []state.Client{us, client("a", "$1", "1700000000")}, "a"},
		{"the one typed in last", []state.Client{client("a", "$0", "1700000001"), us, client("b", "$0", "1700000002"), client("c", "$0", "1700000000")}, "b"},
		{"one in the session before a later one elsewhere", []state.Client{client("a", "$1", "1700000009"), client("b", "$0", "1700000001")}, "b"},
		{"seconds are numbers", []state.Client{client("a", "$0", "999999999"), client("b", "$0", "1000000000")}, "b"},
		{"not a suspended one", []state.Client{suspended, client("b", "$1", "1700000001")}, "b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := stoodIn(tt.clients, "$0"); got != tt.want {
				t.Errorf("stoodIn() = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestParseSurvey(t *testing.T) {
	const clients = "C\t/dev/pts/1\t7\t$0\t@0\t0\t0\tattached\t1700000000\n"
	sessions := "S\t$0\t0\t0\t1700000000\nS\t$1\tkeep-last\t1\t\n"
	// A pane's name may look like any row.
	panes := "P\t$0\tS\t$5\t0\t0\t\nV\t$5\n"
	gotPanes, gotClients, v, err := parseSurvey([]byte(clients + sessions + "V\t$1\t3.3a\t42\t1700000001\n" + panes))
	if err != nil {
		t.Fatal(err)
	}
	if string(gotPanes) != panes || string(gotClients) != clients {
		t.Errorf("panes %q, clients %q", gotPanes, gotClients)
	}
	want := []surveyedSession{{"$0", "0", false, "1700000000"}, {"$1", "keep-last", true, ""}}
	if v.Default != "$1" || v.Version != "3.3a" || v.PID != 42 || v.Started != "1700000001" ||
		len(v.Sessions) != 2 || v.Sessions[0] != want[0] || v.Sessions[1] != want[1] {
		t.Errorf("survey %+v", v)
	}
	for _, broken := range []string{"", clients, sessions, "V\t$1\t3.3a\tnone\t1\n", "V\t$1\t3.3a\t42\n", "V_$1_3.3a_42_1\n"} {
		if _, _, v, err := parseSurvey([]byte(broken)); err == nil {
			t.Errorf("%q is read as %+v", broken, v)
		}
	}
}
