package integration

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// inspectorSDK is the MCP Inspector and the MCP conformance suite. They need a newer
// node than most machines have: npm has that as well. Its install script fetches
// the binary for the machine by npm, so scripts are run here. It is not "npm ci",
// which refuses the lock file for an optional package that exists for no machine.
var inspectorSDK = sdk{
	name:     "inspector",
	tools:    []string{"node", "npm"},
	manifest: []string{"package.json", "package-lock.json"},
	install: func(string) [][]string {
		return [][]string{{"npm", "install", "--silent", "--no-audit", "--no-fund"}}
	},
	argv: func(dir string) []string {
		return []string{filepath.Join(dir, "node_modules", "node", "bin", "node"), filepath.Join(dir, "node_modules", "@modelcontextprotocol")}
	},
}

// prepareNode returns the node that was installed and the folder of MCP's packages.
func prepareNode(t *testing.T) (node, packages string) {
	t.Helper()
	paths := inspectorSDK.prepare(t)
	if _, err := os.Stat(paths[0]); err != nil {
		t.Skipf("npm has no node for this machine: %v", err)
	}
	return paths[0], paths[1]
}

// TestInspector lets the MCP Inspector's command line start the product.
func TestInspector(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds for each call")
	}
	node, packages := prepareNode(t)
	s := newTmuxServer(t)
	s.run("select-pane", "-t", "main", "-T", "title ☃")
	flags := map[string][]string{
		"embedded": {"stdio", "--embedded"},
		"bridged":  {"stdio", "--socket", startDaemon(t, s.home, nil).socket},
	}
	inspect := func(t *testing.T, mode string, args ...string) []byte {
		t.Helper()
		argv := []string{node, filepath.Join(packages, "inspector", "clients", "launcher", "build", "index.js"), "--cli",
			"-e", "TMUX_TMPDIR=" + s.home.tmpdir, // like many hosts it hands little of its environment on
			requireProduct(t)}
		argv = append(append(argv, flags[mode]...), args...)
		env := s.home.clientEnviron("PATH=" + filepath.Dir(node) + string(os.PathListSeparator) + os.Getenv("PATH"))
		out, errs, err := command(argv, env, s.home.dir, nil, 2*time.Minute)
		// It ends with an error where a tool does.
		if err != nil && !bytes.Contains(out, []byte(`"isError": true`)) {
			t.Fatalf("%q: %v\n%s%s", args, err, out, errs)
		}
		return out
	}
	for mode := range flags {
		t.Run(mode, func(t *testing.T) {
			seen := &sighting{Tools: outcome{Result: inspect(t, mode, "--method", "tools/list")}}
			seen.checkTools(t)
			for _, tt := range []struct {
				tool string
				args []string
				want []row // nil for an error
			}{
				{"list_sessions", []string{"socket_name=default"}, s.sessions()},
				{"list_panes", []string{"window_index=0", "session_name=main", `filters={"pane_title__contains":"☃"}`}, s.panes()},
				{"list_panes", []string{"bogus=x"}, nil},
			} {
				args := []string{"--method", "tools/call", "--tool-name", tt.tool}
				for _, a := range tt.args {
					args = append(args, "--tool-arg", a)
				}
				out := inspect(t, mode, args...)
				result, err := parseToolResult(out)
				if err != nil {
					t.Errorf("%s %q: %v", tt.tool, tt.args, err)
					continue
				}
				if result.IsError != (tt.want == nil) {
					t.Errorf("%s %q: %s", tt.tool, tt.args, out)
					continue
				}
				if tt.want == nil {
					continue
				}
				rows, err := result.rows()
				if err != nil {
					t.Errorf("%s %q: %v", tt.tool, tt.args, err)
					continue
				}
				if diff := diffRows(tt.want, withoutCaller(rows)); diff != "" {
					t.Errorf("%s %q: %s", tt.tool, tt.args, diff)
				}
			}
		})
	}
}

// conformanceScenarios are those of the suite that ask for nothing but a server.
// The others want tools, prompts and resources of given names, or logging, which is
// not offered; two look at the HTTP transport, which here would be the adapter's.
var conformanceScenarios = []string{"server-initialize", "ping", "tools-list", "resources-list"}

// TestConformance runs the MCP conformance suite, which speaks HTTP only, through
// an adapter in front of the daemon's socket.
func TestConformance(t *testing.T) {
	node, packages := prepareNode(t)
	s := newTmuxServer(t)
	d := startDaemon(t, s.home, nil)
	adapter := &httpAdapter{socket: d.socket, sessions: map[string]*adapted{}}
	server := httptest.NewServer(adapter)
	defer server.Close()
	defer adapter.close()
	for _, scenario := range conformanceScenarios {
		t.Run(scenario, func(t *testing.T) {
			argv := []string{node, filepath.Join(packages, "conformance", "dist", "index.js"), "server",
				"--url", server.URL + "/mcp", "--scenario", scenario, "-o", t.TempDir()}
			out, errs, err := command(argv, os.Environ(), s.home.dir, nil, 2*time.Minute)
			if err != nil || !bytes.Contains(out, []byte("Passed: ")) || bytes.Contains(out, []byte("Passed: 0/")) {
				t.Errorf("%v\n%s%s", err, out, errs)
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "Passed: ") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// httpAdapter turns MCP's streamable HTTP into frames on a daemon's socket, one
// connection per HTTP session, as far as the suite needs it. It knows nothing of
// MCP but its handshake: every answer is the daemon's.
type httpAdapter struct {
	socket   string
	mu       sync.Mutex
	sessions map[string]*adapted
}

// adapted is one HTTP session. Its requests take turns.
type adapted struct {
	mu   sync.Mutex
	conn *rawClient
}

func (a *httpAdapter) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.sessions {
		s.conn.Close()
	}
}

func (a *httpAdapter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "only POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	var message frame
	var line bytes.Buffer
	if err == nil {
		err = json.Compact(&line, body)
	}
	if err == nil {
		err = json.Unmarshal(line.Bytes(), &message)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s, err := a.session(w, r, message.Method == "initialize")
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.conn.Write(append(line.Bytes(), '\n')); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if message.ID == nil || message.Method == "" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(callWithin))
	answer, err := s.conn.in.ReadBytes('\n')
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// session finds the session of a request, or begins one.
func (a *httpAdapter) session(w http.ResponseWriter, r *http.Request, begin bool) (*adapted, error) {
	const header = "Mcp-Session-Id"
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[r.Header.Get(header)]; s != nil && !begin {
		return s, nil
	}
	if !begin {
		return nil, fmt.Errorf("no such session")
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: a.socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	s := &adapted{conn: newRawClient(conn)}
	id := rand.Text()
	a.sessions[id] = s
	w.Header().Set(header, id)
	return s, nil
}
