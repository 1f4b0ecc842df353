package tools

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"tmux-mcpd/daemon/state"
)

// A ResourceKind is a kind of resource: one row of ResourceKinds.
type ResourceKind struct {
	Name        string
	URI         string // with {id} where the kind has one
	Title       string
	Description string

	sigil byte // of the ids of the kind, 0 for the kinds without
	rows  func(s *state.Snapshot, id string) (panes []*state.Pane, sessions []*state.Session)
}

// ResourceKinds are all kinds, in the order in which they are listed.
var ResourceKinds = []ResourceKind{
	{
		Name: "sessions", URI: "tmux://sessions", Title: "tmux sessions",
		Description: "All sessions of the tmux server, as the rows of list_sessions.",
		rows: func(s *state.Snapshot, _ string) ([]*state.Pane, []*state.Session) {
			return nil, s.Sessions
		},
	},
	{
		Name: "panes", URI: "tmux://panes", Title: "tmux panes",
		Description: "All panes of the tmux server, as the rows of list_panes.",
		rows: func(s *state.Snapshot, _ string) ([]*state.Pane, []*state.Session) {
			return s.Panes, nil
		},
	},
	{
		Name: "session", URI: "tmux://session/{id}", Title: "tmux session", sigil: '$',
		Description: "One session by the number of its id (1 for $1), as a row of list_sessions.",
		rows: func(s *state.Snapshot, id string) ([]*state.Pane, []*state.Session) {
			if session := s.Session(id); session != nil {
				return nil, []*state.Session{session}
			}
			return nil, nil
		},
	},
	{
		Name: "window", URI: "tmux://window/{id}", Title: "tmux window", sigil: '@',
		Description: "The panes of one window by the number of its id (2 for @2), as the rows of list_panes.",
		rows: func(s *state.Snapshot, id string) ([]*state.Pane, []*state.Session) {
			a := arguments{windowID: argument{value: id, set: true}}
			panes, err := a.window(s)
			if err != nil {
				return nil, nil
			}
			return panes, nil
		},
	},
	{
		Name: "pane", URI: "tmux://pane/{id}", Title: "tmux pane", sigil: '%',
		Description: "One pane by the number of its id (3 for %3), as a row of list_panes.",
		rows: func(s *state.Snapshot, id string) ([]*state.Pane, []*state.Session) {
			for _, p := range s.Panes {
				if p.Value(state.PaneID) == id {
					return []*state.Pane{p}, nil
				}
			}
			return nil, nil
		},
	},
}

// HasID reports whether there is one resource of the kind per thing.
func (k *ResourceKind) HasID() bool { return k.sigil != 0 }

// A Resource is what a URI names.
type Resource struct {
	Kind   *ResourceKind
	ID     string  // "$1", "@2", "%3"; "" for the kinds without
	Socket *string // the socket name asked for, nil for the caller's own server
}

// ErrResource says that a URI names no resource that there is.
var ErrResource = errors.New("no such resource")

// ParseResource reads a URI: tmux://panes, tmux://pane/3, each with ?socket=NAME
// for another server than the caller's. An id may be given as tmux prints it
// too. For a pane that is %3 or, as a URI has to write it, %253: where both
// readings are possible the second is taken.
func ParseResource(uri string) (Resource, error) {
	path, query, _ := strings.Cut(uri, "?")
	for i := range ResourceKinds {
		k := &ResourceKinds[i]
		r := Resource{Kind: k}
		prefix, _, hasID := strings.Cut(k.URI, "{id}")
		id, ok := strings.CutPrefix(path, prefix)
		switch {
		case !ok || !hasID && id != "":
			continue
		case hasID:
			if r.ID = k.id(id); r.ID == "" {
				return Resource{}, ErrResource
			}
		}
		if query != "" {
			values, err := url.ParseQuery(query)
			if err != nil || len(values) != 1 || len(values["socket"]) != 1 {
				return Resource{}, ErrResource
			}
			r.Socket = &values["socket"][0]
		}
		return r, nil
	}
	return Resource{}, ErrResource
}

// id makes tmux's id of one in a URI, "" if it is none.
func (k *ResourceKind) id(s string) string {
	digits := s
	if escaped, ok := strings.CutPrefix(s, url.PathEscape(string(k.sigil))); ok {
		digits = escaped
	} else if plain, ok := strings.CutPrefix(s, string(k.sigil)); ok {
		digits = plain
	} else if k.sigil == '$' || k.sigil == '@' {
		if unescaped, err := url.PathUnescape(s); err == nil {
			digits = strings.TrimPrefix(unescaped, string(k.sigil))
		}
	}
	if digits == "" || len(digits) > 10 || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return string(k.sigil) + digits
}

// URI is the one form of a resource's URI in which mcp-go knows it.
func (r Resource) URI() string {
	uri := r.Kind.URI
	if r.ID != "" {
		uri = strings.Replace(uri, "{id}", r.ID[1:], 1)
	}
	if r.Socket != nil {
		uri += "?socket=" + url.QueryEscape(*r.Socket)
	}
	return uri
}

// Read returns the resource's rows as a JSON array, as fresh as the call. A
// resource that does not exist is ErrResource.
func (r Resource) Read(ctx context.Context, caller Caller, servers Servers) ([]byte, error) {
	server, err := servers.Server(caller, r.Socket)
	if err != nil {
		return nil, err
	}
	for {
		s, err := server.Snapshot(ctx, nil)
		if err != nil {
			return nil, err
		}
		rows, err := r.Rows(ctx, server, s, caller)
		if !errors.Is(err, ErrChanged) || ctx.Err() != nil {
			return rows, err
		}
	}
}

// Rows returns the resource's rows in a snapshot of its server.
func (r Resource) Rows(ctx context.Context, server Server, s *state.Snapshot, caller Caller) ([]byte, error) {
	panes, sessions := r.Kind.rows(s, r.ID)
	switch {
	case r.ID != "" && panes == nil && sessions == nil:
		return nil, ErrResource
	case panes == nil:
		return encodeSessions(sessions).Rows.Plain, nil
	}
	processes, err := server.Processes(ctx, panes)
	if err != nil {
		return nil, err
	}
	return encodePanes(panes, processes, caller.on(server.Socket())).Rows.Plain, nil
}

// IDs lists the numbers of the ids that a kind has in a snapshot and that begin
// with the given text, for completion.
func (k *ResourceKind) IDs(s *state.Snapshot, prefix string) []string {
	ids := []string{}
	column, ok := map[byte]state.Column{'$': state.SessionID, '@': state.WindowID, '%': state.PaneID}[k.sigil]
	if !ok {
		return ids
	}
	prefix = strings.TrimPrefix(prefix, string(k.sigil))
	seen := make(map[string]bool)
	for _, p := range s.Panes {
		id := p.Value(column)[1:]
		if !seen[id] && strings.HasPrefix(id, prefix) {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}
