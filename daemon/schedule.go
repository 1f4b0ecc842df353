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
//
// A server that is taken off its processor between its answer and its sleep runs
// once more without having been woken: one poll in fourteen, on two cores. So if
// the count has moved, the system is asked how often the server has gone to sleep
// (/proc/PID/status, voluntary_ctxt_switches), which takes it ten times as long
// to say. Each of our exchanges is one sleep; whatever else wakes it is one more.
type schedule struct {
	slices, status *os.File
	ran            uint64 // slices at the last mark
	sleeps         uint64 // that there will have been after the exchanges so far
	buf            [4096]byte
}

// openSchedule returns nil where the hint is not wanted or cannot be had.
func openSchedule(pid int, wanted bool) *schedule {
	if !wanted {
		return nil
	}
	dir := "/proc/" + strconv.Itoa(pid)
	slices, err := os.Open(dir + "/schedstat")
	if err != nil {
		return nil
	}
	status, err := os.Open(dir + "/status")
	if err != nil {
		slices.Close()
		return nil
	}
	return &schedule{slices: slices, status: status}
}

func (s *schedule) read(file *os.File) []byte {
	n, _ := file.ReadAt(s.buf[:], 0) // io.EOF, or the server has gone: nothing has moved
	return bytes.TrimSpace(s.buf[:n])
}

func (s *schedule) runs() uint64 {
	text := s.read(s.slices)
	return number(text[bytes.LastIndexByte(text, ' ')+1:])
}

// slept reports how often the server has gone to sleep, and whether it sleeps.
func (s *schedule) slept() (times uint64, sleeps bool) {
	text := s.read(s.status)
	_, state, _ := bytes.Cut(text, []byte("\nState:\t"))
	_, count, _ := bytes.Cut(text, []byte("\nvoluntary_ctxt_switches:\t"))
	return number(count), bytes.HasPrefix(state, []byte("S"))
}

// number reads the digits that a text begins with.
func number(text []byte) (n uint64) {
	for _, c := range text {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + uint64(c-'0')
	}
	return n
}

// moved reports whether the server has been woken since the last mark.
func (s *schedule) moved() bool {
	if s == nil {
		return false
	}
	runs := s.runs()
	if runs == s.ran {
		return false
	}
	if times, sleeps := s.slept(); !sleeps || times != s.sleeps {
		return true
	}
	s.ran = runs
	return false
}

// mark takes note of an exchange in which the server was woken once.
func (s *schedule) mark() {
	if s != nil {
		s.sleeps++
		s.ran = s.runs()
	}
}

// begin takes note of an exchange, a dump, from which on all is counted.
func (s *schedule) begin() {
	if s != nil {
		times, sleeps := s.slept()
		if !sleeps { // it is about to, after its answer
			times++
		}
		s.sleeps = times
		s.ran = s.runs()
	}
}

func (s *schedule) close() {
	if s != nil {
		s.slices.Close()
		s.status.Close()
	}
}
