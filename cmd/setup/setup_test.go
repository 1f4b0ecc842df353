package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

func TestDemo(t *testing.T) {
	if !onPath("tmux")() {
		t.Skip("tmux is missing")
	}
	d, err := startDemo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !d.answers() || !alive(d.pid) {
		t.Error("the demo server does not run")
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.dir); d.answers() || alive(d.pid) || !os.IsNotExist(err) {
		t.Errorf("the demo server left something: pid %d, directory %s", d.pid, d.dir)
	}
}

// A demo whose context has ended cleans up all the same.
func TestDemoCancelled(t *testing.T) {
	if !onPath("tmux")() {
		t.Skip("tmux is missing")
	}
	ctx, cancel := context.WithCancel(t.Context())
	d, err := startDemo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := d.play(ctx, t.Output(), []string{"sleep 60"}); err == nil {
		t.Error("a cancelled demo played on")
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if alive(d.pid) {
		t.Errorf("the demo server %d lives on", d.pid)
	}
}

// need is run with a PATH on which only a pretended package manager is.
func TestNeed(t *testing.T) {
	root := os.Geteuid() == 0
	tests := []struct {
		name    string
		manager string // "" for none
		works   bool   // the manager installs what it is told to
		want    string // part of the error, "" for none
	}{
		{"as root", "apt-get", true, ""},
		{"not installed after all", "apt-get", false, "still missing"},
		{"brew", "brew", true, ""},
		{"no manager", "", false, "no package manager"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			tool := filepath.Join(dir, "tmux")
			if test.manager != "" {
				script := "#!/bin/sh\n"
				if test.works {
					script += fmt.Sprintf("[ \"$1\" = update ] || { echo '#!/bin/sh' > %[1]s; /bin/chmod +x %[1]s; }\n", tool)
				}
				if err := os.WriteFile(filepath.Join(dir, test.manager), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			want := test.want
			if test.manager != "" && root != (test.manager != "brew") {
				want = test.manager // installing is not ours to do: the command is named
			}
			err := need(t.Context(), tmuxPackage)
			switch {
			case want == "" && err != nil:
				t.Error(err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("error %v, want one with %q", err, want)
			}
		})
	}
}
