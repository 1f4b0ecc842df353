package daemon

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
	"time"
)

// A frameReader reads newline-delimited frames, each of at most maxFrame bytes,
// its newline counted.
type frameReader struct {
	r    *bufio.Reader
	long []byte // collects a frame that is longer than the buffer

	// late is called from a timer if a frame that was begun is not complete
	// after frameTime.
	late    func()
	pending *time.Timer // for late, while a frame is incomplete
}

var errFrameTooLong = errors.New("frame too long")

const frameBuffer = 16 << 10

func newFrameReader(r io.Reader, late func()) *frameReader {
	f := &frameReader{late: late}
	f.r = bufio.NewReaderSize(arrivals{r, f}, frameBuffer)
	return f
}

// arrivals is the stream as the buffer reads it: bufio asks for more only where
// it holds no complete frame, so whatever it does hold then is part of one. No
// clock runs for frames that arrive whole.
type arrivals struct {
	io.Reader
	frames *frameReader
}

func (a arrivals) Read(p []byte) (int, error) {
	f := a.frames
	if f.pending == nil && (f.r.Buffered() > 0 || len(f.long) > 0) {
		f.pending = time.AfterFunc(frameTime, f.late)
	}
	return a.Reader.Read(p)
}

// next returns the next frame without its newline and the white space around
// it; lines with nothing else are passed over. The bytes are valid until the
// next call. A last frame without a newline counts: the client has hung up
// after it, and still wants its answer.
func (f *frameReader) next() ([]byte, error) {
	for {
		line, err := f.line()
		if f.pending != nil {
			f.pending.Stop()
			f.pending = nil
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && (err == nil || err == io.EOF) {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// more reports whether part of the next frame has been read already.
func (f *frameReader) more() bool { return f.r.Buffered() > 0 }

func (f *frameReader) line() ([]byte, error) {
	f.long = nil // a client that once sent a long frame shall not cost us that for ever
	line, err := f.r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	f.long = bytes.Clone(line)
	for {
		line, err = f.r.ReadSlice('\n')
		if len(f.long)+len(line) > maxFrame {
			return nil, errFrameTooLong
		}
		f.long = append(f.long, line...)
		if err != bufio.ErrBufferFull {
			return f.long, err
		}
	}
}

// tooDeep reports whether brackets nest deeper than limit. It need not know
// whether the frame is valid.
func tooDeep(frame []byte, limit int) bool {
	for _, depth := range nesting(frame) {
		if depth > limit {
			return true
		}
	}
	return false
}

// nesting yields the place of each bracket and brace in JSON, with the depth
// after it. All it knows of JSON is what a bracket inside a string is.
func nesting(b []byte) iter.Seq2[int, int] {
	return func(yield func(at, depth int) bool) {
		depth, inString := 0, false
		for i := 0; i < len(b); i++ {
			switch c := b[i]; {
			case inString:
				if c == '\\' {
					i++
				} else if c == '"' {
					inString = false
				}
				continue
			case c == '"':
				inString = true
				continue
			case c == '{' || c == '[':
				depth++
			case c == '}' || c == ']':
				depth--
			default:
				continue
			}
			if !yield(i, depth) {
				return
			}
		}
	}
}
