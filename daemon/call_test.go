package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"testing"

	"tmux-mcpd/tools"
)

var callTests = []struct {
	name  string
	frame string
	taken bool // by parseCall
}{
	{"the least", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes"}}`, true},
	{"arguments", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"list_sessions","arguments":{"filters":{"session_name":"x"}}}}`, true},
	{"any order and spaces", ` { "params" : { "arguments" : { } , "name" : "list_panes" } , "method" : "tools/call" , "id" : -7 , "jsonrpc" : "2.0" } `, true},
	{"an id above 2^53", `{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"list_panes"}}`, true},
	{"a progress token", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes","_meta":{"progressToken":1}}}`, true},
	{"modern", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes","arguments":{},` + modernMeta + `}}`, true},
	{"modern with an error", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes","arguments":{"x":1},` + modernMeta + `}}`, true},
	{"modern and not allowed", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, true},
	{"a version to come", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes","_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`, true},
	{"an absent session", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes","arguments":{"session_name":"x"}}}`, true},
	{"arguments that do not parse", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes","arguments":{"a":x}}}`, true},

	{"another tool", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_windows"}}`, false},
	{"another method", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, false},
	{"an escape in a key", `{"jsonrpc":"2.0","i\u0064":1,"method":"tools/call","params":{"name":"list_panes"}}`, false},
	{"an escape in the id", `{"jsonrpc":"2.0","id":"\u0041","method":"tools/call","params":{"name":"list_panes"}}`, false},
	{"an id with a fraction", `{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"list_panes"}}`, false},
	{"an id with a leading zero", `{"jsonrpc":"2.0","id":01,"method":"tools/call","params":{"name":"list_panes"}}`, false},
	{"two ids", `{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"list_panes"}}`, false},
	{"two arguments", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes","arguments":{},"arguments":{"x":1}}}`, false},
	{"another member", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes"},"x":1}`, false},
	{"a key in capitals", `{"jsonrpc":"2.0","ID":1,"method":"tools/call","params":{"name":"list_panes"}}`, false},
	{"a comma too many", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes",}}`, false},
	{"something after it", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes"}}{}`, false},
	{"cut off", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes"`, false},
}

func TestParseCall(t *testing.T) {
	for _, tt := range callTests {
		if _, taken := parseCall([]byte(tt.frame)); taken != tt.taken {
			t.Errorf("%s: parseCall takes it: %v, want %v", tt.name, taken, tt.taken)
		}
	}
}

// FuzzCall: a frame that parseCall takes is answered as the decoder that stands
// behind it answers it, and with what mcp-go has to say of such a call: whether it
// is one at all, and what a modern result has beside the contract.
func FuzzCall(f *testing.F) {
	for _, tt := range callTests {
		f.Add([]byte(tt.frame))
	}
	for _, arguments := range []string{`{"filters":"{\"pane_id\":\"%0\"}"}`, `{"filters":{"nope":1}}`, `{"filters":{"pane_width__gt":1.50}}`, `{"window_index":0,"socket_name":null}`, `{"session_name":"\ud800"}`} {
		f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes","arguments":` + arguments + `}}`))
		f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_panes","arguments":` + arguments + `,` + modernMeta + `}}`))
	}
	d, caller := lonelyDaemon(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		frame = bytes.TrimSpace(frame)
		c, taken := parseCall(frame)
		if !taken || bytes.IndexByte(frame, '\n') >= 0 || tooDeep(frame, maxNesting) {
			return
		}
		// parseCall delimits arguments and _meta; whether they are JSON the caller
		// finds out, of _meta by comparing it with one that has been decoded.
		if len(c.arguments) > len("{}") && !json.Valid(c.arguments) {
			return
		}
		if !json.Valid(frame) {
			if c.meta == nil {
				t.Fatalf("taken and no JSON: %q", frame)
			}
			return
		}
		s := &session{daemon: d, id: "fuzz", mcp: d.mcp, caller: caller, running: make(map[string]*request)}
		r := &request{id: bytes.Clone(c.id), method: "tools/call", frame: frame, mcp: d.mcp}
		var m envelope
		if err := json.Unmarshal(frame, &m); err != nil {
			t.Fatalf("taken and not decoded: %v: %q", err, frame)
		}
		if !bytes.Equal(m.ID, c.id) {
			t.Fatalf("the id is %q, decoded it is %q", c.id, m.ID)
		}
		r.params = m.Params
		answered := func(answer func()) any {
			out := &scripted{}
			s.stream = out
			answer()
			var v any
			if err := json.Unmarshal(out.out.Bytes(), &v); err != nil {
				t.Fatalf("%q is answered %q: %v", frame, out.out.Bytes(), err)
			}
			if !bytes.HasPrefix(out.out.Bytes(), append([]byte(`{"jsonrpc":"2.0","id":`), c.id...)) {
				t.Fatalf("%q is answered with another id: %q", frame, out.out.Bytes())
			}
			return v
		}
		ctx := s.mcp.WithContext(context.Background(), s)
		decoded := answered(func() {
			if response, err := s.respondToCall(ctx, r); err != nil {
				t.Fatal(err)
			} else if response != nil {
				_ = s.write(response)
			}
		})
		// What the decoder has just seen of the client may be what lets the direct
		// path answer; if not, it never would.
		if modern, ok := s.known(c.meta); ok {
			direct := answered(func() { s.answerCall(ctx, r, c.tool, c.arguments, modern) })
			if !reflect.DeepEqual(direct, decoded) {
				t.Fatalf("%q\ndirectly: %v\ndecoded:  %v", frame, direct, decoded)
			}
		}
		q := &inquiry{request: tools.Request{Arguments: c.arguments, Caller: s.who(), Servers: d}}
		judged := answered(func() {
			response, err := encodeResponse(r.id, s.mcp.HandleMessage(context.WithValue(ctx, inquiryKey{}, q), frame))
			if err != nil {
				t.Fatal(err)
			}
			_ = s.write(response)
		})
		if q.result == nil && q.err == nil {
			if !reflect.DeepEqual(judged, decoded) {
				t.Fatalf("%q\nrefused by mcp-go: %v\ndecoded: %v", frame, judged, decoded)
			}
		} else if got, want := beside(decoded), beside(judged); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\nmcp-go adds %v\nwe add     %v", frame, want, got)
		}
	})
}

// beside is an answer to a call without what the contract says of it.
func beside(answer any) any {
	result, _ := answer.(map[string]any)["result"].(map[string]any)
	for _, key := range []string{"content", "structuredContent", "isError"} {
		delete(result, key)
	}
	meta, _ := result["_meta"].(map[string]any)
	for _, key := range []string{"fastmcp", "error_type", "expected", "suggestion"} {
		delete(meta, key)
	}
	if len(meta) == 0 {
		delete(result, "_meta")
	}
	return answer
}
