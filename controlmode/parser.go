package controlmode

import (
	"bytes"
	"errors"
	"math"
)

// maxBlock bounds the body of one block in bytes. The largest block we ask for
// is a dump: 1000 panes are about 400 kB.
const maxBlock = 64 << 20

// keepScratch is the largest body buffer, in bytes, that a Parser keeps for
// the next block.
const keepScratch = 1 << 20

var (
	errBlockTooLong = errors.New("block longer than 64 MiB")
	errStrayGuard   = errors.New("end of a block that was not open")
)

// A Reply is one block: what one command printed between %begin and %end or
// %error.
type Reply struct {
	Time   int64  // seconds since 1970, tmux's clock when the command started
	Number uint32 // the server's counter of executed queue items; it wraps
	Flags  int    // bit 0: the command came from this connection
	Failed bool   // closed by %error; Body is then tmux's message
	Body   []byte // the lines, joined by '\n', as raw bytes; owned by the receiver
}

// own reports whether the block answers a command of this connection. Blocks
// without bit 0 belong to the attach command itself or to hooks.
func (r *Reply) own() bool { return r.Flags&1 != 0 }

// A Notification is a line that tmux sends unasked, "%window-add @3" for one.
type Notification struct {
	Name string // without the percent sign: "window-add"
	Args string // the rest of the line after one space, as tmux wrote it

	// InBlock marks a line found inside a block. Some tmux builds (3.7-era)
	// wrote notifications there, but a command's output can hold such a line
	// too, so it is also part of the body: good for one refresh, not for
	// belief.
	InBlock bool
}

// EventKind says what a line completed.
type EventKind uint8

const (
	EventNone         EventKind = iota // nothing yet: a guard or a line of a body
	EventReply                         // Reply is set
	EventNotification                  // Notification is set
	EventExit                          // the peer leaves; Notification.Args is the reason, often empty
	EventUnknown                       // a line outside a block that is no notification; Notification.Args is the line
)

// An Event is what one line completed.
type Event struct {
	Kind         EventKind
	Reply        Reply
	Notification Notification
}

// A Parser turns the lines of a control mode stream into events. The zero
// value is ready. It does no I/O and keeps nothing of the line it is given.
type Parser struct {
	open  bool
	guard []byte // what followed "%begin ": the closing guard must repeat it
	head  Reply
	lines int
	body  []byte
}

// notificationNames are the notifications of tmux 3.2 to 3.8, except %exit,
// which is written by the client process and so is never inside a block.
var notificationNames = map[string]string{
	"client-detached":         "client-detached",
	"client-session-changed":  "client-session-changed",
	"config-error":            "config-error",
	"continue":                "continue",
	"extended-output":         "extended-output",
	"layout-change":           "layout-change",
	"message":                 "message",
	"output":                  "output",
	"pane-mode-changed":       "pane-mode-changed",
	"paste-buffer-changed":    "paste-buffer-changed",
	"paste-buffer-deleted":    "paste-buffer-deleted",
	"pause":                   "pause",
	"session-changed":         "session-changed",
	"session-renamed":         "session-renamed",
	"session-window-changed":  "session-window-changed",
	"sessions-changed":        "sessions-changed",
	"subscription-changed":    "subscription-changed",
	"unlinked-window-add":     "unlinked-window-add",
	"unlinked-window-close":   "unlinked-window-close",
	"unlinked-window-renamed": "unlinked-window-renamed",
	"window-add":              "window-add",
	"window-close":            "window-close",
	"window-pane-changed":     "window-pane-changed",
	"window-renamed":          "window-renamed",
}

// Line takes one line without its newline. An error means that the stream can
// no longer be followed; the parser must not be used after it.
func (p *Parser) Line(line []byte) (Event, error) {
	word, args := splitLine(line)
	if p.open {
		return p.blockLine(line, word, args)
	}
	switch string(word) {
	case "":
		return Event{Kind: EventUnknown, Notification: Notification{Args: string(line)}}, nil
	case "begin":
		head, ok := parseGuard(args)
		if !ok {
			break
		}
		p.open = true
		p.head = head
		p.guard = append(p.guard[:0], args...)
		p.lines = 0
		p.body = p.body[:0]
		return Event{}, nil
	case "end", "error":
		// Only a forged or damaged stream gets here: what came before was
		// not what it seemed to be.
		if _, ok := parseGuard(args); ok {
			return Event{}, errStrayGuard
		}
	case "exit":
		return Event{Kind: EventExit, Notification: Notification{Name: "exit", Args: string(args)}}, nil
	}
	return Event{Kind: EventNotification, Notification: notification(word, args, false)}, nil
}

// blockLine takes a line while a block is open. Everything but the exact
// closing guard is body, because nothing in a body is escaped: with -u a
// directory name prints its newlines, and so whole lines of its choice.
func (p *Parser) blockLine(line, word, args []byte) (Event, error) {
	if failed := string(word) == "error"; (failed || string(word) == "end") && bytes.Equal(args, p.guard) {
		return Event{Kind: EventReply, Reply: p.close(failed)}, nil
	}
	if len(p.body)+len(line)+1 > maxBlock {
		return Event{}, errBlockTooLong
	}
	if p.lines > 0 {
		p.body = append(p.body, '\n')
	}
	p.lines++
	p.body = append(p.body, line...)
	if _, known := notificationNames[string(word)]; known {
		return Event{Kind: EventNotification, Notification: notification(word, args, true)}, nil
	}
	return Event{}, nil
}

func (p *Parser) close(failed bool) Reply {
	r := p.head
	r.Failed = failed
	r.Body = bytes.Clone(p.body)
	p.open = false
	if cap(p.body) > keepScratch {
		p.body = nil
	}
	return r
}

// splitLine cuts "%word args" in two. The word is empty for any other line.
func splitLine(line []byte) (word, args []byte) {
	if len(line) < 2 || line[0] != '%' {
		return nil, nil
	}
	word, args, _ = bytes.Cut(line[1:], []byte{' '})
	return word, args
}

func notification(word, args []byte, inBlock bool) Notification {
	name, known := notificationNames[string(word)]
	if !known {
		name = string(word)
	}
	return Notification{Name: name, Args: string(args), InBlock: inBlock}
}

// parseGuard reads "TIME NUMBER FLAGS". The manual of old versions shows two
// numbers and a later one may add some, so two are enough and more than three
// are let pass. Without flags the block counts as not ours: better a caller
// that waits than one that is given the answer of another.
func parseGuard(args []byte) (Reply, bool) {
	var n [3]uint64
	count := 0
	for rest, more := args, true; more; count++ {
		var field []byte
		field, rest, more = bytes.Cut(rest, []byte{' '})
		v, ok := parseNumber(field)
		if !ok {
			return Reply{}, false
		}
		if count < len(n) {
			n[count] = v
		}
	}
	if count < 2 || n[0] > math.MaxInt64 || n[1] > math.MaxUint32 || n[2] > math.MaxInt32 {
		return Reply{}, false
	}
	return Reply{Time: int64(n[0]), Number: uint32(n[1]), Flags: int(n[2])}, true
}

func parseNumber(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 19 { // 19 digits always fit
		return 0, false
	}
	var v uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	return v, true
}
