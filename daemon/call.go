package daemon

import (
	"bytes"

	"tmux-mcpd/tools"
)

// A call is a tools/call as it came, its parts still in the client's bytes.
type call struct {
	id        []byte
	tool      int // in tools.All
	arguments []byte
	meta      []byte // params._meta; nil without
}

// parseCall reads the frames that make up nearly all of what a daemon gets: a
// tools/call of one of our tools with nothing unusual in it. Whatever it does
// not know (another member, an escape in a key or name, a member given twice)
// it leaves to the decoder that knows everything, so that it need only be right
// about what it accepts. The values of arguments and _meta are delimited here
// and not yet checked.
func parseCall(frame []byte) (c call, ok bool) {
	p := scanner{rest: frame}
	c.tool = -1
	var version, method, params bool
	for key := range p.object() {
		switch string(key) {
		case "jsonrpc":
			if version || string(p.value()) != `"2.0"` {
				return call{}, false
			}
			version = true
		case "id":
			if c.id != nil {
				return call{}, false
			}
			if c.id = p.value(); !plainID(c.id) {
				return call{}, false
			}
		case "method":
			if method || string(p.value()) != `"tools/call"` {
				return call{}, false
			}
			method = true
		case "params":
			if params || !p.params(&c) {
				return call{}, false
			}
			params = true
		default:
			return call{}, false
		}
	}
	return c, p.done() && version && method && c.id != nil && c.tool >= 0
}

// params reads the params of a call.
func (p *scanner) params(c *call) bool {
	for key := range p.object() {
		switch string(key) {
		case "name":
			name := p.value()
			if c.tool >= 0 || len(name) < 2 || name[0] != '"' {
				return false
			}
			name = name[1 : len(name)-1]
			for i := range tools.All {
				if string(name) == tools.All[i].Name {
					c.tool = i
				}
			}
			if c.tool < 0 {
				return false
			}
		case "arguments":
			if c.arguments != nil {
				return false
			}
			if c.arguments = p.value(); len(c.arguments) == 0 || c.arguments[0] != '{' {
				return false
			}
		case "_meta":
			if c.meta != nil {
				return false
			}
			if c.meta = p.value(); len(c.meta) == 0 || c.meta[0] != '{' {
				return false
			}
		default:
			return false
		}
	}
	return !p.failed
}

// plainID reports whether an id is a number without fraction and exponent, or
// a string without escapes.
func plainID(id []byte) bool {
	if len(id) == 0 {
		return false
	}
	if id[0] == '"' {
		return bytes.IndexByte(id, '\\') < 0
	}
	digits := bytes.TrimPrefix(id, []byte("-"))
	if len(digits) == 0 || digits[0] == '0' && len(digits) > 1 {
		return false
	}
	for _, b := range digits {
		if b < '0' || b > '9' {
			return false
		}
	}
	return true
}

// A scanner walks over JSON without decoding it.
type scanner struct {
	rest   []byte
	failed bool
}

func (p *scanner) space() {
	for len(p.rest) > 0 {
		switch p.rest[0] {
		case ' ', '\t', '\r', '\n':
			p.rest = p.rest[1:]
		default:
			return
		}
	}
}

func (p *scanner) take(b byte) bool {
	p.space()
	if len(p.rest) == 0 || p.rest[0] != b {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// done reports whether all has been read and understood.
func (p *scanner) done() bool {
	p.space()
	return !p.failed && len(p.rest) == 0
}

// object yields the keys of an object; the body must take each value.
func (p *scanner) object() func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		if !p.take('{') {
			p.failed = true
			return
		}
		if p.take('}') {
			return
		}
		for {
			p.space()
			key := p.string()
			if key == nil || !p.take(':') {
				p.failed = true
				return
			}
			if !yield(key[1:len(key)-1]) || p.failed {
				return
			}
			if p.take('}') {
				return
			}
			if !p.take(',') {
				p.failed = true
				return
			}
		}
	}
}

// string takes a string without escapes, with its quotes; nil if there is none.
// Control characters are not allowed in one, and UTF-8 is left to others.
func (p *scanner) string() []byte {
	if len(p.rest) == 0 || p.rest[0] != '"' {
		return nil
	}
	for i := 1; i < len(p.rest); i++ {
		switch b := p.rest[i]; {
		case b == '"':
			s := p.rest[:i+1]
			p.rest = p.rest[i+1:]
			return s
		case b == '\\' || b < ' ' || b >= 0x80:
			return nil
		}
	}
	return nil
}

// value takes a value: a string or a number as it is, an object up to its
// closing brace. nil for anything else.
func (p *scanner) value() []byte {
	p.space()
	if len(p.rest) == 0 {
		p.failed = true
		return nil
	}
	end := -1
	switch b := p.rest[0]; {
	case b == '"':
		if s := p.string(); s != nil {
			return s
		}
	case b == '-' || b >= '0' && b <= '9':
		end = 1
		for end < len(p.rest) && (p.rest[end] >= '0' && p.rest[end] <= '9') {
			end++
		}
	case b == '{':
		end = endOfObject(p.rest)
	}
	if end < 0 {
		p.failed = true
		return nil
	}
	v := p.rest[:end]
	p.rest = p.rest[end:]
	return v
}

// endOfObject is the length of the object that begins at b[0], -1 if it does
// not end. Brackets and braces are counted alike: whether they match is for
// those to find out who decode it.
func endOfObject(b []byte) int {
	for at, depth := range nesting(b) {
		if depth == 0 {
			return at + 1
		}
	}
	return -1
}
