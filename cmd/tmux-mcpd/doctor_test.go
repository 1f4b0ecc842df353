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
	"strconv"
	"strings"
	"testing"
	"time"

	"tmux-mcpd/daemon"
)

// A patient is a user's machine as doctor sees it: a home, a runtime
// directory, a /tmp and a PATH of the test's own, all well to begin with.
type patient struct {
	t      *testing.T
	dir    string
	env    map[string]string
	doctor doctor
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	dir := shortDir(t)
	p := &patient{t: t, dir: dir, env: map[string]string{
		"HOME": below(dir, "home"), "XDG_RUNTIME_DIR": below(dir, "run"), "PATH": below(dir, "bin") + ":/usr/bin:/bin", "USER": "me",
		"TMUX_MCPD_SOCKET": below(dir, "run/tmux-mcpd/mcp.sock"),
	}}
	for _, sub := range []string{"home", "run", "tmp", "bin"} {
		if err := os.Mkdir(p.path(sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// What looks into the process's own environment is to see the same.
	for _, name := range []string{"TMUX", "TMUX_TMPDIR", "LIBTMUX_SOCKET_PATH", "TMUX_MCPD_TMUX", "CODEX_HOME", "CLAUDE_CONFIG_DIR"} {
		t.Setenv(name, "")
	}
	for name, value := range p.env {
		t.Setenv(name, value)
	}
	p.script("bin/tmux", `[ "$1" = -V ] && echo "tmux 3.3a" || { echo "no server running on $4" >&2; exit 1; }`)
	p.script("bin/systemctl", `case "$*" in *is-*) echo inactive; exit 3;; esac`)
	c := console{lookup: func(name string) (string, bool) { value, set := p.env[name]; return value, set }}
	p.doctor = doctor{
		c: c, tmp: p.path("tmp"), patience: 10 * time.Second,
		service: &service{c: c, goos: "linux", uid: os.Getuid(), home: p.path("home"), config: p.path("home/.config")},
		linger:  func() (string, bool) { return "me", true },
	}
	return p
}

func below(dir, path string) string { return filepath.Join(dir, path) }

func (p *patient) path(path string) string { return below(p.dir, path) }

func (p *patient) script(path, text string) { writeScript(p.t, p.path(path), text+"\n") }

func (p *patient) file(path, text string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(p.path(path)), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(p.path(path), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *patient) set(name, value string) {
	p.env[name] = value
	p.t.Setenv(name, value)
}

// tmuxDir is where this user's tmux sockets are.
func (p *patient) tmuxDir() string { return "tmp/tmux-" + strconv.Itoa(os.Getuid()) }

// listen opens a socket that nobody accepts on; stale, one whose owner is gone.
func (p *patient) listen(path string, stale bool) *net.UnixListener {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(p.path(path)), 0o700); err != nil {
		p.t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.path(path), Net: "unix"})
	if err != nil {
		p.t.Fatal(err)
	}
	l.SetUnlinkOnClose(!stale)
	if stale {
		l.Close()
	} else {
		p.t.Cleanup(func() { l.Close() })
	}
	return l
}

// unit installs the service for a binary.
func (p *patient) unit(binary string) {
	p.t.Helper()
	for _, name := range []string{socketUnit, serviceUnit} {
		p.file("home/.config/systemd/user/"+name, printed(p.t, "linux", []string{binary, "serve"}, name))
	}
}

func (p *patient) examine() (report doctorReport, err error) {
	p.t.Helper()
	var out bytes.Buffer
	p.doctor.c.out = &out
	err = p.doctor.run(p.t.Context(), true)
	if jsonErr := json.Unmarshal(out.Bytes(), &report); jsonErr != nil {
		p.t.Fatal(jsonErr)
	}
	return report, err
}

// running makes the scripts of systemctl say that the service runs.
const running = `case "$*" in *is-enabled*) echo enabled;; *is-active*) echo active;; esac`

func TestDoctor(t *testing.T) {
	const sock = "run/tmux-mcpd/mcp.sock"
	tests := []struct {
		name  string
		spoil func(p *patient)
		level level
		text  string // part of the finding
		mend  string // part of what mends it
	}{
		{"no tmux", func(p *patient) { p.set("TMUX_MCPD_TMUX", "/nonexistent/tmux") }, fail, "TMUX_MCPD_TMUX", "install"},
		{"old tmux", func(p *patient) { p.script("bin/tmux", "echo tmux 3.1c") }, fail, "is tmux 3.1c, but 3.2 or newer", "install"},
		{"tmux hangs", func(p *patient) { p.script("bin/tmux", "exec sleep 60"); p.doctor.patience = 300 * time.Millisecond }, fail, "does not answer within", "tmux -V"},
		{"another program", func(p *patient) { p.script("bin/tmux", "echo busybox") }, fail, `is no tmux: it says "busybox"`, "--tmux"},
		{"tmux crashes", func(p *patient) { p.script("bin/tmux", "echo 'libevent.so: not found' >&2; exit 127") }, fail, "libevent.so: not found", "tmux -V"},
		{"open tmux directory", func(p *patient) { os.Mkdir(p.path(p.tmuxDir()), 0o777); os.Chmod(p.path(p.tmuxDir()), 0o777) }, fail, "unsafe permissions", "chmod 700 "},
		{"stale tmux socket", func(p *patient) { p.listen(p.tmuxDir()+"/old", true) }, warn, "/old is left of a server that has ended", "rm "},
		{"tmux upgraded, silent", func(p *patient) {
			p.listen(p.tmuxDir()+"/default", false)
			p.script("bin/tmux", `[ "$1" = -V ] && echo "tmux 3.6" || { echo "server exited unexpectedly" >&2; exit 1; }`)
		}, fail, "cannot talk to the server", "kill-server"},
		{"tmux upgraded, hanging", func(p *patient) {
			p.listen(p.tmuxDir()+"/default", false)
			p.script("bin/tmux", `[ "$1" = -V ] && echo "tmux 3.3a" && exit; exec sleep 60`)
			p.doctor.patience = 500 * time.Millisecond
		}, fail, "it hangs, or it is of a version", "kill-server"},
		{"tmux upgraded, working", func(p *patient) {
			p.listen(p.tmuxDir()+"/default", false)
			p.script("bin/tmux", `[ "$1" = -V ] && echo "tmux 3.5a" && exit; [ "$5" = display-message ] && printf '3.3a\t77\t0\t0\n'`)
		}, warn, "(pid 77) is tmux 3.3a, the program is 3.5a", "kill-server"},
		{"exit-unattached", func(p *patient) {
			p.listen(p.tmuxDir()+"/default", false)
			p.script("bin/tmux", `[ "$1" = -V ] && echo "tmux 3.3a" && exit; [ "$5" = display-message ] && printf '3.3a\t77\t1\t0\n'`)
		}, warn, "exit-unattached on", "set -s exit-unattached off"},
		{"hook on readings", func(p *patient) {
			p.listen(p.tmuxDir()+"/default", false)
			p.script("bin/tmux", `[ "$1" = -V ] && echo "tmux 3.3a" && exit; [ "$5" = display-message ] && printf '3.3a\t77\t0\t0\n' || echo 'after-list-panes[0] run-shell true'`)
		}, warn, "hook on after-list-panes", "set-hook -gu after-list-panes"},
		{"no TMUX_TMPDIR", func(p *patient) { p.set("TMUX_TMPDIR", "/nonexistent/tmux") }, warn, "TMUX_TMPDIR is /nonexistent/tmux, which does not exist", "unset TMUX_TMPDIR"},
		{"socket of TMUX gone", func(p *patient) { p.set("TMUX", p.path("gone")+",4711,0") }, warn, "/gone, is gone", "kill -USR1 4711"},
		{"runtime directory missing", func(p *patient) { p.set("XDG_RUNTIME_DIR", "/nonexistent/run") }, warn, "XDG_RUNTIME_DIR is /nonexistent/run", "unset XDG_RUNTIME_DIR"},
		{"socket path too long", func(p *patient) { p.set("TMUX_MCPD_SOCKET", "/"+strings.Repeat("x", 200)) }, fail, "bytes long", "shorter"},
		{"open socket directory", func(p *patient) { os.Mkdir(p.path("run/tmux-mcpd"), 0o777); os.Chmod(p.path("run/tmux-mcpd"), 0o777) }, fail, "can be written by others", "chmod 700 "},
		{"socket directory is a link", func(p *patient) { os.Symlink(p.path("tmp"), p.path("run/tmux-mcpd")) }, fail, "is a link", "rm "},
		{"file at the socket's place", func(p *patient) { p.file(sock, "") }, fail, "is not a socket", "mv "},
		{"stale daemon socket", func(p *patient) { p.listen(sock, true) }, warn, "left of a daemon that has died", "rm "},
		{"daemon hangs", func(p *patient) { p.listen(sock, false); p.doctor.patience = 300 * time.Millisecond }, fail, "does not answer", "kill -9 " + strconv.Itoa(os.Getpid())},
		{"daemon locked and deaf", func(p *patient) {
			l, err := daemon.Listen(p.path(sock))
			if err != nil {
				t.Fatal(err)
			}
			os.Remove(p.path(sock))
			p.t.Cleanup(func() { l.Close() })
		}, fail, "holds the lock", "kill -9 " + strconv.Itoa(os.Getpid())},
		{"daemon of another version", func(p *patient) { p.answer(sock, `"result":{"pid":42,"version":"0.0.1","clients":[{}]}`) }, warn, "is version 0.0.1, this program is", "kill 42"},
		{"daemon too old for status", func(p *patient) { p.answer(sock, `"error":{"code":-32601,"message":"not found"}`) }, fail, "too old", "kill -9"},
		{"bridge of another version", func(p *patient) {
			p.answer(sock, `"result":{"version":"`+versionText()+`","clients":[{"name":"claude-code","bridge":"0.0.1"}]}`)
		}, warn, "tmux-mcpd stdio of claude-code is version 0.0.1", "restart claude-code"},
		{"tmux asked by processes", func(p *patient) {
			p.answer(sock, `"result":{"version":"`+versionText()+`","clients":[{}],"servers":[{"socket":"/s","mode":"one-shot","reason":"destroy-unattached is on"}]}`)
		}, warn, "mode one-shot: destroy-unattached is on", ""},
		{"service without its binary", func(p *patient) { p.unit("/nonexistent/tmux-mcpd") }, fail, "/nonexistent/tmux-mcpd: it does not exist", "service install"},
		{"service of one version only", func(p *patient) {
			p.script("Cellar/tmux-mcpd/1.0/bin/tmux-mcpd", "")
			p.unit(p.path("Cellar/tmux-mcpd/1.0/bin/tmux-mcpd"))
			p.script("bin/systemctl", running)
		}, warn, "which the next upgrade removes", "service install"},
		{"service with PrivateTmp", func(p *patient) {
			p.unit(productScript(p.t, p.path("bin")))
			p.file("home/.config/systemd/user/tmux-mcpd.service.d/hard.conf", "[Service]\nPrivateTmp=yes\nProtectHome=no\n")
		}, fail, "set to PrivateTmp=yes", "remove PrivateTmp=yes"},
		{"service failed", func(p *patient) {
			p.unit(productScript(p.t, p.path("bin")))
			p.script("bin/systemctl", `case "$*" in *is-active*) echo failed; exit 3;; esac`)
		}, fail, "the service has failed", "journalctl --user -u tmux-mcpd"},
		{"service not started", func(p *patient) { p.unit(productScript(p.t, p.path("bin"))) }, fail, "not running", "service install"},
		{"no service manager", func(p *patient) {
			p.unit(productScript(p.t, p.path("bin")))
			p.script("bin/systemctl", `echo "Failed to connect to bus: No medium found" >&2; exit 1`)
		}, warn, "Failed to connect to bus", "login session"},
		{"no lingering", func(p *patient) {
			p.unit(productScript(p.t, p.path("bin")))
			p.script("bin/systemctl", running)
			p.doctor.linger = func() (string, bool) { return "me", false }
		}, warn, "ends with the last login session", "loginctl enable-linger"},
		{"units of a package, not in use", func(p *patient) {
			p.doctor.service.packaged = []string{p.path("lib")}
			for _, name := range []string{socketUnit, serviceUnit} {
				p.file("lib/"+name, printed(p.t, "linux", []string{"/usr/bin/tmux-mcpd", "serve"}, name))
			}
		}, ok, "not in use", "service install"},
		{"no host", func(p *patient) {}, warn, "no MCP host", "claude mcp add"},
		{"host runs what is gone", func(p *patient) {
			p.file("home/.claude.json", `{"projects":{"/src":{"mcpServers":{"tmux":{"command":"/nonexistent/tmux-mcpd","args":["stdio"]}}}}}`)
		}, fail, "Claude Code runs /nonexistent/tmux-mcpd: it does not exist", ".claude.json"},
		{"host without stdio", func(p *patient) {
			p.file("home/.cursor/mcp.json", `{"mcpServers":{"tmux":{"command":"`+productScript(p.t, p.path("bin"))+`"}}}`)
		}, fail, "which is no MCP server", ".cursor/mcp.json"},
		{"desktop host by name", func(p *patient) {
			productScript(p.t, p.path("bin"))
			p.file("home/.config/Code/User/mcp.json", "{\"servers\": { // mine\n \"tmux\": {\"command\": \"tmux-mcpd\", \"args\": [\"stdio\",]},}}")
		}, warn, "VS Code runs tmux-mcpd by name", "Code/User/mcp.json"},
		{"host by a name that is nowhere", func(p *patient) {
			p.file("home/.gemini/settings.json", `{"mcpServers":{"tmux":{"command":"tmux-mcpd","args":["stdio"]}}}`)
		}, fail, "not on PATH", ".gemini/settings.json"},
		{"host with a variable", func(p *patient) {
			p.file("home/.config/zed/settings.json", `{"context_servers":{"tmux":{"command":"~/bin/tmux-mcpd","args":["stdio"]}}}`)
		}, fail, "expand neither ~ nor variables", "zed/settings.json"},
		{"host of another version", func(p *patient) {
			p.script("old/tmux-mcpd", "echo tmux-mcpd 0.0.1 x")
			p.file("home/.config/opencode/opencode.json", `{"mcp":{"tmux":{"type":"local","command":["`+p.path("old/tmux-mcpd")+`","stdio"]}}}`)
		}, warn, "version 0.0.1; this program is", "opencode.json"},
		{"host runs another program", func(p *patient) {
			p.script("old/tmux-mcpd", "exit 1")
			p.file("home/.config/Claude/claude_desktop_config.json", `{"mcpServers":{"tmux":{"command":"`+p.path("old/tmux-mcpd")+`","args":["stdio"]}}}`)
		}, fail, "does not say that it is tmux-mcpd", "tmux-mcpd version"},
		{"Codex keeps the pane to itself", func(p *patient) {
			p.file("home/.codex/config.toml", "model = \"x\"\n[mcp_servers.tmux]\ncommand = '"+productScript(p.t, p.path("bin"))+"'\nargs = [\n  \"stdio\", # ]\n]\n\n[mcp_servers.tmux.env]\nA = \"b\"\n")
		}, warn, "cannot find their own pane", "env_vars"},
		{"host configuration broken", func(p *patient) { p.file("home/.cursor/mcp.json", "{") }, warn, "cannot be read", "mcp.json"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newPatient(t)
			p.t = t
			test.spoil(p)
			report, err := p.examine()
			named := slices.IndexFunc(report.Findings, func(f finding) bool {
				return f.Level == test.level && strings.Contains(f.Text, test.text) && strings.Contains(f.Mend, test.mend)
			})
			if named < 0 {
				text, _ := json.MarshalIndent(report.Findings, "", "  ")
				t.Errorf("no %s with %q, mended by %q:\n%s", test.level, test.text, test.mend, text)
			}
			if failed := test.level == fail; report.OK == failed || (err != nil) != failed {
				t.Errorf("ok is %v, error %v", report.OK, err)
			}
		})
	}
}

// answer is a daemon that says the same to everything but initialize.
func (p *patient) answer(socket, result string) {
	l := p.listen(socket, false)
	d := &fakeDaemon{asked: make(chan map[string]any, 100)}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go d.serveStatus(conn, result)
		}
	}()
}

// A machine on which all is well passes, with something said about each part.
func TestDoctorHealthy(t *testing.T) {
	p := newPatient(t)
	binary := productScript(t, p.path("bin"))
	os.Remove(p.path("bin/tmux")) // the real one is behind it on PATH
	privateTmux(t, p.path(p.tmuxDir()+"/default"))
	p.script("bin/systemctl", running)
	p.unit(binary)
	p.file("home/.codex/config.toml", "[mcp_servers.tmux]\ncommand = \""+binary+"\"\nargs = [\"stdio\"]\nenv_vars = [\"TMUX\", \"TMUX_PANE\"]\n")
	p.file("home/.claude.json", `{"mcpServers":{"far":{"command":"ssh","args":["-T","host","tmux-mcpd","stdio"]},"other":{"type":"http","url":"x"}}}`)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan int, 1)
	go func() {
		served <- run(ctx, []string{"serve"}, console{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}, lookup: os.LookupEnv})
	}()
	defer func() { cancel(); <-served }()
	eventually(t, 10*time.Second, "the daemon listens", func() bool { return exists(p.env["TMUX_MCPD_SOCKET"]) })

	report, err := p.examine()
	if err != nil || !report.OK {
		t.Errorf("%v: %+v", err, report.Findings)
	}
	for _, check := range []string{"tmux", "servers", "daemon", "service", "linger", "hosts"} {
		if !slices.ContainsFunc(report.Findings, func(f finding) bool { return f.Check == check }) {
			t.Errorf("nothing about %s", check)
		}
	}
	for _, f := range report.Findings {
		if f.Level != ok {
			t.Errorf("%+v", f)
		}
	}
	var out bytes.Buffer
	p.doctor.c.out, p.doctor.findings = &out, nil
	if err := p.doctor.run(t.Context(), false); err != nil || !strings.Contains(out.String(), "What a tmux user can notice") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// Nothing is changed by looking.
func TestDoctorTouchesNothing(t *testing.T) {
	p := newPatient(t)
	before := tree(t, p.dir)
	p.examine()
	if after := tree(t, p.dir); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func TestDoctorCommand(t *testing.T) {
	p := newPatient(t)
	code, stdout, stderr := execute(map[string]string{"HOME": p.path("home"), "PATH": p.env["PATH"]}, "doctor", "--tmux", "/nonexistent/tmux")
	if code != exitFailed || !strings.Contains(stdout, "fail  tmux     --tmux:") || !strings.Contains(stderr, "failed") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestPlainJSON(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"a": "// no comment", "b": ["/*", 1,], /* c, */ }`, `{"a":"// no comment","b":["/*",1]}`},
		{"{\"a\": 1, // b,\n}", `{"a":1}`},
		{"\ufeff{\"a\\\"//\": \"\\\\\"}", `{"a\"//":"\\"}`},
		{`{"a": [1, 2]} // end`, `{"a":[1,2]}`},
	}
	for _, test := range tests {
		var compact bytes.Buffer
		if err := json.Compact(&compact, plainJSON([]byte(test.in))); err != nil || compact.String() != test.want {
			t.Errorf("%s: %s %v, want %s", test.in, &compact, err, test.want)
		}
	}
}

func TestCodexServers(t *testing.T) {
	tests := []struct {
		toml, want string // fmt of the entries, or part of the error
	}{
		{"", "[]"},
		{"[mcp_servers.a]\ncommand = \"x\" # it\n", "[{a [x] []}]"},
		{"[mcp_servers.\"my tmux\"]\nargs = ['a', \"b\\\"c\"]\ncommand = \"/x y\"\n[other]\ncommand = \"z\"", `[{my tmux [/x y a b"c] []}]`},
		{"[mcp_servers.a]\nargs = [\n\"[\", # ]\n\"]\",\n]\nenv_vars=[\"TMUX\"]", "[{a [ [ ]] [TMUX]}]"},
		{"[mcp_servers.a]\ncommand = \"x", "line 2: a string cannot be read"},
		{"[mcp_servers.a]\ncommand = []", "line 2: a command is one string"},
	}
	for _, test := range tests {
		entries, err := codexServers(test.toml)
		got := fmt.Sprint(entries)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%q: %s, want %s", test.toml, got, test.want)
		}
	}
}

// Whatever is in these files, reading them ends and does not panic.
func FuzzHostFiles(f *testing.F) {
	f.Add("[mcp_servers.a]\nargs = [\n\"x\"\n]\ncommand = 'y'")
	f.Add(`{"mcpServers": {"a": {"command": ["x"], },}} // y`)
	f.Fuzz(func(t *testing.T, text string) {
		s := &service{c: console{lookup: func(string) (string, bool) { return "", false }}, goos: "linux", home: "/h", config: "/h/.config"}
		for _, h := range s.hosts() {
			entries, err := h.read([]byte(text))
			if err != nil {
				continue
			}
			for _, e := range entries {
				e.ours()
			}
		}
	})
}
