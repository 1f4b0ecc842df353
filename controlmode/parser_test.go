package controlmode

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// parse plays lines into a Parser and describes what came out. Each line is
// overwritten after its turn: a Parser keeps nothing of it.
func parse(lines ...string) (events []string, err error) {
	var p Parser
	for _, line := range lines {
		b := []byte(line)
		e, err := p.Line(b)
		for i := range b {
			b[i] = '!'
		}
		if err != nil {
			return events, err
		}
		if e.Kind != EventNone {
			events = append(events, describe(e))
		}
	}
	return events, nil
}

// describe is the notation of the transcripts.
func describe(e Event) string {
	switch e.Kind {
	case EventReply:
		how := "end"
		if e.Reply.Failed {
			how = "error"
		}
		return fmt.Sprintf("reply %d flags %d %s %q", e.Reply.Number, e.Reply.Flags, how, e.Reply.Body)
	case EventNotification:
		if e.Notification.InBlock {
			return fmt.Sprintf("doubtful %s %q", e.Notification.Name, e.Notification.Args)
		}
		return fmt.Sprintf("notification %s %q", e.Notification.Name, e.Notification.Args)
	case EventExit:
		return fmt.Sprintf("exit %q", e.Notification.Args)
	case EventUnknown:
		return fmt.Sprintf("unknown %q", e.Notification.Args)
	}
	return "none"
}

func TestParser(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		want  []string
		err   error
	}{
		{"empty block", []string{"%begin 1 2 1", "%end 1 2 1"}, []string{`reply 2 flags 1 end ""`}, nil},
		{"empty line", []string{"%begin 1 2 1", "", "%end 1 2 1"}, []string{`reply 2 flags 1 end ""`}, nil},
		{"empty lines", []string{"%begin 1 2 1", "", "", "a", "", "%end 1 2 1"}, []string{`reply 2 flags 1 end "\n\na\n"`}, nil},
		{"bytes", []string{"%begin 1 2 1", "\xff\x00\r\t", "%end 1 2 1"}, []string{`reply 2 flags 1 end "\xff\x00\r\t"`}, nil},
		{"error", []string{"%begin 1 2 1", "no", "%error 1 2 1"}, []string{`reply 2 flags 1 error "no"`}, nil},
		{"largest number", []string{"%begin 1 4294967295 1", "%end 1 4294967295 1"}, []string{`reply 4294967295 flags 1 end ""`}, nil},
		{"number too large", []string{"%begin 1 4294967296 1"}, []string{`notification begin "1 4294967296 1"`}, nil},
		{"time too large", []string{"%begin 99999999999999999999 1 1"}, []string{`notification begin "99999999999999999999 1 1"`}, nil},
		{"negative", []string{"%begin 1 -2 1"}, []string{`notification begin "1 -2 1"`}, nil},
		{"one number", []string{"%begin 1"}, []string{`notification begin "1"`}, nil},
		{"two blanks", []string{"%begin 1  2 1"}, []string{`notification begin "1  2 1"`}, nil},
		{"leading zero is another guard", []string{"%begin 1 2 1", "%end 01 2 1", "%end 1 2 1"}, []string{`reply 2 flags 1 end "%end 01 2 1"`}, nil},
		{"stray end", []string{"%end 1 2 1"}, nil, errStrayGuard},
		{"second end", []string{"%begin 1 2 1", "%error 1 2 1", "%error 1 2 1"}, []string{`reply 2 flags 1 error ""`}, errStrayGuard},
		{"end without numbers", []string{"%end of line"}, []string{`notification end "of line"`}, nil},
		{"exit", []string{"%exit"}, []string{`exit ""`}, nil},
		{"exit with a reason", []string{"%exit too far behind"}, []string{`exit "too far behind"`}, nil},
		{"unknown", []string{"hello", "%", ""}, []string{`unknown "hello"`, `unknown "%"`, `unknown ""`}, nil},
		{"args keep blanks", []string{"%window-renamed @1  a b "}, []string{`notification window-renamed "@1  a b "`}, nil},
		{"pane ids are data", []string{"%begin 1 2 1", "%71", "%71 x", "%end 1 2 1"}, []string{`reply 2 flags 1 end "%71\n%71 x"`}, nil},
		{"known word only", []string{"%begin 1 2 1", "%window-addx @1", "%end 1 2 1"}, []string{`reply 2 flags 1 end "%window-addx @1"`}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parse(tt.lines...)
			if !slices.Equal(got, tt.want) || !errors.Is(err, tt.err) {
				t.Errorf("got  %q, %v\nwant %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestParserReplyIsOwned(t *testing.T) {
	var p Parser
	block := func(body string) Reply {
		p.Line([]byte("%begin 1 2 1"))
		p.Line([]byte(body))
		e, err := p.Line([]byte("%end 1 2 1"))
		if err != nil || e.Kind != EventReply {
			t.Fatal(e, err)
		}
		return e.Reply
	}
	first := block("first")
	block("other")
	if string(first.Body) != "first" {
		t.Errorf("body changed to %q with the next block", first.Body)
	}
}

func TestParserBlockLimit(t *testing.T) {
	var p Parser
	if _, err := p.Line([]byte("%begin 1 2 1")); err != nil {
		t.Fatal(err)
	}
	line := bytes.Repeat([]byte("x"), 8<<20-1)
	for i := range 9 {
		_, err := p.Line(line)
		if want := i == 8; (err != nil) != want {
			t.Fatalf("after %d MiB: %v", 8*(i+1), err)
		}
	}
}

// FuzzParser wraps any text in a block: it must come back whole, whatever it
// looks like, unless it holds the very guard. Then it plays the text bare.
func FuzzParser(f *testing.F) {
	for _, body := range []string{
		"", "\n", "one\ntwo", "%end 1 2 1\n%exit", "%window-add @1\n%exit now", "%begin 1 2 1\n%end 1 2 1",
		"%error 9 8 7", "%end 9 8 0", "%begin 9 8", "%\xff\n%output %1 x", "%end 9 8 7 ",
	} {
		f.Add(body, uint32(8), 7)
	}
	f.Fuzz(func(t *testing.T, body string, number uint32, flags int) {
		guard := fmt.Sprintf("9 %d %d", number, flags&0xff)
		lines := strings.Split(body, "\n")
		var p Parser
		if _, err := p.Line([]byte("%begin " + guard)); err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			e, err := p.Line([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			if line == "%end "+guard || line == "%error "+guard {
				return // nobody can tell that from the real one
			}
			if e.Kind != EventNone && (e.Kind != EventNotification || !e.Notification.InBlock) {
				t.Fatalf("line %q in a block gave %s", line, describe(e))
			}
		}
		e, err := p.Line([]byte("%end " + guard))
		if err != nil || e.Kind != EventReply || string(e.Reply.Body) != body || e.Reply.Failed ||
			e.Reply.Number != number || e.Reply.Flags != flags&0xff || e.Reply.Time != 9 {
			t.Fatalf("got %s, %v", describe(e), err)
		}
		for _, line := range lines {
			if _, err := p.Line([]byte(line)); err != nil {
				return
			}
		}
	})
}
