package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tmux-mcpd/daemon"
)

// A level says how bad a finding is. Only a failure makes doctor exit with 1.
type level string

const (
	ok   level = "ok"
	warn level = "warn" // it works, but not as well as it could, or not for long
	fail level = "fail"
)

// A finding is the outcome of one check.
type finding struct {
	Level level  `json:"level"`
	Check string `json:"check"`
	Text  string `json:"text"`
	Mend  string `json:"mend,omitempty"` // the command, or failing that the words, that mend it
}

// A doctorReport is what `doctor --json` prints.
type doctorReport struct {
	Version    string    `json:"version"`
	OK         bool      `json:"ok"` // nothing fails
	Findings   []finding `json:"findings"`
	Noticeable []string  `json:"noticeable"`
}

// noticeable is what a tmux user can notice of us, since tmux does not let us
// avoid it.
var noticeable = []string{
	`the one session that it sits in is marked "(attached)" and gets a new time of last attachment; attaching clears the bell and activity marks of its current window`,
	"tmux list-clients shows it, with the terminal name tmux-mcpd",
	"an un-targeted switch-client from outside may hit it and is then handed on to your client; an un-targeted display-message or detach-client may hit it until somebody types",
	"hooks on attaching and detaching run once each per visit; programs that ask for focus events may be told of one",
	"each reading of the whole list is one line in show-messages and runs hooks on after-list-panes, if there are any",
}

// A doctor looks at everything that has to be right for tmux-mcpd to work, and
// changes nothing.
type doctor struct {
	c        console
	place    place
	service  *service
	linger   func() (user string, lingers bool)
	tmp      string        // where tmux keeps its sockets without TMUX_TMPDIR
	patience time.Duration // for one program or connection

	self     string // this program, for commands that mend
	tmux     string // the tmux program, "" if it cannot be used
	version  string // what it calls itself
	findings []finding
}

func doctorCommand(c console) *cobra.Command {
	var p place
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong, and how to mend it",
		Long: `Look at everything that has to be right: tmux and its servers, sockets and their
rights, the daemon and its service, the configurations of MCP hosts. Each
finding is ok, warn or fail, with the command that mends it. Nothing is changed.
Exits with 1 if anything fails.

With --json it prints one object: version, ok, findings (list of: level, check,
text, mend) and noticeable (list of texts: what a tmux user can notice of us).
Members may be added, none is ever renamed; texts may change.`,
		Example: `  tmux-mcpd doctor
  tmux-mcpd doctor --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := newService(c)
			if err != nil {
				return err
			}
			d := doctor{c: c, place: p, service: s, tmp: "/tmp", patience: 3 * time.Second,
				linger: func() (string, bool) { user := c.getenv("USER"); return user, lingers(user) }}
			return d.run(cmd.Context(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	p.addFlags(cmd)
	return cmd
}

func (d *doctor) run(ctx context.Context, asJSON bool) error {
	if d.self = d.service.self(); d.self == "" {
		d.self = "tmux-mcpd"
	}
	d.checkTmux(ctx)
	d.checkServers(ctx)
	d.checkEnvironment()
	d.checkDaemon(ctx)
	d.checkService(ctx)
	d.checkHosts(ctx)

	failed := 0
	for _, f := range d.findings {
		if f.Level == fail {
			failed++
		}
	}
	if err := d.write(asJSON, failed == 0); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%s failed", plural(failed, "check"))
	}
	return nil
}

func (d *doctor) write(asJSON, good bool) error {
	if asJSON {
		text, err := json.Marshal(doctorReport{versionText(), good, d.findings, noticeable})
		if err != nil {
			return err
		}
		return printJSON(d.c.out, text)
	}
	var out bytes.Buffer
	for _, f := range d.findings {
		fmt.Fprintf(&out, "%-5s %-8s %s\n", f.Level, f.Check, printable(f.Text))
		if f.Mend != "" {
			word := "mend"
			if f.Level == ok {
				word = "hint"
			}
			fmt.Fprintf(&out, "      %-8s %s: %s\n", "", word, printable(f.Mend))
		}
	}
	fmt.Fprint(&out, "\nWhat a tmux user can notice of tmux-mcpd:\n")
	for _, text := range noticeable {
		fmt.Fprintf(&out, "  * %s\n", text)
	}
	_, err := d.c.out.Write(out.Bytes())
	return err
}

func (d *doctor) found(l level, check, mend, format string, args ...any) {
	d.findings = append(d.findings, finding{Level: l, Check: check, Text: fmt.Sprintf(format, args...), Mend: mend})
}

var errSilent = errors.New("does not answer")

// output runs a program for as long as patience lasts.
func (d *doctor) output(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 100 * time.Millisecond // a child of it may hold the pipe
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%w within %v", errSilent, d.patience)
	case err != nil && stderr.Len() > 0:
		return "", errors.New(strings.TrimSpace(stderr.String()))
	}
	return strings.TrimRight(string(out), "\n"), err
}

func (d *doctor) checkTmux(ctx context.Context) {
	path, err := daemon.TmuxPath(d.place.tmux)
	if err != nil {
		d.found(fail, "tmux", installTmux(d.service.goos), "%v", err)
		return
	}
	version, err := d.output(ctx, path, "-V")
	switch {
	case err != nil:
		d.found(fail, "tmux", path+" -V", "%s cannot be run: %v", path, err)
	case !strings.HasPrefix(version, "tmux "):
		d.found(fail, "tmux", "name the right program with --tmux or TMUX_MCPD_TMUX", "%s is no tmux: it says %q", path, version)
	case !daemon.NewEnough(version):
		d.found(fail, "tmux", installTmux(d.service.goos), "%s is %s, but %s or newer is needed", path, version, daemon.OldestTmux)
	default:
		d.found(ok, "tmux", "", "%s is %s", path, version)
		d.tmux, d.version = path, strings.TrimPrefix(version, "tmux ")
	}
}

func installTmux(goos string) string {
	if goos == "darwin" {
		return "brew install tmux"
	}
	for _, m := range [][2]string{{"apt-get", "sudo apt-get install tmux"}, {"dnf", "sudo dnf install tmux"}, {"apk", "sudo apk add tmux"}, {"pacman", "sudo pacman -S tmux"}} {
		if _, err := exec.LookPath(m[0]); err == nil {
			return m[1]
		}
	}
	return "install tmux, or name it with --tmux or TMUX_MCPD_TMUX"
}

// checkServers looks at every socket where tmux keeps them.
func (d *doctor) checkServers(ctx context.Context) {
	bases := []string{d.tmp}
	if base := d.c.getenv("TMUX_TMPDIR"); base != "" {
		if exists(base) {
			bases = append([]string{base}, bases...)
		} else {
			d.found(warn, "servers", "unset TMUX_TMPDIR, or mkdir "+base, "TMUX_TMPDIR is %s, which does not exist: tmux uses /tmp instead", base)
		}
	}
	seen := make(map[string]bool)
	running := 0
	look := func(path string) {
		if real, err := filepath.EvalSymlinks(path); err == nil && !seen[real] {
			seen[real] = true
			if d.checkServer(ctx, path) {
				running++
			}
		}
	}
	for _, base := range bases {
		dir := filepath.Join(base, "tmux-"+strconv.Itoa(d.service.uid))
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			d.found(fail, "servers", "", "%v", err)
			continue
		case !info.IsDir() || info.Mode().Perm()&0o007 != 0: // as tmux judges
			d.found(fail, "servers", "chmod 700 "+dir, "%s has unsafe permissions (%v): tmux refuses every socket in it", dir, info.Mode())
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			d.found(fail, "servers", "chmod 700 "+dir, "%v", err)
		}
		for _, entry := range entries {
			if entry.Type()&fs.ModeSocket != 0 {
				look(filepath.Join(dir, entry.Name()))
			}
		}
	}
	if value := d.c.getenv("TMUX"); value != "" {
		path, _, _ := strings.Cut(value, ",")
		if exists(path) {
			look(path)
		} else {
			_, rest, _ := strings.Cut(value, ",")
			pid, _, _ := strings.Cut(rest, ",")
			d.found(warn, "servers", "kill -USR1 "+pid, "the socket of the tmux that this runs in, %s, is gone: its server can make it anew", path)
		}
	}
	if path := d.c.getenv("LIBTMUX_SOCKET_PATH"); path != "" {
		look(path)
	}
	if running == 0 {
		d.found(ok, "servers", "", "no tmux server is running; agents get empty lists")
	}
}

// checkServer reports whether a server answers at a socket.
func (d *doctor) checkServer(ctx context.Context, path string) bool {
	dialer := net.Dialer{Timeout: d.patience}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if errors.Is(err, syscall.ECONNREFUSED) {
		d.found(warn, "servers", "rm "+path, "%s is left of a server that has ended", path)
		return false
	}
	if err != nil {
		d.found(fail, "servers", "", "%v", err)
		return false
	}
	conn.Close()
	if d.tmux == "" {
		d.found(ok, "servers", "", "%s answers", path)
		return true
	}
	ask := func(args ...string) (string, error) {
		return d.output(ctx, d.tmux, append([]string{"-u", "-N", "-S", path}, args...)...)
	}
	kill := d.tmux + " -S " + path + " kill-server"
	said, err := ask("display-message", "-p", "#{version}\t#{pid}\t#{exit-unattached}\t#{destroy-unattached}")
	fields := strings.Split(said, "\t")
	switch {
	case errors.Is(err, errSilent):
		d.found(fail, "servers", kill+" (its sessions end with it)", "the server on %s %v: it hangs, or it is of a version that %s cannot talk to", path, err, d.tmux)
		return true
	case err != nil && isMismatch(err.Error()):
		d.found(fail, "servers", kill+" when it suits you, or name the server's own tmux with --tmux or TMUX_MCPD_TMUX",
			"%s cannot talk to the server on %s (%v): tmux was upgraded, the old server still runs", d.tmux, path, err)
		return true
	case err != nil:
		d.found(fail, "servers", "", "the server on %s: %v", path, err)
		return true
	case len(fields) != 4:
		d.found(fail, "servers", "", "the server on %s gives no answer that can be understood: %q", path, said)
		return true
	}
	version, pid := fields[0], fields[1]
	switch {
	case !daemon.NewEnough(version):
		d.found(fail, "servers", kill+" when it suits you", "the server on %s (pid %s) is tmux %s, but %s or newer is needed", path, pid, version, daemon.OldestTmux)
	case version != d.version:
		d.found(warn, "servers", kill+" when it suits you", "the server on %s (pid %s) is tmux %s, the program is %s: after an upgrade the old server runs on", path, pid, version, d.version)
	case fields[2] == "1" || fields[2] == "on":
		d.found(warn, "servers", d.tmux+" -S "+path+" set -s exit-unattached off", "the server on %s (pid %s) has exit-unattached on: the daemon does not attach, each request runs a tmux", path, pid)
	case fields[3] != "" && fields[3] != "0" && fields[3] != "off":
		d.found(warn, "servers", d.tmux+" -S "+path+" set -g destroy-unattached off", "the server on %s (pid %s) has destroy-unattached on: where no session is free of it the daemon does not attach, each request runs a tmux", path, pid)
	default:
		d.found(ok, "servers", "", "%s answers: tmux %s, pid %s", path, version, pid)
	}
	if hook, err := ask("show-hooks", "-g", "after-list-panes"); err == nil && strings.Contains(hook, " ") {
		d.found(warn, "servers", d.tmux+" -S "+path+" set-hook -gu after-list-panes", "the server on %s has a hook on after-list-panes: it runs with each reading, and each request reads anew", path)
	}
	return true
}

// isMismatch knows what tmux's client prints when the server is of another
// version.
func isMismatch(text string) bool {
	return slices.ContainsFunc([]string{"protocol version mismatch", "server exited unexpectedly", "lost server", "not a terminal", "open terminal failed"},
		func(s string) bool { return strings.Contains(text, s) })
}

func (d *doctor) checkEnvironment() {
	dir := d.c.getenv("XDG_RUNTIME_DIR")
	if dir == "" || d.service.goos == "darwin" {
		return
	}
	info, err := os.Stat(dir)
	if err != nil {
		d.found(warn, "socket", "unset XDG_RUNTIME_DIR", "XDG_RUNTIME_DIR is %s, which cannot be used (%v): other places are", dir, err)
	} else if owner, known := info.Sys().(*syscall.Stat_t); known && int(owner.Uid) != os.Geteuid() {
		d.found(warn, "socket", "unset XDG_RUNTIME_DIR", "XDG_RUNTIME_DIR is %s, which belongs to uid %d (sudo and su keep it): other places are used", dir, owner.Uid)
	}
}

// checkDaemon looks at every place where a daemon may listen.
func (d *doctor) checkDaemon(ctx context.Context) {
	paths, err := daemon.SocketPaths(d.place.socket)
	if err != nil {
		d.found(fail, "socket", "unset TMUX_MCPD_SOCKET, or set a shorter one", "%v", err)
		return
	}
	running := false
	for _, path := range paths {
		s := daemon.InspectSocket(ctx, path, d.patience)
		kill := "kill -9 the process that has it open"
		if s.PID > 0 {
			kill = fmt.Sprintf("kill -9 %d", s.PID)
		}
		switch {
		case s.Problem != nil:
			// The text of Listen's errors holds the command.
			d.found(fail, "socket", mendSocket(s), "%v", s.Problem)
		case s.Accepts:
			running = true
			d.checkRunning(ctx, s, kill)
		case s.Locked:
			running = true
			d.found(fail, "daemon", kill, "a daemon (pid %d) holds the lock of %s but accepts no connection: it hangs or is stopped", s.PID, path)
		case s.TimedOut:
			d.found(fail, "daemon", kill, "%s accepts no connection within %v: the daemon hangs or is stopped", path, d.patience)
		case s.Exists:
			d.found(warn, "socket", "rm "+path, "%s is left of a daemon that has died; the next one takes it over", path)
		}
	}
	if !running {
		d.found(ok, "daemon", "", "none runs (%s); each host is served by a process of its own", paths[0])
	}
}

func mendSocket(s daemon.SocketState) string {
	info, err := os.Lstat(s.Path)
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		return "mv " + s.Path + " " + s.Path + ".old"
	}
	dir := filepath.Dir(s.Path)
	if info, err := os.Lstat(dir); err == nil && info.Mode().Type() == fs.ModeSymlink {
		return "rm " + dir
	}
	return "chmod 700 " + dir
}

// checkRunning asks a daemon that accepts connections.
func (d *doctor) checkRunning(ctx context.Context, s daemon.SocketState, kill string) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	conn, err := daemon.Dial(ctx, s.Path)
	var answer json.RawMessage
	if err == nil {
		defer conn.Close()
		answer, err = askStatus(ctx, d.c, conn)
	}
	var status daemon.Status
	if err == nil {
		err = json.Unmarshal(answer, &status)
	}
	if err != nil {
		d.found(fail, "daemon", kill, "the daemon on %s: %v", s.Path, err)
		return
	}
	restart := fmt.Sprintf("kill %d; then start it as it was started", status.PID)
	if state := d.service.inspect(ctx); state.Service == "active" {
		restart = d.service.restart()
	}
	if status.Version != versionText() {
		d.found(warn, "daemon", restart, "pid %d on %s is version %s, this program is %s", status.PID, s.Path, status.Version, versionText())
	} else {
		d.found(ok, "daemon", "", "pid %d on %s, version %s, %s", status.PID, s.Path, status.Version, plural(len(status.Clients)-1, "client"))
	}
	for _, client := range status.Clients {
		if client.Bridge != "" && client.Bridge != status.Version && client.Name != "tmux-mcpd status" {
			d.found(warn, "daemon", "restart "+client.Name, "the tmux-mcpd stdio of %s is version %s, the daemon is %s", client.Name, client.Bridge, status.Version)
		}
	}
	for _, server := range status.Servers {
		if server.Reason != "" {
			d.found(warn, "daemon", "", "%s is asked in mode %s: %s", server.Socket, server.Mode, server.Reason)
		}
		if server.LastError != "" {
			d.found(warn, "daemon", "", "the last error about %s: %s", server.Socket, server.LastError)
		}
	}
}

func (d *doctor) checkService(ctx context.Context) {
	state := d.service.inspect(ctx)
	switch {
	case state.Packed && state.Socket != "active" && state.Service != "active" && state.Enabled != "enabled":
		d.found(ok, "service", d.self+" service install", "a package's units are in %s, but not in use; with them all hosts share one daemon", state.Dir)
		return
	case state.Dir == "":
		d.found(ok, "service", d.self+" service install", "not installed; with it all hosts share one daemon")
		return
	}
	install := d.self + " service install"
	if len(state.Command) == 0 {
		d.found(fail, "service", install, "the unit in %s does not say what to run", state.Dir)
		return
	}
	binary := state.Command[0]
	if err := executable(binary); err != nil {
		d.found(fail, "service", install, "the service runs %s: %v", binary, err)
	} else if strings.Contains(binary, "/Cellar/") {
		d.found(warn, "service", install, "the service runs %s, which the next upgrade removes", binary)
	} else if version := d.programVersion(ctx, binary); version != "" && version != versionText() {
		d.found(warn, "service", install, "the service runs %s, version %s; this program is %s", binary, version, versionText())
	}
	for _, setting := range hidingSettings(d.service.dir(), state.Dir) {
		d.found(fail, "service", "remove "+setting+" from the unit or its drop-in, then systemctl --user daemon-reload",
			"the service is set to %s: tmux's sockets, homes or processes are hidden from it", setting)
	}
	switch {
	case state.Manager != nil:
		d.found(warn, "service", "run this in a login session of yours", "the service manager of your user cannot be reached: %v", state.Manager)
		return
	case state.Service == "failed" || state.Socket == "failed":
		d.found(fail, "service", "journalctl --user -u tmux-mcpd -n 20; systemctl --user restart tmux-mcpd.socket", "the service has failed")
	case state.Socket == "active" || state.Service == "active":
		d.found(ok, "service", "", "installed in %s, socket %s, daemon %s", state.Dir, state.Socket, state.Service)
	default:
		d.found(fail, "service", install, "installed in %s but not running (%s)", state.Dir, state.Enabled)
	}
	if d.service.goos == "darwin" {
		return
	}
	if user, lingers := d.linger(); !lingers {
		d.found(warn, "linger", "loginctl enable-linger", "the service of user %s ends with the last login session (no matter on a desktop)", user)
	} else {
		d.found(ok, "linger", "", "the service stays without a login session")
	}
}

// hidingSettings finds settings of the unit and its drop-ins that would hide
// from the daemon what it is to look at (B059).
func hidingSettings(dirs ...string) []string {
	var settings []string
	for _, dir := range dirs {
		files, _ := filepath.Glob(filepath.Join(dir, serviceUnit+".d", "*.conf"))
		for _, file := range append(files, filepath.Join(dir, serviceUnit)) {
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				hides := slices.Contains([]string{"PrivateTmp", "ProtectHome", "ProtectProc", "PrivateUsers", "PrivatePIDs", "ProcSubset"}, key)
				harmless := slices.Contains([]string{"", "no", "false", "off", "0", "all", "default", "read-only"}, value)
				if setting := key + "=" + value; hides && !harmless && !slices.Contains(settings, setting) {
					settings = append(settings, setting)
				}
			}
		}
	}
	return settings
}

// executable says why a file cannot be run.
func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("it does not exist")
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return errors.New("it cannot be run")
	}
	return nil
}

// programVersion asks another tmux-mcpd what it is, "" if it does not say.
func (d *doctor) programVersion(ctx context.Context, path string) string {
	text, err := d.output(ctx, path, "version")
	words := strings.Fields(text)
	if err != nil || len(words) < 2 || words[0] != "tmux-mcpd" {
		return ""
	}
	return words[1]
}
