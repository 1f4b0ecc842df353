package tools

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
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
	`[\N{DIGIT ONE}]x]`: "names of characters",
	`(?t)a`:             "a flag without effect, gone in Python 3.13",
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
	for _, c := range readRegexpCases(t, path) {
		re, err := compileRegexp(c.pattern, c.ignoreCase)
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

var _ = json.Marshal
var _ = unicode.L
