package tools

import "testing"

func TestParseResource(t *testing.T) {
	tests := []struct{ uri, kind, id, socket, canonical string }{
		{"tmux://sessions", "sessions", "", "-", "tmux://sessions"},
		{"tmux://panes?socket=work", "panes", "", "work", "tmux://panes?socket=work"},
		{"tmux://session/1", "session", "$1", "-", "tmux://session/1"},
		{"tmux://session/$1", "session", "$1", "-", "tmux://session/1"},
		{"tmux://session/%241", "session", "$1", "-", "tmux://session/1"},
		{"tmux://window/@12", "window", "@12", "-", "tmux://window/12"},
		{"tmux://window/%4012", "window", "@12", "-", "tmux://window/12"},
		{"tmux://pane/3", "pane", "%3", "-", "tmux://pane/3"},
		{"tmux://pane/%3", "pane", "%3", "-", "tmux://pane/3"},
		{"tmux://pane/%12", "pane", "%12", "-", "tmux://pane/12"},
		{"tmux://pane/%253", "pane", "%3", "-", "tmux://pane/3"},
		{"tmux://pane/3?socket=", "pane", "%3", "", "tmux://pane/3?socket="},
	}
	for _, tt := range tests {
		r, err := ParseResource(tt.uri)
		if err != nil {
			t.Errorf("ParseResource(%q): %v", tt.uri, err)
			continue
		}
		socket := "-"
		if r.Socket != nil {
			socket = *r.Socket
		}
		if r.Kind.Name != tt.kind || r.ID != tt.id || socket != tt.socket || r.URI() != tt.canonical {
			t.Errorf("ParseResource(%q) = %s %q socket %q, URI %q", tt.uri, r.Kind.Name, r.ID, socket, r.URI())
		}
	}
	for _, uri := range []string{"", "tmux://", "tmux://pane/", "tmux://pane/x", "tmux://session/@1", "tmux://panes/1",
		"tmux://pane/-1", "tmux://pane/3?x=1", "tmux://pane/3?socket=a&socket=b", "http://sessions", "tmux://pane/99999999999"} {
		if r, err := ParseResource(uri); err == nil {
			t.Errorf("ParseResource(%q) = %s %q, want an error", uri, r.Kind.Name, r.ID)
		}
	}
}

// FuzzParseResource: what a URI is read as has one form, which is read as the
// same.
func FuzzParseResource(f *testing.F) {
	for _, uri := range []string{"tmux://sessions", "tmux://panes?socket=a%20b", "tmux://session/%241", "tmux://window/@12", "tmux://pane/%253?socket=", "tmux://pane/%3"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		r, err := ParseResource(uri)
		if err != nil {
			return
		}
		again, err := ParseResource(r.URI())
		if err != nil || again.Kind != r.Kind || again.ID != r.ID || again.URI() != r.URI() ||
			(r.Socket == nil) != (again.Socket == nil) || r.Socket != nil && *r.Socket != *again.Socket {
			t.Fatalf("%q is %s %q, %q is %s %q: %v", uri, r.Kind.Name, r.ID, r.URI(), again.Kind.Name, again.ID, err)
		}
	})
}
