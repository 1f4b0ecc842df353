package daemon

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	childVariable = "TMUX_MCPD_TEST_SOCKET_CHILD"
	nobody        = 65534
)

// TestSocketChild is the body of the processes that the tests below start: it does what its variable says, prints one
// line, and lives until its stdin ends.
func TestSocketChild(t *testing.T) {
	verb, path, _ := strings.Cut(os.Getenv(childVariable), " ")
	if verb == "" {
		t.Skip("started by other tests only")
	}
	var ln *Listener
	var err error
	answer := "ok"
	switch verb {
	case "listen":
		ln, err = Listen(path)
	case "listen-umask-0":
		syscall.Umask(0)
		ln, err = Listen(path)
	case "inherited":
		os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid())) // known to nobody before
		ln, err = Inherited()
		if err == nil && ln != nil {
			answer = "ok " + ln.Path() + " [" + os.Getenv("LISTEN_PID") + os.Getenv("LISTEN_FDS") + os.Getenv("LISTEN_FDNAMES") + "]"
		}
	case "connect":
		var conn net.Conn
		if conn, err = net.Dial("unix", path); err == nil {
			conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, err = conn.Read(make([]byte, 1))
		}
	}
	if err != nil {
		answer = err.Error()
	}
	fmt.Println(answer)
	if ln != nil {
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		}()
	}
	io.Copy(io.Discard, os.Stdin)
	if ln != nil {
		ln.Close()
	}
}

type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	answer string
}

// startChild starts a process that does "verb path" and waits for its line. setUp may change the command.
func startChild(t *testing.T, action string, setUp func(*exec.Cmd)) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestSocketChild$")
	// The race detector's runtime sleeps for a second at exit unless told not to.
	cmd.Env = append(os.Environ(), childVariable+"="+action, "GORACE=atexit_sleep_ms=0")
	if setUp != nil {
		setUp(cmd)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, stdin: stdin}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGCONT)
		stdin.Close()
		kill := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		defer kill.Stop()
		cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Errorf("child says nothing: %v", err) // not Fatal: tests start children in goroutines
	}
	c.answer = strings.TrimSpace(line)
	return c
}

func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

// asNobody makes cmd run as another user, from a copy of the test binary which that user can reach.
func asNobody(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	dir := openTempDir(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "test")
	if err := os.WriteFile(copied, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	return func(cmd *exec.Cmd) {
		cmd.Path = copied
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
}

// openTempDir is a temporary directory with a short name that everybody can look into.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mcpd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustListen(t *testing.T, path string) *Listener {
	t.Helper()
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Error(err)
	} else if info.Mode() != want {
		t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(openTempDir(t), "tmux-mcpd", "mcp.sock")
	ln := mustListen(t, path)
	wantMode(t, filepath.Dir(path), fs.ModeDir|0o700)
	wantMode(t, path, fs.ModeSocket|0o600)
	if pid, err := os.ReadFile(path + ".lock"); err != nil || string(pid) != strconv.Itoa(os.Getpid())+"\n" {
		t.Errorf("lock file: %q %v", pid, err)
	}

	client, err := Dial(context.Background(), path+".not", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	pid, ok := PeerPID(conn)
	if runtime.GOOS == "linux" && (!ok || pid != os.Getpid()) {
		t.Errorf("PeerPID = %d, %v", pid, ok)
	}
	a, _ := net.Pipe()
	if pid, ok := PeerPID(a); ok {
		t.Errorf("PeerPID of a pipe = %d", pid)
	}

	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	ln.Close()
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := Dial(context.Background(), path); !errors.Is(err, syscall.ENOENT) || !strings.Contains(err.Error(), path) {
		t.Errorf("Dial: %v", err)
	}
}

func TestListenUnderAnyUmask(t *testing.T) {
	path := filepath.Join(openTempDir(t), "d", "s")
	if c := startChild(t, "listen-umask-0 "+path, nil); c.answer != "ok" {
		t.Fatal(c.answer)
	}
	wantMode(t, filepath.Dir(path), fs.ModeDir|0o700)
	wantMode(t, path, fs.ModeSocket|0o600)
	wantMode(t, path+".lock", 0o600)
}

// Of 20 daemons that start at once, one lives and answers; the others name it.
func TestListenRace(t *testing.T) {
	path := filepath.Join(openTempDir(t), "d", "s")
	children := make([]*child, 20)
	var wg sync.WaitGroup
	for i := range children {
		wg.Go(func() { children[i] = startChild(t, "listen "+path, nil) })
	}
	wg.Wait()
	winner := 0
	for _, c := range children {
		if c.answer == "ok" {
			if winner != 0 {
				t.Fatal("two daemons")
			}
			winner = c.cmd.Process.Pid
		}
	}
	for _, c := range children {
		// The loser may have looked between the winner's lock and its pid.
		if c.answer != "ok" && !strings.HasPrefix(c.answer, "a daemon is already running on "+path) {
			t.Errorf("loser says %s", c.answer)
		}
	}
	_, err := Listen(path)
	var running *RunningError
	if !errors.Is(err, ErrRunning) || !errors.As(err, &running) || running.PID != winner || running.Path != path {
		t.Errorf("got %v, want pid %d", err, winner)
	}
	conn, err := Dial(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// The same among goroutines, where every winner closes at once: no two ever overlap, and none fails otherwise.
func TestListenTakeTurns(t *testing.T) {
	path := filepath.Join(openTempDir(t), "s")
	var mu sync.Mutex
	held, won := 0, 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				ln, err := Listen(path)
				if errors.Is(err, ErrRunning) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				held++
				won++
				if held != 1 {
					t.Error("two listeners at once")
				}
				mu.Unlock()
				if _, err := os.Lstat(path); err != nil {
					t.Error(err)
				}
				mu.Lock()
				held--
				mu.Unlock()
				ln.Close()
			}
		})
	}
	wg.Wait()
	if won == 0 {
		t.Error("nobody ever listened")
	}
}

func TestKilledDaemonIsReplaced(t *testing.T) {
	path := filepath.Join(openTempDir(t), "s")
	c := startChild(t, "listen "+path, nil)
	c.kill()
	wantMode(t, path, fs.ModeSocket|0o600)
	mustListen(t, path)
	conn, err := Dial(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestStoppedDaemonIsNotRobbed(t *testing.T) {
	path := filepath.Join(openTempDir(t), "s")
	c := startChild(t, "listen "+path, nil)
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"lock held", "lock file removed"} {
		if how == "lock file removed" {
			os.Remove(path + ".lock")
		}
		start := time.Now()
		_, err := Listen(path)
		var running *RunningError
		if !errors.As(err, &running) || running.PID != c.cmd.Process.Pid && runtime.GOOS == "linux" {
			t.Errorf("%s: %v", how, err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("%s: took %v", how, took)
		}
	}
	c.cmd.Process.Signal(syscall.SIGCONT)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// A daemon whose files were taken away, and replaced by another's, leaves those alone when it ends.
func TestCloseKeepsForeignFiles(t *testing.T) {
	path := filepath.Join(openTempDir(t), "s")
	old := mustListen(t, path)
	os.Remove(path)
	os.Remove(path + ".lock")
	mustListen(t, path)
	old.Close()
	for _, file := range []string{path, path + ".lock"} {
		if _, err := os.Lstat(file); err != nil {
			t.Error(err)
		}
	}
	conn, err := Dial(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestListenRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, dir string) string // returns the socket path
		want string
	}{
		{"a directory that is a link", func(t *testing.T, dir string) string {
			os.Mkdir(dir+"/real", 0o700)
			os.Symlink("real", dir+"/link")
			return dir + "/link/s"
		}, "/link is a link"},
		{"a dangling link", func(t *testing.T, dir string) string {
			os.Symlink("nowhere", dir+"/link")
			return dir + "/link/s"
		}, "/link is a link"},
		{"a directory that others may write to", func(t *testing.T, dir string) string {
			os.Mkdir(dir+"/open dir", 0o700)
			os.Chmod(dir+"/open dir", 0o777)
			return dir + "/open dir/s"
		}, "/open dir can be written by others (mode 0777): chmod go-w '/tmp/mcpd"},
		{"a group's directory", func(t *testing.T, dir string) string {
			os.Mkdir(dir+"/group", 0o700)
			os.Chmod(dir+"/group", 0o770)
			return dir + "/group/s"
		}, "chmod go-w /tmp/mcpd"},
		{"a directory of another user", func(t *testing.T, dir string) string {
			if os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			os.Mkdir(dir+"/foreign", 0o700)
			os.Chown(dir+"/foreign", nobody, nobody)
			return dir + "/foreign/s"
		}, "/foreign belongs to uid 65534 and not to you: remove it (sudo rm -r /tmp/mcpd"},
		{"a file for a directory", func(t *testing.T, dir string) string {
			os.WriteFile(dir+"/file", nil, 0o600)
			return dir + "/file/s"
		}, "/file: not a directory"},
		{"a file for a socket", func(t *testing.T, dir string) string {
			os.WriteFile(dir+"/s", nil, 0o600)
			return dir + "/s"
		}, "/s exists and is not a socket"},
		{"a link for a socket", func(t *testing.T, dir string) string {
			os.Symlink("elsewhere", dir+"/s")
			return dir + "/s"
		}, "/s exists and is not a socket"},
		{"a link for a lock", func(t *testing.T, dir string) string {
			os.WriteFile(dir+"/precious", []byte("precious"), 0o600)
			os.Symlink("precious", dir+"/s.lock")
			return dir + "/s"
		}, "/s.lock: "},
		{"a second name for a lock", func(t *testing.T, dir string) string {
			os.WriteFile(dir+"/precious", []byte("precious"), 0o600)
			os.Link(dir+"/precious", dir+"/s.lock")
			return dir + "/s"
		}, "/s.lock is not a plain file of yours"},
		{"a FIFO for a lock", func(t *testing.T, dir string) string {
			syscall.Mkfifo(dir+"/s.lock", 0o600)
			return dir + "/s"
		}, "/s.lock is not a plain file of yours"},
		{"a long path", func(t *testing.T, dir string) string {
			return dir + "/" + strings.Repeat("l", 100)
		}, "bytes long, the system allows 103: choose a shorter one with --socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := openTempDir(t)
			path := c.make(t, dir)
			ln, err := Listen(path)
			if err == nil {
				ln.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
			if errors.Is(err, ErrRunning) {
				t.Error("taken for a running daemon")
			}
			if text, err := os.ReadFile(dir + "/precious"); err == nil && string(text) != "precious" {
				t.Errorf("file overwritten: %q", text)
			}
		})
	}
}

// An explicit path in a directory of the system, /tmp/x.sock say, is fine, and the directory stays as it is.
func TestListenInStickyDirectory(t *testing.T) {
	dir := openTempDir(t)
	sticky := filepath.Join(dir, "tmp")
	os.Mkdir(sticky, 0o700)
	if err := os.Chmod(sticky, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	mustListen(t, filepath.Join(sticky, "x.sock"))
	wantMode(t, sticky, fs.ModeDir|fs.ModeSticky|0o777)
}

func TestOtherUserIsRefused(t *testing.T) {
	become := asNobody(t)
	path := filepath.Join(openTempDir(t), "s")
	ln := mustListen(t, path)
	var log bytes.Buffer
	ln.Log = slog.New(slog.NewTextHandler(&log, nil))

	if c := startChild(t, "connect "+path, become); !strings.Contains(c.answer, "permission denied") {
		t.Errorf("rights of the socket: %s", c.answer)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			accepted <- conn
		}
		close(accepted)
	}()
	if c := startChild(t, "connect "+path, become); c.answer != "EOF" {
		t.Errorf("child of another user: %s", c.answer)
	}
	client, err := Dial(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, ok := <-accepted // ours, though another came first
	if !ok {
		t.Fatal("not accepted")
	}
	defer conn.Close()
	if !strings.Contains(log.String(), "uid=65534") {
		t.Errorf("log: %s", log.String())
	}
}

// A socket that another user serves is not talked to, even where we could.
func TestDialPassesOverOtherUsers(t *testing.T) {
	become := asNobody(t)
	dir := openTempDir(t)
	os.Mkdir(dir+"/theirs", 0o755)
	os.Chown(dir+"/theirs", nobody, nobody)
	if c := startChild(t, "listen "+dir+"/theirs/s", become); c.answer != "ok" {
		t.Fatal(c.answer)
	}
	if _, err := Dial(context.Background(), dir+"/theirs/s"); err == nil || !strings.Contains(err.Error(), "served by uid 65534") {
		t.Errorf("got %v", err)
	}
	mustListen(t, dir+"/s")
	conn, err := Dial(context.Background(), dir+"/theirs/s", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if conn.RemoteAddr().String() != dir+"/s" {
		t.Errorf("connected to %s", conn.RemoteAddr())
	}
}

func TestInherited(t *testing.T) {
	if ln, err := Inherited(); ln != nil || err != nil {
		t.Errorf("without variables: %v %v", ln, err)
	}
	path := filepath.Join(openTempDir(t), "s")
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	unixFile, err := socket.File()
	if err != nil {
		t.Fatal(err)
	}
	defer unixFile.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	tcpFile, err := tcp.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer tcpFile.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()

	for _, c := range []struct {
		name  string
		files []*os.File
		want  string
	}{
		{"one", []*os.File{unixFile}, "ok " + path + " []"},
		{"two", []*os.File{unixFile, unixFile}, "LISTEN_FDS hands over 2 sockets, one is wanted"},
		{"tcp", []*os.File{tcpFile}, "LISTEN_FDS hands over a socket of kind tcp"},
		{"no socket", []*os.File{null}, "LISTEN_FDS hands over a descriptor that cannot be listened on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			child := startChild(t, "inherited", func(cmd *exec.Cmd) {
				cmd.ExtraFiles = c.files
				cmd.Env = append(cmd.Env, "LISTEN_FDS="+strconv.Itoa(len(c.files)), "LISTEN_FDNAMES=x")
			})
			if !strings.HasPrefix(child.answer, c.want) {
				t.Fatalf("got %s, want %s", child.answer, c.want)
			}
			if c.name != "one" {
				return
			}
			conn, err := Dial(context.Background(), path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := conn.Read(make([]byte, 1)); err != io.EOF { // the child accepts and closes
				t.Errorf("got %v", err)
			}
			child.stdin.Close()
			child.cmd.Wait()
			wantMode(t, path, fs.ModeSocket|0o755&^umask())
			// While somebody else listens there, a daemon by hand does not take over.
			if _, err := Listen(path); !errors.Is(err, ErrRunning) {
				t.Errorf("Listen: %v", err)
			}
		})
	}
}

func umask() fs.FileMode {
	old := syscall.Umask(0o22)
	syscall.Umask(old)
	return fs.FileMode(old)
}
