package tools

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// A Scope is the tool that a filter is for: it decides what a row is, and with
// that which names a filter may use.
type Scope uint8

const (
	Sessions Scope = iota
	Panes
)

func (s Scope) tool() string {
	if s == Sessions {
		return "list_sessions"
	}
	return "list_panes"
}

// A Filter chooses rows. It is compiled whole before any row is looked at, so
// that its errors do not depend on what runs in tmux.
//
//	f, err := CompileFilter(json.RawMessage(`{"pane_title__icontains":"log"}`), Panes)
//	…
//	ok, err := f.Match(func(i int) string { return row.value(f.Fields()[i]) })
//
// A Filter is for one call: it counts the time that its regular expressions
// take. Again makes another of the same terms, at no cost.
type Filter struct {
	fields []string
	terms  []term
	spent  time.Duration // by regular expressions
}

// A term is one condition. All of a filter must hold.
type term struct {
	key   string
	op    operator
	kind  operandKind
	field int // index in Fields; of aText, aSwitch and aBool
	// want is what the value is compared with: any of them will do.
	want []string
	// set is want where there are many.
	set map[string]struct{}
	// list is set for in and nin with a list.
	list bool
	// never is set where the filter's value has a type with which the operator
	// does not hold for anything, nin included.
	never bool
	re    *regexp2.Regexp
}

// An operator is the index of its row in operators.
type operator uint8

const (
	opContains operator = iota
	opEndswith
	opEq
	opExact
	opIcontains
	opIendswith
	opIexact
	opIn
	opIregex
	opIstartswith
	opNin
	opRegex
	opStartswith
)

// operators is the order in which the error for an unknown one lists them.
var operators = [...]struct {
	name   string
	folded bool // compares in lower case
	match  func(value, want string) bool
}{
	opContains:    {name: "contains", match: strings.Contains},
	opEndswith:    {name: "endswith", match: strings.HasSuffix},
	opEq:          {name: "eq", match: equal},
	opExact:       {name: "exact", match: equal},
	opIcontains:   {name: "icontains", folded: true, match: strings.Contains},
	opIendswith:   {name: "iendswith", folded: true, match: strings.HasSuffix},
	opIexact:      {name: "iexact", folded: true, match: equal},
	opIn:          {name: "in", match: strings.Contains},
	opIregex:      {name: "iregex"},
	opIstartswith: {name: "istartswith", folded: true, match: strings.HasPrefix},
	opNin:         {name: "nin", match: strings.Contains},
	opRegex:       {name: "regex"},
	opStartswith:  {name: "startswith", match: strings.HasPrefix},
}

func equal(value, want string) bool { return value == want }

// isRegexp tells whether the operator's value is a regular expression.
func (o operator) isRegexp() bool { return o == opRegex || o == opIregex }

// isEqual tells whether the operator compares with the whole of a value.
func (o operator) isEqual() bool { return o == opEq || o == opExact || o == opIexact }

// splitKey takes the operator off a filter key.
func splitKey(key string) (path string, op operator, err *Error) {
	i := strings.LastIndex(key, "__")
	if i < 0 {
		return key, opExact, nil
	}
	name := key[i+len("__"):]
	for op := range operators {
		if operators[op].name == name {
			return key[:i], operator(op), nil
		}
	}
	return "", 0, Refused("Invalid filter operator '%s' in '%s'. Valid operators: %s", name, key, strings.Join(Operators(), ", "))
}

// Operators lists the names of all operators in byte order.
func Operators() []string {
	names := make([]string, len(operators))
	for op := range operators {
		names[op] = operators[op].name
	}
	return names
}

// CompileFilter reads the argument filters of a call: an object, a string that
// holds one, or neither. No filter is a nil *Filter, which every row passes.
// Errors are *Error.
func CompileFilter(raw json.RawMessage, scope Scope) (*Filter, error) {
	filters, problems := readFilters(raw)
	if problems != nil {
		return nil, Invalid(scope.tool(), "", problems)
	}
	if filters.kind == jsonString {
		if filters.text == "" {
			return nil, nil
		}
		inner, err := decodeJSON(filters.text)
		if err != nil {
			return nil, &Error{Text: "Invalid filters JSON: " + err.Error(), Type: typeJSON, Expected: true}
		}
		if inner.kind != jsonObject {
			return nil, Refused("filters must be a JSON object, got %s", pythonTypes[inner.kind])
		}
		filters = inner
	}
	if len(filters.members) == 0 {
		return nil, nil
	}
	return compileTerms(filters.members, scope)
}

// readFilters decodes the argument. Its problems are of the kind that refuses
// a call before its target is looked for, as those of all other arguments.
func readFilters(raw json.RawMessage) (jsonValue, []Problem) {
	if len(raw) == 0 {
		return jsonValue{}, nil
	}
	const object, text = "filters.dict[str,str]", "filters.str"
	filters, err := decodeJSON(string(raw))
	if err != nil {
		// Not reached: the arguments of a call were JSON to begin with.
		return jsonValue{}, []Problem{NotAString(text)}
	}
	switch filters.kind {
	case jsonNull, jsonString:
		return filters, nil
	case jsonObject:
	default:
		return jsonValue{}, []Problem{
			{Path: object, Message: "Input should be a valid dictionary", Kind: "dict_type"},
			NotAString(text),
		}
	}
	var problems []Problem
	for _, m := range filters.members {
		switch m.value.kind {
		case jsonList, jsonObject, jsonNull:
			p := NotAString(object + "." + m.key)
			if m.value.kind == jsonList && problems == nil {
				p.Hint = "Pass the filters as a JSON string to use a list."
			}
			problems = append(problems, p)
		}
	}
	if problems != nil {
		problems = append(problems, NotAString(text))
	}
	return filters, problems
}

// compileTerms compiles in three passes, so that of several errors the
// published one is reported: an unknown operator before an unknown field, and
// both before an expression.
func compileTerms(members []jsonMember, scope Scope) (*Filter, error) {
	f := &Filter{terms: make([]term, len(members))}
	paths := make([]string, len(members))
	for i, m := range members {
		path, op, err := splitKey(m.key)
		if err != nil {
			return nil, err
		}
		paths[i] = path
		f.terms[i] = term{key: m.key, op: op}
	}
	for i := range f.terms {
		t := &f.terms[i]
		if isMisspelt(paths[i], t.key) {
			t.kind = absent
			continue
		}
		left, unknown := scope.resolve(paths[i])
		if unknown != nil {
			return nil, unknown.error(t.key)
		}
		t.kind = left.kind
		if left.field != "" {
			t.field = f.need(left.field)
		}
	}
	for i := range f.terms {
		t := &f.terms[i]
		t.compare(members[i].value)
		if !t.op.isRegexp() || t.never {
			continue
		}
		re, err := compileRegexp(strings.Join(t.want, "|"), t.op == opIregex)
		if err != nil {
			return nil, Refused("Invalid regular expression in '%s': %s", t.key, err)
		}
		re.MatchTimeout = maxRegexpTime
		t.re = re
	}
	return f, nil
}

// isMisspelt finds a triple underscore before the operator, as in
// pane_id___eq. Such names are no error: they are the only wrong ones that the
// recorded calls of the contract answer with no rows.
func isMisspelt(path, key string) bool {
	return path != key && strings.HasSuffix(path, "_") && !strings.Contains(path, "__") && path[0] != '@'
}

// need adds a name to the fields, once, and returns its index.
func (f *Filter) need(field string) int {
	if i := slices.Index(f.fields, field); i >= 0 {
		return i
	}
	f.fields = append(f.fields, field)
	return len(f.fields) - 1
}

// compare sets what the term compares with.
func (t *term) compare(v jsonValue) {
	if v.kind == jsonList && (t.op == opIn || t.op == opNin) {
		t.list = true
		for _, item := range v.list {
			t.want = append(t.want, t.texts(item)...)
		}
	} else {
		t.want = t.texts(v)
		t.never = t.want == nil
	}
	if operators[t.op].folded {
		for i := range t.want {
			t.want[i] = lower(t.want[i])
		}
	}
	if (t.kind == aSwitch || t.kind == aBool) && (t.list || t.op.isEqual()) {
		// Shown as true, raw "1": both are right.
		for _, w := range t.want {
			if i := slices.Index(truths[:], w); i >= 0 {
				t.want = append(t.want, truths[i^1])
			}
		}
	}
	const many = 8
	if t.list && len(t.want) > many {
		t.set = make(map[string]struct{}, len(t.want))
		for _, w := range t.want {
			t.set[w] = struct{}{}
		}
	}
}

// truths are the two ways to write each truth value, side by side.
var truths = [...]string{"true", "1", "false", "0"}

// texts are the texts that a scalar value of a filter stands for; nil for a
// value that equals nothing.
func (t *term) texts(v jsonValue) []string {
	switch v.kind {
	case jsonString:
		if t.kind == aBool && (v.text == "1" || v.text == "0") {
			// Not a truth value, as the recorded calls have it.
			return []string{}
		}
		return []string{v.text}
	case jsonInt, jsonFloat:
		return []string{v.text}
	case jsonBool:
		// The slice is the term's own: compare may change it.
		i := slices.Index(truths[:], v.text)
		return []string{truths[i], truths[i+1]}
	}
	return nil
}

// Fields lists the names whose values Match asks for, each once: see IsCaller
// for those that are not tmux's. The caller must not change the slice.
func (f *Filter) Fields() []string {
	if f == nil {
		return nil
	}
	return f.fields
}

// Again returns a filter of the same terms for another call, which may run at
// the same time.
func (f *Filter) Again() *Filter {
	if f == nil {
		return nil
	}
	return &Filter{fields: f.fields, terms: f.terms}
}

// maxRegexpTime bounds one match and all matches of a call. regexp2 looks at a
// clock of 100 ms ticks, so that the first can last up to 450 ms.
const maxRegexpTime = 250 * time.Millisecond

// Match tells whether the row passes, value(i) being the raw text of the field
// Fields()[i], "" where it is missing. Its only error is an *Error: a regular
// expression that ran away. Without a filter, every row passes.
func (f *Filter) Match(value func(i int) string) (bool, error) {
	if f == nil {
		return true, nil
	}
	for i := range f.terms {
		t := &f.terms[i]
		var ok bool
		switch t.kind {
		case absent:
			return false, nil
		case anObject:
			ok = t.op == opNin && t.list
		case aList:
			ok = t.op == opNin && !t.never
		default:
			v := value(t.field)
			if v == "" || t.never {
				return false, nil
			}
			if t.re != nil && t.kind != aBool {
				var err error
				if ok, err = f.search(t, v); err != nil {
					return false, err
				}
			} else {
				ok = t.match(v)
			}
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

// match compares one value that is not missing.
func (t *term) match(v string) bool {
	switch {
	case t.kind == aBool:
		// A truth value equals its like and is part of a list; every operator
		// on text fails.
		if !t.list && t.op != opEq && t.op != opExact {
			return false
		}
		return t.among(v) == (t.op != opNin)
	case t.list:
		return t.among(v) == (t.op == opIn)
	}
	op := &operators[t.op]
	if op.folded {
		v = lower(v)
	}
	for _, want := range t.want {
		if op.match(v, want) {
			return t.op != opNin
		}
	}
	return t.op == opNin
}

// among tells whether the value is one of those wanted.
func (t *term) among(v string) bool {
	if t.set != nil {
		_, found := t.set[v]
		return found
	}
	return slices.Contains(t.want, v)
}

// search looks for the term's regular expression in the value.
func (f *Filter) search(t *term, v string) (bool, error) {
	start := time.Now()
	ok, err := t.re.MatchString(v)
	f.spent += time.Since(start)
	if err == nil && f.spent <= maxRegexpTime {
		return ok, nil
	}
	// The error of regexp2 quotes the value, which may be a secret.
	e := Refused("The regular expression in '%s' was cut off after %d ms.", t.key, maxRegexpTime.Milliseconds())
	if errors.Is(err, regexp2.ErrBacktrackingStackLimit) {
		e = Refused("The regular expression in '%s' was cut off: it needs too much memory.", t.key)
	}
	e.Suggestion = "Use a simpler expression: nested repetitions such as (a+)+ can take forever."
	return false, e
}

// lower is Python's str.lower: full case mapping, which differs from that of
// single runes in two letters. Bytes that are not UTF-8 are kept.
func lower(s string) string {
	i := 0
	for i < len(s) && s[i] < utf8.RuneSelf && (s[i] < 'A' || s[i] > 'Z') {
		i++
	}
	if i == len(s) {
		return s
	}
	low := append(make([]byte, 0, len(s)+utf8.UTFMax), s[:i]...)
	for i < len(s) {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			low = append(low, s[i])
		case r == 'İ':
			low = append(low, "i̇"...)
		case r == 'Σ' && isFinalSigma(s[:i], s[i+size:]):
			low = append(low, "ς"...)
		default:
			low = utf8.AppendRune(low, unicode.ToLower(r))
		}
		i += size
	}
	return string(low)
}

// isFinalSigma tells whether a capital sigma ends a word: a cased letter comes
// before it and none after it, whatever is ignored in between.
func isFinalSigma(before, after string) bool {
	cased := false
	for len(before) > 0 {
		r, size := utf8.DecodeLastRuneInString(before)
		before = before[:len(before)-size]
		if !isCaseIgnorable(r) {
			cased = isCased(r)
			break
		}
	}
	if !cased {
		return false
	}
	for _, r := range after {
		if !isCaseIgnorable(r) {
			return !isCased(r)
		}
	}
	return true
}

func isCased(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Uppercase, unicode.Other_Lowercase)
}

func isCaseIgnorable(r rune) bool {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) {
		return true
	}
	switch r {
	// What word breaking calls MidLetter, MidNumLet and Single_Quote.
	case '\'', '.', ':', 0xb7, 0x387, 0x55f, 0x5f4, 0x2018, 0x2019, 0x2024, 0x2027,
		0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a:
		return true
	}
	return false
}
