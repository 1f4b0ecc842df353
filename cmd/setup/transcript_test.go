package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
)

// What is another one each time. The title of a pane that nobody named is the
// machine's name.
var (
	timeOfCreation = regexp.MustCompile(`"session_created":"\d+"`)
	titleOfNobody  = regexp.MustCompile(`(?m)^(%[34] .*) \S+( +(?:yes|no))$`)
	figure         = regexp.MustCompile(`\S*\d\S*( (?:µs|ms|s)\b)?`)
	plural         = regexp.MustCompile(`(N [a-z-]+)s\b`)
	spaces         = regexp.MustCompile(` +`)
)

func (s screen) masked(text []byte) string {
	if s.name == "status" || s.name == "doctor" {
		text = figure.ReplaceAll(text, []byte("N"))
		text = plural.ReplaceAll(text, []byte("$1"))
	}
	text = timeOfCreation.ReplaceAll(text, nil)
	text = titleOfNobody.ReplaceAll(text, []byte("$1 TITLE$2"))
	return string(spaces.ReplaceAll(text, []byte(" ")))
}

// The README's screens are what this source shows, but for the figures.
func TestScreens(t *testing.T) {
	if path, _ := exec.LookPath("tmux"); runtime.GOOS != "linux" || path != "/usr/bin/tmux" {
		t.Skip("the screens are those of Linux and of /usr/bin/tmux")
	}
	text, err := os.ReadFile(filepath.Join("../..", readme))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "tmux-mcpd")
	t.Chdir("../..")
	if err := buildFor(t.Context(), target{runtime.GOOS, runtime.GOARCH}, program, "0000000"); err != nil {
		t.Fatal(err)
	}
	played, err := playScreens(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range screens {
		_, shown, _, found := s.cut(text)
		switch got, want := s.masked(played[i]), s.masked(shown); {
		case !found:
			t.Errorf("the README has no place for the %s", s.name)
		case got != want:
			t.Errorf("the %s has changed: go run ./cmd/setup transcript\n%s\nin the README\n%s", s.name, got, want)
		}
	}
}
