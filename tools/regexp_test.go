package tools

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/dlclark/regexp2/v2"
)

// A regexpCase is a line of a table that testdata/gen_regexp.py wrote: what
// Python's re.search says.
type regexpCase struct {
	pattern    string
	ignoreCase bool
	subject    string
	match      bool
	refused    bool
}

// readRegexpCases reads a table with the decoder of filters: it keeps the lone
// surrogates that some patterns have.
func readRegexpCases(t testing.TB, path string) []regexpCase {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	table, jsonErr := decodeJSON(string(data))
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	var cases []regexpCase
	for _, row := range table.list {
		cases = append(cases, regexpCase{
			pattern:    row.list[0].text,
			ignoreCase: row.list[1].text == "true",
			subject:    row.list[2].text,
			match:      row.list[3].text == "true",
			refused:    row.list[3].kind == jsonNull,
		})
	}
	return cases
}

// unsupported are the patterns of the table that Python takes and that are
// refused here.
var unsupported = map[string]string{
	`[\N{DIGIT ONE}]x]`:      "names of characters",
	`a{3000000000}`:          "repetitions",
	`a{4294967294}`:          "repetitions",
	`a{2147483648}?b`:        "repetitions",
	`(a){3000000000}|(b)\2?`: "repetitions",
	`(?t)a`:                  "a flag without effect, gone in Python 3.13",
}

// different are the patterns of the table that match other subjects here.
var different = map[string]string{
	`(?i)(s)\1`:   "the engine's references also take the letters that fold alike (s, ſ)",
	`(?i)(σ)\1`:   "the same (σ, ς)",
	`(?a)(?u:\w)`: "a fault of Python 3.11: the first letter is looked for with the outer flag",
}

func TestRegexpsMatchAsInPython(t *testing.T) {
	path := filepath.Join("testdata", "regexp.json")
	if other := os.Getenv("REGEXP_CASES"); other != "" {
		path = other // a table of another seed
	}
	var (
		last regexpCase // the subjects of a pattern follow each other
		re   *regexp2.Regexp
		err  error
	)
	for _, c := range readRegexpCases(t, path) {
		if c.pattern != last.pattern || c.ignoreCase != last.ignoreCase {
			re, err = compileRegexp(c.pattern, c.ignoreCase)
			last = c
		}
		if _, no := unsupported[c.pattern]; no {
			if err == nil {
				t.Errorf("%q is taken now: strike it from the list", c.pattern)
			}
			continue
		}
		if os.Getenv("REGEXP_CASES") != "" && err != nil && strings.HasSuffix(strings.TrimRight(err.Error(), "0123456789"), "not supported at position ") {
			continue
		}
		if (err != nil) != c.refused {
			text, _ := translate(c.pattern, c.ignoreCase)
			t.Errorf("%q (ignore case %v, written %q): error %v, Python refuses it: %v", c.pattern, c.ignoreCase, text, err, c.refused)
			continue
		}
		if err != nil {
			continue
		}
		if _, other := different[c.pattern]; other {
			continue
		}
		re.MatchTimeout = 5 * time.Second
		got, err := re.MatchString(c.subject)
		if err != nil || got != c.match {
			t.Errorf("%q (ignore case %v, written %q) in %q: %v, %v, want %v", c.pattern, c.ignoreCase, re, c.subject, got, err, c.match)
		}
	}
}

// letters is testdata/letters.json: what Python holds of each code point.
type letters struct {
	Known, Word, Digit, Space [][2]rune
	Uncased, Ignorable        [][2]rune
	Lower, Folds              [][2]string
}

func readLetters(t *testing.T) letters {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "letters.json"))
	if err != nil {
		t.Fatal(err)
	}
	var l letters
	if err := json.Unmarshal(data, &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// within returns a function that tells whether a rune is in one of the ranges,
// for runes that it is asked for in rising order.
func within(ranges [][2]rune) func(rune) bool {
	return func(r rune) bool {
		for len(ranges) > 0 && ranges[0][1] < r {
			ranges = ranges[1:]
		}
		return len(ranges) > 0 && ranges[0][0] <= r
	}
}

// Go's Unicode is newer than that of the table: only letters that both know
// can be compared.
func TestCategoriesHoldPythonsLetters(t *testing.T) {
	l := readLetters(t)
	for _, c := range []struct {
		pattern string
		ranges  [][2]rune
	}{{`\w`, l.Word}, {`\d`, l.Digit}, {`\s`, l.Space}} {
		re, err := compileRegexp(c.pattern, false)
		if err != nil {
			t.Fatal(err)
		}
		known, want := within(l.Known), within(c.ranges)
		one := make([]rune, 1)
		for r := rune(0); r <= unicode.MaxRune; r++ {
			one[0] = r
			if !known(r) {
				continue
			}
			if got, err := re.MatchRunes(one); err != nil || got != want(r) {
				t.Errorf("%s on %U: %v, %v", c.pattern, r, got, err)
			}
		}
	}
}

func TestIgnoringCaseTakesPythonsLetters(t *testing.T) {
	cased := make(map[rune]bool)
	for _, r := range casedRunes() {
		cased[r] = true
	}
	for _, fold := range readLetters(t).Folds {
		r, want := []rune(fold[0])[0], []rune(fold[1])
		got := foldings(r, false)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%U: %U, want %U", r, got, want)
		}
		if !cased[r] {
			t.Errorf("%U is not listed", r)
		}
	}
}

func TestRunawayRegexpIsCutOff(t *testing.T) {
	defer regexp2.StopTimeoutClock()
	for _, pattern := range []string{`(a+)+$`, `(a*)*b\\1`, `(?:(?:a|aa)+)+$`, `(?=(a+)+$)c|(a+)+$`} {
		f := compile(t, `{"pane_title__regex":"`+pattern+`"}`, Panes)
		start := time.Now()
		_, err := f.Match(func(int) string { return strings.Repeat("a", 60) + "!" })
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Text, "'pane_title__regex'") {
			t.Errorf("%s: %v", pattern, err)
		}
		if strings.Contains(e.Error(), "aaaa") {
			t.Errorf("%s: the error holds the value: %v", pattern, e)
		}
		// One tick of regexp2's clock before, one after, and a slow machine.
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("%s: took %v", pattern, took)
		}
	}
}

// Many rows that are slow, but not slow enough each, are cut off as well.
func TestTimeOfAllRowsIsBounded(t *testing.T) {
	defer regexp2.StopTimeoutClock()
	f := compile(t, `{"pane_title__regex":"(a+)+$"}`, Panes)
	title := strings.Repeat("a", 12) + "!"
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if _, err := f.Match(func(int) string { return title }); err != nil {
			if _, err := f.Again().Match(func(int) string { return title }); err != nil {
				t.Errorf("the time of one call counts for the next: %v", err)
			}
			return
		}
	}
	t.Error("never cut off")
}

func FuzzRegexp(f *testing.F) {
	for _, c := range readRegexpCases(f, filepath.Join("testdata", "regexp.json")) {
		if !c.refused && len(c.pattern) > 8 {
			f.Add(c.pattern, c.ignoreCase, c.subject)
		}
	}
	f.Fuzz(func(t *testing.T, pattern string, ignoreCase bool, subject string) {
		text, err := translate(pattern, ignoreCase)
		again, againErr := translate(pattern, ignoreCase)
		if text != again || (err == nil) != (againErr == nil) {
			t.Fatalf("%q: translated to %q, then to %q", pattern, text, again)
		}
		start := time.Now()
		re, compileErr := compileRegexp(pattern, ignoreCase)
		if took := time.Since(start); took > 2*time.Second {
			t.Fatalf("%q took %v to compile", pattern, took)
		}
		if (err == nil) != (compileErr == nil) {
			t.Fatalf("%q is written as %q, which the engine does not take: %v", pattern, text, compileErr)
		}
		if err != nil {
			return
		}
		re.MatchTimeout = 50 * time.Millisecond
		start = time.Now()
		_, _ = re.MatchString(subject) // may run away, but not far
		if took := time.Since(start); took > 2*time.Second {
			t.Fatalf("%q took %v to match %q", pattern, took, subject)
		}
	})
}
