package integration

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestResources: each resource has the rows of the tool that it is named after,
// by every spelling of its URI and for every server.
func TestResources(t *testing.T) {
	t.Parallel()
	s := newTmuxServer(t)
	s.newSession("second")
	s.run("split-window", "-d", "-t", "main", "sleep", "9000")
	other := s.home.server("other")
	other.newSession("elsewhere")
	if err := s.home.settle(); err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, s.home, nil)
	c, err := d.dial(t, map[string]string{"TMUX_TMPDIR": s.home.tmpdir})
	if err != nil {
		t.Fatal(err)
	}
	of := func(rows []row, key, value string) []row {
		return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r[key] != value })
	}
	panes, sessions := s.panes(), s.sessions()
	for _, tt := range []struct {
		uris []string
		want []row
	}{
		{[]string{"tmux://sessions", "tmux://sessions?socket=default"}, sessions},
		{[]string{"tmux://panes", "tmux://panes?socket="}, panes},
		{[]string{"tmux://session/1", "tmux://session/$1", "tmux://session/%241"}, of(sessions, "session_id", "$1")},
		{[]string{"tmux://window/0", "tmux://window/@0", "tmux://window/%400"}, of(panes, "window_id", "@0")},
		{[]string{"tmux://pane/2", "tmux://pane/%2", "tmux://pane/%252", "tmux://pane/2?socket=default"}, of(panes, "pane_id", "%2")},
		{[]string{"tmux://sessions?socket=other"}, other.sessions()},
		{[]string{"tmux://panes?socket=other"}, other.panes()},
		{[]string{"tmux://panes?socket=none"}, nil},
	} {
		for _, uri := range tt.uris {
			got, err := c.readResource(uri)
			if err != nil {
				t.Errorf("%s: %v", uri, err)
			} else if diff := diffRows(tt.want, withoutCaller(got)); diff != "" {
				t.Errorf("%s: %s", uri, diff)
			}
		}
	}
	for _, uri := range []string{"tmux://pane/99", "tmux://session/7", "tmux://window/x", "tmux://nothing", "tmux://pane/0?socket=none", "file:///etc/passwd"} {
		var refused *rpcError
		if _, err := c.readResource(uri); !errors.As(err, &refused) || refused.Code != -32002 {
			t.Errorf("%s: %v, want error -32002", uri, err)
		}
	}
	listed, err := c.result("resources/list", nil)
	if err != nil {
		t.Fatal(err)
	}
	templates, err := c.result("resources/templates/list", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{`"tmux://sessions"`, `"tmux://panes"`} {
		if !strings.Contains(string(listed), uri) {
			t.Errorf("resources/list has no %s: %s", uri, listed)
		}
	}
	for _, uri := range []string{`"tmux://sessions{?socket}"`, `"tmux://session/{id}{?socket}"`, `"tmux://window/{id}{?socket}"`, `"tmux://pane/{id}{?socket}"`} {
		if !strings.Contains(string(templates), uri) {
			t.Errorf("resources/templates/list has no %s: %s", uri, templates)
		}
	}
	for _, tt := range []struct {
		uri, prefix string
		context     map[string]string
		want        []string
	}{
		{"tmux://pane/{id}", "", nil, []string{"0", "1", "2"}},
		{"tmux://pane/{id}{?socket}", "%2", nil, []string{"2"}},
		{"tmux://session/{id}", "1", nil, []string{"1"}},
		{"tmux://window/{id}", "7", nil, []string{}},
		{"tmux://pane/{id}{?socket}", "", map[string]string{"socket": "other"}, []string{"0"}},
	} {
		params := map[string]any{
			"ref":      map[string]any{"type": "ref/resource", "uri": tt.uri},
			"argument": map[string]any{"name": "id", "value": tt.prefix},
		}
		if tt.context != nil {
			params["context"] = map[string]any{"arguments": tt.context}
		}
		raw, err := c.result("completion/complete", params)
		if err != nil {
			t.Errorf("completing %s: %v", tt.uri, err)
			continue
		}
		var result struct{ Completion struct{ Values []string } }
		if err := json.Unmarshal(raw, &result); err != nil {
			t.Fatal(err)
		}
		slices.Sort(result.Completion.Values)
		if !slices.Equal(result.Completion.Values, tt.want) {
			t.Errorf("completing %s%s: %q, want %q", tt.uri, tt.prefix, result.Completion.Values, tt.want)
		}
	}
}
