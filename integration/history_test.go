package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// history is what one process did to a tmux server that nobody else changes: a
// list of states, each with the change that led to it. It decides whether an
// answer was right without stopping the changes while the question is asked.
//
// State i can have been true only between the moment change i was begun and the
// moment change i+1 had been completed: tmux carried each change out somewhere
// between these two moments, and in one piece. So an answer to a call that was
// open from s to e may be state i only if
//
//	changes[i].begun <= e   and   s <= changes[i+1].done
//
// (no later change: no second bound). The second half is the promise "never
// stale": a state whose end had been seen before the call is refused. A client
// that calls one after the other must moreover never go back in the list.
//
// The command and path of a pane change by themselves after fork, when the pane's
// program is executed. Until a process has been seen settled they are not judged,
// from then on they are.
type history struct {
	changes []change
	settled map[string]settledPane // by pane_pid
}

// change is one tmux command and what both tools had to answer after it.
type change struct {
	command     string
	begun, done time.Time
	states      map[string]string // tool → fingerprint of the rows
	rows        map[string][]row
}

type settledPane struct {
	since         time.Time // zero: never
	command, path any
}

// observation is one answer of one client.
type observation struct {
	tool       string
	begun, got time.Time
	rows       []row
}

// volatile are the keys that are judged by history.settled.
var volatile = []string{"pane_current_command", "pane_current_path"}

// fingerprint is the encoded rows without what is judged otherwise.
func fingerprint(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		kept := row{}
		for k, v := range r {
			kept[k] = v
		}
		delete(kept, "is_caller")
		for _, key := range volatile {
			delete(kept, key)
		}
		raw, err := json.Marshal(kept) // sorts the keys
		if err != nil {
			panic(err) // rows come from JSON
		}
		b.Write(raw)
		b.WriteByte('\n')
	}
	return b.String()
}

// record adds the state that a change led to.
func (h *history) record(command string, begun, done time.Time, state serverState) {
	h.changes = append(h.changes, change{command: command, begun: begun, done: done,
		rows: map[string][]row{"list_panes": state.panes, "list_sessions": state.sessions},
		states: map[string]string{
			"list_panes": fingerprint(state.panes), "list_sessions": fingerprint(state.sessions)},
	})
}

// settle notes what the panes show from now on. The rows must have been read
// after every program had been executed.
func (h *history) settle(panes []row, now time.Time) {
	if h.settled == nil {
		h.settled = map[string]settledPane{}
	}
	for _, r := range panes {
		pid, _ := r["pane_pid"].(string)
		if h.settled[pid].since.IsZero() {
			h.settled[pid] = settledPane{now, r["pane_current_command"], r["pane_current_path"]}
		}
	}
}

// check judges the answers that one client got, in the order it got them.
func (h *history) check(seen []observation) error {
	reached := map[string]int{}
	for n, o := range seen {
		state := fingerprint(o.rows)
		found := -1
		first, last := -1, -1
		for i := range h.changes {
			if h.changes[i].begun.After(o.got) {
				break
			}
			if i+1 < len(h.changes) && h.changes[i+1].done.Before(o.begun) {
				continue
			}
			if first < 0 {
				first = i
			}
			last = i
			// The earliest state that fits leaves the most room for later answers.
			if found < 0 && i >= reached[o.tool] && h.changes[i].states[o.tool] == state {
				found = i
			}
		}
		if found < 0 {
			return fmt.Errorf("answer %d of %s is none of the states %d to %d that were possible: %s",
				n+1, o.tool, first, last, h.explain(o, state, last))
		}
		// Both tools read one server: neither may go back behind the other.
		for _, tool := range []string{"list_panes", "list_sessions"} {
			reached[tool] = found
		}
		if err := h.checkSettled(o); err != nil {
			return fmt.Errorf("answer %d of %s: %w", n+1, o.tool, err)
		}
	}
	return nil
}

func (h *history) checkSettled(o observation) error {
	if o.tool != "list_panes" {
		return nil
	}
	for _, r := range o.rows {
		pid, _ := r["pane_pid"].(string)
		s := h.settled[pid]
		if s.since.IsZero() || s.since.After(o.begun) {
			continue
		}
		if r["pane_current_command"] != s.command || r["pane_current_path"] != s.path {
			return fmt.Errorf("pane %v (pid %s) shows command %v and path %v, it runs %v in %v",
				r["pane_id"], pid, r["pane_current_command"], r["pane_current_path"], s.command, s.path)
		}
	}
	return nil
}

// explain says which state a wrong answer is, or how it differs from the last
// possible one.
func (h *history) explain(o observation, state string, last int) string {
	for i := range h.changes {
		if h.changes[i].states[o.tool] != state {
			continue
		}
		text := fmt.Sprintf("it is state %d, after %q", i, h.changes[i].command)
		if i+1 < len(h.changes) {
			text += fmt.Sprintf(", which ended %v before the call", o.begun.Sub(h.changes[i+1].done))
		}
		return text
	}
	if last < 0 {
		return "no state was possible"
	}
	return fmt.Sprintf("it was true at no time; after %q: %s", h.changes[last].command,
		diffRows(stable(h.changes[last].rows[o.tool]), stable(o.rows)))
}

// stable is the rows as fingerprint sees them.
func stable(rows []row) []row {
	out := withoutCaller(rows)
	for _, r := range out {
		for _, key := range volatile {
			delete(r, key)
		}
	}
	return out
}

func TestHistoryCheck(t *testing.T) {
	epoch := time.Now()
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	state := func(name string) serverState {
		return serverState{
			panes:    []row{{"pane_id": "%0", "pane_pid": name, "pane_current_command": "sleep", "pane_current_path": "/"}},
			sessions: []row{{"session_id": "$0", "session_name": name}},
		}
	}
	// a from 0, b begun at 100 and done at 110, a again begun at 200 and done at 210,
	// c begun at 300 and done at 310.
	h := &history{}
	h.record("start", at(0), at(0), state("a"))
	h.record("to b", at(100), at(110), state("b"))
	h.record("to a", at(200), at(210), state("a"))
	h.record("to c", at(300), at(310), state("c"))
	h.settle(state("c").panes, at(350))
	sessions := func(begun, got int, name string) observation {
		return observation{"list_sessions", at(begun), at(got), state(name).sessions}
	}
	panes := func(begun, got int, pid, command string) observation {
		rows := state(pid).panes
		rows[0]["pane_current_command"] = command
		return observation{"list_panes", at(begun), at(got), rows}
	}
	tests := []struct {
		name string
		seen []observation
		want string // part of the error, "" for none
	}{
		{"before any change", []observation{sessions(10, 20, "a")}, ""},
		{"during the change, old", []observation{sessions(90, 105, "a")}, ""},
		{"during the change, new", []observation{sessions(90, 105, "b")}, ""},
		{"new too early", []observation{sessions(50, 60, "b")}, "none of the states 0 to 0"},
		{"stale", []observation{sessions(111, 120, "a")}, "it is state 0"},
		{"open across everything", []observation{sessions(50, 400, "a")}, ""},
		{"back to an equal state", []observation{sessions(120, 130, "b"), sessions(220, 230, "a")}, ""},
		{"goes back", []observation{sessions(95, 105, "b"), sessions(101, 106, "a")}, "none of the states"},
		{"goes back to the equal state after", []observation{sessions(95, 105, "b"), sessions(101, 205, "a")}, ""},
		{"goes back by the other tool", []observation{sessions(95, 105, "b"), panes(101, 106, "a", "sleep")}, "none of the states"},
		{"never true", []observation{sessions(111, 120, "x")}, "true at no time"},
		{"no rows", []observation{{"list_sessions", at(111), at(120), nil}}, "true at no time"},
		{"unsettled command", []observation{panes(320, 330, "c", "tmux")}, ""},
		{"settled command", []observation{panes(360, 370, "c", "sleep")}, ""},
		{"wrong settled command", []observation{panes(360, 370, "c", "tmux")}, "it runs sleep"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := h.check(tt.seen)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("want an error with %q, got %v", tt.want, err)
			}
		})
	}
}
