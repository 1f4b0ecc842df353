package daemon

import (
	"bytes"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tmux-mcpd/controlmode"
	"tmux-mcpd/daemon/state"
)

// processTable reads what runs in panes from /proc, as tmux itself does: the
// pane's process leads the session of its terminal, so the terminal's
// foreground group is in its stat (facts of osdep-linux.c, the same from 3.2a
// to 3.8).
//
// Descriptors are kept open from one request to the next, which makes a read
// three times cheaper. That is sound: a descriptor in /proc belongs to one
// process, and fails with ESRCH once that has gone, never speaking of a later
// process of the same number.
type processTable struct {
	// mu is held shared while descriptors are being read, and exclusively to
	// open or to close any.
	mu      sync.RWMutex
	panes   map[int]int       // a pane's pid → descriptor of its stat
	leaders map[int]leaderFDs // a process group → descriptors of its leader
}

type leaderFDs struct{ dir, cmdline int }

// maxKept bounds the descriptors that are kept: beyond it each read opens and
// closes its own.
const maxKept = 3000

func newProcessTable() *processTable {
	return &processTable{panes: make(map[int]int), leaders: make(map[int]leaderFDs)}
}

// read reads what runs in a pane whose process is a child of the tmux server.
// It reports false where /proc cannot tell and tmux has to be asked: another
// pid namespace, another user's process, a leader that has gone.
func (t *processTable) read(p *state.Pane, server int, v controlmode.Version) (state.Process, bool) {
	if p.Dead {
		return state.Process{Command: p.Value(state.DeadCommand)}, true
	}
	var buf [512]byte
	for patience := startPatience; ; patience -= startStep {
		n, ok := t.readStat(p.PID, buf[:])
		if !ok {
			return state.Process{}, false
		}
		st := parseStat(buf[:n])
		switch {
		case st.parent != server:
			return state.Process{}, false
		case st.session == p.PID && st.group > 0:
			return t.readGroup(st, v)
		case patience <= 0 || st.age() > startTime:
			return state.Process{}, false
		}
		// tmux has just forked it, and it has not got its terminal yet. Asked
		// now, tmux would say that it has no directory.
		time.Sleep(startStep)
	}
}

const (
	startTime     = time.Second // a process older than this is not starting
	startPatience = 100 * time.Millisecond
	startStep     = time.Millisecond
)

func (t *processTable) readGroup(st stat, v controlmode.Version) (state.Process, bool) {
	argv0, path, ok := t.readLeader(st.group)
	if !ok || argv0 == "" {
		return state.Process{}, false
	}
	if path == "" && st.group != st.session {
		_, path, _ = t.readLeader(st.session)
	}
	return state.Process{Command: commandName(argv0, v), Path: path}, true
}

// A stat is what a /proc/PID/stat says that matters here.
type stat struct {
	parent, session int
	group           int // the foreground group of its terminal, 0 without one
	started         int // in ticks of 1/100 s since the system started
}

// parseStat reads a /proc/PID/stat. The name, in parentheses, may hold
// anything.
func parseStat(line []byte) (st stat) {
	rest := line[bytes.LastIndexByte(line, ')')+1:]
	for field := 3; len(rest) > 1; field++ {
		rest = rest[1:]
		end := bytes.IndexByte(rest, ' ')
		if end < 0 {
			end = len(rest)
		}
		switch field {
		case 4:
			st.parent = atoi(rest[:end])
		case 6:
			st.session = atoi(rest[:end])
		case 8:
			st.group = atoi(rest[:end])
		case 22:
			st.started = atoi(rest[:end])
			return st
		}
		rest = rest[end:]
	}
	return st
}

func (st stat) age() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return startTime + 1
	}
	return time.Duration(now.Nano()) - time.Duration(st.started)*10*time.Millisecond
}

// atoi reads a decimal number; 0 for anything else, "-1" among it.
func atoi(b []byte) int {
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + int(c-'0')
	}
	return n
}

func (t *processTable) readStat(pid int, buf []byte) (int, bool) {
	if pid <= 0 {
		return 0, false
	}
	t.mu.RLock()
	fd, kept := t.panes[pid]
	if kept {
		n, err := pread(fd, buf)
		t.mu.RUnlock()
		return n, err == nil && n > 0
	}
	t.mu.RUnlock()
	fd, err := open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY)
	if err != nil {
		return 0, false
	}
	n, err := pread(fd, buf)
	t.mu.Lock()
	if _, other := t.panes[pid]; !other && len(t.panes)+len(t.leaders) < maxKept {
		t.panes[pid] = fd
	} else {
		unix.Close(fd)
	}
	t.mu.Unlock()
	return n, err == nil && n > 0
}

// readLeader reads the first argument and the directory of a process. The
// directory is "" where it may not be read.
func (t *processTable) readLeader(pid int) (argv0, path string, ok bool) {
	t.mu.RLock()
	fds, kept := t.leaders[pid]
	if kept {
		argv0, path, ok = fds.read()
	}
	t.mu.RUnlock()
	if ok {
		return argv0, path, true
	}
	// Not kept, or the process has ended since: another may have its number.
	fds, err := openLeader(pid)
	if err != nil {
		return "", "", false
	}
	argv0, path, ok = fds.read()
	t.mu.Lock()
	old, other := t.leaders[pid]
	switch {
	case ok && kept && other && old != fds:
		old.close()
		t.leaders[pid] = fds
	case ok && !other && len(t.panes)+len(t.leaders) < maxKept:
		t.leaders[pid] = fds
	default:
		fds.close()
	}
	t.mu.Unlock()
	return argv0, path, ok
}

func openLeader(pid int) (leaderFDs, error) {
	dir, err := open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return leaderFDs{}, err
	}
	cmdline, err := openAt(dir, "cmdline")
	if err != nil {
		unix.Close(dir)
		return leaderFDs{}, err
	}
	return leaderFDs{dir, cmdline}, nil
}

func (f leaderFDs) close() {
	unix.Close(f.dir)
	unix.Close(f.cmdline)
}

// read reports false once the process has gone.
func (f leaderFDs) read() (argv0, path string, ok bool) {
	var buf [4096]byte
	n, err := pread(f.cmdline, buf[:])
	if err != nil {
		return "", "", false
	}
	first, _, whole := bytes.Cut(buf[:n], []byte{0})
	if !whole && n == len(buf) {
		return "", "", false // tmux reads arguments of any length
	}
	argv0 = string(first)
	n, err = readlinkAt(f.dir, "cwd", buf[:])
	switch err {
	case nil:
		return argv0, string(buf[:n]), true
	case unix.ENOENT, unix.ESRCH:
		return "", "", false
	}
	return argv0, "", true
}

// prune closes the descriptors of panes that are not in the snapshot, and of
// leaders when there are many more of them than panes.
func (t *processTable) prune(s *state.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.panes) > len(s.Panes) {
		live := make(map[int]bool, len(s.Panes))
		for _, p := range s.Panes {
			live[p.PID] = true
		}
		for pid, fd := range t.panes {
			if !live[pid] {
				unix.Close(fd)
				delete(t.panes, pid)
			}
		}
	}
	if len(t.leaders) > 2*len(s.Panes)+16 {
		for pid, fds := range t.leaders {
			fds.close()
			delete(t.leaders, pid)
		}
	}
}

func (t *processTable) close() { t.prune(&state.Snapshot{}); t.closeLeaders() }

func (t *processTable) closeLeaders() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for pid, fds := range t.leaders {
		fds.close()
		delete(t.leaders, pid)
	}
}

func open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func openAt(dir int, name string) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func pread(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Pread(fd, buf, 0)
		if err != unix.EINTR {
			return n, err
		}
	}
}

func readlinkAt(dir int, name string, buf []byte) (int, error) {
	for {
		n, err := unix.Readlinkat(dir, name, buf)
		if err != unix.EINTR {
			return n, err
		}
	}
}
