package tools

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// The filters of a call may be a string that holds JSON. Its errors are part
// of the contract down to the column, and they are those of Python's json
// module; encoding/json also refuses what that module takes (NaN, lone
// surrogates) and counts bytes. So the string is read here.

// A jsonKind is the type of a JSON value, numbers split in two as in Python.
type jsonKind uint8

const (
	jsonNull jsonKind = iota
	jsonBool
	jsonInt
	jsonFloat
	jsonString
	jsonList
	jsonObject
)

// pythonTypes are the names that the error texts of the contract use.
var pythonTypes = [...]string{
	jsonNull:   "NoneType",
	jsonBool:   "bool",
	jsonInt:    "int",
	jsonFloat:  "float",
	jsonString: "str",
	jsonList:   "list",
	jsonObject: "dict",
}

// A jsonValue is one decoded value.
type jsonValue struct {
	kind jsonKind
	// text is a string's value, a number in its plain decimal form, or true or
	// false. Lone surrogates of a string are kept (three bytes each, as UTF-8
	// would write them): such a string equals nothing that tmux ever shows.
	text    string
	list    []jsonValue
	members []jsonMember // of an object, each key once
}

type jsonMember struct {
	key   string
	value jsonValue
}

// A jsonError says what is wrong at which code point.
type jsonError struct {
	message string
	at      int
	text    []rune
}

func (e *jsonError) Error() string {
	line, column := 1, 1
	for _, r := range e.text[:min(e.at, len(e.text))] {
		if column++; r == '\n' {
			line, column = line+1, 1
		}
	}
	return fmt.Sprintf("%s: line %d column %d (char %d)", e.message, line, column, e.at)
}

// maxJSONDepth bounds the recursion. Nothing that a filter can use is nested
// deeper than three.
const maxJSONDepth = 200

// decodeJSON reads one JSON text.
func decodeJSON(s string) (jsonValue, *jsonError) {
	d := jsonDecoder{text: decodeRunes(s)}
	if len(d.text) > 0 && d.text[0] == '\ufeff' {
		return jsonValue{}, d.fail("Unexpected UTF-8 BOM (decode using utf-8-sig)", 0)
	}
	d.skipSpace()
	v, err := d.value(0)
	if err != nil {
		return jsonValue{}, err
	}
	if d.skipSpace(); d.at < len(d.text) {
		return jsonValue{}, d.fail("Extra data", d.at)
	}
	return v, nil
}

type jsonDecoder struct {
	text []rune
	at   int
}

func (d *jsonDecoder) fail(message string, at int) *jsonError {
	return &jsonError{message: message, at: at, text: d.text}
}

// next is the code point at the cursor, -1 at the end.
func (d *jsonDecoder) next() rune {
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return -1
}

func (d *jsonDecoder) skipSpace() {
	for {
		switch d.next() {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

// word consumes the given word if it comes next.
func (d *jsonDecoder) word(w string) bool {
	if len(d.text)-d.at < len(w) {
		return false
	}
	for i := range len(w) {
		if d.text[d.at+i] != rune(w[i]) {
			return false
		}
	}
	d.at += len(w)
	return true
}

func (d *jsonDecoder) value(depth int) (jsonValue, *jsonError) {
	if depth > maxJSONDepth {
		return jsonValue{}, d.fail("Nested too deeply", d.at)
	}
	switch d.next() {
	case '"':
		s, err := d.string()
		return jsonValue{kind: jsonString, text: s}, err
	case '{':
		return d.object(depth)
	case '[':
		return d.array(depth)
	}
	for _, w := range [...]struct {
		word string
		kind jsonKind
	}{
		{"null", jsonNull}, {"true", jsonBool}, {"false", jsonBool},
		{"NaN", jsonFloat}, {"Infinity", jsonFloat}, {"-Infinity", jsonFloat},
	} {
		if d.word(w.word) {
			return jsonValue{kind: w.kind, text: w.word}, nil
		}
	}
	return d.number()
}

func (d *jsonDecoder) object(depth int) (jsonValue, *jsonError) {
	v := jsonValue{kind: jsonObject}
	index := make(map[string]int)
	d.at++
	d.skipSpace()
	if d.next() == '}' {
		d.at++
		return v, nil
	}
	for {
		if d.next() != '"' {
			return v, d.fail("Expecting property name enclosed in double quotes", d.at)
		}
		key, err := d.string()
		if err != nil {
			return v, err
		}
		if d.skipSpace(); d.next() != ':' {
			return v, d.fail("Expecting ':' delimiter", d.at)
		}
		d.at++
		d.skipSpace()
		member, err := d.value(depth + 1)
		if err != nil {
			return v, err
		}
		// As in Python: the last of equal keys wins, at the place of the first.
		if i, twice := index[key]; twice {
			v.members[i].value = member
		} else {
			index[key] = len(v.members)
			v.members = append(v.members, jsonMember{key, member})
		}
		d.skipSpace()
		switch d.next() {
		case '}':
			d.at++
			return v, nil
		case ',':
			d.at++
			d.skipSpace()
		default:
			return v, d.fail("Expecting ',' delimiter", d.at)
		}
	}
}

func (d *jsonDecoder) array(depth int) (jsonValue, *jsonError) {
	v := jsonValue{kind: jsonList}
	d.at++
	d.skipSpace()
	if d.next() == ']' {
		d.at++
		return v, nil
	}
	for {
		item, err := d.value(depth + 1)
		if err != nil {
			return v, err
		}
		v.list = append(v.list, item)
		d.skipSpace()
		switch d.next() {
		case ']':
			d.at++
			return v, nil
		case ',':
			d.at++
			d.skipSpace()
		default:
			return v, d.fail("Expecting ',' delimiter", d.at)
		}
	}
}

func (d *jsonDecoder) digits() bool {
	start := d.at
	for d.next() >= '0' && d.next() <= '9' {
		d.at++
	}
	return d.at > start
}

func (d *jsonDecoder) number() (jsonValue, *jsonError) {
	start := d.at
	if d.next() == '-' {
		d.at++
	}
	if d.next() == '0' {
		d.at++ // a second digit is not part of the number
	} else if !d.digits() {
		return jsonValue{}, d.fail("Expecting value", start)
	}
	kind, end := jsonInt, d.at
	if d.next() == '.' {
		if d.at++; d.digits() {
			kind, end = jsonFloat, d.at
		}
	}
	if d.at = end; d.next() == 'e' || d.next() == 'E' {
		if d.at++; d.next() == '+' || d.next() == '-' {
			d.at++
		}
		if d.digits() {
			kind, end = jsonFloat, d.at
		}
	}
	d.at = end
	return jsonValue{kind: kind, text: plainNumber(string(d.text[start:end]), kind)}, nil
}

// plainNumber writes a JSON number as tmux would show it: 2e2 and 200.0 are
// 200. The digits of an integer are kept, however many there are.
func plainNumber(literal string, kind jsonKind) string {
	if kind == jsonFloat {
		f, _ := strconv.ParseFloat(literal, 64) // ±Inf when out of range
		literal = strconv.FormatFloat(f, 'f', -1, 64)
	}
	if literal == "-0" {
		return "0"
	}
	return literal
}

func (d *jsonDecoder) string() (string, *jsonError) {
	quote := d.at
	d.at++
	var s []byte
	for {
		c := d.next()
		switch {
		case c < 0:
			return "", d.fail("Unterminated string starting at", quote)
		case c == '"':
			d.at++
			return string(s), nil
		case c < 0x20:
			return "", d.fail("Invalid control character at", d.at)
		case c != '\\':
			s = appendRune(s, c)
			d.at++
			continue
		}
		d.at++
		c = d.next()
		switch c {
		case -1:
			return "", d.fail("Unterminated string starting at", quote)
		case '"', '\\', '/':
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			var err *jsonError
			if c, err = d.unicode(); err != nil {
				return "", err
			}
		default:
			return "", d.fail(`Invalid \escape`, d.at-1)
		}
		s = appendRune(s, c)
		d.at++
	}
}

// unicode reads a \u escape, the cursor on its u, and the second escape of a
// surrogate pair. It leaves the cursor on the last digit.
func (d *jsonDecoder) unicode() (rune, *jsonError) {
	const invalid = `Invalid \uXXXX escape`
	hex := func(u int) (rune, *jsonError) {
		// A code point must follow: the string cannot end within the escape.
		if u+5 >= len(d.text) {
			return 0, d.fail(invalid, u)
		}
		var c rune
		for _, digit := range d.text[u+1 : u+5] {
			n := hexDigit(digit)
			if n < 0 {
				return 0, d.fail(invalid, u)
			}
			c = c<<4 | n
		}
		return c, nil
	}
	c, err := hex(d.at)
	if err != nil {
		return 0, err
	}
	d.at += 4
	if c < 0xd800 || c > 0xdbff || d.at+7 >= len(d.text) || d.text[d.at+1] != '\\' || d.text[d.at+2] != 'u' {
		return c, nil
	}
	low, err := hex(d.at + 2)
	if err != nil {
		return 0, err
	}
	if low < 0xdc00 || low > 0xdfff {
		return c, nil // and low is read again as an escape of its own
	}
	d.at += 6
	return (c-0xd800)<<10 + (low - 0xdc00) + 0x10000, nil
}

// hexDigit is the value of a hexadecimal digit, -1 for any other rune.
func hexDigit(r rune) rune {
	switch {
	case r >= '0' && r <= '9':
		return r - '0'
	case r >= 'a' && r <= 'f':
		return r - 'a' + 10
	case r >= 'A' && r <= 'F':
		return r - 'A' + 10
	}
	return -1
}

// appendRune is utf8.AppendRune that keeps surrogates.
func appendRune(s []byte, r rune) []byte {
	if r >= 0xd800 && r <= 0xdfff {
		return append(s, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
	}
	return utf8.AppendRune(s, r)
}

// decodeRunes splits a string into code points, with the surrogates that
// appendRune kept. Any other invalid byte is U+FFFD.
func decodeRunes(s string) []rune {
	runes := make([]rune, 0, len(s))
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 && isSurrogate(s[i:]) {
			r, size = 0xd000|rune(s[i+1]&0x3f)<<6|rune(s[i+2]&0x3f), 3
		}
		runes = append(runes, r)
		i += size
	}
	return runes
}

// isSurrogate tells whether s begins with a surrogate as appendRune writes it.
func isSurrogate(s string) bool {
	return len(s) >= 3 && s[0] == 0xed && s[1] >= 0xa0 && s[1] <= 0xbf && s[2]&0xc0 == 0x80
}
