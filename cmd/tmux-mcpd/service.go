package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"tmux-mcpd/daemon"
)

//go:embed service
var serviceTemplates embed.FS

// The names of the service's files, which are also those of their templates.
const (
	socketUnit  = "tmux-mcpd.socket"
	serviceUnit = "tmux-mcpd.service"
	launchAgent = "tmux-mcpd.plist"
	launchLabel = "tmux-mcpd"
)

// agentPath is the PATH of a LaunchAgent. launchd's own has neither of the
// places where tmux usually is, and it expands neither ~ nor variables.
const agentPath = "/opt/homebrew/bin:/usr/local/bin:/opt/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

// packagedUnits are where packages put user units, in systemd's order.
var packagedUnits = []string{"/etc/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user", "/lib/systemd/user"}

// A service is the daemon under the system's service manager: systemd's user
// units, or a LaunchAgent.
type service struct {
	c        console
	goos     string
	uid      int
	home     string
	config   string   // $XDG_CONFIG_HOME or what stands for it
	packaged []string // directories of units that are not the user's
	command  []string // what the manager is to run
}

func serviceCommand(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "service install|uninstall|status",
		Short: "Run the daemon in the background, by systemd or launchd",
		Long: `Run the daemon in the background. On Linux these are systemd user units: systemd
listens on the socket and starts the daemon when somebody asks. On macOS it is a
LaunchAgent. Nothing here needs root, and uninstall leaves nothing behind.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("service what: install, uninstall or status?")
			}
			return usagef("cannot %q a service: say install, uninstall or status", args[0])
		},
	}
	cmd.AddCommand(serviceInstallCommand(c), serviceUninstallCommand(c), serviceStatusCommand(c))
	return cmd
}

func serviceInstallCommand(c console) *cobra.Command {
	var binary, tmux string
	var printOnly bool
	cmd := &cobra.Command{
		Use:   "install [--print [FILE]]",
		Short: "Install and start the background service",
		Long: `Install and start the background service of this user. Running it again brings
the files up to date and restarts what they have changed. Each file that is
written and each command that is run is shown.

With --print nothing is done: the files are printed, or the one that is named
(tmux-mcpd.socket, tmux-mcpd.service; on macOS tmux-mcpd.plist), for packagers.`,
		Example: `  tmux-mcpd service install
  tmux-mcpd service install --tmux /opt/tmux/bin/tmux
  tmux-mcpd service install --print --binary /usr/bin/tmux-mcpd tmux-mcpd.service`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVar(&binary, "binary", "", "`path` of the tmux-mcpd that the service runs (default: this one)")
	cmd.Flags().StringVar(&tmux, "tmux", "", "`path` of the tmux binary, if the service is not to look for it")
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the files instead of installing them")
	readOnly := addHintsFlag(cmd, c)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && !printOnly {
			return usagef("a file can only be named with --print")
		}
		s, err := newService(c)
		if err != nil {
			return err
		}
		if err := s.run(binary, tmux, readOnly); err != nil {
			return err
		}
		if printOnly {
			return s.print(args)
		}
		return s.install(cmd.Context())
	}
	return cmd
}

func serviceUninstallCommand(c console) *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "Stop and remove the background service",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := newService(c)
			if err != nil {
				return err
			}
			return s.uninstall(cmd.Context())
		},
	}
}

func serviceStatusCommand(c console) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show whether the background service is installed and runs",
		Long:  `Show whether the background service is installed and runs. Exits with 1 if not.`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := newService(c)
			if err != nil {
				return err
			}
			return s.status(cmd.Context())
		},
	}
}

func newService(c console) (*service, error) {
	s := &service{c: c, goos: runtime.GOOS, uid: os.Getuid(), home: c.getenv("HOME"), config: c.getenv("XDG_CONFIG_HOME"), packaged: packagedUnits}
	if !filepath.IsAbs(s.home) {
		return nil, errors.New("HOME is not set")
	}
	if !filepath.IsAbs(s.config) { // a relative one is to be ignored, says its specification
		s.config = filepath.Join(s.home, ".config")
	}
	return s, nil
}

// run decides what the manager is to run.
func (s *service) run(binary, tmux string, readOnly func() (bool, error)) error {
	if binary == "" {
		var err error
		if binary, err = stableBinary(s.c.getenv("PATH")); err != nil {
			return err
		}
	}
	for flag, path := range map[string]string{"--binary": binary, "--tmux": tmux} {
		if path != "" && !filepath.IsAbs(path) {
			return usagef("%s %q is not an absolute path", flag, path)
		}
	}
	s.command = []string{binary, "serve"}
	if tmux != "" {
		s.command = append(s.command, "--tmux", tmux)
	}
	hints, err := readOnly()
	if err != nil {
		return err
	}
	if hints {
		s.command = append(s.command, "--hints", hintsReadOnly)
	}
	return nil
}

// stableBinary is the path of this program that an upgrade keeps valid: rather
// the link on PATH than the file of one version that it points to, such as
// Homebrew's Cellar/tmux-mcpd/1.2.3/bin/tmux-mcpd.
func stableBinary(path string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("path of this program: %w", err)
	}
	real, err := filepath.EvalSymlinks(self)
	if err != nil {
		return "", fmt.Errorf("path of this program: %w", err)
	}
	if strings.Contains(real, "/go-build") {
		return "", errors.New("this program is a temporary file of go run: build it, or name one with --binary")
	}
	return stablePath(real, path), nil
}

// stablePath returns the first link on PATH, or in the opt directory of
// Homebrew, that leads to a program, else the program itself.
func stablePath(real, path string) string {
	var candidates []string
	for _, dir := range filepath.SplitList(path) {
		candidates = append(candidates, filepath.Join(dir, "tmux-mcpd"))
	}
	if prefix, _, ok := strings.Cut(real, "/Cellar/"); ok {
		candidates = append(candidates, filepath.Join(prefix, "opt/tmux-mcpd/bin/tmux-mcpd"))
	}
	for _, candidate := range candidates {
		if !filepath.IsAbs(candidate) || candidate == real {
			continue
		}
		if target, err := filepath.EvalSymlinks(candidate); err == nil && target == real {
			return candidate
		}
	}
	return real
}

// A unit is one file of the service.
type unit struct {
	name, path string
	text       []byte
}

// dir is where the user's own files of the service belong.
func (s *service) dir() string {
	if s.goos == "darwin" {
		return filepath.Join(s.home, "Library/LaunchAgents")
	}
	return filepath.Join(s.config, "systemd/user")
}

func (s *service) names() []string {
	if s.goos == "darwin" {
		return []string{launchAgent}
	}
	return []string{socketUnit, serviceUnit}
}

// log is where launchd keeps what the daemon says; systemd has its journal.
func (s *service) log() string { return filepath.Join(s.home, "Library/Logs/tmux-mcpd.log") }

// units are the files as they ought to be.
func (s *service) units() ([]unit, error) {
	data := struct {
		Command   string // for systemd
		Arguments []string
		Path, Log string
	}{Path: agentPath, Log: xmlText(s.log())}
	words := make([]string, len(s.command))
	for i, word := range s.command {
		words[i] = systemdWord(word, i == 0)
		data.Arguments = append(data.Arguments, xmlText(word))
	}
	data.Command = strings.Join(words, " ")

	templates, err := template.ParseFS(serviceTemplates, "service/*")
	if err != nil {
		return nil, err
	}
	var units []unit
	for _, name := range s.names() {
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, name, data); err != nil {
			return nil, err
		}
		units = append(units, unit{name, filepath.Join(s.dir(), name), text.Bytes()})
	}
	return units, nil
}

// systemdWord quotes a word of ExecStart: systemd expands % there, and $ in
// all words but the first.
func systemdWord(word string, first bool) string {
	word = strings.ReplaceAll(word, "%", "%%")
	if !first {
		word = strings.ReplaceAll(word, "$", "$$")
	}
	if strings.ContainsAny(word, " \t\n\"'\\;") {
		return strconv.Quote(word)
	}
	return word
}

func xmlText(text string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(text)); err != nil {
		panic(err) // a strings.Builder takes everything
	}
	return b.String()
}

func (s *service) print(names []string) error {
	units, err := s.units()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		for i, u := range units {
			if i > 0 {
				fmt.Fprintln(s.c.out)
			}
			if s.goos != "darwin" { // where a comment may not come first
				fmt.Fprintf(s.c.out, "# %s\n", u.path)
			}
			s.c.out.Write(u.text)
		}
		return nil
	}
	i := slices.IndexFunc(units, func(u unit) bool { return u.name == names[0] })
	if i < 0 {
		return usagef("no file is called %q: say %s", names[0], strings.Join(s.names(), " or "))
	}
	_, err = s.c.out.Write(units[i].text)
	return err
}

// manage runs one command of the service manager.
func (s *service) manage(ctx context.Context, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		if text == "" {
			text = err.Error()
		}
		return text, errors.New(text)
	}
	return text, nil
}

// reachable reports, as an error, why the user's service manager cannot be
// asked for anything.
func (s *service) reachable(ctx context.Context) error {
	if s.goos == "darwin" {
		_, err := s.manage(ctx, "launchctl", "print", s.domain())
		return err
	}
	_, err := s.manage(ctx, "systemctl", "--user", "show", "--property=Version")
	return err
}

// domain is launchd's name for the user's desktop session.
func (s *service) domain() string { return "gui/" + strconv.Itoa(s.uid) }

// commands are what makes the manager take the service up, and give it up.
func (s *service) commands() (up, down [][]string) {
	if s.goos == "darwin" {
		out := []string{"launchctl", "bootout", s.domain() + "/" + launchLabel}
		return [][]string{out, {"launchctl", "bootstrap", s.domain(), filepath.Join(s.dir(), launchAgent)}}, [][]string{out}
	}
	systemctl := func(words ...string) []string { return append([]string{"systemctl", "--user"}, words...) }
	return [][]string{
			systemctl("daemon-reload"),
			systemctl("enable", "--now", socketUnit),
			// The daemon that runs may be an older one, with other flags.
			systemctl("try-restart", serviceUnit),
		}, [][]string{
			systemctl("disable", "--now", socketUnit, serviceUnit),
		}
}

// mayFail holds for a command that only undoes what may not be there.
func mayFail(command []string) bool { return slices.Contains(command, "bootout") }

func (s *service) install(ctx context.Context) error {
	if err := s.otherDaemon(ctx); err != nil {
		return err
	}
	units, err := s.units()
	if err != nil {
		return err
	}
	dir := s.packagedDir()
	switch {
	case dir != "" && len(s.command) == 2: // no flags of the user's own
		fmt.Fprintf(s.c.out, "units of a package are used: %s\n", dir)
	default:
		for _, u := range units {
			if err := s.writeUnit(u); err != nil {
				return err
			}
		}
	}
	up, _ := s.commands()
	if err := s.reachable(ctx); err != nil {
		fmt.Fprintf(s.c.out, `
The service manager of your user cannot be reached from here:
    %s
The files are in place. From a login session of yours, run:
%s`, strings.ReplaceAll(err.Error(), "\n", "\n    "), commandLines(up))
		return nil
	}
	for _, command := range up {
		fmt.Fprintf(s.c.out, "run      %s\n", strings.Join(command, " "))
		if _, err := s.manage(ctx, command...); err != nil && !mayFail(command) {
			return fmt.Errorf("%s: %w\nThe files are in place; to undo: tmux-mcpd service uninstall", strings.Join(command, " "), err)
		}
	}
	fmt.Fprintf(s.c.out, "\nDone. \"tmux-mcpd status\" shows the daemon; hosts with \"tmux-mcpd stdio\" use it from their next start.\n")
	if s.goos != "darwin" && !lingers(s.c.getenv("USER")) {
		fmt.Fprint(s.c.out, "It ends with your last login session. To keep it (not needed on a desktop): loginctl enable-linger\n")
	}
	return nil
}

// otherDaemon fails if a daemon that is not the service's holds the service's
// socket: systemd would unlink it and leave that daemon running unreachable.
func (s *service) otherDaemon(ctx context.Context) error {
	socket := filepath.Join(s.runtimeDir(), "tmux-mcpd/mcp.sock")
	if s.goos == "darwin" {
		socket = filepath.Join(s.c.getenv("TMPDIR"), "tmux-mcpd/mcp.sock")
		if _, err := s.manage(ctx, "launchctl", "print", s.domain()+"/"+launchLabel); err == nil {
			return nil
		}
	} else if _, err := s.manage(ctx, "systemctl", "--user", "is-active", socketUnit); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := daemon.Dial(ctx, socket)
	if err != nil {
		return nil
	}
	defer conn.Close()
	who, end := "another daemon", ""
	if pid, known := daemon.PeerPID(conn); known {
		who, end = fmt.Sprintf("another daemon (pid %d)", pid), fmt.Sprintf(": kill %d", pid)
	}
	return fmt.Errorf("%s already serves %s: end it first%s", who, socket, end)
}

// runtimeDir is systemd's %t.
func (s *service) runtimeDir() string {
	if dir := s.c.getenv("XDG_RUNTIME_DIR"); dir != "" {
		return dir
	}
	return "/run/user/" + strconv.Itoa(s.uid)
}

// packagedDir is where a package has put all units, "" if none has.
func (s *service) packagedDir() string {
	if s.goos == "darwin" {
		return ""
	}
	for _, dir := range s.packaged {
		if exists(filepath.Join(dir, socketUnit)) && exists(filepath.Join(dir, serviceUnit)) {
			return dir
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (s *service) writeUnit(u unit) error {
	if old, err := os.ReadFile(u.path); err == nil && bytes.Equal(old, u.text) {
		fmt.Fprintf(s.c.out, "kept     %s\n", u.path)
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(u.path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(u.path, u.text, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(s.c.out, "wrote    %s\n", u.path)
	return nil
}

func (s *service) uninstall(ctx context.Context) error {
	_, down := s.commands()
	reachable := s.reachable(ctx)
	if reachable == nil {
		state := s.inspect(ctx)
		if state.Dir != "" || state.Enabled == "enabled" || state.Service == "active" || state.Socket == "active" {
			for _, command := range down {
				fmt.Fprintf(s.c.out, "run      %s\n", strings.Join(command, " "))
				if text, err := s.manage(ctx, command...); err != nil && !mayFail(command) {
					fmt.Fprintf(s.c.err, "tmux-mcpd: %s\n", text)
				}
			}
		}
	}
	removed := false
	remove := func(path string) error {
		err := os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			removed = true
			fmt.Fprintf(s.c.out, "removed  %s\n", path)
		}
		return err
	}
	paths := []string{s.log()}
	if s.goos != "darwin" {
		// The links are what enabling has made; without a manager they would stay.
		paths = []string{filepath.Join(s.dir(), "sockets.target.wants", socketUnit), filepath.Join(s.dir(), "default.target.wants", serviceUnit)}
	}
	for _, name := range s.names() {
		paths = append(paths, filepath.Join(s.dir(), name))
	}
	for _, path := range paths {
		if err := remove(path); err != nil {
			return err
		}
	}
	if removed {
		// Directories that installing may have made go if nothing else is in them.
		dirs := []string{filepath.Join(s.dir(), "sockets.target.wants"), filepath.Join(s.dir(), "default.target.wants"), s.dir()}
		if s.goos != "darwin" {
			dirs = append(dirs, filepath.Dir(s.dir()))
		}
		for _, dir := range dirs {
			os.Remove(dir)
		}
	}
	if s.goos != "darwin" {
		os.Remove(filepath.Join(s.runtimeDir(), "tmux-mcpd"))
		if removed && reachable == nil {
			for _, words := range [][]string{{"daemon-reload"}, {"reset-failed", serviceUnit, socketUnit}} {
				s.manage(ctx, append([]string{"systemctl", "--user"}, words...)...) // the second fails if nothing has failed
			}
		}
	}
	switch {
	case !removed && s.packagedDir() != "":
		fmt.Fprintln(s.c.out, "The units are a package's and stay.")
	case !removed:
		fmt.Fprintln(s.c.out, "Nothing was installed.")
	case reachable != nil:
		fmt.Fprintf(s.c.out, "\nThe service manager of your user cannot be reached from here, so its daemon may still run. From a login session of yours:\n%s",
			commandLines(append(down, []string{"systemctl", "--user", "daemon-reload"})))
	}
	return nil
}

func commandLines(commands [][]string) string {
	var b strings.Builder
	for _, command := range commands {
		if !mayFail(command) || len(commands) == 1 {
			fmt.Fprintf(&b, "    %s\n", strings.Join(command, " "))
		}
	}
	return b.String()
}

// A serviceState is what can be found out about an installed service.
type serviceState struct {
	Dir     string   // where its files are, "" if it is not installed
	Packed  bool     // they are a package's
	Command []string // what the manager runs, nil if that cannot be read
	Manager error    // why the manager cannot be asked; the rest is empty then
	Enabled string   // systemd's words
	Socket  string
	Service string
}

func (s *service) inspect(ctx context.Context) serviceState {
	var state serviceState
	main := s.names()[len(s.names())-1]
	for i, dir := range append([]string{s.dir()}, s.packaged...) {
		if i > 0 && s.goos == "darwin" {
			break
		}
		if text, err := os.ReadFile(filepath.Join(dir, main)); err == nil {
			state.Dir, state.Packed, state.Command = dir, i > 0, unitCommand(string(text))
			break
		}
	}
	if state.Manager = s.reachable(ctx); state.Manager != nil {
		return state
	}
	if s.goos == "darwin" {
		state.Service = "inactive"
		if text, err := s.manage(ctx, "launchctl", "print", s.domain()+"/"+launchLabel); err == nil {
			state.Enabled = "enabled"
			if strings.Contains(text, "state = running") {
				state.Service = "active"
			}
		}
		return state
	}
	word := func(words ...string) string {
		text, _ := s.manage(ctx, append([]string{"systemctl", "--user"}, words...)...)
		first, _, _ := strings.Cut(text, "\n")
		return first
	}
	state.Enabled = word("is-enabled", socketUnit)
	state.Socket = word("is-active", socketUnit)
	state.Service = word("is-active", serviceUnit)
	return state
}

// unitCommand reads what a unit or a plist of ours runs. It undoes what units
// writes, no more.
func unitCommand(text string) []string {
	for line := range strings.Lines(text) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			return systemdWords(command)
		}
	}
	_, after, found := strings.Cut(text, "<key>ProgramArguments</key>")
	if !found {
		return nil
	}
	var list struct {
		Words []string `xml:"string"`
	}
	if xml.Unmarshal([]byte(after), &list) != nil {
		return nil
	}
	return list.Words
}

func systemdWords(command string) []string {
	var words []string
	for command = strings.TrimSpace(command); command != ""; command = strings.TrimSpace(command) {
		word, rest, _ := strings.Cut(command, " ")
		if quoted, err := strconv.QuotedPrefix(command); err == nil {
			rest = command[len(quoted):]
			if word, err = strconv.Unquote(quoted); err != nil {
				return nil
			}
		}
		word = strings.ReplaceAll(word, "%%", "%")
		if len(words) > 0 {
			word = strings.ReplaceAll(word, "$$", "$")
		}
		words = append(words, word)
		command = rest
	}
	return words
}

func (s *service) status(ctx context.Context) error {
	state := s.inspect(ctx)
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(s.c.out, "%-8s %s\n", name, text)
		}
	}
	if state.Dir == "" {
		return errors.New("the service is not installed: tmux-mcpd service install")
	}
	where := state.Dir
	if state.Packed {
		where += " (of a package)"
	}
	line("units", where)
	line("runs", strings.Join(state.Command, " "))
	if state.Manager != nil {
		return fmt.Errorf("the service manager of your user cannot be reached: %w", state.Manager)
	}
	line("enabled", state.Enabled)
	line("socket", state.Socket)
	line("service", state.Service)
	if state.Socket != "active" && state.Service != "active" {
		return errors.New("the service does not run: tmux-mcpd service install, or tmux-mcpd doctor for the reason")
	}
	return nil
}

// lingers reports whether systemd keeps a user's services without a login.
func lingers(user string) bool {
	return user != "" && exists(filepath.Join("/var/lib/systemd/linger", user))
}

// restart is the command that restarts the daemon.
func (s *service) restart() string {
	if s.goos == "darwin" {
		return "launchctl kickstart -k " + s.domain() + "/" + launchLabel
	}
	return "systemctl --user restart " + serviceUnit
}

// self is the path under which people and hosts should run this program, "" if
// it has none that lasts.
func (s *service) self() string {
	path, err := stableBinary(s.c.getenv("PATH"))
	if err != nil {
		return ""
	}
	return path
}
