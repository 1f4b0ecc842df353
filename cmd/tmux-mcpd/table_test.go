package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files of this package")

// golden compares got with testdata/NAME.golden. A missing file fails.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs.\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// rows reads the answer of a tool from testdata.
func rows[T any](t *testing.T, name string) []T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var list []T
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestTables(t *testing.T) {
	names := map[string]string{"$0": "work", "$1": "日本語のセッション"}
	panes := paneTable(rows[paneRow](t, "panes.json"), names)
	sessions := sessionTable(rows[sessionRow](t, "sessions.json"), time.UTC)
	tests := []struct {
		golden string
		table  table
		width  int
	}{
		{"panes", panes, 0},
		{"panes_120", panes, 120},
		{"panes_80", panes, 80},
		{"panes_40", panes, 40}, // narrower than the narrowest columns
		{"sessions", sessions, 0},
		{"sessions_60", sessions, 60},
	}
	for _, test := range tests {
		t.Run(test.golden, func(t *testing.T) {
			var out strings.Builder
			if err := test.table.write(&out, test.width); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				line = strings.TrimSuffix(line, "\n")
				if strings.ContainsFunc(line, unprintable) {
					t.Errorf("control character in %q", line)
				}
				if wide := cells.StringWidth(line); test.width > 0 && wide > test.width {
					t.Errorf("%d cells wide, want at most %d: %q", wide, test.width, line)
				}
			}
			golden(t, test.golden, out.String())
		})
	}
}

func TestPrintable(t *testing.T) {
	tests := []struct{ in, want string }{
		{"plain", "plain"},
		{"", ""},
		{"a\tb\nc\r", `a\tb\nc\r`},
		{"\x1b]0;evil\a", `\x1b]0;evil\a`},
		{"c1 \u0085 \u009b", `c1 \u0085 \u009b`},
		{"right\u202eto left", `right\u202eto left`},
		{"line\u2028end", `line\u2028end`},
		{`C:\new`, `C:\new`}, // a backslash is what it is
		{"family 👨‍👩‍👧 flag 🇩🇪", "family 👨‍👩‍👧 flag 🇩🇪"},
		{"powerline \ue0b0", "powerline \ue0b0"},
		{"e\u0301 \u00a0 \u3000", "e\u0301 \u00a0 \u3000"},
	}
	for _, test := range tests {
		if got := printable(test.in); got != test.want {
			t.Errorf("printable(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

func TestShorten(t *testing.T) {
	tests := []struct {
		in    string
		cut   cut
		width int
		want  string
	}{
		{"short", cutEnd, 8, "short"},
		{"exactly8", cutEnd, 8, "exactly8"},
		{"more than eight", cutEnd, 8, "more th…"},
		{"/home/me/src/tmux-mcpd", cutStart, 12, "…c/tmux-mcpd"},
		{"日本語テキスト", cutEnd, 8, "日本語…"},   // 7 cells: half a character is none
		{"日本語テキスト", cutStart, 8, "…キスト"}, // as above
		{"👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧", cutEnd, 8, "👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧…"}, // families stay whole
		{"%123", cutNever, 2, "%123"},
	}
	for _, test := range tests {
		if got := (column{cut: test.cut}).shorten(test.in, test.width); got != test.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", test.in, test.width, got, test.want)
		}
	}
}

// FuzzTable holds for every text: no control character gets through, every
// row is one line, and no line is wider than the terminal.
func FuzzTable(f *testing.F) {
	f.Add("plain", 20)
	f.Add("a\x1b[2Jb\n\u202e日本語 👨‍👩‍👧 e\u0301\u0301", 11)
	f.Add("\u0301\u200d\u200d", 1)
	f.Fuzz(func(t *testing.T, text string, width int) {
		width = max(1, min(width, 500))
		for _, c := range []cut{cutNever, cutEnd, cutStart} {
			tab := table{
				columns: []column{{"ONE", c}, {"TWO", cutEnd}},
				rows:    [][]string{{text, "x"}, {"x", text}},
			}
			var out strings.Builder
			if err := tab.write(&out, width); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(out.String(), "\n")
			if len(lines) != 4 || lines[3] != "" {
				t.Fatalf("%d lines, want 3: %q", len(lines)-1, out.String())
			}
			for _, line := range lines {
				if strings.ContainsFunc(line, unprintable) {
					t.Fatalf("control character in %q", line)
				}
				if wide := cells.StringWidth(line); wide > width {
					t.Fatalf("%d cells wide, want at most %d: %q", wide, width, line)
				}
			}
		}
	})
}
