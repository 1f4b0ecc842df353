package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tmux-mcpd/controlmode"
)

// A SocketState is what can be seen of a daemon's socket from outside, without
// changing anything.
type SocketState struct {
	Path     string
	Problem  error // why Listen would refuse the path, or nobody should connect to it
	Exists   bool
	Accepts  bool // somebody of this user accepts connections
	Locked   bool // a daemon holds the lock, whether it accepts or not
	PID      int  // of the daemon, 0 if not known
	TimedOut bool // connecting took longer than patience
}

// InspectSocket looks at the socket of a daemon at path.
func InspectSocket(ctx context.Context, path string, patience time.Duration) SocketState {
	s := SocketState{Path: path}
	if s.Problem = checkSocketLength(path); s.Problem != nil {
		return s
	}
	dir := filepath.Dir(path)
	if _, err := os.Lstat(dir); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.Problem = fmt.Errorf("socket directory %s: %w", dir, errnoOf(err))
		}
		return s
	}
	if s.Problem = secureDirectory(dir); s.Problem != nil {
		return s
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			s.Problem = fmt.Errorf("%s is not a socket", path)
			return s
		}
		s.Exists = true
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := Dial(ctx, path)
	if err == nil {
		s.Accepts = true
		s.PID, _ = PeerPID(conn)
		conn.Close()
		return s
	}
	s.TimedOut = ctx.Err() != nil
	// Only now: for a moment a daemon that is just starting would find the lock
	// taken by us.
	lock, err := os.OpenFile(path+".lock", os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return s
	}
	defer lock.Close()
	if errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) {
		s.Locked, s.PID = true, readPID(lock)
	}
	return s
}

// OldestTmux is the oldest tmux that can be worked with.
const OldestTmux = oldestTmux

// NewEnough reports whether what `tmux -V` printed is OldestTmux or newer; true
// for what it does not know.
func NewEnough(version string) bool {
	v := controlmode.ParseVersion(strings.TrimSpace(version))
	return v.AtLeast(3, 2)
}
