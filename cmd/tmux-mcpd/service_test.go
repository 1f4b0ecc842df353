package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// printed returns what `service install --print` prints of one file.
func printed(t *testing.T, goos string, command []string, name string) string {
	t.Helper()
	var out bytes.Buffer
	s := &service{c: console{out: &out}, goos: goos, home: "/home/me & you", config: "/home/me/.config", command: command}
	if err := s.print([]string{name}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestUnitsVerify(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is missing")
	}
	dir := shortDir(t)
	binary := filepath.Join(dir, "100% pure $HOME", "tmux-mcpd")
	writeScript(t, binary, "")
	args := []string{"verify", "--user"}
	for _, name := range []string{socketUnit, serviceUnit} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(printed(t, "linux", []string{binary, "serve"}, name)), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	cmd := exec.Command("systemd-analyze", args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "HOME="+dir)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// Whatever hides /tmp, home directories or processes would make the daemon
// blind, and wrong without any error.
func TestUnitsHideNothing(t *testing.T) {
	text := printed(t, "linux", []string{"/usr/bin/tmux-mcpd", "serve"}, serviceUnit)
	for line := range strings.Lines(text) {
		key, _, isSetting := strings.Cut(line, "=")
		if !isSetting || strings.HasPrefix(line, "#") {
			continue
		}
		for _, hides := range []string{"Private", "Protect", "ProcSubset", "Inaccessible", "TemporaryFileSystem", "RootDirectory", "ReadOnly", "NoExec", "DynamicUser", "KillMode"} {
			if strings.HasPrefix(key, hides) {
				t.Errorf("the unit has %s", line)
			}
		}
	}
	for _, want := range []string{"Type=notify\n", "Restart=on-failure\n", "NoNewPrivileges=yes\n", "ExecStart=/usr/bin/tmux-mcpd serve\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the service unit lacks %q", want)
		}
	}
	socket := printed(t, "linux", []string{"/usr/bin/tmux-mcpd", "serve"}, socketUnit)
	for _, want := range []string{"ListenStream=%t/tmux-mcpd/mcp.sock\n", "SocketMode=0600\n", "DirectoryMode=0700\n"} {
		if !strings.Contains(socket, want) {
			t.Errorf("the socket unit lacks %q", want)
		}
	}
}

func TestPlist(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is missing")
	}
	command := []string{"/opt/a & <b>/tmux-mcpd", "serve", "--hints", "read-only"}
	text := printed(t, "darwin", command, launchAgent)
	cmd := exec.Command(python, "-c", `import plistlib, sys
p = plistlib.loads(sys.stdin.buffer.read())
print(p["Label"], p["ProgramArguments"], p["EnvironmentVariables"], p["RunAtLoad"], p["KeepAlive"], p["Umask"], p["StandardErrorPath"], sep="\n")`)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	const want = `tmux-mcpd
['/opt/a & <b>/tmux-mcpd', 'serve', '--hints', 'read-only']
{'PATH': '/opt/homebrew/bin:/usr/local/bin:/opt/local/bin:/usr/bin:/bin:/usr/sbin:/sbin'}
True
{'SuccessfulExit': False}
63
/home/me & you/Library/Logs/tmux-mcpd.log
`
	if err != nil || string(out) != want {
		t.Errorf("plistlib: %v\n%s\nwant:\n%s", err, out, want)
	}
	if got := unitCommand(text); !slices.Equal(got, command) {
		t.Errorf("read back as %q", got)
	}
}

func TestUnitCommand(t *testing.T) {
	for _, command := range [][]string{
		{"/usr/bin/tmux-mcpd", "serve"},
		{"/home/a b/100%/$x/tmux-mcpd", "serve", "--tmux", `/q"uote\d/tmux`},
	} {
		if got := unitCommand(printed(t, "linux", command, serviceUnit)); !slices.Equal(got, command) {
			t.Errorf("%q is read back as %q", command, got)
		}
	}
	if got := unitCommand("[Service]\nType=simple\n"); got != nil {
		t.Errorf("no command is read as %q", got)
	}
}

func TestStablePath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(dir, path) }
	real := at("brew/Cellar/tmux-mcpd/1.2.3/bin/tmux-mcpd")
	writeScript(t, real, "")
	writeScript(t, at("other/tmux-mcpd"), "")
	for link, target := range map[string]string{
		"brew/bin/tmux-mcpd":  real,
		"brew/opt/tmux-mcpd":  at("brew/Cellar/tmux-mcpd/1.2.3"),
		"old/bin/tmux-mcpd":   at("other/tmux-mcpd"),
		"later/bin/tmux-mcpd": real,
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(at(link)), 0o755), os.Symlink(target, at(link))); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ path, want string }{
		{at("old/bin") + ":" + at("brew/bin") + ":" + at("later/bin"), at("brew/bin/tmux-mcpd")},
		{"relative:" + at("old/bin"), at("brew/opt/tmux-mcpd/bin/tmux-mcpd")},
		{filepath.Dir(real), at("brew/opt/tmux-mcpd/bin/tmux-mcpd")},
	} {
		if got := stablePath(real, test.path); got != test.want {
			t.Errorf("PATH=%s: %s, want %s", test.path, got, test.want)
		}
	}
	if got := stablePath(at("other/tmux-mcpd"), at("brew/bin")); got != at("other/tmux-mcpd") {
		t.Errorf("without a link: %s", got)
	}
}

// tree lists what is in a directory, for comparing.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, "\n")
}

// fakeManager puts a systemctl or launchctl on PATH that logs how it was
// called; body may make it fail.
func fakeManager(t *testing.T, name, body string) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	writeScript(t, filepath.Join(dir, name), fmt.Sprintf("echo \"$*\" >>%s\n%s\n", log, body))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		text, _ := os.ReadFile(log)
		os.Remove(log)
		return string(text)
	}
}

func TestServiceInstall(t *testing.T) {
	const systemctl = "linux"
	tests := []struct {
		name, goos, manager, body string
		says                      []string // install
		calls                     []string // of it
	}{
		{"systemd", systemctl, "systemctl", `case "$*" in *is-active*|*is-enabled*) exit 3;; esac`,
			[]string{"wrote    ", "run      systemctl --user enable --now tmux-mcpd.socket", "Done."},
			[]string{"--user daemon-reload", "--user enable --now tmux-mcpd.socket", "--user try-restart tmux-mcpd.service"}},
		{"no bus", systemctl, "systemctl", `echo "Failed to connect to bus: No medium found" >&2; exit 1`,
			[]string{"wrote    ", "Failed to connect to bus", "From a login session of yours, run:\n    systemctl --user daemon-reload\n    systemctl --user enable --now tmux-mcpd.socket\n"},
			nil},
		{"launchd", "darwin", "launchctl", `case "$*" in "print gui/501/tmux-mcpd") exit 113;; bootout*) echo "Boot-out failed: 3" >&2; exit 3;; esac`,
			[]string{"wrote    ", "Library/LaunchAgents/tmux-mcpd.plist", "Done."},
			[]string{"bootout gui/501/tmux-mcpd", "bootstrap gui/501 "}},
		{"no desktop session", "darwin", "launchctl", `echo "Could not find domain for" >&2; exit 112`,
			[]string{"Could not find domain", "run:\n    launchctl bootstrap gui/501 "}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			home := shortDir(t)
			calls := fakeManager(t, test.manager, test.body)
			before := tree(t, home)
			var out, errOut bytes.Buffer
			env := map[string]string{"HOME": home, "XDG_RUNTIME_DIR": home, "TMPDIR": home}
			s := &service{
				c:    console{out: &out, err: &errOut, lookup: func(name string) (string, bool) { v, ok := env[name]; return v, ok }},
				goos: test.goos, uid: 501, home: home, config: filepath.Join(home, ".config"),
				command: []string{"/usr/bin/tmux-mcpd", "serve"},
			}
			if err := s.install(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, want := range test.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("install does not say %q:\n%s", want, &out)
				}
			}
			made := calls()
			for _, want := range test.calls {
				if !strings.Contains(made, want) {
					t.Errorf("install does not call %q:\n%s", want, made)
				}
			}
			if strings.Contains(made, "linger") {
				t.Errorf("install touches lingering:\n%s", made)
			}

			installed := tree(t, home)
			out.Reset()
			if err := s.install(t.Context()); err != nil {
				t.Fatal(err)
			}
			if again := tree(t, home); again != installed || strings.Contains(out.String(), "wrote") {
				t.Errorf("installing twice differs from once:\n%s\nthen:\n%s\n%s", installed, again, &out)
			}

			// What enabling makes; the fake does not.
			wants := filepath.Join(s.dir(), "sockets.target.wants")
			if err := errors.Join(os.MkdirAll(wants, 0o755), os.Symlink(filepath.Join(s.dir(), socketUnit), filepath.Join(wants, socketUnit))); err != nil && test.goos != "darwin" {
				t.Fatal(err)
			}
			if test.goos == "darwin" {
				os.RemoveAll(wants)
				os.MkdirAll(filepath.Dir(s.log()), 0o755)
				os.WriteFile(s.log(), nil, 0o644)
			}
			if err := s.uninstall(t.Context()); err != nil {
				t.Fatal(err)
			}
			os.Remove(filepath.Join(home, "Library/Logs")) // the system's own
			os.Remove(filepath.Join(home, "Library"))
			os.Remove(filepath.Join(home, ".config"))
			if after := tree(t, home); after != before {
				t.Errorf("left behind:\n%s", after)
			}
			out.Reset()
			if err := s.uninstall(t.Context()); err != nil || !strings.Contains(out.String(), "Nothing was installed.") {
				t.Errorf("uninstalling twice: %v\n%s", err, &out)
			}
		})
	}
}

// A daemon that somebody started by hand would be cut off from its socket.
func TestServiceInstallBesideDaemon(t *testing.T) {
	fakeManager(t, "systemctl", `case "$*" in *is-active*) exit 3;; esac`)
	home := shortDir(t)
	socket := filepath.Join(home, "tmux-mcpd/mcp.sock")
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := &service{c: console{lookup: func(string) (string, bool) { return home, true }}, goos: "linux", home: home, config: home}
	err = s.install(t.Context())
	if err == nil || !strings.Contains(err.Error(), "already serves "+socket) {
		t.Errorf("install: %v", err)
	}
}

func TestServiceUsage(t *testing.T) {
	env := map[string]string{"HOME": "/nonexistent", "PATH": os.Getenv("PATH")}
	for line, want := range map[string]string{
		"service":                                           "service what",
		"service start":                                     `cannot "start"`,
		"service install x":                                 "only be named with --print",
		"service install --binary tmux-mcpd":                "not an absolute path",
		"service install --binary /b --tmux tmux":           "not an absolute path",
		"service install --print --binary /b no.file":       `no file is called "no.file"`,
		"service install --print --binary /b --hints write": `--hints is "write"`,
	} {
		code, stdout, stderr := execute(env, strings.Fields(line)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %q", line, code, stdout, stderr, want)
		}
	}
	code, stdout, stderr := execute(map[string]string{"HOME": "/home/x"}, "service", "install", "--print", "--binary", "/usr/bin/tmux-mcpd")
	if code != exitOK || stderr != "" || !strings.Contains(stdout, "/usr/bin/tmux-mcpd") {
		t.Errorf("--print: exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// notified receives what a daemon tells systemd.
func notified(t *testing.T, dir string) (path string, next func() string) {
	t.Helper()
	path = filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return path, func() string {
		buf := make([]byte, 4096)
		socket.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, err := socket.Read(buf)
		if err != nil {
			t.Errorf("no notification: %v", err)
		}
		return string(buf[:n])
	}
}

// The daemon takes the socket that was opened for it, says when it is ready
// and when it stops, answers the question that started it, and hands the
// socket's variables on to nobody (B089).
func TestSocketActivation(t *testing.T) {
	activate, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		t.Skip("systemd-socket-activate is missing")
	}
	dir := shortDir(t)
	tmuxSocket := filepath.Join(dir, "tmux.sock")
	privateTmux(t, tmuxSocket)
	notify, next := notified(t, dir)
	socket := filepath.Join(dir, "mcp.sock")
	cmd := exec.Command(activate, "-l", socket, "-E", "NOTIFY_SOCKET="+notify, "-E", asProduct+"=1", productScript(t, dir), "serve")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		cmd.Process.Kill()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("the daemon does not end")
		}
	}()
	eventually(t, 10*time.Second, "the socket is there", func() bool { return exists(socket) })

	env := map[string]string{"LIBTMUX_SOCKET_PATH": tmuxSocket}
	code, stdout, errText := execute(env, "list", "sessions", "--socket", socket)
	if code != exitOK || !strings.Contains(stdout, "work") {
		t.Fatalf("exit code %d, stdout %q, stderr %q; daemon: %s", code, stdout, errText, &stderr)
	}
	if got := next(); got != "READY=1" {
		t.Errorf("first notification %q", got)
	}
	// systemd-socket-activate becomes the daemon, and its children are tmux.
	if runtime.GOOS == "linux" {
		var environs []string
		eventually(t, 20*time.Second, "the daemon attaches", func() bool {
			environs = childEnvironments(cmd.Process.Pid)
			return len(environs) > 0
		})
		for _, environ := range environs {
			if strings.Contains("\x00"+environ, "\x00LISTEN_") {
				t.Errorf("a child has %q", environ)
			}
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if got := next(); got != "STOPPING=1" {
		t.Errorf("last notification %q", got)
	}
	select {
	case err := <-ended:
		ended <- err
		if err != nil {
			t.Errorf("the daemon ends with %v: %s", err, &stderr)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the daemon does not end at SIGTERM")
	}
	if !exists(socket) {
		t.Error("the daemon removed a socket that is not its own")
	}
}

// childEnvironments reads the environments of a process's children, which are
// children of one of its threads each. A child that has not yet become another
// program still shows its parent's.
func childEnvironments(pid int) []string {
	var environs []string
	parent, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, thread := range threads {
		children, _ := os.ReadFile(thread)
		for _, child := range strings.Fields(string(children)) {
			environ, err := os.ReadFile("/proc/" + child + "/environ")
			program, linkErr := os.Readlink("/proc/" + child + "/exe")
			if err == nil && linkErr == nil && program != parent {
				environs = append(environs, string(environ))
			}
		}
	}
	return environs
}

// The whole life of the service under a real user manager of its own.
func TestServiceUnderSystemd(t *testing.T) {
	home := shortDir(t)
	startUserManager(t, home)
	tmuxSocket := filepath.Join(home, "tmux.sock")
	privateTmux(t, tmuxSocket)
	binary := productScript(t, filepath.Join(home, "bin"))
	before := tree(t, home)
	env := map[string]string{"HOME": home, "XDG_RUNTIME_DIR": os.Getenv("XDG_RUNTIME_DIR"), "LIBTMUX_SOCKET_PATH": tmuxSocket}
	do := func(want int, args ...string) string {
		t.Helper()
		code, stdout, stderr := execute(env, args...)
		t.Logf("$ tmux-mcpd %s\n%s%s", strings.Join(args, " "), stdout, stderr)
		if code != want {
			journal, _ := os.ReadFile(filepath.Join(home, "manager.log"))
			t.Fatalf("exit code %d; the manager says:\n%s", code, journal)
		}
		return stdout + stderr
	}
	expect := func(text string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("lacks %q:\n%s", want, text)
			}
		}
	}
	do(exitFailed, "service", "status")
	expect(do(exitOK, "service", "install", "--binary", binary), "wrote", "enable-linger")
	// systemd listens; nobody has asked yet.
	expect(do(exitOK, "service", "status"), "socket   active", "service  inactive", binary+" serve")
	expect(do(exitOK, "list", "sessions"), "work")
	expect(do(exitOK, "service", "status"), "service  active")
	// The very first question may be answered by a tmux process.
	eventually(t, 20*time.Second, "the daemon attaches", func() bool {
		do(exitOK, "list", "sessions")
		return strings.Contains(do(exitOK, "status"), "mode   control")
	})

	info, err := os.Stat(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "tmux-mcpd/mcp.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "tmux-mcpd")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("socket directory: %v %v", info, err)
	}
	pid := mainPID(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "systemd starts a killed daemon again", func() bool { now := mainPID(t); return now > 0 && now != pid })
	expect(do(exitOK, "list", "sessions"), "work")
	again := do(exitOK, "service", "install", "--binary", binary)
	if strings.Contains(again, "wrote") {
		t.Errorf("installing twice writes twice:\n%s", again)
	}
	expect(do(exitOK, "list", "sessions"), "work")
	do(exitOK, "service", "uninstall")
	expect(do(exitFailed, "service", "status"), "not installed")
	do(exitFailed, "status", "--socket", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "tmux-mcpd/mcp.sock"))
	os.Remove(filepath.Join(home, ".config"))
	withoutManager := func(tree string) string {
		var kept []string
		for line := range strings.Lines(tree) {
			if !strings.Contains(line, "/run/systemd/") {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	if after := tree(t, home); withoutManager(after) != withoutManager(before) {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
	// The user's tmux outlives all of that (B079).
	if err := exec.Command("tmux", "-S", tmuxSocket, "-N", "has-session").Run(); err != nil {
		t.Errorf("the tmux server has ended: %v", err)
	}
}

func mainPID(t *testing.T) int {
	t.Helper()
	out, err := exec.Command("systemctl", "--user", "show", "--property=MainPID", "--value", serviceUnit).Output()
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	fmt.Sscan(string(out), &pid)
	return pid
}

// startUserManager starts a systemd --user of the test's own: its directories
// are in home, its units are nobody else's.
func startUserManager(t *testing.T, home string) {
	t.Helper()
	manager := ""
	for _, path := range []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd"} {
		if exists(path) {
			manager = path
		}
	}
	if manager == "" {
		t.Skip("systemd is missing")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a systemd --user a cgroup and /run of its own")
	}
	run := filepath.Join(home, "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(home, "manager.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	script, err := filepath.Abs("testdata/user-manager.sh")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", run)
	t.Setenv("HOME", home)
	t.Setenv("TMUX_MCPD_SOCKET", "")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", script, manager)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Env = []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + run, "PATH=" + os.Getenv("PATH"), "SYSTEMD_UNIT_PATH=" + home + "/.config/systemd/user:" + home + "/units:"}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		cancel()
		t.Skipf("unshare: %v", err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if exec.Command("systemctl", "--user", "show", "--property=Version").Run() == nil {
			return
		}
		over := time.Now().After(end)
		select {
		case <-ended:
			over = true
		default:
		}
		if over {
			text, _ := os.ReadFile(log.Name())
			t.Skipf("no systemd --user can be started here:\n%s", text)
		}
	}
}
