package daemon

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tmux-mcpd/tools"
)

// benchTmux starts a private tmux server with so many panes that sleep, in
// sessions of at most ten.
func benchTmux(b *testing.B, panes int) (socket string) {
	b.Helper()
	path, err := TmuxPath("")
	if err != nil {
		b.Skip(err)
	}
	dir, err := os.MkdirTemp("/tmp", "tm-")
	if err != nil {
		b.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	var script strings.Builder
	for i := range panes {
		if i%10 == 0 {
			fmt.Fprintf(&script, "new-session -d -s work%d -x 200 -y 50 -c /tmp 'exec sleep 9000'\n", i/10)
		} else {
			fmt.Fprintf(&script, "new-window -d -t work%d: -c /tmp 'exec sleep 9000'\n", i/10)
		}
	}
	conf := filepath.Join(dir, "conf")
	if err := os.WriteFile(conf, []byte(script.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	run := func(args ...string) string {
		cmd := exec.Command(path, append([]string{"-S", socket, "-f", conf}, args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "SHELL=/bin/sh", "LANG=C.UTF-8", "TERM=xterm"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("tmux %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	b.Cleanup(func() {
		run("kill-server")
		os.RemoveAll(dir)
	})
	run("start-server", ";", "list-sessions")
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if strings.Count(run("list-panes", "-a", "-F", "#{pane_current_command}"), "sleep") == panes {
			return socket
		}
		if time.Now().After(end) {
			b.Fatalf("%d panes do not come up", panes)
		}
	}
}

// A benchClient sends one frame again and again, and reads the answers.
type benchClient struct {
	conn  net.Conn
	in    *bufio.Reader
	frame []byte
}

func (c *benchClient) call() error {
	if _, err := c.conn.Write(c.frame); err != nil {
		return err
	}
	_, err := c.in.ReadSlice('\n')
	return err
}

// BenchmarkCall is a call from a client's write to its read of the last byte,
// with client, daemon and bench in one process: for profiles and allocations.
// What a client of its own sees is in the package integration.
//
//	go test -run '^$' -bench Call/20_panes -cpuprofile cpu.out ./daemon
func BenchmarkCall(b *testing.B) {
	for _, panes := range []int{1, 20, 200} {
		b.Run(fmt.Sprintf("%d_panes", panes), func(b *testing.B) {
			socket := benchTmux(b, panes)
			for _, clients := range []int{1, 16} {
				for _, r := range []struct{ name, tool, arguments string }{
					{"list_sessions", "list_sessions", `{}`},
					{"list_panes", "list_panes", `{}`},
					{"one_pane", "list_panes", `{"filters":{"pane_id":"%0"}}`},
					{"by_command", "list_panes", `{"filters":{"pane_current_command":"cat"}}`},
				} {
					b.Run(fmt.Sprintf("%d_clients/%s", clients, r.name), func(b *testing.B) {
						frame := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`+"\n", r.tool, r.arguments)
						benchCalls(b, socket, clients, frame)
					})
				}
			}
		})
	}
}

func benchCalls(b *testing.B, socket string, clients int, frame string) {
	d := New(Config{Version: "test"})
	defer d.stop()
	ln, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	caller := tools.Caller{Env: map[string]string{"LIBTMUX_SOCKET_PATH": socket}}
	var served sync.WaitGroup
	defer served.Wait()
	all := make([]*benchClient, clients)
	for i := range all {
		conn, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		theirs, err := ln.Accept()
		if err != nil {
			b.Fatal(err)
		}
		served.Go(func() { _ = d.serveSession(b.Context(), theirs, caller) }) // it ends with its client
		all[i] = &benchClient{conn, bufio.NewReaderSize(conn, 2<<20), []byte(frame)}
	}
	for range 10 { // the first attaches
		if err := all[0].call(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var calling sync.WaitGroup
	for i, c := range all {
		calling.Go(func() {
			for range (b.N + i) / clients {
				if err := c.call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	calling.Wait()
	b.StopTimer()
}

// BenchmarkParseCall is the decision of what a frame is.
func BenchmarkParseCall(b *testing.B) {
	frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes","arguments":{"filters":{"pane_id":"%0"}}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := parseCall(frame); !ok || tooDeep(frame, maxNesting) {
			b.Fatal("not taken")
		}
	}
}
