package controlmode

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite what the transcripts in testdata expect")

// A transcript is what tmux and a client said to each other. Its file begins
// with prose; then each line is
//
//	>N line   a line of N commands that the client sends
//	< line    a line that tmux sends
//	= event   what the lines of tmux above completed, as describe writes it
//	. note    what somebody else did
type transcript struct {
	prose []string
	turns []turn
}

// A turn is what the client sends at once and what tmux says after it.
type turn struct {
	sent []sentLine
	said []saidLine
}

type sentLine struct {
	line string
	n    int
}

type saidLine struct {
	line   string
	events []string
}

func readTranscript(t *testing.T, name string) (tr transcript) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	tr.turns = []turn{{}}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		last := &tr.turns[len(tr.turns)-1]
		mark, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "":
		case mark == "#":
			tr.prose = append(tr.prose, rest)
		case mark == "<":
			last.said = append(last.said, saidLine{line: rest})
		case mark == "=" && len(last.said) > 0:
			said := &last.said[len(last.said)-1]
			said.events = append(said.events, rest)
		case mark == ".":
		case mark[0] == '>':
			n, err := strconv.Atoi(mark[1:])
			if err != nil {
				t.Fatalf("%s:%d: %v", name, i+1, err)
			}
			if len(last.said) > 0 {
				tr.turns = append(tr.turns, turn{})
				last = &tr.turns[len(tr.turns)-1]
			}
			last.sent = append(last.sent, sentLine{rest, n})
		default:
			t.Fatalf("%s:%d: no such mark: %q", name, i+1, mark)
		}
	}
	return tr
}

// updateTranscript writes the events after the lines that complete them.
func updateTranscript(t *testing.T, name string) {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var p Parser
	var out []byte
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("= ")) {
			continue
		}
		out = append(out, line...)
		if said, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("< ")); ok {
			e, err := p.Line(said)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if e.Kind != EventNone {
				out = fmt.Appendf(out, "= %s\n", describe(e))
			}
		}
	}
	if err := os.WriteFile(name, out, 0o644); err != nil {
		t.Fatal(err)
	}
}

func eachTranscript(t *testing.T, test func(t *testing.T, tr transcript)) {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) < 20 {
		t.Fatalf("%d transcripts in testdata, %v", len(names), err)
	}
	for _, name := range names {
		if *update {
			updateTranscript(t, name)
		}
		tr := readTranscript(t, name)
		if len(tr.prose) < 2 {
			t.Errorf("%s does not say what it pins", name)
		}
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) { test(t, tr) })
	}
}

func TestTranscriptsParse(t *testing.T) {
	eachTranscript(t, func(t *testing.T, tr transcript) {
		var p Parser
		for _, turn := range tr.turns {
			for _, said := range turn.said {
				e, err := p.Line([]byte(said.line))
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				if e.Kind != EventNone {
					got = append(got, describe(e))
				}
				if !slices.Equal(got, said.events) {
					t.Errorf("%q gave %q, want %q", said.line, got, said.events)
				}
			}
		}
	})
}

// TestTranscriptsPlay plays the part of tmux over a pipe.
func TestTranscriptsPlay(t *testing.T) {
	eachTranscript(t, func(t *testing.T, tr transcript) {
		ours, theirs := net.Pipe()
		var mu sync.Mutex
		var heard []string
		c := NewConn(ours, func(n Notification) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, describe(Event{Kind: EventNotification, Notification: n}))
		})
		peer := make(chan error, 1)
		go func() { peer <- playTmux(theirs, tr) }()

		var heardSoFar, replies []string // expected up to here, of the whole stream
		var exit string
		for _, turn := range tr.turns {
			var calls []*Call
			for _, sent := range turn.sent {
				call, err := c.Send(sent.line, sent.n)
				if err != nil {
					t.Fatalf("send %q: %v", sent.line, err)
				}
				calls = append(calls, call)
			}
			heardBefore := make(map[string]int) // notifications that precede a reply
			replies = replies[:0]
			for _, said := range turn.said {
				for _, event := range said.events {
					switch kind, rest, _ := strings.Cut(event, " "); kind {
					case "notification", "doubtful":
						heardSoFar = append(heardSoFar, event)
					case "exit":
						exit = rest
					case "reply":
						if strings.Contains(event, "flags 1") {
							replies = append(replies, event)
							heardBefore[event] = len(heardSoFar)
						}
					}
				}
			}
			for _, call := range calls {
				got, err := call.Wait(testContext(t))
				if err != nil {
					t.Fatalf("wait: %v", err)
				}
				for _, r := range got {
					if len(replies) == 0 {
						t.Fatalf("more replies than expected: %s", describe(Event{Kind: EventReply, Reply: r}))
					}
					if d := describe(Event{Kind: EventReply, Reply: r}); d != replies[0] {
						t.Errorf("got  %s\nwant %s", d, replies[0])
					}
					mu.Lock()
					if len(heard) < heardBefore[replies[0]] {
						t.Errorf("reply %s came before the notifications that precede it", replies[0])
					}
					mu.Unlock()
					replies = replies[1:]
				}
			}
			if len(replies) > 0 {
				t.Errorf("replies that nobody got: %q", replies)
			}
		}
		<-c.Done()
		if err := <-peer; err != nil {
			t.Error(err)
		}
		var end *ExitError
		if err := c.Err(); !errors.As(err, &end) || strconv.Quote(end.Reason) != exit {
			t.Errorf("ended with %v, want exit %s", err, exit)
		}
		if !slices.Equal(heard, heardSoFar) {
			t.Errorf("heard %q\nwant  %q", heard, heardSoFar)
		}
	})
}

func playTmux(stream net.Conn, tr transcript) error {
	defer stream.Close()
	in := bufio.NewReader(stream)
	for _, turn := range tr.turns {
		for _, want := range turn.sent {
			got, err := in.ReadString('\n')
			if err != nil {
				return err
			}
			if got != want.line+"\n" {
				return fmt.Errorf("client sent %q, want %q", got, want.line)
			}
		}
		for _, said := range turn.said {
			if _, err := fmt.Fprintf(stream, "%s\n", said.line); err != nil {
				return err
			}
		}
	}
	return nil
}
