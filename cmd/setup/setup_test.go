package main

import (
	"os"
	"strings"
	"testing"
)

func TestMirrorOf(t *testing.T) {
	tests := []struct{ name, ext, text, want string }{
		{"paragraphs", ".sources", `Types: deb
# a comment: with a colon
URIs: https://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib

Types: deb
URIs: https://mirror.example/debian-security
Suites: bookworm-security
Components: main
`, "https://mirror.example/debian"},
		{"later paragraph", ".sources", `Types: deb-src
URIs: https://wrong.example
Suites: bookworm
Components: main

Types: deb
URIs: https://right.example
Suites: bookworm
Components: main`, "https://right.example"},
		{"lines", ".list", `# deb https://comment.example/debian bookworm main
deb-src https://source.example/debian bookworm main
deb https://security.example bookworm-security main
deb [arch=amd64 signed-by=/k.gpg] https://mirror.example/debian bookworm main contrib
`, "https://mirror.example/debian"},
		{"third parties", ".list", `deb https://packages.example cloud-sdk-bookworm main
deb [arch=amd64] https://docker.example/linux/debian bookworm stable
deb [unfinished https://x.example bookworm main
`, ""},
		{"empty", ".sources", "", ""},
		{"empty", ".list", "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := mirrorOf(test.ext, test.text, "bookworm"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestNamesPackages(t *testing.T) {
	tests := []struct {
		args string
		want bool
	}{
		{"", false},
		{"-run Race -count 1", false},
		{"-run Race ./daemon", true},
		{"./...", true},
		{".", true},
		{"-v -args ./file", false},
	}
	for _, test := range tests {
		if got := namesPackages(strings.Fields(test.args)); got != test.want {
			t.Errorf("namesPackages(%q) = %v, want %v", test.args, got, test.want)
		}
	}
}

func TestAlive(t *testing.T) {
	if !alive(os.Getpid()) {
		t.Error("this process is said to have ended")
	}
	if alive(0) {
		t.Error("no process is said to be alive")
	}
}
