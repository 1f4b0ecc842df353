package daemon

import (
	"bytes"
	"os"
	"strconv"
)

// A schedule watches how often the system has let the tmux server run
// (/proc/PID/schedstat, the third field). tmux 3.8 does some things without an
// item in a queue; it cannot do them without running. That the count stands
// still is no proof, because tmux may do something in the very slice in which
// it answered us; that it has moved is a hint. A nil schedule never moves.
type schedule struct {
	file *os.File
	last [24]byte
	buf  [96]byte
}

// openSchedule returns nil where the hint is not wanted or cannot be had.
func openSchedule(pid int, wanted bool) *schedule {
	if !wanted {
		return nil
	}
	file, err := os.Open("/proc/" + strconv.Itoa(pid) + "/schedstat")
	if err != nil {
		return nil
	}
	return &schedule{file: file}
}

func (s *schedule) read() (slices [24]byte) {
	n, err := s.file.ReadAt(s.buf[:], 0)
	if n == 0 && err != nil {
		return slices
	}
	f := bytes.TrimSpace(s.buf[:n])
	copy(slices[:], f[bytes.LastIndexByte(f, ' ')+1:])
	return slices
}

// moved reports whether the server has run since the last mark.
func (s *schedule) moved() bool {
	return s != nil && s.read() != s.last
}

// mark remembers how often the server has run.
func (s *schedule) mark() {
	if s != nil {
		s.last = s.read()
	}
}

func (s *schedule) close() {
	if s != nil {
		s.file.Close()
	}
}
