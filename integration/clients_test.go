package integration

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sdk is an official MCP SDK with a client script of ours in testdata/clients.
type sdk struct {
	name     string
	tools    []string // programs that the machine must have
	manifest []string // files that say what is installed
	script   string   // "" if it brings its own
	// install makes the SDK in dir, which holds the manifest; argv runs the script there.
	install func(dir string) [][]string
	argv    func(dir string) []string
}

var pythonSDK = sdk{
	name:     "python",
	tools:    []string{"python3"},
	manifest: []string{"requirements.txt"},
	script:   "client.py",
	install: func(dir string) [][]string {
		return [][]string{
			{"python3", "-m", "venv", filepath.Join(dir, "venv")},
			{filepath.Join(dir, "venv", "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", filepath.Join(dir, "requirements.txt")},
		}
	},
	argv: func(dir string) []string {
		return []string{filepath.Join(dir, "venv", "bin", "python"), "-X", "utf8", filepath.Join(dir, "client.py")}
	},
}

var typescriptSDK = sdk{
	name:     "typescript",
	tools:    []string{"node", "npm"},
	manifest: []string{"package.json", "package-lock.json"},
	script:   "client.mjs",
	install: func(string) [][]string {
		return [][]string{{"npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"}}
	},
	argv: func(dir string) []string { return []string{"node", filepath.Join(dir, "client.mjs")} },
}

// prepare returns the command line of the client script, after installing the SDK
// if this machine has not got it yet. Where that cannot be done the test is skipped.
func (k sdk) prepare(t *testing.T) []string {
	t.Helper()
	for _, tool := range k.tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the %s SDK needs %s: %v", k.name, tool, err)
		}
	}
	cache := os.Getenv("TMUX_MCPD_CACHE")
	if cache == "" {
		cache = filepath.Join("..", ".cache")
	}
	cache, err := filepath.Abs(cache)
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join("testdata", "clients", k.name)
	sum := sha256.New()
	for _, name := range k.manifest {
		io.WriteString(sum, readFile(t, filepath.Join(source, name)))
	}
	// A changed manifest is another directory: nothing is ever half of two versions.
	dir := filepath.Join(cache, fmt.Sprintf("%s-%.12x", k.name, sum.Sum(nil)))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock := lockFile(t, dir+".lock")
	defer unlock()
	files := slices.Clone(k.manifest)
	if k.script != "" {
		files = append(files, k.script)
	}
	for _, name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(readFile(t, filepath.Join(source, name))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ready := filepath.Join(dir, "installed")
	if _, err := os.Stat(ready); err != nil {
		for _, argv := range k.install(dir) {
			if out, errs, err := command(argv, os.Environ(), dir, nil, 5*time.Minute); err != nil {
				t.Skipf("the %s SDK cannot be installed: %q: %v\n%s%s", k.name, argv, err, out, errs)
			}
		}
		if err := os.WriteFile(ready, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return k.argv(dir)
}

// lockFile waits for the lock of a path and returns what gives it back.
func lockFile(t testing.TB, path string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

// plannedCall is one step of the plan that a client script carries out.
type plannedCall struct {
	Label     string         `json:"label"`
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
}

// outcome is what a script saw of one request: one of the three.
type outcome struct {
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
	Raised string          `json:"raised"` // by the SDK itself, for an answer that it refuses
}

// sighting is what a script prints.
type sighting struct {
	Protocol string             `json:"protocol"`
	Server   string             `json:"server"`
	Tools    outcome            `json:"tools"`
	Ping     outcome            `json:"ping"`
	Calls    map[string]outcome `json:"calls"`
}

// TestClients lets the official SDKs talk to the product, which they start
// themselves as a host does, and compares what they saw with tmux.
func TestClients(t *testing.T) {
	sdks := []struct {
		name     string
		sdk      sdk
		mode     []string
		protocol string
	}{
		{"python ClientSession", pythonSDK, []string{"session"}, "2025-11-25"},
		{"python Client", pythonSDK, []string{"client"}, "2026-07-28"},
		{"typescript", typescriptSDK, nil, "2025-11-25"},
	}
	for _, tt := range sdks {
		t.Run(tt.name, func(t *testing.T) {
			script := append(tt.sdk.prepare(t), tt.mode...)
			s := newTmuxServer(t)
			s.newSession("work äö")
			s.run("split-window", "-d", "-t", "main", "-c", s.home.dir, "sleep", "9000")
			s.run("select-pane", "-t", "main", "-T", "title ☃")
			if err := s.home.settle(); err != nil {
				t.Fatal(err)
			}
			flags := map[string][]string{
				"embedded": {"stdio", "--embedded"},
				"serve":    {"stdio", "--socket", startDaemon(t, s.home, nil).socket},
			}
			for _, how := range []string{"embedded", "serve"} {
				t.Run(how, func(t *testing.T) {
					argv := append(append(script, requireProduct(t)), flags[how]...)
					seen := observe(t, s, argv)
					if seen.Protocol != tt.protocol {
						t.Errorf("protocol is %q, want %q", seen.Protocol, tt.protocol)
					}
					seen.check(t, s)
				})
			}
		})
	}
}

// plan is what every SDK does.
func plan(s *tmuxServer) []plannedCall {
	return []plannedCall{
		{"panes", "list_panes", map[string]any{}},
		{"sessions", "list_sessions", map[string]any{}},
		{"panes of one session", "list_panes", map[string]any{"session_name": "main", "socket_name": s.name}},
		{"panes by filter", "list_panes", map[string]any{"filters": map[string]any{"pane_title__contains": "☃"}}},
		{"panes by filter as a string", "list_panes", map[string]any{"filters": `{"pane_active": "0"}`}},
		{"sessions by filter", "list_sessions", map[string]any{"filters": map[string]any{"session_name__startswith": "work"}}},
		{"no session by filter", "list_sessions", map[string]any{"filters": map[string]any{"session_name": "none"}}},
		{"unknown tool", "no_such_tool", map[string]any{}},
		{"unknown argument", "list_panes", map[string]any{"no_such_argument": "x"}},
		{"wrong type", "list_panes", map[string]any{"window_id": map[string]any{"a": "b"}}},
		{"bad filter", "list_panes", map[string]any{"filters": map[string]any{"pane_id__nope": "x"}}},
		{"absent session", "list_panes", map[string]any{"session_name": "none"}},
		{"after the errors", "list_panes", map[string]any{}},
	}
}

// observe runs a client script on the plan.
func observe(t *testing.T, s *tmuxServer, argv []string) *sighting {
	t.Helper()
	input, err := json.Marshal(plan(s))
	if err != nil {
		t.Fatal(err)
	}
	out, errs, err := command(argv, s.home.clientEnviron(), s.home.dir, bytes.NewReader(input), 3*time.Minute)
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", argv, err, out, errs)
	}
	seen := &sighting{}
	if err := json.Unmarshal(out, seen); err != nil {
		t.Fatalf("%q printed %q: %v\n%s", argv, out, err, errs)
	}
	return seen
}

// check compares what a client saw with what tmux says.
func (seen *sighting) check(t *testing.T, s *tmuxServer) {
	t.Helper()
	state, err := s.read()
	if err != nil {
		t.Fatal(err)
	}
	pick := func(rows []row, key string, ok func(value string) bool) []row {
		var out []row
		for _, r := range rows {
			if value, isText := r[key].(string); isText && ok(value) {
				out = append(out, r)
			}
		}
		return out
	}
	is := func(want string) func(string) bool { return func(got string) bool { return got == want } }
	want := map[string][]row{
		"panes":                       state.panes,
		"after the errors":            state.panes,
		"sessions":                    state.sessions,
		"panes of one session":        pick(state.panes, "session_id", is("$0")),
		"panes by filter":             pick(state.panes, "pane_title", is("title ☃")),
		"panes by filter as a string": pick(state.panes, "pane_active", is("0")),
		"sessions by filter":          pick(state.sessions, "session_name", is("work äö")),
		"no session by filter":        nil,
	}
	if n := len(want["panes by filter"]); n != 1 {
		t.Fatalf("the test's own set-up is wrong: %d panes have the title", n)
	}
	seen.checkTools(t)
	if seen.Ping.Error != nil && !(seen.Protocol == "2026-07-28" && seen.Ping.Error.Code == -32601) { // that version has no ping
		t.Errorf("ping: %v", seen.Ping.Error)
	}
	for _, step := range plan(s) {
		got, ok := seen.Calls[step.Label]
		if !ok || got.Error != nil || got.Raised != "" {
			t.Errorf("%s: no result: %v %v %s", step.Label, ok, got.Error, got.Raised)
			continue
		}
		result, err := parseToolResult(got.Result)
		if err != nil {
			t.Errorf("%s: %v", step.Label, err)
			continue
		}
		rows, isList := want[step.Label]
		if isList == result.IsError {
			t.Errorf("%s: isError is %v: %s", step.Label, result.IsError, result.text())
			continue
		}
		if !isList {
			if strings.TrimSpace(result.text()) == "" {
				t.Errorf("%s: an error without text", step.Label)
			}
			continue
		}
		gotRows, err := result.rows()
		if err != nil {
			t.Errorf("%s: %v", step.Label, err)
			continue
		}
		if diff := diffRows(rows, withoutCaller(gotRows)); diff != "" {
			t.Errorf("%s: %s", step.Label, diff)
		}
		if problem := checkWire(got.Result); problem != "" {
			t.Errorf("%s: %s", step.Label, problem)
		}
	}
}

// checkTools wants both tools, with the schemas by which the SDK checked the rows.
func (seen *sighting) checkTools(t *testing.T) {
	t.Helper()
	var listed struct {
		Tools []struct {
			Name         string          `json:"name"`
			InputSchema  json.RawMessage `json:"inputSchema"`
			OutputSchema json.RawMessage `json:"outputSchema"`
		} `json:"tools"`
	}
	if seen.Tools.Error != nil || seen.Tools.Raised != "" {
		t.Errorf("tools/list: %v %s", seen.Tools.Error, seen.Tools.Raised)
		return
	}
	if err := json.Unmarshal(seen.Tools.Result, &listed); err != nil {
		t.Errorf("tools/list: %v", err)
		return
	}
	found := map[string]bool{}
	for _, tool := range listed.Tools {
		found[tool.Name] = len(tool.InputSchema) > 2 && len(tool.OutputSchema) > 4 // neither {} nor null
	}
	for _, name := range []string{"list_sessions", "list_panes"} {
		if !found[name] {
			t.Errorf("tools/list lacks %s or its schemas", name)
		}
	}
}
