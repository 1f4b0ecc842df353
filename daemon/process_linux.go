package daemon

import (
	"bytes"
	"strconv"
	"sync"
	"sync/atomic"
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
	panes   map[int]int     // a pane's pid → descriptor of its stat
	leaders map[int]*leader // a process group → its leader
}

// A leader is the process that leads a foreground group.
type leader struct {
	dir, cmdline int // descriptors
	// seen is what was read last, so that what is read again need not be made
	// a string again.
	seen atomic.Pointer[seenLeader]
}

type seenLeader struct {
	argv0   string
	command string // what tmux makes of argv0
	path    string
}

// maxKept bounds the processes of which descriptors are kept: beyond it each
// read opens and closes its own.
const maxKept = 3000

func newProcessTable() *processTable {
	return &processTable{panes: make(map[int]int), leaders: make(map[int]*leader)}
}

// read reads what runs in each of the panes, whose processes are children of
// the tmux server, into processes. It returns the places of those of which
// /proc cannot tell, so that tmux has to be asked.
//
// The reads are a few system calls each, which wait for nothing: from
// parallelPanes on, half of them are done by another goroutine.
func (t *processTable) read(panes []*state.Pane, processes []state.Process, server int, v controlmode.Version) (unknown []int) {
	if len(panes) < parallelPanes {
		return t.readSome(panes, processes, 0, server, v)
	}
	return t.readHalves(panes, processes, server, v)
}

func (t *processTable) readHalves(panes []*state.Pane, processes []state.Process, server int, v controlmode.Version) (unknown []int) {
	half := len(panes) / 2
	second := make(chan []int, 1)
	go func() { second <- t.readSome(panes[half:], processes[half:], half, server, v) }()
	unknown = t.readSome(panes[:half], processes[:half], 0, server, v)
	return append(unknown, <-second...)
}

// parallelPanes is measured: below it, waking another thread costs more than
// it saves.
const parallelPanes = 16

func (t *processTable) readSome(panes []*state.Pane, processes []state.Process, first, server int, v controlmode.Version) (unknown []int) {
	for i, p := range panes {
		var ok bool
		if processes[i], ok = t.readPane(p, server, v); !ok {
			unknown = append(unknown, first+i)
		}
	}
	return unknown
}

// readPane reports false where /proc cannot tell: another pid namespace,
// another user's process, a leader that has gone.
func (t *processTable) readPane(p *state.Pane, server int, v controlmode.Version) (state.Process, bool) {
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
	l := t.readLeader(st.group, v)
	if l == nil || l.argv0 == "" {
		return state.Process{}, false
	}
	process := state.Process{Command: l.command, Path: l.path}
	if process.Path == "" && st.group != st.session {
		if l := t.readLeader(st.session, v); l != nil {
			process.Path = l.path
		}
	}
	return process, true
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
	kept, ok := t.panes[pid]
	if ok {
		if n, err := pread(kept, buf); err == nil && n > 0 {
			t.mu.RUnlock()
			return n, true
		}
	}
	t.mu.RUnlock()
	// Not kept, or that process has ended: another may have its number.
	fd, err := open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY)
	if err != nil {
		return 0, false
	}
	n, err := pread(fd, buf)
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.panes[pid]; ok {
		unix.Close(old)
	} else if len(t.panes)+len(t.leaders) >= maxKept {
		unix.Close(fd)
		return n, err == nil && n > 0
	}
	t.panes[pid] = fd
	return n, err == nil && n > 0
}

// readLeader reads the first argument and the directory of a process; nil if it
// has gone. The directory is "" where it may not be read.
func (t *processTable) readLeader(pid int, v controlmode.Version) *seenLeader {
	t.mu.RLock()
	if l := t.leaders[pid]; l != nil {
		if seen := l.read(v); seen != nil {
			t.mu.RUnlock()
			return seen
		}
	}
	t.mu.RUnlock()
	l, err := openLeader(pid)
	if err != nil {
		return nil
	}
	seen := l.read(v)
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.leaders[pid]
	if seen == nil || old == nil && len(t.panes)+len(t.leaders) >= maxKept {
		l.close()
		return seen
	}
	if old != nil {
		old.close()
	}
	t.leaders[pid] = l
	return seen
}

func openLeader(pid int) (*leader, error) {
	dir, err := open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	cmdline, err := openAt(dir, "cmdline")
	if err != nil {
		unix.Close(dir)
		return nil, err
	}
	return &leader{dir: dir, cmdline: cmdline}, nil
}

func (l *leader) close() {
	unix.Close(l.dir)
	unix.Close(l.cmdline)
}

// read returns nil once the process has gone.
func (l *leader) read(v controlmode.Version) *seenLeader {
	var args, cwd [4096]byte
	n, err := pread(l.cmdline, args[:])
	if err != nil {
		return nil
	}
	argv0, _, whole := bytes.Cut(args[:n], []byte{0})
	if !whole && n == len(args) {
		return nil // tmux reads arguments of any length
	}
	n, err = readlinkAt(l.dir, "cwd", cwd[:])
	switch err {
	case nil:
	case unix.ENOENT, unix.ESRCH:
		return nil
	default:
		n = 0
	}
	if last := l.seen.Load(); last != nil && last.argv0 == string(argv0) && last.path == string(cwd[:n]) {
		return last
	}
	seen := &seenLeader{argv0: string(argv0), path: string(cwd[:n])}
	seen.command = commandName(seen.argv0, v)
	l.seen.Store(seen)
	return seen
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
		t.closeLeaders()
	}
}

func (t *processTable) close() {
	t.prune(&state.Snapshot{})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeLeaders()
}

// closeLeaders needs mu.
func (t *processTable) closeLeaders() {
	for pid, l := range t.leaders {
		l.close()
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
