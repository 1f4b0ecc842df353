package bridge

import (
	"bytes"
	"errors"
	"io"
)

const (
	startBuffer = 32 << 10
	// keepBuffer is how large a buffer may stay between frames: growing anew for every answer of a large server would
	// cost more than the read.
	keepBuffer = 2 << 20
)

var errLineTooLong = errors.New("line too long")

// lineReader hands out the complete lines of a stream, as many at once as have arrived, without copying them.
type lineReader struct {
	r     io.Reader
	limit int // bytes in a line, with its newline

	buf  []byte
	used int   // bytes handed out by the last block
	seen int   // bytes known to hold no newline
	have int   // bytes read
	err  error // of r, kept until the lines before it are handed out
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: r, limit: limit, buf: make([]byte, min(startBuffer, limit))}
}

// block returns one or more whole lines, valid until the next call. After errLineTooLong, discard must be called; after
// any other error, rest holds what came without a newline.
func (l *lineReader) block() ([]byte, error) {
	l.drop()
	for {
		if i := bytes.LastIndexByte(l.buf[l.seen:l.have], '\n'); i >= 0 {
			l.used = l.seen + i + 1
			return l.buf[:l.used], nil
		}
		l.seen = l.have
		if l.have >= l.limit {
			return nil, errLineTooLong
		}
		if err := l.read(); err != nil {
			return nil, err
		}
	}
}

// discard drops the line that was too long up to its newline.
func (l *lineReader) discard() error {
	for {
		if i := bytes.IndexByte(l.buf[l.seen:l.have], '\n'); i >= 0 {
			l.used = l.seen + i + 1
			l.drop()
			return nil
		}
		l.seen, l.have = 0, 0
		if err := l.read(); err != nil {
			return err
		}
	}
}

func (l *lineReader) rest() []byte { return l.buf[:l.have] }

func (l *lineReader) drop() {
	rest := l.buf[l.used:l.have]
	if len(l.buf) > keepBuffer && len(rest) < startBuffer {
		l.buf = make([]byte, startBuffer)
	}
	copy(l.buf, rest)
	l.used, l.seen, l.have = 0, 0, len(rest)
}

func (l *lineReader) read() error {
	if l.err != nil {
		return l.err
	}
	if l.have == len(l.buf) {
		grown := make([]byte, min(2*len(l.buf), l.limit))
		copy(grown, l.buf)
		l.buf = grown
	}
	n, err := l.r.Read(l.buf[l.have:])
	l.have += n
	l.err = err
	if n > 0 {
		return nil
	}
	return err
}
