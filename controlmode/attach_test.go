package controlmode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestAttachLeavesNoTrace(t *testing.T) {
	eachTmux(t, func(t *testing.T, path string) {
		// The server knows variables of the user that we do not have, and
		// one that differs.
		s := newServer(t, path, "SSH_AUTH_SOCK=/user/agent", "DISPLAY=:7", "SSH_CONNECTION=user")
		t.Setenv("DISPLAY", ":99")
		os.Unsetenv("SSH_CONNECTION")
		state := func() string {
			return strings.Join([]string{
				s.run("show-environment", "-g"), s.run("show-environment", "-t", "$0"),
				s.run("show-options", "-g"), s.run("show-options", "-w"), s.run("show-options", "-s"),
				s.run("list-windows", "-a", "-F", "#{window_width}x#{window_height} #{window_layout}"),
			}, "\n")
		}
		before := state()
		c := s.attach(nil)
		during := state()
		clients := s.run("list-clients", "-F", "#{client_pid} #{client_termname} #{client_flags} #{client_utf8}")
		if want := fmt.Sprintf("%d %s ", c.PID(), TermName); !strings.HasPrefix(clients, want) ||
			!strings.Contains(clients, "ignore-size") || !strings.Contains(clients, "no-output") || !strings.HasSuffix(clients, "1") {
			t.Errorf("tmux sees us as %q, want %q with its flags", clients, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if c.Err() != ErrClosed {
			t.Errorf("after Close: %v", c.Err())
		}
		eventually(t, "no client left", func() bool { return s.run("list-clients") == "" })
		if got := s.run("display-message", "-p", "-t", "$0", "#{session_attached}"); got != "0" {
			t.Errorf("session_attached is %s afterwards", got)
		}
		for _, now := range []string{during, state()} {
			if now != before {
				t.Errorf("changed by the attach:\n%s\nbefore:\n%s", now, before)
			}
		}
		if alive(c.PID()) {
			t.Error("the client process is left")
		}
		c.Close() // once more does no harm
	})
}

func TestAttachRefused(t *testing.T) {
	eachTmux(t, func(t *testing.T, path string) {
		s := newServer(t, path)
		dir := filepath.Dir(s.Socket)
		stale := filepath.Join(dir, "stale")
		l, err := net.Listen("unix", stale)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()

		tests := []struct {
			name, socket string
			want         error
			text         string
		}{
			{"no socket", filepath.Join(dir, "none"), ErrNoServer, "No such file"},
			{"stale socket", stale, ErrNoServer, "no server running on"},
			{"no such session", s.Socket, ErrNoSession, "can't find session: $77"},
			{"not a directory", filepath.Join(s.Socket, "x"), nil, "Not a directory"},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				_, err := Tmux{Path: path, Socket: tt.socket}.Attach(testContext(t), "$77", nil)
				var e *CommandError
				if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.text) {
					t.Fatalf("got %v, want %q", err, tt.text)
				}
				if tt.want != nil && !errors.Is(err, tt.want) || tt.want == nil && errors.Is(err, ErrNoServer) {
					t.Errorf("%v is %v", err, e.Unwrap())
				}
			})
		}
		if _, err := os.Lstat(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("attach without a server made a socket: %v", err)
		}
		s.run("set-option", "-s", "exit-empty", "off")
		s.run("kill-session", "-t", "$0")
		if _, err := s.Attach(testContext(t), "$0", nil); !errors.Is(err, ErrNoSession) {
			t.Errorf("with no session left: %v", err)
		}
	})
}

func TestAttachTakesOnlySessionIDs(t *testing.T) {
	for _, session := range []string{"", "$", "main", "@1", "%1", "$1:0", "$1\n", "-t"} {
		if _, err := (Tmux{Path: "/nonexistent", Socket: "/nonexistent"}).Attach(testContext(t), session, nil); err == nil || !strings.Contains(err.Error(), "session id") {
			t.Errorf("attach to %q: %v", session, err)
		}
	}
}

func TestSocketPath(t *testing.T) {
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	fake := fakeTmux(t, "touch "+ran)
	for _, tt := range []struct{ socket, want string }{
		{"", "no tmux socket"},
		{"/tmp/a\x00b", "NUL"},
		{"/" + strings.Repeat("x", maxSocketPath), fmt.Sprintf("has %d bytes, the system takes %d", maxSocketPath+1, maxSocketPath)},
	} {
		for what, err := range map[string]error{
			"run":    second(Tmux{Path: fake, Socket: tt.socket}.Run(testContext(t), "ls")),
			"attach": second(Tmux{Path: fake, Socket: tt.socket}.Attach(testContext(t), "$0", nil)),
		} {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s with socket %.20q: %v", what, tt.socket, err)
			}
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("tmux was run with a bad socket path")
	}
	if _, err := (Tmux{Path: fake, Socket: "/" + strings.Repeat("x", maxSocketPath-1)}).Run(testContext(t), "ls"); err != nil {
		t.Errorf("longest path: %v", err)
	}
}

// The longest path is also taken by the system.
func TestLongestSocketPath(t *testing.T) {
	dir, err := os.MkdirTemp("", "cm")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, strings.Repeat("x", maxSocketPath-len(dir)-1))
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func second[T any](_ T, err error) error { return err }

// fakeTmux is a shell script in the place of tmux.
func fakeTmux(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tmux")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAttachFails(t *testing.T) {
	tests := []struct {
		name, script, text string
		is                 error
	}{
		{"protocol version", `echo "protocol version mismatch (client 8, server 7)" >&2; exit 1`, "protocol version mismatch (client 8, server 7)", nil},
		{"permission", `echo "error connecting to /s (Permission denied)" >&2; exit 1`, "(Permission denied)", nil},
		{"unsafe directory", `echo "directory /tmp/tmux-0 has unsafe permissions" >&2; exit 1`, "unsafe permissions", nil},
		{"server ends", `echo "server exited unexpectedly" >&2; exit 1`, "server exited unexpectedly", ErrServerExited},
		{"server ends on stdout", `echo "%exit server exited unexpectedly"; exit 1`, "server exited unexpectedly", ErrServerExited},
		{"wedged server", `echo %exit`, "tmux ended the connection", nil},
		{"no word", `exit 3`, "exit status 3", nil},
		{"other program", `echo hello; exit 0`, "unexpected EOF", nil},
		{"talkative", `head -c 100000 /dev/zero | tr '\0' x >&2; exit 1`, "xxx", nil},
		{"refused block", `printf '%%begin 1 2 0\nopen terminal failed\n%%error 1 2 0\n%%exit\n'`, "open terminal failed", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Tmux{Path: fakeTmux(t, tt.script), Socket: "/s"}.Attach(testContext(t), "$0", nil)
			if err == nil || !strings.Contains(err.Error(), tt.text) || len(err.Error()) > keepStderr+100 {
				t.Fatalf("got %.200v, want %q", err, tt.text)
			}
			if tt.is != nil && !errors.Is(err, tt.is) || errors.Is(err, ErrNoServer) {
				t.Errorf("%v is of the wrong kind", err)
			}
		})
	}
	if _, err := (Tmux{Path: "/nonexistent/tmux", Socket: "/s"}).Attach(testContext(t), "$0", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a program: %v", err)
	}
}

// TestCloseClimbsTheLadder has a tmux that minds neither the end of its input
// nor SIGTERM.
func TestCloseClimbsTheLadder(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "pid")
	fake := fakeTmux(t, `trap '' TERM; echo $$ >`+mark+`.new; mv `+mark+`.new `+mark+`; while :; do read x || sleep 0.05; done`)
	ctx, cancel := context.WithCancel(testContext(t))
	failed := make(chan error, 1)
	go func() { failed <- second(Tmux{Path: fake, Socket: "/s"}.Attach(ctx, "$0", nil)) }()
	var pid int
	eventually(t, "the start of the script", func() bool {
		text, _ := os.ReadFile(mark)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("attach: %v", err)
	}
	if alive(pid) {
		t.Errorf("process %d is left", pid)
	}
}

func TestConnectionEnds(t *testing.T) {
	exit := func(reason string) func(error) bool {
		return func(err error) bool {
			var e *ExitError
			return errors.As(err, &e) && e.Reason == reason
		}
	}
	tests := []struct {
		name string
		end  func(s *server, c *Client)
		is   func(error) bool
	}{
		{"kill-session", func(s *server, c *Client) { s.run("kill-session", "-t", "$0") }, exit("")},
		{"kill-server", func(s *server, c *Client) { s.run("kill-server") }, exit("")},
		{"detach-client", func(s *server, c *Client) { s.run("detach-client", "-s", "$0") }, exit("")},
		{"server killed", func(s *server, c *Client) { syscall.Kill(s.pid, syscall.SIGKILL) }, exit("server exited unexpectedly")},
		{"client killed", func(s *server, c *Client) { syscall.Kill(c.PID(), syscall.SIGKILL) }, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"client killed, server hangs", func(s *server, c *Client) {
			syscall.Kill(s.pid, syscall.SIGSTOP)
			syscall.Kill(c.PID(), syscall.SIGKILL)
		}, func(err error) bool { return strings.Contains(err.Error(), "tmux client ended: signal: killed") }},
	}
	eachTmux(t, func(t *testing.T, path string) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				s := newServer(t, path)
				c := s.attach(nil)
				tt.end(s, c)
				select {
				case <-c.Done():
				case <-testContext(t).Done():
					t.Fatal("the connection does not end")
				}
				if !tt.is(c.Err()) {
					t.Errorf("ended with %v", c.Err())
				}
				c.Close()
				if !tt.is(c.Err()) {
					t.Errorf("Close changed the reason to %v", c.Err())
				}
			})
		}
	})
}

// TestCloseWithHangingServer: the server takes nothing and says nothing.
func TestCloseWithHangingServer(t *testing.T) {
	eachTmux(t, func(t *testing.T, path string) {
		s := newServer(t, path)
		c := s.attach(nil)
		syscall.Kill(s.pid, syscall.SIGSTOP)
		call := send(t, c.Conn, "}", 1)
		start := time.Now()
		c.Close()
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("Close took %v", took)
		}
		if _, err := call.Wait(testContext(t)); err != ErrClosed {
			t.Errorf("pending call: %v", err)
		}
	})
}

func TestCallsFromMany(t *testing.T) {
	eachTmux(t, func(t *testing.T, path string) {
		s := newServer(t, path)
		c := s.attach(nil)
		ctx := testContext(t)
		var callers sync.WaitGroup
		for caller := range 8 {
			callers.Add(1)
			go func() {
				defer callers.Done()
				for i := range 100 {
					want := fmt.Sprintf("%d/%d", caller, i)
					if i%10 == 3 { // a caller that leaves
						gone, cancel := context.WithCancel(ctx)
						if call, err := c.Send("display-message -p gone", 1); err == nil {
							cancel()
							call.Wait(gone)
						}
						cancel()
					}
					replies, err := c.DoAll(ctx, "display-message -p "+Quote(want)+" ; display-message -p second", 2)
					if err != nil || len(replies) != 2 || string(replies[0].Body) != want {
						t.Errorf("%s: %v, %v", want, replies, err)
						return
					}
				}
			}()
		}
		callers.Wait()
	})
}

// TestProbe checks what freshness rests on: a lone brace is one failed block
// and moves the counter by exactly one.
func TestProbe(t *testing.T) {
	eachTmux(t, func(t *testing.T, path string) {
		s := newServer(t, path)
		c := s.attach(nil)
		var last uint32
		for i := range 100 {
			r, err := c.Do(testContext(t), "}")
			if err != nil || !r.Failed || !r.own() {
				t.Fatalf("probe: %+v, %v", r, err)
			}
			if i > 0 && r.Number != last+1 {
				t.Errorf("the counter went from %d to %d", last, r.Number)
			}
			last = r.Number
		}
	})
}

func TestLargeLines(t *testing.T) {
	eachTmux(t, func(t *testing.T, path string) {
		s := newServer(t, path)
		c := s.attach(nil)
		value := strings.Repeat("0123456789 ", 30000) // 330 kB, more than a pipe holds
		replies, err := c.DoAll(testContext(t), "set-option -g @x "+Quote(value)+" ; show-options -gqv @x", 2)
		if err != nil || len(replies) != 2 || string(replies[1].Body) != value {
			t.Fatalf("%d replies, %v", len(replies), err)
		}
	})
}

// TestMovedToAnotherSession: with detach-on-destroy off tmux moves us, and
// says so.
func TestMovedToAnotherSession(t *testing.T) {
	eachTmux(t, func(t *testing.T, path string) {
		s := newServer(t, path)
		s.run("new-session", "-d", "-s", "other", "cat")
		s.run("set-option", "-g", "detach-on-destroy", "off")
		moved := make(chan string, 10)
		c := s.attach(func(n Notification) {
			if n.Name == "session-changed" {
				moved <- n.Args
			}
		})
		if got := <-moved; got != "$0 main" {
			t.Errorf("attached to %q", got)
		}
		s.run("kill-session", "-t", "$0")
		select {
		case got := <-moved:
			if got != "$1 other" {
				t.Errorf("moved to %q", got)
			}
		case <-c.Done():
			t.Errorf("ended: %v", c.Err())
		}
	})
}

func TestEnviron(t *testing.T) {
	got := environ([]string{"A=b", "TMUX=/s,1,0", "TMUX_PANE=%1", "TMUX_TMPDIR=/t", "TERM=xterm", "TERMINFO=/x",
		"LISTEN_FDS=1", "LISTEN_PID=2", "LISTEN_FDNAMES=x", "NOTIFY_SOCKET=/n", "LANG=C"})
	want := []string{"A=b", "TMUX_TMPDIR=/t", "TERMINFO=/x", "LANG=C", "TERM=tmux-mcpd"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLocale: whatever the locale, bytes come as they are.
func TestLocale(t *testing.T) {
	eachTmux(t, func(t *testing.T, path string) {
		s := newServer(t, path)
		for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
			t.Setenv(name, "C")
		}
		const name = "é␞日\t|"
		s.run("set-option", "-g", "@x", name)
		if got := s.run("show-options", "-gqv", "@x"); got != name {
			t.Errorf("run: %q", got)
		}
		r, err := s.attach(nil).Do(testContext(t), "show-options -gqv @x")
		if err != nil || string(r.Body) != name {
			t.Errorf("attached: %q, %v", r.Body, err)
		}
	})
}

func TestRun(t *testing.T) {
	out, err := Tmux{Path: fakeTmux(t, `printf '%s\n' "$TERM" "$@"`), Socket: "/s"}.Run(testContext(t), "list-panes", "-a")
	if want := "tmux-mcpd\n-u\n-N\n-S\n/s\nlist-panes\n-a\n"; err != nil || string(out) != want {
		t.Errorf("got %q, %v", out, err)
	}
	_, err = Tmux{Path: fakeTmux(t, `echo part; echo "no current target" >&2; exit 7`), Socket: "/s"}.Run(testContext(t), "x")
	var e *CommandError
	if !errors.As(err, &e) || *e != (CommandError{"no current target", 7}) || errors.Is(err, ErrNoServer) {
		t.Errorf("got %v", err)
	}
	_, err = Tmux{Path: fakeTmux(t, `echo "no server running on /s" >&2; exit 1`), Socket: "/s"}.Run(testContext(t), "x")
	if !errors.Is(err, ErrNoServer) {
		t.Errorf("got %v", err)
	}
	// A path of the user's choice does not change the kind.
	_, err = Tmux{Path: fakeTmux(t, `echo "error connecting to /(No such file or directory) (Permission denied)" >&2; exit 1`), Socket: "/s"}.Run(testContext(t), "x")
	if err == nil || errors.Is(err, ErrNoServer) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(testContext(t), 50*time.Millisecond)
	defer cancel()
	if _, err := (Tmux{Path: fakeTmux(t, "exec sleep 60"), Socket: "/s"}).Run(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hanging tmux: %v", err)
	}
}

// attachAndHang is the helper process of TestParentDeath: it attaches, stops
// reading, and asks for more than a pipe holds.
func attachAndHang() {
	c, err := Tmux{Path: os.Getenv("CONTROLMODE_HELPER"), Socket: os.Getenv("CONTROLMODE_SOCKET")}.Attach(context.Background(), "$0",
		func(n Notification) {
			if n.Name == "session-renamed" {
				select {}
			}
		})
	if err == nil {
		_, err = c.Send("rename-session -t "+Quote("$0")+" stop", 1)
	}
	for range 40 {
		if err == nil {
			_, err = c.Send("display-message -p "+strings.Repeat("x", 10000), 1)
		}
	}
	if err == nil {
		_, err = c.Send("set-option -g @filled yes", 1)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(c.PID())
	// Ends with the test even if that forgets to kill us.
	io.Copy(io.Discard, os.Stdin)
	os.Exit(2)
}

func BenchmarkProbe(b *testing.B) {
	c := newServer(b, tmuxPaths(b)[0]).attach(nil)
	ctx := testContext(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Do(ctx, "}"); err != nil {
			b.Fatal(err)
		}
	}
}
