package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// paneProcess is a program that runs in a pane, in the environment that tmux
// gives it, with its stdin and stdout in our hands.
type paneProcess struct {
	in, out *os.File
	pane    string
}

func (p *paneProcess) Read(b []byte) (int, error)  { return p.out.Read(b) }
func (p *paneProcess) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p *paneProcess) Close() error                { return p.in.Close() }

// startInPane runs argv in a new window of the session.
func startInPane(t testing.TB, s *tmuxServer, session string, argv ...string) *paneProcess {
	t.Helper()
	dir, err := os.MkdirTemp(s.home.dir, "pane")
	if err != nil {
		t.Fatal(err)
	}
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	for _, path := range []string{in, out} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A terminal that nobody has open is one whose program has ended, to tmux.
	script := `exec 3<&0; exec "$@" <'` + in + `' >'` + out + `' 2>'` + dir + `/err'`
	args := append([]string{"new-window", "-d", "-P", "-F", "#{pane_id}", "-t", session + ":", "-c", s.home.dir, "sh", "-c", script, "sh"}, argv...)
	p := &paneProcess{pane: strings.TrimSpace(s.run(args...))}
	eventually(t, "the pane's program opens its input", 20*time.Second, func() (bool, string) {
		p.in, err = os.OpenFile(in, os.O_WRONLY|syscall.O_NONBLOCK, 0) // ENXIO: nobody reads yet
		return err == nil, fmt.Sprint(err)
	})
	if p.out, err = os.Open(out); err != nil { // waits for the shell, which is about to open it
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.in.Close()
		p.out.Close()
		if text, err := os.ReadFile(dir + "/err"); t.Failed() && err == nil && len(text) > 0 {
			t.Logf("%q in pane %s: stderr:\n%s", argv, p.pane, text)
		}
	})
	return p
}

// client is an MCP client of the pane's program, after the handshake.
func (p *paneProcess) client(t testing.TB) *mcpClient {
	t.Helper()
	c := newMCPClient(t, p)
	if err := c.initialize(); err != nil {
		t.Fatal(err)
	}
	return c
}

// relay is the path of testdata/relay.
var relay = sync.OnceValues(func() (string, error) {
	path := filepath.Join(runDir(), "relay")
	out, err := exec.Command("go", "build", "-o", path, "./testdata/relay").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// callers are the panes whose is_caller is true, and says whether it is known.
func callers(rows []row) (panes []string, known bool) {
	for _, r := range rows {
		if r["is_caller"] != nil {
			known = true
		}
		if r["is_caller"] == true {
			panes = append(panes, rowID(r))
		}
	}
	return panes, known
}

// mustBeIn wants the caller to be in the pane and nowhere else.
func (c *mcpClient) mustBeIn(t testing.TB, pane string) {
	t.Helper()
	rows := c.mustList(t, "list_panes", nil)
	if got, _ := callers(rows); !slices.Equal(got, []string{pane}) {
		t.Errorf("is_caller is true in %v, want %s", got, pane)
	}
	if !slices.ContainsFunc(rows, func(r row) bool { return r["is_caller"] == false }) {
		t.Error("is_caller is false nowhere: the test shows nothing")
	}
	c.mustMatch(t, "list_panes", map[string]any{"is_caller": true}, pane)
}

// TestCallersOfOneDaemon: each host sees its own pane, through one daemon that
// was itself started in a pane of the same server.
func TestCallersOfOneDaemon(t *testing.T) {
	t.Parallel()
	s := newTmuxServer(t)
	s.newSession("other")
	product := requireProduct(t)
	dir, err := os.MkdirTemp(s.home.dir, "d")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "mcp.sock")
	daemon := startInPane(t, s, "main", product, "serve", "--socket", socket, "--tmux", s.home.tmux)
	eventually(t, "the daemon serves", 20*time.Second, func() (bool, string) {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return false, err.Error()
		}
		conn.Close()
		return true, ""
	})
	type peer struct {
		*mcpClient
		pane string
	}
	var peers []peer
	for _, session := range []string{"main", "other"} {
		p := startInPane(t, s, session, product, "stdio", "--socket", socket)
		peers = append(peers, peer{p.client(t), p.pane})
	}
	embedded := startInPane(t, s, "other", product, "stdio", "--embedded", "--tmux", s.home.tmux)
	peers = append(peers, peer{embedded.client(t), embedded.pane})
	// A client that does not introduce itself is known by its process.
	if path, err := relay(); err != nil {
		t.Error(err)
	} else if _, err := os.Stat("/proc/self/environ"); err == nil {
		for _, session := range []string{"main", "other"} {
			p := startInPane(t, s, session, path, socket)
			peers = append(peers, peer{p.client(t), p.pane})
		}
	}
	for range 3 {
		for _, p := range peers {
			p.mustBeIn(t, p.pane)
		}
	}
	if slices.ContainsFunc(peers, func(p peer) bool { return p.pane == daemon.pane }) {
		t.Error("two programs in one pane: the test shows nothing")
	}
	// The same panes of another server are not the caller's.
	other := s.home.server("second")
	other.newSession("main")
	for _, p := range peers {
		rows := p.mustList(t, "list_panes", map[string]any{"socket_name": "second"})
		if got, known := callers(rows); len(rows) != 1 || len(got) != 0 || !known {
			t.Errorf("on another server is_caller is true in %v, known %v, of %d rows", got, known, len(rows))
		}
	}
	// Nobody is where the daemon is: a client from outside of tmux is in no pane,
	// and its tmux server is its own.
	outside := newTmuxHome(t)
	elsewhere := outside.server("default")
	elsewhere.newSession("elsewhere")
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c := newMCPClient(t, conn)
	if err := c.hello(map[string]string{"TMUX_TMPDIR": outside.tmpdir}); err != nil {
		t.Fatal(err)
	}
	if err := c.initialize(); err != nil {
		t.Fatal(err)
	}
	rows := c.mustList(t, "list_panes", nil)
	if got, known := callers(rows); known || len(rows) != 1 || len(got) != 0 || rows[0]["pane_current_path"] != outside.dir {
		t.Errorf("outside of tmux: %v", rows)
	}
	for _, p := range peers {
		p.close()
	}
	s.run("send-keys", "-t", daemon.pane, "C-c")
	s.wait(daemon.pane, "#{pane_id}", "", 10*time.Second)
}

// TestHandedOver: each of the five variables reaches whoever answers, and those of
// the daemon (strangeIdentity) never count.
func TestHandedOver(t *testing.T) {
	inModes(t, func(t *testing.T, open func(*tmuxHome, launch) host) {
		home := newTmuxHome(t)
		for _, name := range []string{"default", "named", "pathed"} {
			home.server(name).newSession("is-" + name)
		}
		second := newTmuxHome(t)
		for _, name := range []string{"default", "named"} {
			second.server(name).newSession("second-" + name)
		}
		in := func(s *tmuxServer) string { return "TMUX=" + s.socket + ",1,0" }
		for _, tt := range []struct {
			env     []string
			session string // of the server that is asked without socket_name
			caller  any    // is_caller of its only pane
		}{
			{nil, "is-default", nil},
			{[]string{"TMUX_TMPDIR=" + second.tmpdir}, "second-default", nil},
			{[]string{in(home.server("pathed"))}, "is-pathed", nil},
			{[]string{in(home.server("pathed")), "TMUX_PANE=%0"}, "is-pathed", true},
			{[]string{in(home.server("pathed")), "TMUX_PANE=%7"}, "is-pathed", false},
			{[]string{"TMUX_PANE=%0"}, "is-default", false},
			{[]string{"LIBTMUX_SOCKET=named"}, "is-named", nil},
			{[]string{"LIBTMUX_SOCKET=named", "TMUX_TMPDIR=" + second.tmpdir}, "second-named", nil},
			{[]string{"LIBTMUX_SOCKET=named", in(home.server("pathed")), "TMUX_PANE=%0"}, "is-named", false},
			{[]string{"LIBTMUX_SOCKET=named", in(home.server("named")), "TMUX_PANE=%0"}, "is-named", true},
			{[]string{"LIBTMUX_SOCKET_PATH=" + home.server("pathed").socket, "LIBTMUX_SOCKET=named", in(home.server("default"))}, "is-pathed", nil},
		} {
			h := open(home, launch{env: tt.env})
			rows := h.mustList(t, "list_sessions", nil)
			if len(rows) != 1 || rows[0]["session_name"] != tt.session {
				t.Errorf("%q: asked %v, want %s", tt.env, rows, tt.session)
			}
			if panes := h.mustList(t, "list_panes", nil); len(panes) != 1 || panes[0]["is_caller"] != tt.caller {
				t.Errorf("%q: panes %v, want is_caller %v", tt.env, panes, tt.caller)
			}
			h.close()
		}
	})
}
