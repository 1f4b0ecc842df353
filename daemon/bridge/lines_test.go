package bridge

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLineReader(t *testing.T) {
	const limit = 64 << 10
	exact := strings.Repeat("e", limit-1) + "\n"
	long := strings.Repeat("l", 3*limit) + "\n"
	input := "a\n\nbb\n" + exact + long + "after\n" + exact + long + long + "end\npart"
	want := "a\n\nbb\n" + exact + "<long>" + "after\n" + exact + "<long><long>" + "end\n<part>"

	for name, r := range map[string]io.Reader{
		"whole":     strings.NewReader(input),
		"halves":    iotest.HalfReader(strings.NewReader(input)),
		"bytes":     iotest.OneByteReader(strings.NewReader(input)),
		"data+EOF":  iotest.DataErrReader(strings.NewReader(input)),
		"big reads": io.MultiReader(strings.NewReader(input[:limit]), strings.NewReader(input[limit:])),
	} {
		t.Run(name, func(t *testing.T) {
			lines := newLineReader(r, limit)
			var got bytes.Buffer
			for {
				block, err := lines.block()
				if errors.Is(err, errLineTooLong) {
					got.WriteString("<long>")
					err = lines.discard()
				}
				if err != nil {
					if err != io.EOF {
						t.Fatal(err)
					}
					got.WriteString("<" + string(lines.rest()) + ">")
					break
				}
				if block != nil && block[len(block)-1] != '\n' {
					t.Fatalf("block ends inside a line")
				}
				got.Write(block)
			}
			if got.String() != want {
				t.Errorf("got %d bytes, want %d, or other ones", got.Len(), len(want))
			}
		})
	}
}

func TestLineReaderGivesMemoryBack(t *testing.T) {
	big := strings.Repeat("b", 2*keepBuffer) + "\n"
	r, w := io.Pipe()
	go func() {
		io.WriteString(w, big)
		io.WriteString(w, "small\n")
		w.Close()
	}()
	lines := newLineReader(r, answerLimit)
	if block, err := lines.block(); err != nil || len(block) != len(big) {
		t.Fatalf("%d bytes, %v", len(block), err)
	}
	if block, err := lines.block(); err != nil || string(block) != "small\n" {
		t.Fatalf("%q, %v", block, err)
	}
	if len(lines.buf) > startBuffer {
		t.Errorf("%d bytes kept", len(lines.buf))
	}
}
