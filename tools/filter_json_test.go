package tools

import (
	"os"
	"path/filepath"
	"testing"
)

// testdata/json.json holds what Python's json.loads says.
func TestJSONIsReadAsInPython(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "json.json"))
	if err != nil {
		t.Fatal(err)
	}
	table, jsonErr := decodeJSON(string(data))
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	for _, row := range table.list {
		text, message := row.list[0].text, row.list[1]
		got, err := decodeJSON(text)
		switch {
		case message.kind == jsonString && err == nil:
			t.Errorf("%q is taken, want %s", text, message.text)
		case message.kind == jsonString && err.Error() != message.text:
			t.Errorf("%q: %v, want %s", text, err, message.text)
		case message.kind == jsonNull && err != nil:
			t.Errorf("%q: %v", text, err)
		case message.kind == jsonNull && pythonTypes[got.kind] != row.list[2].text:
			t.Errorf("%q is of type %s, want %s", text, pythonTypes[got.kind], row.list[2].text)
		}
	}
}

func TestJSONNumbersAreWrittenPlainly(t *testing.T) {
	for in, want := range map[string]string{
		"200": "200", "-1": "-1", "0": "0", "-0": "0", "-0.0": "0", "200.0": "200", "2e2": "200", "1.50": "1.5",
		"1e-3": "0.001", "12345678901234567890123": "12345678901234567890123", "1e999": "+Inf",
	} {
		v, err := decodeJSON(in)
		if err != nil || v.text != want {
			t.Errorf("%s: %q, %v, want %q", in, v.text, err, want)
		}
	}
}

func TestJSONStringsKeepLoneSurrogates(t *testing.T) {
	v, err := decodeJSON(`"a\ud83d\ud83d\ude80\ude80"`)
	if err != nil {
		t.Fatal(err)
	}
	got := decodeRunes(v.text)
	want := []rune{'a', 0xd83d, 0x1f680, 0xde80}
	if len(got) != len(want) {
		t.Fatalf("%x, want %x", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%x, want %x", got, want)
		}
	}
}

func TestDeepJSONIsRefused(t *testing.T) {
	deep := make([]byte, 1<<20)
	for i := range deep {
		deep[i] = '['
	}
	if _, err := decodeJSON(string(deep)); err == nil {
		t.Error("taken")
	}
}
