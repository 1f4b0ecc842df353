package bridge

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// kind is what a line is in JSON-RPC.
type kind uint8

const (
	odd          kind = iota // not JSON, or nothing that the bridge should act on: batches, null ids, keys given twice
	request                  // method and id
	notification             // method, no id
	response                 // result or error, and an id
)

// frame is what the bridge needs to know of a line. id and method point into the line.
type frame struct {
	kind   kind
	id     []byte // raw: quotes and escapes as sent; nil for a notification
	method string // decoded
	failed bool   // a response with an error
}

// maxDepth is how deep values may nest in a frame that the bridge acts on, the frame itself counted. It bounds the stack; the daemon refuses
// such frames as well, and then an answer with that id might never come.
const maxDepth = 64

// scan reads a whole line from the host. The verdict request is given only where every JSON reader must agree with it:
// a request remembered that the daemon sees otherwise would wait for its answer for ever.
func scan(line []byte) frame { return scanFrame(line, false) }

// scanAnswer reads a line from the daemon. It stops at the result if the id came before, since results are long; what
// follows is taken on trust but for the last byte.
func scanAnswer(line []byte) frame { return scanFrame(line, true) }

func scanFrame(line []byte, trust bool) frame {
	line = bytes.TrimRight(line, " \t\r\n")
	s := scanner{data: line}
	s.space()
	if !s.take('{') {
		return frame{}
	}
	var id, method, outcome []byte
	var failed bool
	for first := true; ; first = false {
		s.space()
		if s.take('}') {
			if !first {
				return frame{} // a comma before it
			}
			break
		}
		key, ok := s.key()
		if !ok {
			return frame{}
		}
		var field *[]byte
		switch {
		case string(key) == "id":
			field = &id
		case string(key) == "method":
			field = &method
		case string(key) == "result":
			field = &outcome
		case string(key) == "error":
			field, failed = &outcome, true
		case foldsToField(key):
			return frame{} // "ID" is id to encoding/json and nothing to others
		}
		if trust && field == &outcome && id != nil && method == nil && outcome == nil {
			if line[len(line)-1] != '}' {
				return frame{}
			}
			return classify(id, nil, line, failed)
		}
		value, ok := s.value(1)
		if !ok {
			return frame{}
		}
		if field != nil {
			if *field != nil {
				return frame{} // given twice, or result and error
			}
			*field = value
		}
		s.space()
		if s.take('}') {
			break
		}
		if !s.take(',') {
			return frame{}
		}
		s.space()
		if s.peek() == '}' {
			return frame{}
		}
	}
	s.space()
	if s.pos != len(line) {
		return frame{}
	}
	return classify(id, method, outcome, failed)
}

func classify(id, method, outcome []byte, failed bool) frame {
	// An id that is no UTF-8 comes back as null.
	idOK := len(id) > 0 && utf8.Valid(id) && (id[0] == '"' || id[0] == '-' || '0' <= id[0] && id[0] <= '9')
	switch {
	case method != nil && outcome == nil:
		name, ok := unquote(method)
		if !ok {
			return frame{}
		}
		if id == nil {
			return frame{kind: notification, method: string(name)}
		}
		if idOK {
			return frame{kind: request, id: id, method: string(name)}
		}
	case method == nil && outcome != nil:
		// An error without an id answers something that could not be read.
		if idOK || failed && string(id) == "null" {
			return frame{kind: response, id: id, failed: failed}
		}
	}
	return frame{}
}

// foldsToField tells whether encoding/json, which ignores case, would take key for one of ours.
func foldsToField(key []byte) bool {
	for _, name := range [...]string{"id", "method", "result", "error", "jsonrpc"} {
		if string(key) != name && bytes.EqualFold(key, []byte(name)) {
			return true
		}
	}
	return false
}

// unquote returns the content of a raw JSON string.
func unquote(raw []byte) ([]byte, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return nil, false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], true
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return nil, false
	}
	return []byte(text), true
}

// scanner walks JSON without building anything.
type scanner struct {
	data []byte
	pos  int
}

// peek returns 0 at the end; a NUL is no JSON anywhere, so the two need no telling apart.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// key takes a key and its colon.
func (s *scanner) key() ([]byte, bool) {
	start := s.pos
	if !s.string() {
		return nil, false
	}
	key, ok := unquote(s.data[start:s.pos])
	if !ok {
		return nil, false
	}
	s.space()
	if !s.take(':') {
		return nil, false
	}
	s.space()
	return key, true
}

// value takes any value and returns it raw.
func (s *scanner) value(depth int) ([]byte, bool) {
	start := s.pos
	ok := false
	switch c := s.peek(); {
	case c == '"':
		ok = s.string()
	case c == '{' || c == '[':
		ok = depth < maxDepth && s.container(depth)
	case c == 't':
		ok = s.word("true")
	case c == 'f':
		ok = s.word("false")
	case c == 'n':
		ok = s.word("null")
	default:
		ok = s.number()
	}
	if !ok {
		return nil, false
	}
	return s.data[start:s.pos], true
}

func (s *scanner) container(depth int) bool {
	object := s.peek() == '{'
	closing := byte(']')
	if object {
		closing = '}'
	}
	s.pos++
	s.space()
	if s.take(closing) {
		return true
	}
	for {
		s.space()
		if object {
			if !s.string() {
				return false
			}
			s.space()
			if !s.take(':') {
				return false
			}
			s.space()
		}
		if _, ok := s.value(depth + 1); !ok {
			return false
		}
		s.space()
		if s.take(closing) {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

func (s *scanner) word(w string) bool {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(w)) {
		return false
	}
	s.pos += len(w)
	return true
}

func (s *scanner) string() bool {
	if !s.take('"') {
		return false
	}
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		s.pos++
		switch {
		case c == '"':
			return true
		case c < ' ':
			return false
		case c == '\\':
			e := s.peek()
			s.pos++
			switch e {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if !isHex(s.peek()) {
						return false
					}
					s.pos++
				}
			default:
				return false
			}
		}
	}
	return false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func (s *scanner) number() bool {
	s.take('-')
	if !s.take('0') && !s.digits() {
		return false
	}
	if s.take('.') && !s.digits() {
		return false
	}
	if s.take('e') || s.take('E') {
		if !s.take('+') {
			s.take('-')
		}
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	start := s.pos
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.pos++
	}
	return s.pos > start
}

// idOfPart returns the id of a request that was cut off, if id and method come before the cut; else nil.
func idOfPart(part []byte) []byte {
	s := scanner{data: part}
	s.space()
	if !s.take('{') {
		return nil
	}
	var id, method []byte
	for id == nil || method == nil {
		s.space()
		key, ok := s.key()
		if !ok {
			return nil
		}
		value, ok := s.value(1)
		if !ok || s.pos == len(part) {
			return nil
		}
		switch string(key) {
		case "id":
			id = value
		case "method":
			method = value
		}
		s.space()
		if !s.take(',') {
			return nil
		}
	}
	if classify(id, method, nil, false).kind != request {
		return nil
	}
	return id
}
