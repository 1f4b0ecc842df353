package state

import (
	"strconv"
	"unicode/utf8"
)

// A Fragment is a piece of JSON in the two forms in which an answer holds it:
// as it is, for the structured content, and escaped once more to stand inside
// the JSON string of the text content.
type Fragment struct {
	Plain, Escaped []byte
}

// A form says how a value is shown in JSON.
type form uint8

const (
	asString form = iota // a string; tmux's own digits for numbers
	asInt                // a number
	asBool               // true for "1"
)

// A member is one key of a row and where its value comes from.
type member struct {
	key    string
	column Column
	form   form
}

// The members of a pane's row before and after what is read per request, and
// those of a session's row: key order and types of the contract.
var (
	paneHead = []member{
		{"pane_id", PaneID, asString},
		{"pane_index", PaneIndex, asString},
		{"pane_width", PaneWidth, asString},
		{"pane_height", PaneHeight, asString},
		{"pane_left", PaneLeft, asInt},
		{"pane_top", PaneTop, asInt},
		{"pane_right", PaneRight, asInt},
		{"pane_bottom", PaneBottom, asInt},
		{"pane_at_left", PaneAtLeft, asBool},
		{"pane_at_right", PaneAtRight, asBool},
		{"pane_at_top", PaneAtTop, asBool},
		{"pane_at_bottom", PaneAtBottom, asBool},
		{"pane_tty", PaneTTY, asString},
	}
	paneTail = []member{
		{"pane_pid", PanePID, asString},
		{"pane_title", PaneTitle, asString},
		{"pane_active", PaneActive, asString},
		{"window_id", WindowID, asString},
		{"session_id", SessionID, asString},
	}
	sessionRow = []member{
		{"session_id", SessionID, asString},
		{"session_name", SessionName, asString},
		{"window_count", SessionWindows, asInt},
		{"session_attached", SessionAttached, asString},
		{"session_created", SessionCreated, asString},
	}
)

func (p *Pane) encode() {
	p.Head = fragment(p.appendMembers([]byte{'{'}, paneHead))
	p.Tail = fragment(p.appendMembers([]byte{','}, paneTail))
}

func (s *Session) encode() {
	row := s.Panes[0].appendMembers([]byte{'{'}, sessionRow)
	row = append(row, `,"active_pane_id":`...)
	if s.Active != nil {
		row = AppendString(row, s.Active.column[PaneID])
	} else {
		row = append(row, "null"...)
	}
	s.JSON = fragment(append(row, '}'))
}

func fragment(plain []byte) Fragment {
	return Fragment{Plain: plain, Escaped: AppendEscaped(nil, plain)}
}

func (p *Pane) appendMembers(dst []byte, members []member) []byte {
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = append(dst, m.key...)
		dst = append(dst, `":`...)
		dst = appendValue(dst, p.column[m.column], m.form)
	}
	return dst
}

func appendValue(dst []byte, value string, f form) []byte {
	switch f {
	case asInt:
		if n, err := strconv.Atoi(value); err == nil {
			return strconv.AppendInt(dst, int64(n), 10)
		}
	case asBool:
		if value != "" {
			return strconv.AppendBool(dst, value == "1")
		}
	case asString:
		if value != "" {
			return AppendString(dst, value)
		}
	}
	return append(dst, "null"...)
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Bytes that are no UTF-8 become
// U+FFFD, so that the result is valid whatever a process calls itself.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, "\uFFFD"...)
				start = i + 1
			}
			i += size
			continue
		}
		if b >= ' ' && b != '"' && b != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, `\n`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\r':
			dst = append(dst, `\r`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hexDigits[b>>4], hexDigits[b&0xf])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// AppendEscaped appends JSON as it stands inside a JSON string. The input has
// no control characters (AppendString has escaped them), so that only quotes
// and backslashes are to do.
func AppendEscaped(dst, json []byte) []byte {
	start := 0
	for i, b := range json {
		if b == '"' || b == '\\' {
			dst = append(dst, json[start:i]...)
			dst = append(dst, '\\')
			start = i
		}
	}
	return append(dst, json[start:]...)
}
