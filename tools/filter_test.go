package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func compile(t testing.TB, filters string, scope Scope) *Filter {
	t.Helper()
	f, err := CompileFilter(json.RawMessage(filters), scope)
	if err != nil {
		t.Fatalf("%s: %v", filters, err)
	}
	return f
}

// quoted returns filters in the form of a string that holds them.
func quoted(t testing.TB, filters string) string {
	t.Helper()
	s, err := json.Marshal(filters)
	if err != nil {
		t.Fatal(err)
	}
	return string(s)
}

// A row is the values of some fields.
type row map[string]string

func (r row) match(t testing.TB, f *Filter) bool {
	t.Helper()
	ok, err := f.Match(func(i int) string { return r[f.Fields()[i]] })
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// testdata/filter_errors.json holds the calls of the contract whose filters
// are refused.
func TestErrorsOfTheContract(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "filter_errors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var calls [][4]json.RawMessage
	if err := json.Unmarshal(data, &calls); err != nil {
		t.Fatal(err)
	}
	for _, call := range calls {
		var tool, text, kind string
		for i, into := range map[int]*string{0: &tool, 2: &text, 3: &kind} {
			if err := json.Unmarshal(call[i], into); err != nil {
				t.Fatal(err)
			}
		}
		scope := Panes
		if tool == "list_sessions" {
			scope = Sessions
		}
		_, err := CompileFilter(call[1], scope)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s %s: %v, want an *Error", tool, call[1], err)
			continue
		}
		if e.Error() != text || e.Meta() != (ErrorMeta{ErrorType: kind, Expected: true}) {
			t.Errorf("%s %s: %q, %+v, want %q, %s", tool, call[1], e.Error(), e.Meta(), text, kind)
		}
	}
}

func TestNoFilter(t *testing.T) {
	for _, raw := range []string{"", "null", `""`, "{}", `"{}"`, `" { } "`} {
		f, err := CompileFilter(json.RawMessage(raw), Panes)
		if f != nil || err != nil {
			t.Errorf("%q: %v, %v", raw, f, err)
		}
		if ok, err := f.Again().Match(nil); !ok || err != nil || f.Fields() != nil {
			t.Errorf("%q: %v, %v", raw, ok, err)
		}
	}
}

func TestOtherErrors(t *testing.T) {
	for _, c := range []struct {
		filters string
		scope   Scope
		text    string
	}{
		{`{"pane_titel":"x"}`, Panes, "Unknown filter field 'pane_titel' in 'pane_titel'.\nDid you mean 'pane_title',"},
		{`{"pane_title_contains":"x"}`, Panes, "Unknown filter field 'pane_title_contains' in 'pane_title_contains'.\nDid you mean 'pane_title__contains'?"},
		{`{"command__eq":"x"}`, Panes, "Unknown filter field 'command' in 'command__eq'.\nDid you mean 'pane_current_command'"},
		{`{"sesion__name__eq":"x"}`, Panes, "Unknown filter field 'sesion' in 'sesion__name__eq'.\nDid you mean 'session'"},
		{`{"window__nmae__eq":"x"}`, Panes, "Unknown filter field 'nmae' in 'window__nmae__eq'.\nDid you mean 'name',"},
		{`{"server__name__eq":"x"}`, Panes, "Unknown filter field 'name' in 'server__name__eq'.\nDid you mean 'socket_name'?"},
		{`{"pane_id__x__eq":"x"}`, Panes, "Unknown filter field 'x' in 'pane_id__x__eq'.\nDid you mean 'pane_id'?"},
		{`{"window__name__x__eq":"x"}`, Panes, "Unknown filter field 'x' in 'window__name__x__eq'.\nDid you mean 'window__name'?"},
		{`{"pane_id_":"x"}`, Panes, "Unknown filter field 'pane_id_' in 'pane_id_'.\nDid you mean 'pane_id'"},
		{`{"":"x"}`, Panes, "Unknown filter field '' in ''.\n"},
		{`{"__eq":"x"}`, Panes, "Unknown filter field '' in '__eq'.\n"},
		{`{"@":"x"}`, Panes, "Unknown filter field '@' in '@'.\n"},
		{`{"@x}#(touch /tmp/x)#{@y":"x"}`, Panes, "Unknown filter field "},
		{`{"session__is_caller__eq":"x"}`, Panes, "Unknown filter field 'is_caller'"},
		{`{"is_caller":"x"}`, Sessions, "Unknown filter field 'is_caller'"},
		{`{"window_count":"x"}`, Panes, "Unknown filter field 'window_count'"},
		{`{"name":"x"}`, Panes, "Unknown filter field 'name' in 'name'."},
		{`{"window__name__eq":"x"}`, Sessions, "Unknown filter field 'window' in 'window__name__eq'."},

		{`{"pane_id__regex":"("}`, Panes, "Invalid regular expression in 'pane_id__regex': unterminated bracket at position 0"},
		{`{"pane_id__iregex":"a**"}`, Panes, "Invalid regular expression in 'pane_id__iregex': multiple repeat at position 2"},
		{`{"pane_id__regex":"(?<=a+)"}`, Panes, "Invalid regular expression in 'pane_id__regex': look-behind of variable width at position 0"},
		{`{"pane_id__iregex":"a{300000000}"}`, Panes, "Invalid regular expression in 'pane_id__iregex': more than 65535 required repetitions are not supported at position 1"},
		{`{"pane_id__regex":"\\N{DIGIT ONE}"}`, Panes, `Invalid regular expression in 'pane_id__regex': names of characters (\N) are not supported at position 0`},
		{`{"windows__regex":"["}`, Sessions, "Invalid regular expression in 'windows__regex': "},
		{`{"pane_mode__regex":"x","pane_id__regex":"\\"}`, Panes, "Invalid regular expression in 'pane_id__regex': "},

		// The operator of any key comes before an unknown field, and that
		// before an expression.
		{`{"pane_id__regex":"(","nope":"x","pane_id__bad":"x"}`, Panes, "Invalid filter operator 'bad'"},
		{`{"pane_id__regex":"(","nope":"x"}`, Panes, "Unknown filter field 'nope'"},

		{`{"pane_id":null}`, Panes, "2 validation errors for call[list_panes]\nfilters.dict[str,str].pane_id\n  Input should be a valid string [type=string_type]\nfilters.str\n"},
		{`{"pane_id":{}}`, Sessions, "2 validation errors for call[list_sessions]\n"},
		{`{"pane_id__in":["%0"],"pane_title":[]}`, Panes, "3 validation errors for call[list_panes]\n"},
	} {
		f, err := CompileFilter(json.RawMessage(c.filters), c.scope)
		var e *Error
		if !errors.As(err, &e) || !strings.HasPrefix(e.Error(), c.text) {
			t.Errorf("%s: %v, %q, want %q…", c.filters, f, err, c.text)
		}
	}
}

func TestFields(t *testing.T) {
	for _, c := range []struct {
		key   string
		scope Scope
		field string // "" = none is needed
	}{
		{"pane_title", Panes, "pane_title"},
		{"title", Panes, "pane_title"},
		{"id", Panes, "pane_id"},
		{"id", Sessions, "session_id"},
		{"name", Sessions, "session_name"},
		{"at_left", Panes, "pane_at_left"},
		{"session_name", Panes, "session_name"},
		{"pane_id", Sessions, "pane_id"},
		{"window_count", Sessions, "session_windows"},
		{"active_pane_id", Sessions, ActivePaneID},
		{"is_caller", Panes, IsCaller},
		{"server__socket_name__eq", Panes, SocketName},
		{"session__server__socket_name__eq", Panes, SocketName},
		{"server__socket_name__eq", Sessions, SocketName},
		{"server__socket_path__eq", Panes, ""},
		{"scroll_position", Panes, ""},
		{"pane_id___eq", Panes, ""},
		{"windows", Sessions, ""},

		{"session__name__eq", Panes, "session_name"},
		{"session__session_windows__eq", Panes, "session_windows"},
		{"session__pane_id__eq", Panes, ActivePaneID},
		{"session__active_pane__id__eq", Panes, ActivePaneID},
		{"session__active_pane__title__eq", Panes, "session.pane_title"},
		{"session__active_window__name__eq", Panes, "session.window_name"},
		{"session__active_window__session__id__eq", Panes, "session_id"},
		{"session__version__eq", Panes, "version"},
		{"window__index__eq", Panes, "window_index"},
		{"window__pane_id__eq", Panes, "window.pane_id"},
		{"window__active_pane__pane_title__eq", Panes, "window.pane_title"},
		{"window__session__name__eq", Panes, "session_name"},
		{"window__session__active_window__id__eq", Panes, "session.window_id"},
		{"window__active_pane__window__name__eq", Panes, "window_name"},
		{"active_pane__title__eq", Sessions, "pane_title"},
		{"active_window__height__eq", Sessions, "window_height"},
		{"active_window__active_pane__pane_pid__eq", Sessions, "pane_pid"},

		{"@x", Panes, "@x"},
		{"@my-opt__regex", Sessions, "@my-opt"},
		{"@my__opt__eq", Panes, "@my__opt"},
		{"session__@x__eq", Panes, "session.@x"},
	} {
		f := compile(t, fmt.Sprintf(`{%q:"x"}`, c.key), c.scope)
		var want []string
		if c.field != "" {
			want = []string{c.field}
		}
		if !slices.Equal(f.Fields(), want) {
			t.Errorf("%s: %q, want %q", c.key, f.Fields(), want)
		}
	}
	f := compile(t, `{"pane_title__contains":"a","window_name":"b","title__contains":"c"}`, Panes)
	if want := []string{"pane_title", "window_name"}; !slices.Equal(f.Fields(), want) {
		t.Errorf("%q, want %q", f.Fields(), want)
	}
}

func TestMatch(t *testing.T) {
	const sigma = "ΌΔΥΣΣΕΎΣ"
	for _, c := range []struct {
		filters string // of list_panes, in both forms unless it holds a list or null
		value   string // of the one field
		want    bool
	}{
		{`{"pane_title":"ab"}`, "ab", true},
		{`{"pane_title":"ab"}`, "aB", false},
		{`{"pane_title__iexact":"AB"}`, "aB", true},
		{`{"pane_title__iexact":"` + sigma + `"}`, "όδυσσεύς", true},
		{`{"pane_title__icontains":"ΥΣΣΕ"}`, sigma, true},
		{`{"pane_title__icontains":"ΥΣΣ"}`, sigma, false},
		{`{"pane_title__icontains":"İ"}`, "i̇stanbul", true},
		{`{"pane_title__iendswith":"STRASSE"}`, "straße", false},
		{`{"pane_title__contains":"b"}`, "abc", true},
		{`{"pane_title__startswith":"a"}`, "abc", true},
		{`{"pane_title__endswith":"c"}`, "abc", true},
		{`{"pane_title__in":"b"}`, "abc", true},
		{`{"pane_title__in":"abcd"}`, "abc", false},
		{`{"pane_title__nin":"b"}`, "abc", false},
		{`{"pane_title__nin":"x"}`, "abc", true},
		{`{"pane_title__regex":"^(?P<x>.)b(?P=x)?"}`, "abc", true},
		{`{"pane_title__iregex":"^AB"}`, "abc", true},

		// A value that is missing passes nothing.
		{`{"pane_title":""}`, "", false},
		{`{"pane_title__nin":"x"}`, "", false},
		{`{"pane_title__regex":""}`, "", false},
		{`{"pane_title__nin":["x"]}`, "", false},
		{`{"at_top":false}`, "", false},

		{`{"pane_title__in":["a","b"]}`, "b", true},
		{`{"pane_title__in":["a","b"]}`, "ab", false},
		{`{"pane_title__in":[]}`, "a", false},
		{`{"pane_title__nin":[]}`, "a", true},
		{`{"pane_title__nin":["a",null,{}]}`, "a", false},
		{`{"pane_width__in":[1,2,3,4,5,6,7,8,9,200.0]}`, "200", true},
		{`{"pane_width__nin":[1,2,3,4,5,6,7,8,9,200]}`, "200", false},
		{`{"pane_active__in":[true]}`, "1", true},
		{`{"pane_title":["a"]}`, "a", false},
		{`{"pane_title":null}`, "None", false},
		{`{"pane_title__nin":null}`, "a", false},
		{`{"pane_title__regex":null}`, "a", false},
		{`{"pane_title__contains":["a"]}`, "a", false},

		// Numbers and truth values compare by what is shown.
		{`{"pane_width":200}`, "200", true},
		{`{"pane_width":2e2}`, "200", true},
		{`{"pane_width":20}`, "200", false},
		{`{"pane_width__startswith":20}`, "200", true},
		{`{"pane_width__regex":0}`, "200", true},
		{`{"pane_active":true}`, "1", true},
		{`{"pane_active":false}`, "0", true},
		{`{"pane_active":true}`, "0", false},
		{`{"pane_title":true}`, "true", true},
		{`{"pane_title__nin":true}`, "true", false},
		{`{"pane_title":"true"}`, "1", false},
		{`{"pane_active__regex":true}`, "1", true},
		{`{"pane_at_top":"1"}`, "1", true},
		{`{"pane_at_top":true}`, "1", true},
		{`{"pane_at_top":"true"}`, "1", true},
		{`{"pane_at_top__iexact":"TRUE"}`, "1", true},
		{`{"pane_at_top":"false"}`, "0", true},
		{`{"pane_at_top__in":["true"]}`, "1", true},
		{`{"is_caller":"true"}`, "true", true},
		{`{"is_caller":"1"}`, "true", true},
		{`{"is_caller":true}`, "true", true},
		{`{"is_caller":true}`, "", false},
		{`{"is_caller":false}`, "", false},
		{`{"is_caller":false}`, "false", true},
		{`{"is_caller__contains":"ru"}`, "true", true},

		// The short names of the edges are truth values, not texts.
		{`{"at_top":true}`, "1", true},
		{`{"at_top":false}`, "0", true},
		{`{"at_top":1}`, "1", true},
		{`{"at_top":0}`, "1", false},
		{`{"at_top":"true"}`, "1", true},
		{`{"at_top":"1"}`, "1", false},
		{`{"at_top":"True"}`, "1", false},
		{`{"at_top__contains":true}`, "1", false},
		{`{"at_top__nin":"x"}`, "1", false},
		{`{"at_top__in":[true]}`, "1", true},
		{`{"at_top__nin":[true]}`, "1", false},
		{`{"at_top__nin":[false]}`, "1", true},
		{`{"at_top__regex":"."}`, "1", false},

		// Objects and lists of them equal nothing.
		{`{"window__nin":["x"]}`, "", true},
		{`{"window__nin":"x"}`, "", false},
		{`{"window":"x"}`, "", false},
		{`{"session__windows__nin":"x"}`, "", true},
		{`{"session__windows__nin":[]}`, "", true},
		{`{"session__windows__in":[]}`, "", false},
		{`{"session__windows__regex":"."}`, "", false},
	} {
		forms := []string{quoted(t, c.filters)}
		if !strings.ContainsAny(c.filters, "[") && !strings.Contains(c.filters, "null") {
			forms = append(forms, c.filters)
		}
		for _, form := range forms {
			f := compile(t, form, Panes)
			got, err := f.Match(func(int) string { return c.value })
			if err != nil || got != c.want {
				t.Errorf("%s on %q: %v, %v", form, c.value, got, err)
			}
		}
	}
}

func TestAllTermsMustHold(t *testing.T) {
	r := row{"pane_title": "abc", "window_name": "w"}
	if !r.match(t, compile(t, `{"title__startswith":"a","window__name__eq":"w"}`, Panes)) {
		t.Error("both hold")
	}
	for _, filters := range []string{`{"title":"x","window__name__eq":"w"}`, `{"title":"abc","window_name":"x"}`} {
		if r.match(t, compile(t, filters, Panes)) {
			t.Errorf("%s: only one holds", filters)
		}
	}
	// The last of equal keys wins.
	if !r.match(t, compile(t, `{"title":"x","title":"abc"}`, Panes)) {
		t.Error("the first of equal keys wins")
	}
}

func TestLowerIsThatOfPython(t *testing.T) {
	l := readLetters(t)
	for _, pair := range l.Lower {
		if got := lower(pair[0]); got != pair[1] {
			t.Errorf("%q: %q, want %q", pair[0], got, pair[1])
		}
	}
	known, uncased, ignorable := within(l.Known), within(l.Uncased), within(l.Ignorable)
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !known(r) || !utf8.ValidRune(r) {
			continue
		}
		if final := isFinalSigma("a", string(r)); final != uncased(r) {
			t.Errorf("a sigma before %U is final: %v", r, final)
		}
		if within := !isFinalSigma("a", string(r)+"a"); within != ignorable(r) {
			t.Errorf("a sigma before %U and a is within a word: %v", r, within)
		}
	}
	if got := lower("A\xffB\xed\xa0\xbd"); got != "a\xffb\xed\xa0\xbd" {
		t.Errorf("bytes that are not UTF-8 changed: %q", got)
	}
}

func TestMatchOfTextDoesNotAllocate(t *testing.T) {
	f := compile(t, `{"pane_title__contains":"log","pane_title__startswith":"the","pane_id":"%1","pane_title__icontains":"log","pane_active":true}`, Panes)
	values := make([]string, len(f.Fields()))
	for i, field := range f.Fields() {
		values[i] = row{"pane_title": "the log", "pane_id": "%1", "pane_active": "1"}[field]
	}
	value := func(i int) string { return values[i] }
	if n := testing.AllocsPerRun(100, func() {
		if ok, err := f.Match(value); !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestInvalidArguments(t *testing.T) {
	for _, c := range []struct {
		problems         []Problem
		text, suggestion string
	}{
		{
			[]Problem{UnexpectedArgument("a"), UnexpectedArgument("b")},
			"2 validation errors for call[list_panes]\na\n  Unexpected keyword argument [type=unexpected_keyword_argument]\nb\n  Unexpected keyword argument [type=unexpected_keyword_argument]",
			"Remove or correct the unrecognized argument(s): a, b.",
		},
		{
			[]Problem{UnexpectedArgument("")},
			"1 validation error for call[list_panes]\n__root__\n  Unexpected keyword argument [type=unexpected_keyword_argument]",
			"Remove or correct the unrecognized argument(s): .",
		},
		{
			[]Problem{NotAString("session_name")},
			"1 validation error for call[list_panes]\nsession_name\n  Input should be a valid string [type=string_type]",
			"",
		},
		{
			[]Problem{UnexpectedArgument("wait_for_previous")},
			"1 validation error for call[list_panes]\nwait_for_previous\n  Unexpected keyword argument [type=unexpected_keyword_argument]",
			"Remove or correct the unrecognized argument(s): wait_for_previous. wait_for_previous is a scheduling flag your client (run_vectors 1) can leak into batched tool calls; retry the call without it.",
		},
	} {
		e := Invalid("list_panes", "run_vectors 1", c.problems)
		if e.Text != c.text || e.Suggestion != c.suggestion || e.Type != "ValidationError" || !e.Expected {
			t.Errorf("%+v, want %q, %q", e, c.text, c.suggestion)
		}
	}
}

func FuzzFilter(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("testdata", "filter_errors.json"))
	if err != nil {
		f.Fatal(err)
	}
	var calls [][]json.RawMessage
	if err := json.Unmarshal(data, &calls); err != nil {
		f.Fatal(err)
	}
	for _, call := range calls {
		f.Add([]byte(call[1]), true, "x")
	}
	for _, filters := range []string{
		`{"pane_title__iregex":"(?x) s (?P<n>.)+ # c"}`, `{"session__active_window__name__in":"x"}`, `{"@a__b__nin":true}`,
		`"{\"pane_id__in\":[\"%0\",1,true,null]}"`, `{"at_top":1}`, `"{\"a\":\"\\ud83d\"}"`,
	} {
		f.Add([]byte(filters), false, "%0")
	}
	f.Fuzz(func(t *testing.T, raw []byte, panes bool, value string) {
		scope := Sessions
		if panes {
			scope = Panes
		}
		filter, err := CompileFilter(raw, scope)
		again, againErr := CompileFilter(raw, scope)
		if fmt.Sprint(err) != fmt.Sprint(againErr) {
			t.Fatalf("%q: %v, then %v", raw, err, againErr)
		}
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) || e.Text == "" || e.Type == "" {
				t.Fatalf("%q: %#v is no tool error", raw, err)
			}
			return
		}
		if filter == nil {
			return
		}
		if !slices.Equal(filter.Fields(), again.Fields()) {
			t.Fatalf("%q: fields %q, then %q", raw, filter.Fields(), again.Fields())
		}
		ok, err := filter.Match(func(i int) string { return value })
		if err != nil && !strings.Contains(err.Error(), "was cut off") {
			t.Fatalf("%q on %q: %v", raw, value, err)
		}
		if sameOK, sameErr := again.Match(func(i int) string { return value }); err == nil && sameErr == nil && sameOK != ok {
			t.Fatalf("%q on %q: %v, then %v", raw, value, ok, sameOK)
		}
	})
}
