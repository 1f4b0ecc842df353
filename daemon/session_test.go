package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"tmux-mcpd/tools"
)

// scripted is a client that has sent all it has to say and hung up its writing
// half; what it is told is kept.
type scripted struct {
	io.Reader
	mu  sync.Mutex
	out bytes.Buffer
}

func (s *scripted) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *scripted) Close() error { return nil }

// errorLog fails the test for everything that is logged as an error: panics that
// have been contained, answers that cannot be encoded.
type errorLog struct{ t testing.TB }

func (l errorLog) Write(p []byte) (int, error) {
	l.t.Errorf("logged: %s", p)
	return len(p), nil
}

// lonelyDaemon is a daemon that reaches no tmux: there is none to run, and the
// caller's directory holds no socket.
func lonelyDaemon(t testing.TB) (*Daemon, tools.Caller) {
	d := New(Config{
		Tmux:    "/nonexistent/tmux",
		Version: "test",
		Log:     slog.New(slog.NewTextHandler(errorLog{t}, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	t.Cleanup(d.stop)
	return d, tools.Caller{Env: map[string]string{"TMUX_TMPDIR": t.TempDir()}}
}

// converse serves one client that sends in, and returns what it is told, checked
// to be valid JSON-RPC.
func converse(t testing.TB, d *Daemon, caller tools.Caller, in []byte) []answer {
	t.Helper()
	stream := &scripted{Reader: bytes.NewReader(in)}
	_ = d.serveSession(context.Background(), stream, caller) // a frame that is too long is its error
	out := stream.out.Bytes()
	if len(out) > 0 && out[len(out)-1] != '\n' {
		t.Fatalf("the last frame does not end: %.200q", out[max(0, len(out)-200):])
	}
	var answers []answer
	for line := range bytes.Lines(out) {
		answers = append(answers, parseAnswer(t, bytes.TrimSuffix(line, []byte("\n"))))
	}
	return answers
}

// An answer is one frame of ours.
type answer struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    *int            `json:"code"`
		Message *string         `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

func parseAnswer(t testing.TB, line []byte) answer {
	t.Helper()
	if !utf8.Valid(line) {
		t.Fatalf("a frame that is not UTF-8: %q", line)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var a answer
	if err := d.Decode(&a); err != nil || d.More() {
		t.Fatalf("a frame that is no JSON-RPC: %v: %q", err, line)
	}
	isResponse := a.Method == "" && a.ID != nil && a.Params == nil && (a.Result == nil) != (a.Error == nil)
	isNotification := a.Method != "" && a.ID == nil && a.Result == nil && a.Error == nil
	switch {
	case a.JSONRPC != "2.0", !isResponse && !isNotification:
		t.Fatalf("a frame that is no JSON-RPC 2.0: %q", line)
	case a.Error != nil && (a.Error.Code == nil || a.Error.Message == nil || *a.Error.Message == ""):
		t.Fatalf("an error without code or message: %q", line)
	case isResponse && a.Error == nil && a.Result[0] != '{':
		t.Fatalf("a result that is no object: %q", line)
	case isResponse && string(a.ID) != "null" && validID(a.ID) == nil:
		t.Fatalf("an id that MCP does not allow: %q", line)
	case strings.Contains(string(line), "panic"):
		t.Fatalf("a panic was answered: %q", line)
	}
	return a
}

// String is "id result", "id isError", "id code", or the method of a notification.
func (a answer) String() string {
	switch {
	case a.Method != "":
		return a.Method
	case a.Error != nil:
		return fmt.Sprintf("%s %d", a.ID, *a.Error.Code)
	case bytes.Contains(a.Result, []byte(`"isError":true`)):
		return string(a.ID) + " isError"
	}
	return string(a.ID) + " result"
}

// request is a frame of a client's.
func ask(id, method, params string) string {
	frame := `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"`
	if params != "" {
		frame += `,"params":` + params
	}
	return frame + "}\n"
}

const (
	initializeParams = `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`
	listParams       = `{"name":"list_sessions"}`
	modernMeta       = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
)

// frameTests are what clients send and what they are told, in any order.
var frameTests = []struct {
	name string
	in   string
	want []string
}{
	{"nothing", "", nil},
	{"blank lines", "\n \r\n\t\n", nil},
	{"ping", ask("1", "ping", ""), []string{"1 result"}},
	{"the last frame without a newline", strings.TrimSuffix(ask("1", "ping", ""), "\n"), []string{"1 result"}},
	{"CRLF and spaces", "  " + strings.TrimSuffix(ask("1", "ping", ""), "\n") + " \r\n" + ask("2", "ping", ""), []string{"1 result", "2 result"}},
	{"handshake and calls", ask("1", "initialize", initializeParams) + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		ask("2", "tools/list", "") + ask("3", "tools/call", listParams), []string{"1 result", "2 result", "3 result"}},
	{"call before the handshake", ask("1", "tools/call", listParams), []string{"1 result"}},
	{"modern call", ask("1", "tools/call", `{"name":"list_panes","arguments":{},`+modernMeta+`}`), []string{"1 result"}},
	{"unknown method", ask("1", "no/such", ""), []string{"1 -32601"}},
	{"unknown notification", `{"jsonrpc":"2.0","method":"no/such"}` + "\n", nil},
	{"a response of the client's", `{"jsonrpc":"2.0","id":5,"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":"x"}}` + "\n", nil},

	{"not JSON", "hello\n" + ask("2", "ping", ""), []string{"null -32700", "2 result"}},
	{"JSON cut off", `{"jsonrpc":"2.0","id":1,"method":"ping"` + "\n", []string{"null -32700"}},
	{"two messages in one line", strings.TrimSuffix(ask("1", "ping", ""), "\n") + ask("2", "ping", ""), []string{"null -32700"}},
	{"no object", "5\n\"x\"\nnull\ntrue\n", []string{"null -32600", "null -32600", "null -32600", "null -32600"}},
	{"batch", "[" + strings.TrimSuffix(ask("1", "ping", ""), "\n") + "]\n[]\n", []string{"null -32600", "null -32600"}},
	{"no method", `{"jsonrpc":"2.0","id":1}` + "\n", []string{"1 -32600"}},
	{"method of the wrong type", `{"jsonrpc":"2.0","id":1,"method":5}` + "\n", []string{"1 -32600"}},
	{"no version", `{"id":1,"method":"ping"}` + "\n", []string{"1 -32600"}},
	{"version 1.0", `{"jsonrpc":"1.0","id":1,"method":"ping"}` + "\n", []string{"1 -32600"}},
	{"nested too deep", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}}\n", []string{"null -32700"}},
	{"brackets in a string", ask("1", "ping", `{"a":"`+strings.Repeat("[{", 100)+`\""}`), []string{"1 result"}},
	{"too long", ask("1", "ping", `{"a":"`+strings.Repeat("x", maxFrame)+`"}`), []string{"null -32600"}},
	{"almost too long", ask("1", "ping", `{"a":"`+strings.Repeat("x", maxFrame-100)+`"}`), []string{"1 result"}},

	{"ids as they were written", ask("9007199254740993", "ping", "") + ask("-1", "ping", "") + ask("1e2", "ping", "") + ask(`"a\u0041\/"`, "ping", "") + ask(`""`, "ping", ""),
		[]string{"9007199254740993 result", "-1 result", "1e2 result", `"a\u0041\/" result`, `"" result`}},
	{"ids that are none", ask("null", "ping", "") + ask("true", "ping", "") + ask("{}", "ping", "") + ask("[1]", "ping", ""),
		[]string{"null -32600", "null -32600", "null -32600", "null -32600"}},
	{"an id that is not UTF-8", ask("\"\xff\"", "ping", ""), []string{"null -32600"}},
	{"one id twice", ask("1", "tools/call", listParams) + ask("1", "tools/call", listParams), []string{"1 result", "1 result"}},

	{"call without params", ask("1", "tools/call", ""), []string{"1 -32602"}},
	{"call without a name", ask("1", "tools/call", "{}") + ask("2", "tools/call", `{"name":null}`) + ask("3", "tools/call", `{"name":5}`) + ask("4", "tools/call", "[]"),
		[]string{"1 -32602", "2 -32602", "3 -32602", "4 -32602"}},
	{"arguments of another type", ask("1", "tools/call", `{"name":"list_panes","arguments":[]}`) + ask("2", "tools/call", `{"name":"list_panes","arguments":"x"}`) + ask("3", "tools/call", `{"name":"list_panes","arguments":0}`),
		[]string{"1 -32602", "2 -32602", "3 -32602"}},
	{"arguments null", ask("1", "tools/call", `{"name":"list_panes","arguments":null}`), []string{"1 result"}},
	{"unknown tool", ask("1", "tools/call", `{"name":"no_such"}`) + ask("2", "tools/call", `{"name":"no_such",`+modernMeta+`}`), []string{"1 isError", "2 isError"}},
	{"unknown argument", ask("1", "tools/call", `{"name":"list_panes","arguments":{"x":1}}`), []string{"1 isError"}},
	{"absent session", ask("1", "tools/call", `{"name":"list_panes","arguments":{"session_name":"x"}}`), []string{"1 isError"}},
	{"names that are not UTF-8", ask("1", "tools/call", "{\"name\":\"\xff\"}") + ask("2", "tools/call", "{\"name\":\"list_panes\",\"arguments\":{\"session_name\":\"\xff\"}}") +
		ask("3", "tools/call", "{\"name\":\"list_panes\",\"arguments\":{\"\xff\":1}}"), []string{"1 isError", "2 isError", "3 isError"}},

	{"hello", `{"jsonrpc":"2.0","method":"notifications/tmux-mcpd/hello","params":{"version":"1","env":{"TMUX_TMPDIR":"/nonexistent/x","PATH":"/"}}}` + "\n" + ask("1", "ping", ""),
		[]string{"notifications/tmux-mcpd/hello", "1 result"}},
	{"hello of the wrong form", `{"jsonrpc":"2.0","method":"notifications/tmux-mcpd/hello","params":[]}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/tmux-mcpd/hello","params":{"env":5}}` + "\n", nil},
	{"cancelling what is not running", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":5}` + "\n" + ask("1", "ping", ""), []string{"1 result"}},
}

func TestFrames(t *testing.T) {
	d, caller := lonelyDaemon(t)
	for _, tt := range frameTests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, a := range converse(t, d, caller, []byte(tt.in)) {
				got = append(got, a.String())
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(tt.want))
			if !slices.Equal(got, want) {
				t.Errorf("answered %q, want %q", got, want)
			}
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.sessions) != 0 {
		t.Errorf("%d sessions are left", len(d.sessions))
	}
}

// TestProtocolVersions: a version that we know is echoed, any other gets the
// newest that has a handshake, and a client that names none is taken for one of
// the time before that mattered (mcp-go's choice); nobody is refused.
func TestProtocolVersions(t *testing.T) {
	d, caller := lonelyDaemon(t)
	const newest = "2025-11-25"
	for asked, want := range map[string]string{
		`"2024-11-05"`: "2024-11-05", `"2025-03-26"`: "2025-03-26", `"2025-06-18"`: "2025-06-18", `"2025-11-25"`: newest,
		`"2099-01-01"`: newest, `"2020-01-01"`: newest, `"x"`: newest, `""`: "2025-03-26", "": "2025-03-26",
	} {
		params := `{"capabilities":{},"clientInfo":{"name":"test","version":"1"}`
		if asked != "" {
			params += `,"protocolVersion":` + asked
		}
		answers := converse(t, d, caller, []byte(ask("1", "initialize", params+"}")))
		if len(answers) != 1 || answers[0].Error != nil {
			t.Errorf("%s: %v", asked, answers)
			continue
		}
		var result struct{ ProtocolVersion string }
		if err := json.Unmarshal(answers[0].Result, &result); err != nil || result.ProtocolVersion != want {
			t.Errorf("%s is answered with %q (%v), want %q", asked, result.ProtocolVersion, err, want)
		}
	}
}

// TestCancelledCallIsNotAnswered: the turn of the server is held, so that the
// call cannot be answered before it is withdrawn.
func TestCancelledCallIsNotAnswered(t *testing.T) {
	d, caller := lonelyDaemon(t)
	server, err := d.Server(caller, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := server.(view).server
	s.turn <- struct{}{}
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` + "\n"
	answers := converse(t, d, caller, []byte(ask("1", "tools/call", listParams)+cancel+ask("2", "ping", "")))
	s.endTurn()
	if len(answers) != 1 || answers[0].String() != "2 result" {
		t.Errorf("answered %v, want 2 only", answers)
	}
}

// FuzzFrames: any bytes in; every line out is valid JSON-RPC, and nothing panics.
func FuzzFrames(f *testing.F) {
	for _, tt := range frameTests {
		if len(tt.in) < 4096 {
			f.Add([]byte(tt.in))
		}
	}
	for _, filters := range []string{`{"pane_id":"%0"}`, `"{\"pane_title__regex\":\"(a+)+$\"}"`, `{"nope":1}`, `{"@x__in":["a"]}`, `[]`} {
		f.Add([]byte(ask("1", "tools/call", `{"name":"list_panes","arguments":{"filters":`+filters+`,"window_index":0}}`)))
	}
	d, caller := lonelyDaemon(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		frames := bytes.Count(in, []byte("\n")) + 1
		if got := len(converse(t, d, caller, in)); got > frames {
			t.Fatalf("%d answers to %d frames", got, frames)
		}
	})
}
