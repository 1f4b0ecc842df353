package tools

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestRepeats: what is remembered is what would have been decoded, each time with
// a filter of the call's own; what was refused is decoded anew.
func TestRepeats(t *testing.T) {
	var repeats Repeats
	for _, raw := range []string{
		``, `{}`, `null`, `{"session_name":"a"}`, `{"session_name":0,"window_index":"1"}`, `{"filters":null}`,
		`{"filters":{"pane_id":"%1"}}`, `{"filters":"{\"pane_id\":\"%1\"}"}`, `{"filters":{"pane_title__regex":"^a+$"}}`,
		`{"filters":{"pane_titel":"x"}}`, `{"filters":{"pane_title__regex":"("}}`, `{"nonsense":1}`, `{"session_name":[]}`, `[]`,
	} {
		for _, client := range []string{"one 1", "two 2"} {
			plain := Request{Arguments: json.RawMessage(raw), Caller: Caller{Client: client}}
			want, wantErr := readArguments(plain, Panes, paneParameters)
			again := plain
			again.Repeats = &repeats
			got, err := readArguments(again, Panes, paneParameters)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) || fmt.Sprint(got.matchErr) != fmt.Sprint(want.matchErr) {
				t.Errorf("%s of %s: errors %v, %v, want %v, %v", raw, client, err, got.matchErr, wantErr, want.matchErr)
			}
			if !reflect.DeepEqual(got.match.Fields(), want.match.Fields()) || got.match != nil && got.match == want.match {
				t.Errorf("%s: filter %v, want its own of %v", raw, got.match, want.match)
			}
			got.match, want.match, got.matchErr, want.matchErr = nil, nil, nil, nil
			if got != want {
				t.Errorf("%s: %v, want %v", raw, got, want)
			}
		}
	}
	for i := range 10 * maxRepeats {
		r := Request{Arguments: fmt.Appendf(nil, `{"session_name":"%d"}`, i), Repeats: &repeats}
		if _, err := readArguments(r, Panes, paneParameters); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(repeats.calls[Panes]); n > maxRepeats {
		t.Errorf("%d calls are remembered", n)
	}
	long := Request{Arguments: json.RawMessage(`{"session_name":"` + strings.Repeat("x", maxRepeated) + `"}`), Repeats: &repeats}
	if _, err := readArguments(long, Sessions, paneParameters); err != nil || len(repeats.calls[Sessions]) != 0 {
		t.Errorf("a long call is remembered, or %v", err)
	}
}
