package tools

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/dlclark/regexp2/v2"
)

// Filters use the regular expressions of Python's re module, searched for
// anywhere in the value. The engine here speaks .NET's dialect, which looks
// alike and differs in the details: \w, \s and \b know other letters, \Z means
// \z, [a-z-[aeiou]] subtracts, named groups are numbered last, a{,3} is text.
// So an expression is parsed by Python's grammar and written anew with only
// such parts as mean the same in both. What Python refuses is refused, and so
// is the little that has no equivalent.
//
// Whether a match exists is all that a filter asks. That lets the order of
// matches differ, but not atomic groups or what a group has captured.

// compileRegexp compiles an expression of Python's.
func compileRegexp(pattern string, ignoreCase bool) (*regexp2.Regexp, error) {
	text, err := translate(pattern, ignoreCase)
	if err != nil {
		return nil, err
	}
	re, err := regexp2.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("cannot be expressed here: %w", err)
	}
	return re, nil
}

// A patternError is what is wrong with an expression, and where.
type patternError struct {
	message string
	at      int // in code points
}

func (e *patternError) Error() string {
	return fmt.Sprintf("%s at position %d", e.message, e.at)
}

// patternFlags are the flags in force at some place of an expression.
type patternFlags uint8

const (
	ignoreCaseFlag patternFlags = 1 << iota // i
	multilineFlag                           // m
	dotAllFlag                              // s
	verboseFlag                             // x
	asciiFlag                               // a
	unicodeFlag                             // u
	localeFlag                              // L, which text cannot have
)

// alphabetFlags exclude each other.
const alphabetFlags = asciiFlag | unicodeFlag | localeFlag

func flagOf(t patternToken) (patternFlags, bool) {
	if t.escaped {
		return 0, false
	}
	i := strings.IndexRune("imsxauL", t.r)
	return 1 << max(i, 0), i >= 0
}

// A patternToken is one code point, or two of which the first is a backslash.
type patternToken struct {
	r       rune // the second of the two
	escaped bool
	at      int
}

func (t patternToken) is(r rune) bool { return t.r == r && !t.escaped }

// A width is how many code points a part of an expression can match.
type width struct{ least, most int }

// unbounded is more than anything matches. Sums and products stop there.
const unbounded = 1 << 31

func (w width) plus(v width) width {
	return width{min(w.least+v.least, unbounded), min(w.most+v.most, unbounded)}
}

func (w width) times(least, most int) width {
	return width{min(w.least*least, unbounded), min(w.most*most, unbounded)}
}

func (w width) or(v width) width {
	return width{min(w.least, v.least), max(w.most, v.most)}
}

// A patternItem is what a quantifier can follow, translated.
type patternItem struct {
	text   string
	width  width
	anchor bool // cannot be repeated
	repeat bool // cannot be repeated again
	atom   bool // can be repeated without brackets
	groups int  // how many groups were open before it
}

// A patternGroup is a group that captures.
type patternGroup struct {
	width  width
	closed bool
	// repeatedBehind says that it was repeated within a look-behind. There,
	// .NET goes backwards and would capture the first round, not the last.
	repeatedBehind bool
}

type translator struct {
	tokens []patternToken
	end    int // of the pattern, in code points
	next   int // token
	flags  patternFlags
	groups []patternGroup
	names  map[string]int
	// behind is the number of groups at the start of the outermost look-behind
	// around the cursor, -1 outside of any.
	behind int
	depth  int
	// required is the sum of all least numbers of repetitions so far.
	required int
	// conditions are the groups that (?(n)…) asks for. They may follow later.
	conditions []patternCondition
}

type patternCondition struct{ group, at int }

// maxPatternDepth bounds the nesting of brackets, as Python's own stack does.
const maxPatternDepth = 200

// translate writes an expression of Python's in the dialect of regexp2.
func translate(pattern string, ignoreCase bool) (string, error) {
	t := translator{names: make(map[string]int), behind: -1}
	if ignoreCase {
		t.flags = ignoreCaseFlag
	}
	runes := decodeRunes(pattern)
	t.end = len(runes)
	for i := 0; i < len(runes); i++ {
		token := patternToken{r: runes[i], at: i}
		if runes[i] == '\\' {
			if i++; i == len(runes) {
				return "", &patternError{"backslash at the end", i - 1}
			}
			token.r, token.escaped = runes[i], true
		}
		t.tokens = append(t.tokens, token)
	}

	text, _, err := t.alternatives(t.flags, true)
	if err != nil {
		return "", err
	}
	if t.next < len(t.tokens) {
		return "", t.fail("unbalanced parenthesis", t.at())
	}
	if t.flags&asciiFlag != 0 && t.flags&unicodeFlag != 0 {
		return "", t.fail("flags a and u exclude each other", 0)
	}
	for _, c := range t.conditions {
		if c.group > len(t.groups) {
			return "", t.fail(fmt.Sprintf("no group %d", c.group), c.at)
		}
		if t.groups[c.group-1].repeatedBehind {
			return "", t.fail("condition on a group repeated in a look-behind is not supported", c.at)
		}
	}
	return text, nil
}

func (t *translator) fail(message string, at int) error {
	return &patternError{message, at}
}

// at is the position of the cursor in code points.
func (t *translator) at() int {
	if t.next < len(t.tokens) {
		return t.tokens[t.next].at
	}
	return t.end
}

// peek tells whether the token at the cursor is the given rune.
func (t *translator) peek(r rune) bool {
	return t.next < len(t.tokens) && t.tokens[t.next].is(r)
}

// match moves past the given rune if it comes next.
func (t *translator) match(r rune) bool {
	if t.peek(r) {
		t.next++
		return true
	}
	return false
}

// get moves past one token; at the end there is none.
func (t *translator) get() (patternToken, bool) {
	if t.next == len(t.tokens) {
		return patternToken{at: t.end}, false
	}
	t.next++
	return t.tokens[t.next-1], true
}

// getWhile moves past at most n plain runes that ok accepts.
func (t *translator) getWhile(n int, ok func(rune) bool) string {
	var s strings.Builder
	for range n {
		if t.next == len(t.tokens) || t.tokens[t.next].escaped || !ok(t.tokens[t.next].r) {
			break
		}
		s.WriteRune(t.tokens[t.next].r)
		t.next++
	}
	return s.String()
}

// getName reads up to the terminator, a name that is not empty.
func (t *translator) getName(terminator rune) (string, error) {
	start := t.at()
	var name strings.Builder
	for {
		token, ok := t.get()
		if !ok {
			return "", t.fail("unterminated name", start)
		}
		if token.is(terminator) {
			break
		}
		if token.escaped {
			name.WriteByte('\\')
		}
		name.WriteRune(token.r)
	}
	if name.Len() == 0 {
		return "", t.fail("missing name", start)
	}
	return name.String(), nil
}

// alternatives translates a|b|c up to a closing bracket or the end.
func (t *translator) alternatives(flags patternFlags, top bool) (string, width, error) {
	t.depth++
	defer func() { t.depth-- }()
	if t.depth > maxPatternDepth {
		return "", width{}, t.fail("nested too deeply", t.at())
	}
	var branches []string
	var all width
	for {
		text, w, err := t.sequence(flags, top && branches == nil)
		if err != nil {
			return "", width{}, err
		}
		if branches == nil {
			all = w
		}
		all = all.or(w)
		branches = append(branches, text)
		if !t.match('|') {
			return strings.Join(branches, "|"), all, nil
		}
		if top {
			flags = t.flags // the first branch may have set some
		}
	}
}

// sequence translates one branch. Only the first of the whole expression may
// begin with flags for all of it.
func (t *translator) sequence(flags patternFlags, first bool) (string, width, error) {
	var items []patternItem
	for t.next < len(t.tokens) && !t.peek('|') && !t.peek(')') {
		token, _ := t.get()
		groups := len(t.groups)
		var item patternItem
		var err error
		switch {
		case flags&verboseFlag != 0 && !token.escaped && isPatternSpace(token.r):
			continue
		case flags&verboseFlag != 0 && token.is('#'):
			for token, ok := t.get(); ok && !token.is('\n'); {
				token, ok = t.get()
			}
			continue
		case token.escaped:
			item, err = t.escape(token, flags)
		case token.r == '[':
			item, err = t.class(token, flags)
		case token.r == '.':
			item = patternItem{text: `[^\u000a]`, width: width{1, 1}, atom: true}
			if flags&dotAllFlag != 0 {
				item.text = anyRune
			}
		case token.r == '^':
			item = patternItem{text: `^`, anchor: true}
			if flags&multilineFlag != 0 {
				item.text = `(?m:^)`
			}
		case token.r == '$':
			item = patternItem{text: `$`, anchor: true}
			if flags&multilineFlag != 0 {
				item.text = `(?m:$)`
			}
		case strings.ContainsRune("*+?{", token.r):
			least, most, ok, lengthErr := t.count(token)
			if lengthErr != nil {
				return "", width{}, lengthErr
			}
			if !ok {
				item = literal(token.r, flags)
				break
			}
			if err := t.repeat(items, token, least, most); err != nil {
				return "", width{}, err
			}
			continue
		case token.r == '(':
			var global patternFlags
			item, global, err = t.bracket(token, flags)
			if err != nil || item.text != "" {
				break
			}
			if global != 0 {
				if !first || items != nil {
					return "", width{}, t.fail("flags for the whole expression not at its start", token.at)
				}
				t.flags |= global
				flags = t.flags
			}
			continue
		default:
			item = literal(token.r, flags)
		}
		if err != nil {
			return "", width{}, err
		}
		item.groups = groups
		items = append(items, item)
	}
	var text strings.Builder
	var all width
	for _, item := range items {
		text.WriteString(item.text)
		all = all.plus(item.width)
	}
	return text.String(), all, nil
}

func isPatternSpace(r rune) bool { return strings.ContainsRune(" \t\n\r\v\f", r) }

func isDigit(r rune) bool { return r >= '0' && r <= '9' }
func isOctal(r rune) bool { return r >= '0' && r <= '7' }
func isHex(r rune) bool   { return hexDigit(r) >= 0 }

// maxRepeat is the first number of repetitions that Python refuses.
const maxRepeat = 1<<32 - 1

// maxRequired bounds the sum of the numbers of repetitions that an expression
// requires: regexp2 writes such things as [aA]{300000000} out in memory when
// it looks for a prefix.
const maxRequired = 1<<16 - 1

// count reads the rest of a quantifier; without ok it is just a brace.
func (t *translator) count(token patternToken) (least, most int, ok bool, err error) {
	switch token.r {
	case '*':
		return 0, unbounded, true, nil
	case '+':
		return 1, unbounded, true, nil
	case '?':
		return 0, 1, true, nil
	}
	if t.peek('}') {
		return 0, 0, false, nil
	}
	start := t.next
	low := t.getWhile(len(t.tokens), isDigit)
	high := low
	if t.match(',') {
		high = t.getWhile(len(t.tokens), isDigit)
	}
	if !t.match('}') {
		t.next = start
		return 0, 0, false, nil
	}
	least, most = 0, maxRepeat
	for _, bound := range [...]struct {
		text string
		n    *int
	}{{low, &least}, {high, &most}} {
		if bound.text == "" {
			continue
		}
		n, err := strconv.Atoi(bound.text)
		if err != nil || n >= maxRepeat {
			return 0, 0, false, t.fail("too many repetitions", token.at)
		}
		*bound.n = n
	}
	if most < least {
		return 0, 0, false, t.fail("least repetitions greater than most", token.at)
	}
	if t.required += least; t.required > maxRequired {
		return 0, 0, false, t.fail(fmt.Sprintf("more than %d required repetitions are not supported", maxRequired), token.at)
	}
	return least, min(most, unbounded), true, nil
}

// repeat puts a quantifier on the last of the items.
func (t *translator) repeat(items []patternItem, token patternToken, least, most int) error {
	if len(items) == 0 || items[len(items)-1].anchor {
		return t.fail("nothing to repeat", token.at)
	}
	item := &items[len(items)-1]
	if item.repeat {
		return t.fail("multiple repeat", token.at)
	}
	body := item.text
	if !item.atom {
		body = "(?:" + body + ")"
	}
	switch {
	case least == 0 && most == unbounded:
		body += "*"
	case least == 1 && most == unbounded:
		body += "+"
	case least == 0 && most == 1:
		body += "?"
	case most == unbounded:
		body += fmt.Sprintf("{%d,}", least)
	default:
		body += fmt.Sprintf("{%d,%d}", least, most)
	}
	switch {
	case t.match('?'):
		body += "?"
	case t.match('+'):
		body = atomicGroup(body)
	}
	if t.behind >= 0 && most > 1 {
		for i := item.groups; i < len(t.groups); i++ {
			t.groups[i].repeatedBehind = true
		}
	}
	*item = patternItem{text: body, width: item.width.times(least, most), repeat: true, groups: item.groups}
	return nil
}

// atomicGroup makes a group of what must not be backtracked into. The look-ahead
// always holds. It keeps regexp2 2.13.0 from merging the group with a
// repetition around it, where (?>a+)* would become (?>a*) and not match "a"
// before another "a".
func atomicGroup(text string) string {
	return `(?:(?>` + text + `)(?![\s\S]\A))`
}

// bracket translates what begins with an opening bracket. The item has no text
// for a comment, and for flags that hold for the whole expression.
func (t *translator) bracket(open patternToken, flags patternFlags) (item patternItem, global patternFlags, err error) {
	prefix := "("
	if !t.match('?') {
		item, err = t.group(open, prefix, flags, "")
		return item, 0, err
	}
	token, ok := t.get()
	if !ok {
		return item, 0, t.fail("unexpected end", token.at)
	}
	if flag, isFlag := flagOf(token); isFlag || token.is('-') {
		on, off, whole, err := t.inlineFlags(token, flag)
		if err != nil || whole {
			return item, on, err
		}
		if on&alphabetFlags != 0 {
			flags &^= alphabetFlags
		}
		item, err = t.group(open, "(?:", flags&^off|on, "")
		return item, 0, err
	}
	if token.escaped {
		return item, 0, t.fail("unknown extension", open.at)
	}
	switch token.r {
	case 'P':
		switch {
		case t.match('<'):
			var name string
			if name, err = t.getName('>'); err != nil {
				return item, 0, err
			}
			if !isIdentifier(name) {
				return item, 0, t.fail("bad group name", token.at)
			}
			item, err = t.group(open, prefix, flags, name)
			return item, 0, err
		case t.match('='):
			var name string
			if name, err = t.getName(')'); err != nil {
				return item, 0, err
			}
			group, known := t.names[name]
			if !isIdentifier(name) || !known {
				return item, 0, t.fail("unknown group name", token.at)
			}
			item, err = t.reference(group, token.at, flags)
			return item, 0, err
		}
	case ':':
		item, err = t.group(open, "(?:", flags, "")
		return item, 0, err
	case '>':
		item, err = t.group(open, "(?:", flags, "")
		item.text = atomicGroup(item.text)
		return item, 0, err
	case '#':
		for {
			token, ok := t.get()
			if !ok {
				return item, 0, t.fail("unterminated comment", open.at)
			}
			if token.is(')') {
				return item, 0, nil
			}
		}
	case '=', '!':
		item, err = t.group(open, "(?"+string(token.r), flags, "")
		item.width = width{}
		return item, 0, err
	case '<':
		if t.peek('=') || t.peek('!') {
			item, err = t.lookBehind(open, flags)
			return item, 0, err
		}
	case '(':
		item, err = t.conditional(open, flags)
		return item, 0, err
	}
	return item, 0, t.fail("unknown extension", open.at)
}

// group translates the inside of a bracket and the closing one. With the
// prefix of a plain bracket it captures.
func (t *translator) group(open patternToken, prefix string, flags patternFlags, name string) (patternItem, error) {
	number := 0
	if prefix == "(" {
		t.groups = append(t.groups, patternGroup{})
		number = len(t.groups)
		if name != "" {
			if _, twice := t.names[name]; twice {
				return patternItem{}, t.fail("group name used twice", open.at)
			}
			t.names[name] = number
		}
	}
	text, w, err := t.alternatives(flags, false)
	if err != nil {
		return patternItem{}, err
	}
	if !t.match(')') {
		return patternItem{}, t.fail("unterminated bracket", open.at)
	}
	if number > 0 {
		g := &t.groups[number-1]
		g.width, g.closed = w, true
	}
	// Look-arounds are put in brackets of their own before they are repeated:
	// the engine refuses to repeat some.
	atom := prefix == "(" || prefix == "(?:"
	return patternItem{text: prefix + text + ")", width: w, atom: atom}, nil
}

// lookBehind translates (?<=…) and (?<!…), the cursor on the third sign.
func (t *translator) lookBehind(open patternToken, flags patternFlags) (patternItem, error) {
	outermost := t.behind < 0
	if outermost {
		t.behind = len(t.groups)
	}
	sign, _ := t.get()
	item, err := t.group(open, "(?<"+string(sign.r), flags, "")
	if outermost {
		t.behind = -1
	}
	if err != nil {
		return item, err
	}
	if item.width.least != item.width.most {
		return item, t.fail("look-behind of variable width", open.at)
	}
	item.width = width{}
	return item, nil
}

// conditional translates (?(group)yes|no), the cursor on the name.
func (t *translator) conditional(open patternToken, flags patternFlags) (patternItem, error) {
	t.depth++
	defer func() { t.depth-- }()
	if t.depth > maxPatternDepth {
		return patternItem{}, t.fail("nested too deeply", open.at)
	}
	at := t.at()
	name, err := t.getName(')')
	if err != nil {
		return patternItem{}, err
	}
	var group int
	if isIdentifier(name) {
		var known bool
		if group, known = t.names[name]; !known {
			return patternItem{}, t.fail("unknown group name", at)
		}
	} else {
		for _, r := range name {
			if !isDigit(r) {
				return patternItem{}, t.fail("bad group name", at)
			}
		}
		if group, err = strconv.Atoi(name); err != nil || group == 0 {
			return patternItem{}, t.fail("bad group number", at)
		}
	}
	if err := t.checkBehind(group, at); err != nil {
		return patternItem{}, err
	}
	t.conditions = append(t.conditions, patternCondition{group, at})

	yes, w, err := t.sequence(flags, false)
	if err != nil {
		return patternItem{}, err
	}
	var no string
	var noWidth width
	if t.match('|') {
		if no, noWidth, err = t.sequence(flags, false); err != nil {
			return patternItem{}, err
		}
		if t.peek('|') {
			return patternItem{}, t.fail("condition with more than two branches", t.at())
		}
	}
	if !t.match(')') {
		return patternItem{}, t.fail("unterminated bracket", open.at)
	}
	return patternItem{text: fmt.Sprintf("(?(%d)%s|%s)", group, yes, no), width: w.or(noWidth)}, nil
}

// reference translates a reference back to what a group has matched.
func (t *translator) reference(group, at int, flags patternFlags) (patternItem, error) {
	if group > len(t.groups) {
		return patternItem{}, t.fail(fmt.Sprintf("no group %d", group), at)
	}
	g := t.groups[group-1]
	if !g.closed {
		return patternItem{}, t.fail("reference to an open group", at)
	}
	if err := t.checkBehind(group, at); err != nil {
		return patternItem{}, err
	}
	if g.repeatedBehind {
		return patternItem{}, t.fail("reference to a group repeated in a look-behind is not supported", at)
	}
	item := patternItem{text: fmt.Sprintf(`\k<%d>`, group), width: g.width}
	if flags&ignoreCaseFlag != 0 {
		if flags&asciiFlag != 0 {
			return item, t.fail("reference that ignores the case of ASCII letters only is not supported", at)
		}
		item.text = "(?i:" + item.text + ")"
	}
	return item, nil
}

// checkBehind refuses to look, within a look-behind, at its own groups.
func (t *translator) checkBehind(group, at int) error {
	if t.behind < 0 {
		return nil
	}
	if group > len(t.groups) || !t.groups[group-1].closed {
		return t.fail("reference to an open group", at)
	}
	if group > t.behind {
		return t.fail("reference to a group of the same look-behind", at)
	}
	return nil
}

// inlineFlags reads (?aim-sx: or, with whole, (?aim). The first token is given.
func (t *translator) inlineFlags(token patternToken, flag patternFlags) (on, off patternFlags, whole bool, err error) {
	ok := true
	if !token.is('-') {
		for {
			if flag == localeFlag {
				return 0, 0, false, t.fail("flag L is for bytes only", token.at)
			}
			on |= flag
			if on&alphabetFlags != 0 && on&alphabetFlags != asciiFlag && on&alphabetFlags != unicodeFlag {
				return 0, 0, false, t.fail("flags a and u exclude each other", token.at)
			}
			if token, ok = t.get(); ok && (token.is(')') || token.is(':') || token.is('-')) {
				break
			}
			var isFlag bool
			if flag, isFlag = flagOf(token); !ok || !isFlag {
				return 0, 0, false, t.fail("unknown flag", token.at)
			}
		}
	}
	switch token.r {
	case ')':
		return on, 0, true, nil
	case ':':
		return on, 0, false, nil
	}
	for n := 0; ; n++ {
		token, ok = t.get()
		if ok && n > 0 && token.is(':') {
			break
		}
		flag, isFlag := flagOf(token)
		switch {
		case !ok || !isFlag:
			return 0, 0, false, t.fail("unknown flag", token.at)
		case flag&alphabetFlags != 0:
			return 0, 0, false, t.fail("flags a, u and L cannot be turned off", token.at)
		}
		off |= flag
	}
	if on&off != 0 {
		return 0, 0, false, t.fail("flag turned on and off", token.at)
	}
	return on, off, false, nil
}

// isIdentifier tells whether a name is one of Python's.
func isIdentifier(name string) bool {
	for i, r := range name {
		start := r == '_' || unicode.In(r, unicode.L, unicode.Nl, unicode.Other_ID_Start)
		if start || i > 0 && unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue) {
			continue
		}
		return false
	}
	return name != ""
}

// plainEscapes are the letters that stand for one code point.
var plainEscapes = map[rune]rune{'a': '\a', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}

// escape translates a backslash outside of a class.
func (t *translator) escape(token patternToken, flags patternFlags) (patternItem, error) {
	switch r := token.r; {
	case r == 'A':
		return patternItem{text: `\A`, anchor: true}, nil
	case r == 'Z':
		return patternItem{text: `\z`, anchor: true}, nil
	case r == 'b' || r == 'B':
		// The engine's own boundaries know other letters. An empty value has
		// neither a boundary nor a place without one.
		w := "[" + category('w', flags) + "]"
		text := "(?:(?<=" + w + ")(?!" + w + ")|(?<!" + w + ")(?=" + w + "))"
		if r == 'B' {
			text = "(?:(?<=" + w + ")(?=" + w + ")|(?<!" + w + ")(?!" + w + `)(?!\A\z))`
		}
		return patternItem{text: text, anchor: true}, nil
	case strings.ContainsRune("dDsSwW", r):
		var c patternClass
		c.addCategory(r, flags)
		return patternItem{text: c.text(false), width: width{1, 1}, atom: true}, nil
	case r == '0':
		n, err := strconv.ParseInt("0"+t.getWhile(2, isOctal), 8, 32)
		return literal(rune(n), flags), err
	case isDigit(r):
		return t.numbered(token, flags)
	}
	r, err := t.codePoint(token)
	return literal(r, flags), err
}

// numbered translates a reference to a group by number, or three octal digits.
func (t *translator) numbered(token patternToken, flags patternFlags) (patternItem, error) {
	digits := string(token.r) + t.getWhile(1, isDigit)
	if len(digits) == 2 && isOctal(token.r) && isOctal(rune(digits[1])) {
		if third := t.getWhile(1, isOctal); third != "" {
			n, err := strconv.ParseInt(digits+third, 8, 32)
			if err != nil || n > 0o377 {
				return patternItem{}, t.fail("octal escape out of range", token.at)
			}
			return literal(rune(n), flags), nil
		}
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return patternItem{}, t.fail("bad escape", token.at)
	}
	return t.reference(n, token.at, flags)
}

// codePoint reads an escape that stands for one code point.
func (t *translator) codePoint(token patternToken) (rune, error) {
	if r, ok := plainEscapes[token.r]; ok {
		return r, nil
	}
	digits := 0
	switch token.r {
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	case 'N':
		return 0, t.fail(`names of characters (\N) are not supported`, token.at)
	}
	if digits > 0 {
		hex := t.getWhile(digits, isHex)
		n, err := strconv.ParseUint(hex, 16, 32)
		if len(hex) < digits || err != nil || n > unicode.MaxRune {
			return 0, t.fail("incomplete escape", token.at)
		}
		return rune(n), nil
	}
	if isDigit(token.r) || token.r >= 'a' && token.r <= 'z' || token.r >= 'A' && token.r <= 'Z' {
		return 0, t.fail(`bad escape \`+string(token.r), token.at)
	}
	return token.r, nil
}

// literal is a single code point.
func literal(r rune, flags patternFlags) patternItem {
	var c patternClass
	c.addRange(r, r, flags)
	text := c.text(false)
	if len(c.ranges) == 1 && c.ranges[0] == (runeRange{r, r}) {
		text = quoteRune(r)
	}
	return patternItem{text: text, width: width{1, 1}, atom: true}
}

// class translates a character class, the cursor after its bracket.
func (t *translator) class(open patternToken, flags patternFlags) (patternItem, error) {
	var c patternClass
	unterminated := t.fail("unterminated character class", open.at)
	negated := t.match('^')
	for empty := true; ; empty = false {
		token, ok := t.get()
		if !ok {
			return patternItem{}, unterminated
		}
		if token.is(']') && !empty {
			break
		}
		low, isCategory, err := t.member(token)
		if err != nil {
			return patternItem{}, err
		}
		if t.match('-') {
			last, ok := t.get()
			if !ok {
				return patternItem{}, unterminated
			}
			if !last.is(']') {
				high, alsoCategory, err := t.member(last)
				if err != nil {
					return patternItem{}, err
				}
				if isCategory || alsoCategory || high < low {
					return patternItem{}, t.fail("bad character range", token.at)
				}
				c.addRange(low, high, flags)
				continue
			}
			// A dash before the closing bracket is itself.
			c.addRange('-', '-', flags)
			t.next--
		}
		if isCategory {
			c.addCategory(token.r, flags)
		} else {
			c.addRange(low, low, flags)
		}
	}
	return patternItem{text: c.text(negated), width: width{1, 1}, atom: true}, nil
}

// member reads one member of a class: a code point or a category.
func (t *translator) member(token patternToken) (r rune, isCategory bool, err error) {
	switch r := token.r; {
	case !token.escaped:
		return r, false, nil
	case strings.ContainsRune("dDsSwW", r):
		return r, true, nil
	case r == 'b':
		return '\b', false, nil
	case isOctal(r):
		n, err := strconv.ParseInt(string(r)+t.getWhile(2, isOctal), 8, 32)
		if err != nil || n > 0o377 {
			return 0, false, t.fail("octal escape out of range", token.at)
		}
		return rune(n), false, nil
	}
	r, err = t.codePoint(token)
	return r, false, err
}

// A patternClass is a set of code points: ranges and categories.
type patternClass struct {
	ranges     []runeRange
	categories []string // what stands for them within the brackets of a class
	// complements are categories of which the class has all the others.
	complements []string
}

type runeRange struct{ low, high rune }

// addRange adds a range, and what equals its letters where case is ignored.
func (c *patternClass) addRange(low, high rune, flags patternFlags) {
	c.ranges = append(c.ranges, runeRange{low, high})
	if flags&ignoreCaseFlag == 0 {
		return
	}
	add := func(r rune) {
		for _, other := range foldings(r, flags&asciiFlag != 0) {
			if other < low || other > high {
				c.ranges = append(c.ranges, runeRange{other, other})
			}
		}
	}
	if low == high {
		add(low)
		return
	}
	cased := casedRunes()
	first, _ := slices.BinarySearch(cased, low)
	for _, r := range cased[first:] {
		if r > high {
			break
		}
		add(r)
	}
}

func (c *patternClass) addCategory(letter rune, flags patternFlags) {
	if unicode.IsUpper(letter) {
		c.complements = append(c.complements, category(unicode.ToLower(letter), flags))
	} else {
		c.categories = append(c.categories, category(letter, flags))
	}
}

// category is the inside of a class for \d, \s or \w of Python.
func category(letter rune, flags patternFlags) string {
	ascii := flags&asciiFlag != 0
	switch {
	case letter == 'd' && ascii:
		return `0-9`
	case letter == 'd':
		return `\p{Nd}`
	case letter == 's' && ascii:
		return `\u0009-\u000d\u0020`
	case letter == 's':
		return `\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000`
	case ascii:
		return `0-9A-Z_a-z`
	}
	return `\p{L}\p{N}_`
}

// What matches any code point, and none.
const (
	anyRune = `[\s\S]`
	noRune  = `[^\s\S]`
)

// text writes the class, or its complement.
func (c *patternClass) text(negated bool) string {
	var inside strings.Builder
	for _, r := range c.ranges {
		// Surrogates are no code points of any value.
		for _, part := range [...]runeRange{{r.low, min(r.high, 0xd7ff)}, {max(r.low, 0xe000), r.high}} {
			if part.low > part.high {
				continue
			}
			inside.WriteString(quoteRune(part.low))
			if part.high > part.low {
				inside.WriteString("-" + quoteRune(part.high))
			}
		}
	}
	for _, category := range c.categories {
		inside.WriteString(category)
	}
	listed := inside.String()

	// A class can be a union, so complements of more than one category need
	// branches, or look-aheads where the whole is negated.
	if !negated {
		var branches []string
		if listed != "" {
			branches = append(branches, "["+listed+"]")
		}
		for _, complement := range c.complements {
			branches = append(branches, "[^"+complement+"]")
		}
		switch len(branches) {
		case 0:
			return noRune
		case 1:
			return branches[0]
		}
		return "(?:" + strings.Join(branches, "|") + ")"
	}
	last := anyRune
	if listed != "" {
		last = "[^" + listed + "]"
	}
	if len(c.complements) == 0 {
		return last
	}
	var all strings.Builder
	for _, complement := range c.complements {
		all.WriteString("(?=[" + complement + "])")
	}
	return "(?:" + all.String() + last + ")"
}

// quoteRune writes a code point so that it means itself anywhere.
func quoteRune(r rune) string {
	switch {
	case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r > 0xffff:
		return string(r)
	case r >= 0xd800 && r <= 0xdfff:
		return noRune
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// foldings are the code points that equal r where case is ignored, r too.
func foldings(r rune, ascii bool) []rune {
	if ascii {
		switch {
		case r >= 'a' && r <= 'z':
			return []rune{r, r - 'a' + 'A'}
		case r >= 'A' && r <= 'Z':
			return []rune{r, r - 'A' + 'a'}
		}
		return []rune{r}
	}
	for _, same := range extraFoldings {
		if strings.ContainsRune(same, r) {
			return []rune(same)
		}
	}
	all := []rune{r}
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		all = append(all, other)
	}
	return all
}

// extraFoldings are what Python holds for equal and Unicode's simple folding
// does not.
var extraFoldings = [...]string{"Iiİı", "\u0390\u1fd3", "\u03b0\u1fe3", "\ufb05\ufb06"}

// casedRunes are all code points that have foldings, in order.
var casedRunes = sync.OnceValue(func() []rune {
	var cased []rune
	for _, r := range unicode.CaseRanges {
		for c := r.Lo; c <= r.Hi; c++ {
			cased = append(cased, foldings(rune(c), false)...)
		}
	}
	for _, same := range extraFoldings {
		cased = append(cased, []rune(same)...)
	}
	slices.Sort(cased)
	return slices.Compact(cased)
})
