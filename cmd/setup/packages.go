package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A manager installs the system's packages.
type manager struct {
	command string
	refresh []string // brings its lists up to date
	install []string
	asRoot  bool // brew refuses root, the others need it
}

// managers, the first one found is used.
var managers = []manager{
	{"apt-get", []string{"update", "-qq"}, []string{"install", "-y", "-qq", "--no-install-recommends"}, true},
	{"dnf", nil, []string{"install", "-y", "-q"}, true},
	{"apk", []string{"update", "-q"}, []string{"add", "-q"}, true},
	// Arch has no partial upgrades: lists and packages go together.
	{"pacman", nil, []string{"-Sy", "--noconfirm", "--needed"}, true},
	{"brew", nil, []string{"install", "-q"}, false},
}

// A requirement is something that must be on the machine.
type requirement struct {
	name     string
	present  func() bool
	packages map[string]string // by manager; the words are package names
}

var tmuxPackage = requirement{
	name:    "tmux",
	present: onPath("tmux"),
	packages: map[string]string{
		"apt-get": "tmux", "dnf": "tmux", "apk": "tmux", "pacman": "tmux", "brew": "tmux",
	},
}

// The race detector is linked by a C compiler.
var compilerPackage = requirement{
	name:    "a C compiler (for go test -race)",
	present: func() bool { return onPath("gcc")() || onPath("clang")() || os.Getenv("CC") != "" },
	packages: map[string]string{
		"apt-get": "gcc libc6-dev", "dnf": "gcc glibc-devel", "apk": "gcc musl-dev", "pacman": "gcc",
	},
}

// The tests run real MCP clients, the Python one in a virtual environment.
var venvPackage = requirement{
	name:    "Python with venv (for the tests with the Python MCP client)",
	present: func() bool { return exec.Command("python3", "-c", "import venv, ensurepip").Run() == nil },
	packages: map[string]string{
		"apt-get": "python3-venv", "dnf": "python3", "apk": "python3 py3-pip", "pacman": "python", "brew": "python",
	},
}

func onPath(name string) func() bool {
	return func() bool {
		_, err := exec.LookPath(name)
		return err == nil
	}
}

// need installs what is missing, or says what to install by hand.
func need(ctx context.Context, r requirement) error {
	if r.present() {
		return nil
	}
	for _, m := range managers {
		packages := strings.Fields(r.packages[m.command])
		if len(packages) == 0 || !onPath(m.command)() {
			continue
		}
		install := append([]string{m.command}, append(m.install, packages...)...)
		if root := os.Geteuid() == 0; root != m.asRoot {
			who := "as root"
			if !m.asRoot {
				who = "as yourself, not as root"
			}
			return fmt.Errorf("%s is missing; install it %s:\n\n    %s\n\nthen run this again", r.name, who, strings.Join(install, " "))
		}
		step("install %s: %s", r.name, strings.Join(install, " "))
		if m.refresh != nil {
			// A list that cannot be refreshed may still be good enough.
			if err := runCommand(packageCommand(ctx, m.command, m.refresh...)); err != nil {
				fmt.Printf("%v\n", err)
			}
		}
		if err := runCommand(packageCommand(ctx, install[0], install[1:]...)); err != nil {
			return err
		}
		if !r.present() {
			return fmt.Errorf("%s is still missing after its installation", r.name)
		}
		return nil
	}
	return errors.New(r.name + " is missing and no package manager that we know is here: install it, then run this again")
}

func packageCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := command(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return cmd
}
