package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// ErrRunning is what Listen fails with when another process serves the path. The error is a *RunningError.
var ErrRunning = errors.New("a daemon is already running")

// RunningError says who serves the path. PID is 0 where that is not known.
type RunningError struct {
	Path string
	PID  int
}

func (e *RunningError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%v on %s", ErrRunning, e.Path)
	}
	return fmt.Sprintf("%v on %s (pid %d)", ErrRunning, e.Path, e.PID)
}

// Is makes errors.Is(err, ErrRunning) true.
func (e *RunningError) Is(target error) bool { return target == ErrRunning }

// Listener is a unix socket that only this user can reach: Accept never returns a connection of another user.
type Listener struct {
	Log *slog.Logger // refused connections; nil means slog.Default()

	socket *net.UnixListener
	path   string
	inode  inode    // of the socket that we made; zero for an inherited one
	lock   *os.File // held for life; nil for an inherited one

	closing  sync.Once
	closeErr error
}

// umaskMu guards the umask, which belongs to the process and not to a goroutine.
var umaskMu sync.Mutex

// Listen makes the socket at path and its directory where that is missing (mode 0700). The socket has mode 0600.
//
// It fails with ErrRunning, at once, if another daemon lives there, even one that is stopped or hangs: a lock file
// beside the socket is held for as long as the daemon lives, and the socket counts as left behind only if nobody
// accepts on it. It refuses a directory that others can write to, that is another user's, or that is a link; it never
// changes the mode of a directory that exists.
func Listen(path string) (*Listener, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("socket path: %w", err)
	}
	if err := checkSocketLength(path); err != nil {
		return nil, err
	}
	if err := secureDirectory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	lock, err := acquireLock(path)
	if err != nil {
		return nil, err
	}
	l, err := bind(path)
	if err != nil {
		releaseLock(lock)
		return nil, err
	}
	l.lock = lock
	return l, nil
}

// bind needs the lock: between "nobody accepts here" and the unlink, only a daemon that holds it may bind.
func bind(path string) (*Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// The socket is never open to others, not even between bind and chmod. 077 and not 0177, because a directory that
	// another goroutine makes in this moment must stay usable.
	umaskMu.Lock()
	old := unix.Umask(0o077)
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	umaskMu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, errnoOf(err))
	}
	socket.SetUnlinkOnClose(false) // Go would unlink whatever lies at the path by then

	info, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, errnoOf(err))
	}
	return &Listener{socket: socket, path: path, inode: inodeOf(info)}, nil
}

// removeStale makes way for bind. Only ECONNREFUSED proves that nobody listens: a daemon that is stopped or
// overloaded lets a connect wait, or fail with EAGAIN.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket %s: %w", path, errnoOf(err))
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket: move it away, or choose another path with --socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		defer conn.Close()
		_, pid, _ := peerCredentials(conn)
		return &RunningError{Path: path, PID: pid}
	case errors.Is(err, syscall.ENOENT):
		return nil
	case errors.Is(err, syscall.ECONNREFUSED):
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("socket %s is another user's: choose another path with --socket", path)
	default:
		return &RunningError{Path: path}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket %s that a dead daemon left: %w", path, errnoOf(err))
	}
	return nil
}

// secureDirectory makes dir if it is missing and refuses it if another user could swap the socket in it.
func secureDirectory(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the socket's directory %s: %w", dir, errnoOf(err))
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("socket directory %s: %w", dir, errnoOf(err))
	}
	if info.Mode().Type() == fs.ModeSymlink {
		// Links in the root directory are the system's own: /tmp is one on macOS.
		if filepath.Dir(dir) != "/" {
			return fmt.Errorf("socket directory %s is a link, which somebody could turn elsewhere: remove it (rm %s), or choose another path with --socket",
				dir, shellQuote(dir))
		}
		if info, err = os.Stat(dir); err != nil {
			return fmt.Errorf("socket directory %s: %w", dir, errnoOf(err))
		}
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory: move it away, or choose another path with --socket", dir)
	}
	// The owner of a directory may rename what lies in it, whatever its mode; root may anyway.
	if uid, ok := ownerOf(info); !ok || (uid != os.Geteuid() && uid != 0) {
		return fmt.Errorf("socket directory %s belongs to uid %d and not to you: remove it (sudo rm -r %s), or choose another path with --socket",
			dir, uid, shellQuote(dir))
	}
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("socket directory %s can be written by others (mode %#o): chmod go-w %s",
			dir, info.Mode().Perm(), shellQuote(dir))
	}
	return nil
}

// acquireLock takes the lock file of the socket at path and writes our pid into it.
func acquireLock(path string) (*os.File, error) {
	name := path + ".lock"
	for {
		// In a directory such as /tmp others may have put something at our name: no link is followed, a FIFO does
		// not block, and nothing is written unless it is a plain file of ours under one name only.
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock file %s: %w", name, errnoOf(err))
		}
		info, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock file %s: %w", name, errnoOf(err))
		}
		if uid, ok := ownerOf(info); !ok || uid != os.Geteuid() || !info.Mode().IsRegular() || linksOf(info) > 1 {
			f.Close()
			return nil, fmt.Errorf("lock file %s is not a plain file of yours: remove it, or choose another path with --socket", name)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			defer f.Close()
			return nil, &RunningError{Path: path, PID: readPID(f)}
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		// The last holder unlinks the file before it lets go. Whoever had it open by then has locked a file without a name.
		if now, err := os.Lstat(name); err != nil || inodeOf(now) != inodeOf(info) {
			f.Close()
			continue
		}
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		}
		if err != nil {
			releaseLock(f)
			return nil, fmt.Errorf("lock file %s: %w", name, errnoOf(err))
		}
		return f, nil
	}
}

// readPID returns 0 in the moment between the holder's lock and its write.
func readPID(f *os.File) int {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

func releaseLock(f *os.File) {
	if named, err := os.Lstat(f.Name()); err == nil {
		if held, err := f.Stat(); err == nil && inodeOf(named) == inodeOf(held) {
			os.Remove(f.Name())
		}
	}
	f.Close()
}

// Inherited returns the socket that systemd, or whoever speaks LISTEN_FDS, opened for this process, and nil if there is
// none. The variables are taken out of the environment, so that no child takes them for its own. The socket's file
// stays where it is when the listener is closed: it belongs to the one who made it. Call it once, early.
func Inherited() (*Listener, error) {
	files := activation.Files(true)
	defer func() {
		for _, f := range files {
			f.Close() // the listener has a copy
		}
	}()
	switch len(files) {
	case 0:
		return nil, nil
	case 1:
	default:
		return nil, fmt.Errorf("LISTEN_FDS hands over %d sockets, one is wanted: give the socket unit a single ListenStream", len(files))
	}
	ln, err := net.FileListener(files[0])
	if err != nil {
		return nil, fmt.Errorf("LISTEN_FDS hands over a descriptor that cannot be listened on (want ListenStream and Accept=no): %w", err)
	}
	socket, ok := ln.(*net.UnixListener)
	if !ok || ln.Addr().Network() != "unix" {
		ln.Close()
		return nil, fmt.Errorf("LISTEN_FDS hands over a socket of kind %s, a unix stream socket is wanted", ln.Addr().Network())
	}
	socket.SetUnlinkOnClose(false)
	return &Listener{socket: socket, path: socket.Addr().String()}, nil
}

// Accept returns the next connection of this user. Connections of others, root included, are closed and logged.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.socket.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, pid, err := peerCredentials(conn)
		if err == nil && uid == os.Geteuid() {
			return conn, nil
		}
		conn.Close()
		log := l.Log
		if log == nil {
			log = slog.Default()
		}
		if err != nil {
			log.Warn("connection refused: peer not known", "err", err)
		} else {
			log.Warn("connection refused: another user", "uid", uid, "pid", pid)
		}
	}
}

// Addr returns the socket's address.
func (l *Listener) Addr() net.Addr { return l.socket.Addr() }

// Path returns the path of the socket.
func (l *Listener) Path() string { return l.path }

// Close stops listening and removes socket and lock file, if they are still the ones that Listen made. Connections
// that were accepted live on.
func (l *Listener) Close() error {
	l.closing.Do(func() {
		// While the socket is open its inode number cannot be given to another file: compare first, close then.
		if l.lock != nil {
			if info, err := os.Lstat(l.path); err == nil && inodeOf(info) == l.inode {
				os.Remove(l.path)
			}
		}
		l.closeErr = l.socket.Close()
		if l.lock != nil {
			releaseLock(l.lock)
		}
	})
	return l.closeErr
}

// Dial connects to the first of paths that a daemon of this user serves. A listener of another user is passed over: in
// a place such as /tmp somebody else may have been there first.
func Dial(ctx context.Context, paths ...string) (net.Conn, error) {
	var dialer net.Dialer
	var failed []error
	for _, path := range paths {
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err != nil {
			failed = append(failed, fmt.Errorf("connect to %s: %w", path, errnoOf(err)))
			continue
		}
		uid, _, err := peerCredentials(conn)
		if err == nil && uid == os.Geteuid() {
			return conn, nil
		}
		conn.Close()
		if err == nil {
			err = fmt.Errorf("served by uid %d and not by you", uid)
		}
		failed = append(failed, fmt.Errorf("connect to %s: %w", path, err))
	}
	return nil, errors.Join(failed...)
}

// PeerPID returns the pid of the process that made conn, as it was at connect time; false where the system does not
// tell (anything but Linux), and for a process of a pid namespace that we cannot see.
func PeerPID(conn net.Conn) (int, bool) {
	_, pid, err := peerCredentials(conn)
	return pid, err == nil && pid > 0
}

// peerCredentials returns the effective uid and, on Linux, the pid at the other end of a unix socket.
func peerCredentials(conn net.Conn) (uid, pid int, err error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return -1, 0, fmt.Errorf("peer of a %T has no credentials", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, 0, err
	}
	uid = -1
	ctlErr := raw.Control(func(fd uintptr) { uid, pid, err = socketPeer(int(fd)) })
	if ctlErr != nil {
		return -1, 0, ctlErr
	}
	if err != nil {
		return -1, 0, fmt.Errorf("peer credentials: %w", err)
	}
	return uid, pid, nil
}

// inode names a file for as long as it exists.
type inode struct{ dev, ino uint64 }

func inodeOf(info fs.FileInfo) inode {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}
	}
	return inode{uint64(st.Dev), st.Ino}
}

func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, false
	}
	return int(st.Uid), true
}

func linksOf(info fs.FileInfo) uint64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(st.Nlink)
}

// errnoOf takes the plain cause out of errors that would name the path a second time.
func errnoOf(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// shellQuote makes path safe to paste in a shell.
func shellQuote(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@,") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
