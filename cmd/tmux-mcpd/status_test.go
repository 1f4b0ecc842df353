package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// shape lists the members of a JSON value with their types, one a line. Lists
// are described by their first element.
func shape(path string, value any) []string {
	switch v := value.(type) {
	case map[string]any:
		lines := []string{path + " object"}
		for name, member := range v {
			lines = append(lines, shape(path+"."+name, member)...)
		}
		slices.Sort(lines)
		return lines
	case []any:
		if len(v) == 0 {
			return []string{path + " empty list"}
		}
		return shape(path+"[]", v[0])
	case string:
		return []string{path + " string"}
	case float64:
		return []string{path + " number"}
	case bool:
		return []string{path + " bool"}
	default:
		return []string{path + " null"}
	}
}

// serveHere runs the daemon in this process, with a private tmux server that it
// has been asked about by one client with a bridge.
func serveHere(t *testing.T) (socket, tmuxSocket string) {
	t.Helper()
	dir := shortDir(t)
	socket, tmuxSocket = filepath.Join(dir, "mcp.sock"), filepath.Join(dir, "tmux.sock")
	privateTmux(t, tmuxSocket)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan int, 1)
	go func() {
		served <- run(ctx, []string{"serve", "--socket", socket}, console{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}, lookup: os.LookupEnv})
	}()
	t.Cleanup(func() { cancel(); <-served })
	eventually(t, 10*time.Second, "the daemon listens", func() bool { return exists(socket) })

	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	env := map[string]string{"LIBTMUX_SOCKET_PATH": tmuxSocket, "TMUX_PANE": "%0"}
	c := console{lookup: func(name string) (string, bool) { value, set := env[name]; return value, set }}
	mcp, err := connect(t.Context(), conn, "test", c.hello(false))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the daemon attaches", func() bool {
		if _, err := mcp.callTool("list_panes", nil); err != nil {
			t.Fatal(err)
		}
		_, stdout, _ := execute(nil, "status", "--socket", socket)
		return strings.Contains(stdout, "mode   control")
	})
	return socket, tmuxSocket
}

// Scripts read this: what is in the golden file must stay. New members are
// added to it; nothing is ever taken out or changed.
func TestStatusJSON(t *testing.T) {
	socket, _ := serveHere(t)
	code, stdout, stderr := execute(nil, "status", "--json", "--socket", socket)
	if code != exitOK || stderr != "" || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	var value any
	if err := json.Unmarshal([]byte(stdout), &value); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(shape("", value), "\n") + "\n"
	want, err := os.ReadFile("testdata/status_shape.golden")
	if err != nil {
		t.Error(err)
	}
	if got != string(want) {
		t.Errorf("the shape of status --json has changed:\n%s", got)
	}
	// Each member is in the help.
	_, help, _ := execute(nil, "status", "--help")
	for line := range strings.Lines(got) {
		path, _, _ := strings.Cut(line, " ")
		name := path[strings.LastIndexByte(path, '.')+1:]
		if name = strings.TrimSuffix(name, "[]"); !strings.Contains(help, name) {
			t.Errorf("status --help does not name %s", name)
		}
	}
}

func TestStatusForPeople(t *testing.T) {
	socket, tmuxSocket := serveHere(t)
	code, stdout, stderr := execute(nil, "status", "--socket", socket)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	for _, want := range []string{
		fmt.Sprintf("daemon   %s, pid %d, up ", versionText(), os.Getpid()),
		"client   " + versionText() + "\n", "socket   " + socket + "\n",
		"CLIENT", "\ntest ", "%0", "tmux     " + tmuxSocket + " (", "mode   control\n", "holds  1 session, 1 window, 1 pane\n",
		"1 attach, 0 exits\n", "list_panes ", " µs",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("lacks %q:\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "tmux-mcpd status") {
		t.Errorf("status shows itself:\n%s", stdout)
	}
}

func TestStatusWithoutDaemon(t *testing.T) {
	socket := filepath.Join(shortDir(t), "none.sock")
	code, stdout, stderr := execute(nil, "status", "--socket", socket)
	if code != exitFailed || stdout != "" || !strings.Contains(stderr, "no daemon is running") || !strings.Contains(stderr, "tmux-mcpd service install") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	code, stdout, _ = execute(nil, "status", "--json", "--socket", socket)
	want := fmt.Sprintf(`{"client_version":%q,"socket":%q,"running":false,"daemon":null}`+"\n", versionText(), socket)
	if code != exitFailed || stdout != want {
		t.Errorf("exit code %d, stdout %q, want %q", code, stdout, want)
	}
}

// What comes from elsewhere must not drive the terminal.
func TestStatusEscapes(t *testing.T) {
	p := newPatient(t)
	p.answer("run/s", `"result":{"version":"9.9","clients":[{"name":"a\u001b[2J"}],"servers":[{"socket":"/s","last_error":"x\u001b]0;y\u0007"}]}`)
	code, stdout, stderr := execute(nil, "status", "--socket", p.path("run/s"))
	if code != exitOK || strings.ContainsAny(stdout, "\x1b\x07") || !strings.Contains(stdout, `a\x1b[2J`) || !strings.Contains(stdout, "not the daemon's version") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestComplete(t *testing.T) {
	tests := []struct {
		line   string
		want   []string
		absent string
	}{
		{"list panes --filter pane_current_c", []string{"pane_current_command=", "pane_current_command__"}, "pane_title"},
		{"list panes --filter pane_title__i", []string{"pane_title__icontains=", "pane_title__in=", "pane_title__iregex="}, "contains=\npane_title__endswith"},
		{"list panes --filter pane_title=x", nil, "pane"},
		{"list ", []string{"panes", "sessions"}, "stdio"},
		{"stdio --hints ", []string{"read-only"}, "tmux"},
		{"service ", []string{"install", "uninstall", "status"}, "serve"},
	}
	for _, test := range tests {
		args := append([]string{"__complete"}, strings.Split(test.line, " ")...)
		code, stdout, _ := execute(nil, args...)
		for _, want := range test.want {
			if !strings.Contains("\n"+stdout, "\n"+want) {
				t.Errorf("%q: lacks %s in %q", test.line, want, stdout)
			}
		}
		if code != exitOK || strings.Contains(stdout, test.absent) {
			t.Errorf("%q: exit code %d, %q", test.line, code, stdout)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		code, stdout, stderr := execute(nil, "completion", shell)
		if code != exitOK || !strings.Contains(stdout, "tmux-mcpd") || stderr != "" {
			t.Errorf("%s: exit code %d, stderr %q", shell, code, stderr)
		}
	}
}
