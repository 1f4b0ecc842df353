package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"tmux-mcpd/daemon"
)

// A fakeDaemon answers on a unix socket as the test says and keeps what it
// was asked. The real one is tested in integration.
type fakeDaemon struct {
	socket string
	asked  chan map[string]any // every frame, in order
}

// startFakeDaemon answers initialize itself and each tools/call with what
// answer returns (the result of the response).
func startFakeDaemon(t *testing.T, answer func(tool string, arguments map[string]any) string) *fakeDaemon {
	t.Helper()
	// Not t.TempDir: its path holds the test's name, and a socket path may
	// have 104 bytes only.
	dir, err := os.MkdirTemp("", "mcpd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &fakeDaemon{socket: filepath.Join(dir, "mcp.sock"), asked: make(chan map[string]any, 100)}
	listener, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go d.serve(conn, answer)
		}
	}()
	return d
}

func (d *fakeDaemon) serve(conn net.Conn, answer func(string, map[string]any) string) {
	defer conn.Close()
	for frames := bufio.NewScanner(conn); frames.Scan(); {
		var frame map[string]any
		if json.Unmarshal(frames.Bytes(), &frame) != nil {
			return
		}
		d.asked <- frame
		id, isRequest := frame["id"]
		if !isRequest {
			continue
		}
		result := `"result":{"protocolVersion":"2025-11-25"}`
		if frame["method"] == "tools/call" {
			params := frame["params"].(map[string]any)
			arguments, _ := params["arguments"].(map[string]any)
			result = answer(params["name"].(string), arguments)
			if result == "hang up" {
				return
			}
		}
		idText, _ := json.Marshal(id)
		// A notification first: the client has to pass over it.
		conn.Write([]byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}` + "\n" +
			`{"jsonrpc":"2.0","id":` + string(idText) + `,` + result + "}\n"))
	}
}

// serveStatus answers every request but initialize with the same result.
func (d *fakeDaemon) serveStatus(conn net.Conn, result string) {
	defer conn.Close()
	for frames := bufio.NewScanner(conn); frames.Scan(); {
		var frame map[string]any
		if json.Unmarshal(frames.Bytes(), &frame) != nil {
			return
		}
		if id, isRequest := frame["id"]; isRequest {
			answer := result
			if frame["method"] == "initialize" {
				answer = `"result":{}`
			}
			fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%v,%s}`+"\n", id, answer)
		}
	}
}

// call returns the arguments of the next tools/call that was seen.
func (d *fakeDaemon) call(t *testing.T) (tool string, arguments map[string]any) {
	t.Helper()
	for {
		select {
		case frame := <-d.asked:
			if frame["method"] == "tools/call" {
				params := frame["params"].(map[string]any)
				arguments, _ := params["arguments"].(map[string]any)
				return params["name"].(string), arguments
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no tools/call within 10 s")
		}
	}
}

// rowsResult is the result of a tool that answers with rows (compact JSON).
func rowsResult(rows string) string {
	return `"result":{"content":[],"isError":false,"structuredContent":{"result":` + rows + `}}`
}

// execute runs one command line with the given environment.
func execute(env map[string]string, args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = run(context.Background(), args, console{
		in: strings.NewReader(""), out: &out, err: &errOut,
		lookup: func(name string) (string, bool) { value, set := env[name]; return value, set },
	})
	return code, out.String(), errOut.String()
}

func TestUsageErrors(t *testing.T) {
	tests := []struct {
		line string
		want string // part of what stderr says
	}{
		{"nonsense", `unknown command "nonsense"`},
		{"--nonsense", "unknown flag: --nonsense"},
		{"version extra", "extra"},
		{"serve extra", "extra"},
		{"stdio extra", "extra"},
		{"stdio --hints write", `--hints is "write"`},
		{"serve --socket", "needs an argument"},
		{"serve --idle-detach never", "invalid duration"},
		{"serve --idle-detach -1s", "the least is 0"},
		{"stdio --push-interval 1ms", "the least is 10ms"},
		{"list", "sessions or panes"},
		{"list windows", `cannot list "windows"`},
		{"list panes extra", "extra"},
		{"list panes --nonsense", "unknown flag: --nonsense"},
		{"list sessions --session x", "unknown flag: --session"},
		{"list panes --window name", `--window "name" is neither`},
		{"list panes --filter name", "FIELD=VALUE"},
		{"list panes --filter =x", "FIELD=VALUE"},
		{"list panes --filter a=1 --filter a=2", "given twice"},
	}
	for _, test := range tests {
		t.Run(test.line, func(t *testing.T) {
			code, stdout, stderr := execute(nil, strings.Fields(test.line)...)
			if code != exitUsage {
				t.Errorf("exit code %d, want %d", code, exitUsage)
			}
			if stdout != "" { // a host may be reading
				t.Errorf("stdout %q, want none", stdout)
			}
			if !strings.Contains(stderr, test.want) || !strings.Contains(stderr, "--help'") {
				t.Errorf("stderr %q: want %q and a hint at --help", stderr, test.want)
			}
		})
	}
	for _, variable := range []string{hintsVariable, "TMUX_MCPD_IDLE_DETACH", "TMUX_MCPD_PUSH_INTERVAL"} {
		code, _, stderr := execute(map[string]string{variable: "yes"}, "stdio")
		if code != exitUsage || !strings.Contains(stderr, variable) {
			t.Errorf("wrong %s: exit code %d, stderr %q", variable, code, stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, line := range []string{"", "--help", "help"} {
		code, stdout, stderr := execute(nil, strings.Fields(line)...)
		if code != exitOK || stderr != "" {
			t.Errorf("%q: exit code %d, stderr %q", line, code, stderr)
		}
		for _, want := range []string{"Examples:", "claude mcp add", "Exit codes:", "list", "serve", "stdio", "version"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%q: help lacks %q", line, want)
			}
		}
	}
}

func TestListArguments(t *testing.T) {
	tests := []struct {
		line      string
		tool      string
		arguments string // JSON
	}{
		{"list panes", "list_panes", `{}`},
		{"list sessions", "list_sessions", `{}`},
		{"list panes -L other", "list_panes", `{"socket_name":"other"}`},
		{"list panes --session work", "list_panes", `{"session_name":"work"}`},
		{"list panes --session 0", "list_panes", `{"session_name":"0"}`}, // a name, as tmux gives by default
		{"list panes --session $3", "list_panes", `{"session_id":"$3"}`},
		{"list panes --session $3x", "list_panes", `{"session_name":"$3x"}`},
		{"list panes --window @7", "list_panes", `{"window_id":"@7"}`},
		{"list panes --session work --window 2", "list_panes", `{"session_name":"work","window_index":"2"}`},
		{"list sessions --filter session_name=a,b=c", "list_sessions", `{"filters":"{\"session_name\":\"a,b=c\"}"}`},
		{"list panes --filter a__in=[\"x\",\"y\"] --filter b=[1]", "list_panes", `{"filters":"{\"a__in\":[\"x\",\"y\"],\"b\":\"[1]\"}"}`},
		{"list panes --filter a__nin=xyz", "list_panes", `{"filters":"{\"a__nin\":\"xyz\"}"}`},
		{"list panes --filter a=", "list_panes", `{"filters":"{\"a\":\"\"}"}`},
	}
	for _, test := range tests {
		t.Run(test.line, func(t *testing.T) {
			d := startFakeDaemon(t, func(string, map[string]any) string { return rowsResult("[]") })
			code, stdout, stderr := execute(nil, append(strings.Fields(test.line), "--json", "--socket", d.socket)...)
			if code != exitOK || stdout != "[]\n" || stderr != "" {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			tool, arguments := d.call(t)
			got, _ := json.Marshal(arguments)
			if tool != test.tool || string(got) != test.arguments {
				t.Errorf("called %s %s, want %s %s", tool, got, test.tool, test.arguments)
			}
		})
	}
}

func TestListPanes(t *testing.T) {
	const panes = `[{"pane_id":"%3","pane_width":"80","pane_height":"24","pane_current_command":"vim",` +
		`"pane_current_path":"/tmp","pane_title":"a\tb é","pane_active":"1","window_id":"@2","session_id":"$1","is_caller":true}]`
	d := startFakeDaemon(t, func(tool string, _ map[string]any) string {
		if tool == "list_sessions" {
			return rowsResult(`[{"session_id":"$1","session_name":"work","window_count":1}]`)
		}
		return rowsResult(panes)
	})

	code, stdout, stderr := execute(nil, "list", "panes", "--json", "--socket", d.socket)
	if code != exitOK || stdout != panes+"\n" || stderr != "" {
		t.Errorf("--json: exit code %d, stderr %q, stdout not the answer's bytes: %s", code, stderr, stdout)
	}

	const want = "PANE  SESSION  WINDOW  SIZE   COMMAND  PATH  TITLE   ACTIVE\n" +
		"%3*   work     @2      80x24  vim      /tmp  a\\tb é  yes\n"
	code, stdout, stderr = execute(nil, "list", "panes", "--socket", d.socket)
	if code != exitOK || stdout != want || stderr != "" {
		t.Errorf("exit code %d, stderr %q, stdout:\n%s\nwant:\n%s", code, stderr, stdout, want)
	}
}

func TestListNothing(t *testing.T) {
	d := startFakeDaemon(t, func(string, map[string]any) string { return rowsResult("[]") })
	for line, want := range map[string]string{
		"list panes":                 "no panes (is a tmux server running?)",
		"list sessions":              "no sessions (is a tmux server running?)",
		"list sessions --filter a=b": "no sessions pass the filter",
	} {
		code, stdout, stderr := execute(nil, append(strings.Fields(line), "--socket", d.socket)...)
		if code != exitOK || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %q", line, code, stdout, stderr, want)
		}
	}
}

func TestListErrors(t *testing.T) {
	const toolError = `"result":{"isError":true,"content":[{"type":"text","text":"Unknown filter field 'x' in 'x'.\nDid you mean 'y'?"}]}`
	tests := []struct{ name, answer, want string }{
		{"tool error", toolError, "tmux-mcpd: Unknown filter field 'x' in 'x'.\nDid you mean 'y'?\n"},
		{"rpc error", `"error":{"code":-32603,"message":"out of order"}`, "tmux-mcpd: out of order\n"},
		{"no rows", `"result":{}`, "holds no rows"},
		{"error without text", `"result":{"isError":true}`, "failed without saying why"},
		{"not JSON", `"result":`, "answer to tools/call"},
		{"not rows", rowsResult(`{}`), "answer of list_panes"},
		{"hang-up", "hang up", "closed the connection"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := startFakeDaemon(t, func(string, map[string]any) string { return test.answer })
			code, stdout, stderr := execute(nil, "list", "panes", "--socket", d.socket)
			if code != exitFailed || stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d, stdout %q, stderr %q; want %q", code, stdout, stderr, test.want)
			}
		})
	}
}

// The hello names the variables that are set, also when set to nothing, and
// no others: a daemon must be able to tell "not in tmux" from "unknown".
func TestHello(t *testing.T) {
	d := startFakeDaemon(t, func(string, map[string]any) string { return rowsResult("[]") })
	env := map[string]string{"TMUX": "/tmp/s,1,0", "TMUX_PANE": "%4", "LIBTMUX_SOCKET": "", "HOME": "/root"}
	if code, _, stderr := execute(env, "list", "panes", "--json", "--socket", d.socket); code != exitOK {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	first := <-d.asked
	params := first["params"].(map[string]any)
	got, _ := json.Marshal(params["env"])
	const want = `{"LIBTMUX_SOCKET":"","TMUX":"/tmp/s,1,0","TMUX_PANE":"%4"}`
	if first["method"] != "notifications/tmux-mcpd/hello" || first["id"] != nil || string(got) != want {
		t.Errorf("first frame %v with env %s, want a hello with %s", first, got, want)
	}
	if params["version"] != versionText() || params["hints"] != nil {
		t.Errorf("hello says %v", params)
	}
}

func TestVersion(t *testing.T) {
	code, stdout, stderr := execute(nil, "version")
	if code != exitOK || stderr != "" || !strings.HasPrefix(stdout, "tmux-mcpd "+versionText()+" (go") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestTerminalWidth(t *testing.T) {
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	defer terminal.Close()
	defer tty.Close()
	if err := pty.Setsize(terminal, &pty.Winsize{Rows: 10, Cols: 43}); err != nil {
		t.Fatal(err)
	}
	if got := terminalWidth(tty); got != 43 {
		t.Errorf("terminal of 43 columns: %d", got)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if got := terminalWidth(w); got != 0 {
		t.Errorf("pipe: %d columns", got)
	}
	if got := terminalWidth(&bytes.Buffer{}); got != 0 {
		t.Errorf("buffer: %d columns", got)
	}
}

func TestServeTwice(t *testing.T) {
	dir, err := os.MkdirTemp("", "mcpd") // as in startFakeDaemon
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "mcp.sock")
	listener, err := daemon.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	code, stdout, stderr := execute(nil, "serve", "--socket", socket)
	want := fmt.Sprintf("already running on %s (pid %d)", socket, os.Getpid())
	if code != exitFailed || stdout != "" || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, stdout %q, stderr %q; want %q", code, stdout, stderr, want)
	}
}
