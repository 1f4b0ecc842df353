package bridge

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

var frameCases = []struct {
	line   string
	kind   kind
	id     string
	method string
}{
	{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, request, `1`, "ping"},
	{`{"jsonrpc":"2.0","method":"ping","id":9007199254740993}` + "\r\n", request, `9007199254740993`, "ping"},
	{`{"id":"a\"b","method":"x","params":{"id":2,"method":"y"}}`, request, `"a\"b"`, "x"},
	{`{"id":-1.5e+3,"method":"tools\/call"}`, request, `-1.5e+3`, "tools/call"},
	{`{"\u0069d":7,"m\u0065thod":"ping"}`, request, `7`, "ping"},
	{` { "id" : 1 , "method" : "ping" } `, request, `1`, "ping"},
	{`{"method":"notifications/initialized"}`, notification, ``, "notifications/initialized"},
	{`{"jsonrpc":"2.0","id":1,"result":{}}`, response, `1`, ""},
	{`{"result":null,"id":"x"}`, response, `"x"`, ""},
	{`{"id":1,"error":{"code":1,"message":"m"}}`, response, `1`, ""},
	{`{"id":null,"error":{"code":-32700,"message":"m"}}`, response, `null`, ""},
	{`{"id":"\ud800","method":"ping"}`, request, `"\ud800"`, "ping"},
	{`{"id":1,"method":"ping","params":` + strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1) + `}`, request, `1`, "ping"},

	{line: ``},
	{line: `{}`},
	{line: `[]`},
	{line: `[{"id":1,"method":"ping"}]`},
	{line: `{"id":1}`},
	{line: `{"id":null,"method":"ping"}`},
	{line: `{"id":{},"method":"ping"}`},
	{line: `{"id":true,"method":"ping"}`},
	{line: "{\"id\":\"\xff\",\"method\":\"ping\"}"}, // the daemon answers it with the id null
	{line: `{"id":1,"method":5}`},
	{line: `{"id":1,"id":2,"method":"ping"}`},
	{line: `{"id":1,"ID":2,"method":"ping"}`},
	{line: `{"id":1,"re` + "\u017f" + `ult":2,"method":"ping"}`}, // folds to result
	{line: `{"id":1,"method":"ping","result":1}`},
	{line: `{"id":1,"result":1,"error":{}}`},
	{line: `{"id":1,"method":"ping"`},
	{line: `{"id":1,"method":"ping"}x`},
	{line: `{"id":1,"method":"ping"}{}`},
	{line: `{"id":1,"method":"ping",}`},
	{line: `{,"id":1,"method":"ping"}`},
	{line: `{"id":01,"method":"ping"}`},
	{line: `{"id":1.,"method":"ping"}`},
	{line: `{"id":+1,"method":"ping"}`},
	{line: "{\"id\":1,\"method\":\"pi\tng\"}"},
	{line: "{\"id\":1,\"method\":\"ping\",\"x\":\"\x00\"}"},
	{line: `{"id":1,"method":"ping","params":nul}`},
	{line: `{"id":1,"method":"ping","params":[1,]}`},
	{line: `{"id":1,"method":"ping","params":"\x"}`},
	{line: `{"id":1,"method":"ping","params":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`}, // and so it does this
}

func TestScan(t *testing.T) {
	for _, c := range frameCases {
		f := scan([]byte(c.line))
		if f.kind != c.kind || string(f.id) != c.id || f.method != c.method {
			t.Errorf("scan(%.80q) = %d, id %q, method %q; want %d, %q, %q", c.line, f.kind, f.id, f.method, c.kind, c.id, c.method)
		}
	}
}

func TestScanAnswerStopsAtResult(t *testing.T) {
	long := `{"jsonrpc":"2.0","id":12,"result":{"x":"` + strings.Repeat(`a\"`, 100) + `"}}`
	if f := scanAnswer([]byte(long)); f.kind != response || string(f.id) != "12" {
		t.Errorf("got %+v", f)
	}
	// The end is looked at all the same: a frame cut short is none.
	if f := scanAnswer([]byte(long[:100])); f.kind != odd {
		t.Errorf("cut frame: got %+v", f)
	}
	if f := scanAnswer([]byte(`{"result":{"id":3},"id":12}`)); f.kind != response || string(f.id) != "12" {
		t.Errorf("id last: got %+v", f)
	}
	if n := testing.AllocsPerRun(100, func() { scanAnswer([]byte(long)) }); n > 1 { // the conversion
		t.Errorf("%v allocations", n)
	}
}

func TestIDOfPart(t *testing.T) {
	for _, c := range []struct{ part, id string }{
		{`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"x":"aaa`, `5`},
		{`{"method":"tools/call","id":"q","params":{"x":"aaa`, `"q"`},
		{`{"method":"tools/call","params":{"x":"aaa`, ``},
		{`{"method":"tools/call","id":5`, ``},
		{`{"id":null,"method":"x","params":[`, ``},
		{`garbage`, ``},
	} {
		if id := idOfPart([]byte(c.part)); string(id) != c.id {
			t.Errorf("idOfPart(%s) = %q, want %q", c.part, id, c.id)
		}
	}
}

// reference reads a line with encoding/json: the keys at the top in order, with their raw values.
func reference(line []byte) (keys []string, values []json.RawMessage, ok bool) {
	if !json.Valid(line) {
		return nil, nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, nil, false
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, nil, false
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return nil, nil, false
		}
		keys = append(keys, key.(string))
		values = append(values, value)
	}
	return keys, values, true
}

// FuzzFrame compares the scanner with encoding/json: what the scanner accepts must be valid and have the same id and
// method; what it rejects must have one of the reasons the scanner is meant to have.
func FuzzFrame(f *testing.F) {
	for _, c := range frameCases {
		f.Add([]byte(c.line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return // a line has none
		}
		got := scan(line)
		if trusting := scanAnswer(line); got.kind != odd && (trusting.kind != got.kind || !bytes.Equal(trusting.id, got.id)) {
			t.Fatalf("scanAnswer(%q) = %+v, scan %+v", line, trusting, got)
		}
		idOfPart(line)

		keys, values, ok := reference(line)
		if !ok {
			if got.kind != odd {
				t.Fatalf("scan(%q) = %+v, encoding/json refuses it", line, got)
			}
			return
		}
		want := frame{}
		fields := map[string]json.RawMessage{}
		plain := true
		for i, key := range keys {
			for _, name := range []string{"id", "method", "result", "error", "jsonrpc"} {
				if !strings.EqualFold(key, name) {
					continue
				}
				_, twice := fields[key]
				plain = plain && key == name && (!twice || name == "jsonrpc")
			}
			fields[key] = values[i]
		}
		id, method := fields["id"], fields["method"]
		result, failure := fields["result"], fields["error"]
		var number json.Number
		var text string
		hasID := id != nil && string(id) != "null" && (json.Unmarshal(id, &number) == nil || json.Unmarshal(id, &text) == nil) && utf8.Valid(id)
		isMethod := json.Unmarshal(method, &text) == nil && string(method) != "null"
		switch {
		case !plain || depth(line) > maxDepth:
		case isMethod && result == nil && failure == nil && id == nil:
			want = frame{kind: notification, method: text}
		case isMethod && result == nil && failure == nil && hasID:
			want = frame{kind: request, id: id, method: text}
		case method == nil && (result == nil) != (failure == nil) && hasID,
			method == nil && result == nil && failure != nil && string(id) == "null":
			want = frame{kind: response, id: id, failed: failure != nil}
		}
		// encoding/json puts U+FFFD for bytes that are no UTF-8, the scanner leaves them: they are in none of our methods.
		sameMethod := got.method == want.method || !utf8.Valid(line)
		if got.kind != want.kind || got.failed != want.failed || !bytes.Equal(got.id, want.id) || !sameMethod {
			t.Fatalf("scan(%q)\n got %d id %q method %q\nwant %d id %q method %q",
				line, got.kind, got.id, got.method, want.kind, want.id, want.method)
		}
	})
}

// depth is how deep values nest, the frame's own object counted.
func depth(line []byte) int {
	dec := json.NewDecoder(bytes.NewReader(line))
	deepest, now := 0, 0
	for {
		tok, err := dec.Token()
		if err != nil {
			return deepest
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			now++
			deepest = max(deepest, now)
		case json.Delim('}'), json.Delim(']'):
			now--
		}
	}
}
