package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// host is an MCP host with tmux-mcpd stdio as its server: what a client of the
// product is in daily life.
type host struct {
	*mcpClient
	process *process
}

// launch says how a host starts its server.
type launch struct {
	env    []string // of the host, and with it of tmux-mcpd stdio
	flags  []string // of tmux-mcpd stdio
	prefix []string // goes before the command line of whoever opens tmux's sockets
	bare   bool     // env is the whole environment
}

// hostModes are the two ways in which a host is served.
var hostModes = []struct {
	name string
	open func(t testing.TB, home *tmuxHome, l launch) host
}{
	{"embedded", func(t testing.TB, home *tmuxHome, l launch) host {
		l.flags = append(slices.Clone(l.flags), "--embedded")
		return startHost(t, home, l)
	}},
	{"bridged", func(t testing.TB, home *tmuxHome, l launch) host {
		d := startDaemon(t, home, nil, l.prefix...)
		l.prefix = nil
		return d.host(t, l)
	}},
}

// host starts a host that is served by the daemon.
func (d *daemonProcess) host(t testing.TB, l launch) host {
	t.Helper()
	l.flags = append(slices.Clone(l.flags), "--socket", d.socket)
	return startHost(t, d.home, l)
}

func startHost(t testing.TB, home *tmuxHome, l launch) host {
	t.Helper()
	argv := slices.Concat(l.prefix, []string{requireProduct(t), "stdio", "--tmux", home.guestTmux}, l.flags)
	env := l.env
	if !l.bare {
		env = home.clientEnviron(l.env...)
	}
	p := startProcess(t, argv, env, home.dir)
	c := newMCPClient(t, p)
	if err := c.initialize(); err != nil {
		t.Fatalf("%s: %v; stderr:\n%s", p.name, err, p.stderr)
	}
	return host{c, p}
}

// inModes runs a test once for each way in which a host is served.
func inModes(t *testing.T, test func(t *testing.T, open func(home *tmuxHome, l launch) host)) {
	for _, mode := range hostModes {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			test(t, func(home *tmuxHome, l launch) host { return mode.open(t, home, l) })
		})
	}
}

// mustCall makes one call and checks what holds for every answer: valid UTF-8,
// and content, structuredContent and _meta as the contract has them.
func (c *mcpClient) mustCall(t testing.TB, tool string, args any) toolResult {
	t.Helper()
	params := map[string]any{"name": tool}
	if args != nil {
		params["arguments"] = args
	}
	f, err := c.request("tools/call", params)
	if err != nil {
		t.Fatalf("%s %v: %v", tool, args, err)
	}
	if f.Error != nil {
		t.Fatalf("%s %v: %v", tool, args, f.Error)
	}
	if !utf8.Valid(f.raw) {
		t.Errorf("%s %v: the answer is not UTF-8: %q", tool, args, f.raw)
	}
	if problem := checkWire(f.Result); problem != "" {
		t.Errorf("%s %v: %s", tool, args, problem)
	}
	r, err := parseToolResult(f.Result)
	if err != nil {
		t.Fatalf("%s %v: %v", tool, args, err)
	}
	return r
}

// mustList makes one call that must succeed.
func (c *mcpClient) mustList(t testing.TB, tool string, args any) []row {
	t.Helper()
	r := c.mustCall(t, tool, args)
	if r.IsError {
		t.Fatalf("%s %v: %s", tool, args, r.text())
	}
	rows, err := r.rows()
	if err != nil {
		t.Fatalf("%s %v: %v", tool, args, err)
	}
	return rows
}

// mustRefuse makes one call that must fail as a tool fails, and returns its text.
func (c *mcpClient) mustRefuse(t testing.TB, tool string, args any) string {
	t.Helper()
	r := c.mustCall(t, tool, args)
	if !r.IsError {
		t.Errorf("%s %v: answered %.300s, want an error", tool, args, r.text())
	}
	return r.text()
}

// mustMatch wants the rows of the given ids for filters given as an object and as
// a string.
func (c *mcpClient) mustMatch(t testing.TB, tool string, filters map[string]any, ids ...string) {
	t.Helper()
	text, err := json.Marshal(filters)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []any{filters, string(text)} {
		got := rowIDs(c.mustList(t, tool, map[string]any{"filters": form}))
		if !slices.Equal(got, ids) {
			t.Errorf("%s with the filters %T %s: %v, want %v", tool, form, text, got, ids)
		}
	}
}

// mustHold fails the test if a text lacks one of the parts.
func mustHold(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%.300q lacks %q", text, part)
		}
	}
}
