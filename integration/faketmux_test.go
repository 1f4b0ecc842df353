package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeTmux makes the product run testdata/faketmux as its tmux, which misbehaves
// in the given way; words are what it says.
func (h *tmuxHome) fakeTmux(way, words string) {
	h.t.Helper()
	fake, err := filepath.Abs("testdata/faketmux")
	if err != nil {
		h.t.Fatal(err)
	}
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	script := "#!/bin/sh\nFAKE_TMUX=" + quote(way) + " FAKE_WORDS=" + quote(words) + " REAL_TMUX=" + quote(h.tmux) + " exec " + quote(fake) + ` "$@"` + "\n"
	h.guestTmux = filepath.Join(h.dir, ".fake-"+way)
	if err := os.WriteFile(h.guestTmux, []byte(script), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

// TestFakeVersions: whatever tmux calls itself, the product works with it; rules
// that differ by version go by what the running server says (B022).
func TestFakeVersions(t *testing.T) {
	for _, words := range []string{
		"tmux next-3.4", "tmux next-3.8", "tmux 3.6a", "tmux 3.1-rc", "tmux 3.7-rc2", "tmux openbsd-7.5", "tmux master", "tmux", "",
		"mytmux 3.3a", "tmux 1.0", "tmux 99.9",
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			s := newTmuxServer(t)
			s.home.fakeTmux("says", words)
			h := hostModes[0].open(t, s.home, launch{})
			guest{client: h.mcpClient}.poll(t, s, 3)
			s.waitGuests(1, 5*time.Second)
		})
	}
}

// TestFakeASCII: a tmux that replaces what is not ASCII, and tabs, is told by its
// rows: an error, never rows that are wrong and never none (B015, B025, B051).
func TestFakeASCII(t *testing.T) {
	inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
		s := newTmuxServer(t)
		s.run("rename-session", "-t", "main", "näme")
		s.home.fakeTmux("ascii", "")
		h := open(s.home, launch{})
		for range 3 {
			for _, tool := range []string{"list_sessions", "list_panes"} {
				mustHold(t, h.mustRefuse(t, tool, nil), "Cannot ask the tmux server at "+s.socket, "form")
			}
		}
	})
}

// TestFakeExits: a tmux whose control clients leave at once is asked by a command
// per call (B006, B011; a user who detaches all clients again and again).
func TestFakeExits(t *testing.T) {
	inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
		s := newTmuxServer(t)
		s.home.fakeTmux("exits", "")
		h := open(s.home, launch{})
		g := guest{client: h.mcpClient}
		g.poll(t, s, 10)
		s.run("split-window", "-d", "-t", "main", "sleep", "9000")
		s.run("rename-session", "-t", "main", "other")
		g.poll(t, s, 3)
		// The values of a filter's fields follow the rows in one output.
		s.run("set-option", "-p", "-t", "%0", "@x", "yes")
		for _, name := range forgeries {
			if _, err := s.try("new-window", "-d", "-t", "other:", "-n", name, "sleep", "9000"); err != nil {
				continue // this tmux takes no such name
			}
			h.mustMatch(t, "list_panes", map[string]any{"@x": "yes"}, "%0")
		}
		for _, name := range forgeries {
			s.run("set-option", "-p", "-t", "%0", "@x", name)
			h.mustMatch(t, "list_panes", map[string]any{"@x__contains": string([]rune(name)[:1])}, "%0")
		}
		if got := s.guests(); len(got) != 0 {
			t.Errorf("clients of the product: %v", got)
		}
	})
}

// TestFakeInterrupts: notifications inside of a block, as a tmux of 3.7's time
// wrote them, are neither rows nor the end of anything (B001, B007, B029).
func TestFakeInterrupts(t *testing.T) {
	inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
		s := newTmuxServer(t)
		s.home.fakeTmux("interrupts", "")
		h := open(s.home, launch{})
		g := guest{client: h.mcpClient}
		g.poll(t, s, 2)
		s.waitGuests(1, 5*time.Second)
		g.poll(t, s, 5)
		s.run("split-window", "-d", "-t", "main", "sleep", "9000")
		if err := s.home.settle(); err != nil {
			t.Fatal(err)
		}
		g.poll(t, s, 5)
	})
}

// TestFakeTruncates: from 3.7 on tmux ends a row in its middle when the system has
// not let it run for a tenth of a second. It is asked again, and our client stays.
func TestFakeTruncates(t *testing.T) {
	inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
		s := newTmuxServer(t)
		s.home.fakeTmux("truncates", filepath.Join(s.home.dir, ".truncated"))
		h := open(s.home, launch{})
		h.mustList(t, "list_sessions", nil) // by a one-shot command
		s.waitGuests(1, 5*time.Second)
		before := s.guests()
		g := guest{client: h.mcpClient}
		for range 5 {
			s.run("split-window", "-d", "-t", "main", "sleep", "9000")
			h.mustList(t, "list_panes", nil)
			s.run("set-option", "-p", "-t", "%0", "@x", "yes")
			h.mustMatch(t, "list_panes", map[string]any{"@x": "yes"}, "%0") // by a fetch
		}
		if err := s.home.settle(); err != nil {
			t.Fatal(err)
		}
		g.poll(t, s, 3)
		if after := s.guests(); !slices.Equal(before, after) {
			t.Errorf("our clients were %v, are %v", before, after)
		}
	})
}

// TestFakeFails: a client and a server that do not understand each other are an
// error in tmux's own words, and no reason to try again and again (B057).
func TestFakeFails(t *testing.T) {
	for words, hint := range map[string]string{
		"open terminal failed: not a terminal":           "of another version",
		"protocol version mismatch (client 8, server 9)": "of another version",
		"server exited unexpectedly":                     "",
		"lost server":                                    "",
	} {
		t.Run(words, func(t *testing.T) {
			inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
				s := newTmuxServer(t)
				s.home.fakeTmux("fails", words)
				lines := s.home.logCommands()
				h := open(s.home, launch{})
				// "server exited" may be so: it is asked again, at most once a second in
				// the end, until the deadline.
				const calls = 2
				for range calls {
					for _, args := range []any{nil, map[string]any{"session_name": "main"}} {
						mustHold(t, h.mustRefuse(t, "list_panes", args), "Cannot ask the tmux server at "+s.socket, words, hint)
					}
					mustHold(t, h.mustRefuse(t, "list_sessions", nil), s.socket, words)
				}
				// Nothing is done in the background, whatever a call costs.
				if n := len(lines()); n > 3*calls*16 {
					t.Errorf("tmux was run %d times for %d calls", n, 3*calls)
				}
			})
		})
	}
}

// TestFakeHangs: a tmux that never answers costs a call its deadline of 5 s and
// nobody else anything; the handshake does not wait for it (B058, B109).
func TestFakeHangs(t *testing.T) {
	for _, way := range []string{"hang", "hang-control"} {
		t.Run(way, func(t *testing.T) {
			inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
				s := newTmuxServer(t)
				s.home.fakeTmux(way, "")
				h := open(s.home, launch{})
				begin := time.Now()
				r := h.mustCall(t, "list_sessions", nil)
				took := time.Since(begin)
				if way == "hang" {
					if !r.IsError || took < 3*time.Second {
						t.Errorf("answered after %v: %s", took, r.text())
					}
					mustHold(t, r.text(), s.socket, "no answer within 5s")
				} else if r.IsError {
					t.Error(r.text())
				}
				if took > 20*time.Second {
					t.Errorf("the answer took %v", took)
				}
			})
		})
	}
}
