package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asProduct in the environment makes the test binary the product, for tests
// that need it as a process.
const asProduct = "TMUX_MCPD_TEST_AS_PRODUCT"

func TestMain(m *testing.M) {
	if os.Getenv(asProduct) != "" {
		main()
	}
	os.Exit(m.Run())
}

// productScript puts a script that runs the product into dir. A service
// manager hands down no variable, so that asProduct has to be in it.
func productScript(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "tmux-mcpd")
	writeScript(t, path, fmt.Sprintf("%s=1 exec '%s' \"$@\"\n", asProduct, self))
	return path
}

func writeScript(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// shortDir is a directory whose path leaves room for the name of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mcpd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// privateTmux starts a tmux server with one session and ends it with the test.
func privateTmux(t *testing.T, socket string) {
	t.Helper()
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("tmux is missing")
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command(tmux, append([]string{"-S", socket, "-f", "/dev/null"}, args...)...)
		for _, variable := range os.Environ() {
			if !strings.HasPrefix(variable, "TMUX") {
				cmd.Env = append(cmd.Env, variable)
			}
		}
		return cmd.CombinedOutput()
	}
	if out, err := run("new-session", "-d", "-s", "work", "cat", "-"); err != nil {
		t.Fatalf("tmux new-session: %v: %s", err, out)
	}
	t.Cleanup(func() {
		run("kill-server")
		eventually(t, 10*time.Second, "the tmux server ends", func() bool {
			_, err := run("-N", "has-session")
			return err != nil
		})
	})
}

// eventually waits until a condition holds.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
