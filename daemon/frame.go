package daemon

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// A frameReader reads newline-delimited frames, each of at most maxFrame bytes.
type frameReader struct {
	r    *bufio.Reader
	long []byte // collects a frame that is longer than the buffer
}

var errFrameTooLong = errors.New("frame too long")

const frameBuffer = 16 << 10

func newFrameReader(r io.Reader) frameReader {
	return frameReader{r: bufio.NewReaderSize(r, frameBuffer)}
}

// next returns the next frame without its newline and the white space around
// it; lines with nothing else are passed over. The bytes are valid until the
// next call. A last frame without a newline counts: the client has hung up
// after it, and still wants its answer.
func (f *frameReader) next() ([]byte, error) {
	for {
		line, err := f.line()
		if line = bytes.TrimSpace(line); len(line) > 0 && (err == nil || err == io.EOF) {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (f *frameReader) line() ([]byte, error) {
	line, err := f.r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	f.long = append(f.long[:0], line...)
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
// whether the frame is valid, only what a bracket inside a string is.
func tooDeep(frame []byte, limit int) bool {
	depth, inString := 0, false
	for i := 0; i < len(frame); i++ {
		switch c := frame[i]; {
		case inString:
			if c == '\\' {
				i++
			} else if c == '"' {
				inString = false
			}
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
