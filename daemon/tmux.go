package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"tmux-mcpd/controlmode"
	"tmux-mcpd/tools"
)

// usualPlaces are where tmux is looked for when PATH does not have it: launchd
// and hosts with a graphical interface start programs with next to no PATH.
var usualPlaces = []string{
	"/usr/local/bin/tmux", "/opt/homebrew/bin/tmux", "/usr/bin/tmux", "/bin/tmux",
	"/opt/local/bin/tmux", "/run/current-system/sw/bin/tmux", "/snap/bin/tmux",
	"/home/linuxbrew/.linuxbrew/bin/tmux",
}

// TmuxPath finds the tmux program: the given path, else $TMUX_MCPD_TMUX, else
// the one on PATH, else in one of the usual places.
func TmuxPath(given string) (string, error) {
	for _, named := range []struct{ path, source string }{{given, "--tmux"}, {os.Getenv("TMUX_MCPD_TMUX"), "TMUX_MCPD_TMUX"}} {
		if named.path == "" {
			continue
		}
		path, err := exec.LookPath(named.path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", named.source, err)
		}
		return path, nil
	}
	if path, err := exec.LookPath("tmux"); err == nil {
		return path, nil
	}
	for _, path := range usualPlaces {
		if _, err := exec.LookPath(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("tmux is not installed: it is neither on PATH nor in the usual places (install it, or name it with --tmux or TMUX_MCPD_TMUX)")
}

func (c *Config) tmuxPath() (string, error) { return TmuxPath(c.Tmux) }

// oldest is the oldest tmux that knows all that we need (-N, client flags).
const oldestTmux = "3.2"

// explain finds out why a command failed that every tmux should know: tmux is
// too old (before 3.2 it answers with its usage, since it has no -N), or it and
// the server, started before an upgrade, speak different protocols.
func (c *Config) explain(ctx context.Context, path string, err error) error {
	var command *controlmode.CommandError
	if !errors.As(err, &command) {
		return err
	}
	// The second text is what a 3.6 says to a 3.5a's server.
	if strings.HasPrefix(command.Stderr, "protocol version mismatch") || strings.HasPrefix(command.Stderr, "open terminal failed") {
		return fmt.Errorf("%w (the server seems to be of another version than %s: name the tmux that started it with --tmux or TMUX_MCPD_TMUX, or end it with kill-server)", err, path)
	}
	if !strings.HasPrefix(command.Stderr, "usage:") && !strings.Contains(command.Stderr, "unknown option") && !strings.Contains(command.Stderr, "invalid option") {
		return err
	}
	out, versionErr := exec.CommandContext(ctx, path, "-V").Output()
	if versionErr != nil {
		return err
	}
	return fmt.Errorf("%s is %s, but %s or newer is needed (name another with --tmux or TMUX_MCPD_TMUX)",
		path, strings.TrimSpace(string(out)), oldestTmux)
}

// callerSocket is the path of the socket of the server that a caller means:
// the named one, else that of LIBTMUX_SOCKET_PATH, of LIBTMUX_SOCKET, of the
// caller's own TMUX, else tmux's default. A name that is given but empty names
// nothing, yet LIBTMUX_SOCKET is not looked at then. name is the name that was
// used, "" for a path and for the default.
func callerSocket(caller tools.Caller, given *string) (path, name string, err error) {
	if given != nil {
		name = *given
	}
	if name == "" {
		if path := caller.Env["LIBTMUX_SOCKET_PATH"]; path != "" {
			return path, "", nil
		}
		if given == nil {
			name = caller.Env["LIBTMUX_SOCKET"]
		}
	}
	if name != "" {
		path, err := namedSocket(caller, name)
		return path, name, err
	}
	if path := caller.TmuxSocket(); path != "" {
		return path, "", nil
	}
	path, err = namedSocket(caller, "default")
	return path, "", err
}

// namedSocket is where `tmux -L name` looks: in the directory tmux-UID of
// TMUX_TMPDIR, or of /tmp if that does not exist.
func namedSocket(caller tools.Caller, name string) (string, error) {
	switch {
	case strings.ContainsRune(name, 0):
		return "", tools.Refused("socket_name %q is not the name of a socket: it holds a NUL.", name)
	case strings.Contains(name, "/") && !strings.HasPrefix(name, "/"), name == ".", name == "..":
		return "", tools.Refused("socket_name %q is not the name of a socket: it must not be a path. Give the name as for tmux -L; for a path set LIBTMUX_SOCKET_PATH.", name)
	}
	base := ""
	if dir := caller.Env["TMUX_TMPDIR"]; dir != "" {
		base, _ = filepath.EvalSymlinks(dir) // "" if it does not exist
	}
	if base == "" {
		base = "/tmp"
		if real, err := filepath.EvalSymlinks(base); err == nil {
			base = real
		}
	}
	dir := filepath.Join(base, "tmux-"+strconv.Itoa(os.Getuid()))
	// A whole path is taken as tmux -L takes it: below the directory, where
	// nothing is.
	path := dir + "/" + name
	if len(path) > maxTmuxSocket {
		return "", tools.Refused("socket_name is too long: the socket's path %s… would have %d bytes, tmux takes %d.", path[:maxTmuxSocket], len(path), maxTmuxSocket)
	}
	// tmux refuses a directory that others may enter, and so do we: what
	// listens there may be somebody else's.
	if info, err := os.Lstat(dir); err == nil && (!info.IsDir() || info.Mode().Perm()&0o007 != 0) {
		return "", tools.ServerError(path, fmt.Errorf("directory %s has unsafe permissions (chmod 700 %s)", dir, dir))
	}
	return path, nil
}

// maxTmuxSocket is the longest path of a tmux socket on every system.
const maxTmuxSocket = 103

// socketID tells one socket from another at the same path.
type socketID = inode

func fileID(path string) (socketID, error) {
	info, err := os.Stat(path)
	if err != nil {
		return socketID{}, err
	}
	return inodeOf(info), nil
}
