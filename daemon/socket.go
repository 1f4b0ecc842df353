package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// socketPathMax is the longest socket path in bytes. sun_path holds 104 bytes on macOS and the BSDs and 108 on Linux,
// each with the closing NUL; the smaller one holds everywhere, so that a path that works here works there.
const socketPathMax = 103

// SocketPath returns the path on which the daemon listens: flag (the value of --socket, may be empty), else
// $TMUX_MCPD_SOCKET, else the first of the usual places that can be used. It touches nothing.
func SocketPath(flag string) (string, error) {
	paths, err := SocketPaths(flag)
	if err != nil {
		return "", err
	}
	return paths[0], nil
}

// SocketPaths returns every path at which a client should look for a daemon, the likeliest first. A path that was
// named, by flag or $TMUX_MCPD_SOCKET, is the only one. Otherwise there are several, since the daemon may have been
// started by systemd, with XDG_RUNTIME_DIR, and the client by cron, sudo or ssh, without it.
func SocketPaths(flag string) ([]string, error) {
	p := places{getenv: os.Getenv, uid: os.Geteuid(), goos: runtime.GOOS, ours: ownDirectory}
	return p.socketPaths(flag)
}

// places is what the choice of a socket path depends on.
type places struct {
	getenv func(string) string
	uid    int
	goos   string
	ours   func(dir string) bool // whether dir is a directory of this user
}

func (p places) socketPaths(flag string) ([]string, error) {
	named := []struct{ path, source string }{
		{flag, "--socket"},
		{p.getenv("TMUX_MCPD_SOCKET"), "TMUX_MCPD_SOCKET"},
	}
	for _, n := range named {
		if n.path == "" {
			continue
		}
		path, err := filepath.Abs(n.path)
		if err != nil {
			return nil, fmt.Errorf("socket path of %s: %w", n.source, err)
		}
		if err := checkSocketLength(path); err != nil {
			return nil, fmt.Errorf("%s: %w", n.source, err)
		}
		return []string{path}, nil
	}

	// A runtime directory that is missing (containers, WSL) or of another user (su and sudo keep the variable) is
	// passed over, as is one too long for a socket: daemon and client judge alike, so they still meet.
	uid := strconv.Itoa(p.uid)
	candidates := []struct {
		dir, name string
		use       bool
	}{
		{p.getenv("XDG_RUNTIME_DIR"), "tmux-mcpd", true},
		{"/run/user/" + uid, "tmux-mcpd", p.goos != "darwin"},
		{p.getenv("TMPDIR"), "tmux-mcpd", p.goos == "darwin"},
	}
	var paths []string
	add := func(path string) {
		for _, have := range paths {
			if have == path {
				return
			}
		}
		paths = append(paths, path)
	}
	for _, c := range candidates {
		path := filepath.Join(c.dir, c.name, "mcp.sock")
		if c.use && filepath.IsAbs(c.dir) && checkSocketLength(path) == nil && p.ours(c.dir) {
			add(path)
		}
	}
	// /tmp itself, not TMPDIR: the one place that needs no variable, so the last resort is the same for everybody.
	add("/tmp/tmux-mcpd-" + uid + "/mcp.sock")
	return paths, nil
}

func checkSocketLength(path string) error {
	if len(path) <= socketPathMax {
		return nil
	}
	return fmt.Errorf("socket path %s is %d bytes long, the system allows %d: choose a shorter one with --socket or TMUX_MCPD_SOCKET",
		path, len(path), socketPathMax)
}

// ownDirectory follows links: the runtime directory is the system's choice, the directory inside it is checked by Listen.
func ownDirectory(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	uid, ok := ownerOf(info)
	return ok && uid == os.Geteuid()
}
