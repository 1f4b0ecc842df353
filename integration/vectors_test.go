package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// recordedOn is the tmux that the vectors were recorded on. Others show some
// values differently (3.7 keeps ':' in names), so they are not judged by them.
const recordedOn = "3.3a"

// TestVectors plays every recorded call, in a server process of its own per
// scenario and through one daemon that all scenarios share.
func TestVectors(t *testing.T) {
	scenarios := loadScenarios(t)
	requireTmux(t)
	if _, version, _ := realTmux(); version != recordedOn && os.Getenv("TMUX_MCPD_TEST_VECTORS") != "any" {
		t.Skipf("the vectors are those of tmux %s, this is %s; TMUX_MCPD_TEST_VECTORS=any plays them all the same", recordedOn, version)
	}
	t.Run("embedded", func(t *testing.T) {
		if other := os.Getenv("TMUX_MCPD_TEST_COMMAND"); other != "" {
			playAll(t, scenarios, false, func(*testing.T, *stage, []string) []string { return strings.Fields(other) })
			return
		}
		playAll(t, scenarios, true, func(t *testing.T, _ *stage, _ []string) []string {
			return []string{requireProduct(t), "stdio", "--embedded"}
		})
	})
	t.Run("serve", func(t *testing.T) {
		if os.Getenv("TMUX_MCPD_TEST_COMMAND") != "" {
			t.Skip("TMUX_MCPD_TEST_COMMAND is no daemon")
		}
		shared := startDaemon(t, newTmuxHome(t), nil)
		playAll(t, scenarios, true, func(t *testing.T, st *stage, rights []string) []string {
			d := shared
			if len(rights) > 0 { // the daemon is who opens sockets: it needs the scenario's rights
				d = startDaemon(t, st.home, nil, rights...)
			}
			return []string{requireProduct(t), "stdio", "--socket", d.socket}
		})
	})
}

// playAll plays the scenarios in parallel. command gives the command line of the
// MCP server; rights, if any, is the command that a process must be started with
// to have the rights of the scenario. own says that the server is ours, which must
// keep more of the contract than the recordings show.
func playAll(t *testing.T, scenarios []*scenario, own bool, command func(t *testing.T, st *stage, rights []string) []string) {
	var passed atomic.Int64
	begin := time.Now()
	t.Run("all", func(t *testing.T) { // returns when its parallel parts have
		for _, sc := range scenarios {
			t.Run(sc.Name, func(t *testing.T) {
				t.Parallel()
				var rights []string
				if sc.NoDACOverride && os.Getuid() == 0 {
					setpriv, err := exec.LookPath("setpriv")
					if err != nil {
						t.Skip("as root this scenario needs setpriv")
					}
					rights = []string{setpriv, "--bounding-set", "-dac_override,-dac_read_search", "--"}
				}
				st := setUp(t, sc)
				argv := slices.Concat(rights, command(t, st, rights))
				passed.Add(int64(st.play(t, sc, argv, own)))
			})
		}
	})
	fmt.Printf("%s: %d calls passed in %.1f s\n",
		strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(t.Name(), "Test"), "/", " ")), passed.Load(), time.Since(begin).Seconds())
}

// setUp makes the scenario's tmux servers. In the recordings all sessions are of
// one second, and calls that filter by session_created depend on it; on a loaded
// machine that can take a few tries.
func setUp(t *testing.T, sc *scenario) *stage {
	t.Helper()
	sameSecond := slices.ContainsFunc(sc.Calls, func(c recordedCall) bool {
		return bytes.Contains(c.Arguments, []byte(":session_created}"))
	})
	for range 20 {
		st := newStage(t, sc)
		if err := st.run(sc.TmuxCommands); err != nil {
			t.Fatal(err)
		}
		created, _ := st.main().try("list-sessions", "-F", "#{session_created}") // no server: no sessions
		if seconds := slices.Compact(strings.Fields(created)); !sameSecond || len(seconds) < 2 {
			return st
		}
		st.main().stop()
	}
	t.Fatal("the sessions could not be made within one second")
	return nil
}

// meetsLatestClient reports whether a step is a command that tmux gives to the
// client with the latest activity: ours, once it has attached (TestUnavoidable 4).
func meetsLatestClient(step []string) bool {
	return step[0] == "switch-client" && !slices.Contains(step, "-c")
}

// waitAttached waits until the product, which attaches while it answers its first
// call, is there. Else a first switch-client could meet the terminal and a second
// one, back to the last session, our client, which has none.
func (st *stage) waitAttached() {
	holdsWithin(2*time.Second, func() (bool, string) { return len(st.main().guests()) > 0, "" })
}

// play starts the MCP server, makes the scenario's calls and returns how many
// were answered as recorded.
func (st *stage) play(t *testing.T, sc *scenario, argv []string, own bool) (passed int) {
	var env []string
	for name, value := range sc.Env {
		if value == nil {
			env = append(env, name)
		} else {
			env = append(env, name+"="+st.expand(*value))
		}
	}
	p := startProcess(t, argv, st.home.clientEnviron(env...), st.home.dir)
	client := newMCPClient(t, p)
	err := client.initialize()
	if sc.Startup.Fails {
		switch {
		case err == nil:
			t.Error("the server started; it should have failed")
		case !p.waitExit(10 * time.Second):
			t.Error("the server neither answers nor ends")
		default:
			passed++
		}
		return passed
	}
	if err != nil {
		t.Fatalf("the server did not start: %v; stderr:\n%s", err, p.stderr)
	}
	for i, call := range sc.Calls {
		if own && slices.ContainsFunc(call.Before, meetsLatestClient) {
			st.waitAttached()
		}
		if err := st.run(call.Before); err != nil {
			t.Fatalf("call %d: before it: %v", i+1, err)
		}
		method, params := st.request(&call)
		got, err := client.request(method, params)
		if err != nil { // nothing more will come
			t.Fatalf("call %d: %s %s: %v", i+1, method, params, err)
		}
		problem := st.judge(&call, got)
		if problem == "" && own && call.Method == "" && got.Error == nil {
			problem = checkWire(got.Result)
		}
		if problem != "" {
			t.Errorf("call %d: %s %s: %s", i+1, method, params, problem)
			continue
		}
		passed++
	}
	return passed
}

// request is the method and the encoded params of a call.
func (st *stage) request(call *recordedCall) (string, json.RawMessage) {
	if call.Method != "" {
		if call.Params == nil {
			return call.Method, json.RawMessage("{}")
		}
		return call.Method, st.expandJSON(call.Params)
	}
	params := append([]byte(`{"name":`), st.expandJSON(call.Tool)...)
	if call.Arguments != nil { // null is given, not absent
		params = append(append(params, `,"arguments":`...), st.expandJSON(call.Arguments)...)
	}
	return "tools/call", append(params, '}')
}

// judge compares an answer with the recorded one and says what is wrong.
func (st *stage) judge(call *recordedCall, got frame) string {
	if call.RPCError != nil {
		if got.Error == nil || got.Error.Code != call.RPCError.Code {
			return fmt.Sprintf("want JSON-RPC error %d, got %.400s", call.RPCError.Code, got.raw)
		}
		return ""
	}
	if got.Error != nil {
		return got.Error.Error()
	}
	if call.Method == "tools/list" {
		return judgeTools(call, got.Result)
	}
	if call.Method != "" {
		return diffJSON(call.Result, got.Result)
	}
	result, err := parseToolResult(got.Result)
	if err != nil {
		return err.Error()
	}
	if call.Error != nil {
		return st.judgeError(call.Error.Phrases, &result, got.raw)
	}
	if result.IsError {
		return "want rows, got the error " + result.text()
	}
	rows, err := result.rows()
	if err != nil {
		return err.Error()
	}
	var want []row
	if err := decodeExact(call.Result, &want); err != nil {
		return "recorded result: " + err.Error()
	}
	if diff := diffRows(want, st.normalRows(rows)); diff != "" {
		return diff
	}
	// An empty list may come without text: the recorded server did that.
	if text := result.text(); text != "" || len(rows) > 0 {
		var inText []row
		if err := decodeExact([]byte(text), &inText); err != nil {
			return "content is not the JSON of the rows: " + err.Error()
		}
		if diff := diffRows(rows, inText); diff != "" {
			return "content differs from structuredContent: " + diff
		}
	}
	return ""
}

// judgeError wants an error that says all the phrases. The wording around them is
// each server's own.
func (st *stage) judgeError(phrases []string, got *toolResult, raw []byte) string {
	if !got.IsError {
		return fmt.Sprintf("want a tool error, got %.400s", raw)
	}
	if len(got.StructuredContent) > 0 && string(got.StructuredContent) != "null" {
		return "a tool error carries structuredContent"
	}
	text := strings.ToLower(st.normalText(got.text()))
	for _, phrase := range phrases {
		if !strings.Contains(text, strings.ToLower(phrase)) {
			return fmt.Sprintf("error %q does not say %q", text, phrase)
		}
	}
	return ""
}

// judgeTools compares the picked tools and keys of tools/list.
func judgeTools(call *recordedCall, result json.RawMessage) string {
	var listed struct {
		Tools []map[string]json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(result, &listed); err != nil {
		return err.Error()
	}
	picked := []map[string]json.RawMessage{}
	for _, name := range call.Pick {
		for _, tool := range listed.Tools {
			if string(tool["name"]) != fmt.Sprintf("%q", name) {
				continue
			}
			entry := map[string]json.RawMessage{}
			for _, field := range call.Fields {
				entry[field] = json.RawMessage("null")
				if value, ok := tool[field]; ok {
					entry[field] = value
				}
			}
			picked = append(picked, entry)
		}
	}
	raw, err := json.Marshal(picked)
	if err != nil {
		return err.Error()
	}
	return diffJSON(call.Result, raw)
}

// diffJSON compares two JSON texts by value.
func diffJSON(want, got json.RawMessage) string {
	canonical := func(raw json.RawMessage) (string, error) {
		var v any
		if err := decodeExact(raw, &v); err != nil {
			return "", err
		}
		out, err := json.Marshal(v) // sorts the keys
		return string(out), err
	}
	a, err := canonical(want)
	if err != nil {
		return "recorded: " + err.Error()
	}
	b, err := canonical(got)
	if err != nil {
		return err.Error()
	}
	if a == b {
		return ""
	}
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	from := max(0, at-60)
	return fmt.Sprintf("want …%.160s\ngot  …%.160s", a[from:], b[from:])
}

// escapedLetter is a JSON escape of a character beyond ASCII.
var escapedLetter = regexp.MustCompile(`(^|[^\\])(\\\\)*\\u(00[89a-fA-F]|0[1-9a-fA-F]|[1-9a-fA-F])`)

// checkWire says what is wrong with the form of a tool result beyond its values:
// what the contract fixes and the recordings leave open.
func checkWire(raw json.RawMessage) string {
	result, err := parseToolResult(raw)
	if err != nil {
		return err.Error()
	}
	if len(result.Content) != 1 || result.Content[0].Type != "text" {
		return fmt.Sprintf("content is not one text block: %.300s", raw)
	}
	text := result.text()
	if result.IsError {
		var meta struct {
			ErrorType  *string `json:"error_type"`
			Expected   *bool   `json:"expected"`
			Suggestion string  `json:"suggestion"`
		}
		if err := json.Unmarshal(result.Meta, &meta); err != nil || meta.ErrorType == nil || meta.Expected == nil {
			return fmt.Sprintf("_meta of an error lacks error_type or expected: %s", result.Meta)
		}
		if meta.Suggestion != "" && !strings.HasSuffix(text, "\n"+meta.Suggestion) {
			return fmt.Sprintf("the text %q does not end in the suggestion", text)
		}
		return ""
	}
	if diff := diffJSON(json.RawMessage(`{"fastmcp":{"wrap_result":true}}`), onlyKey(result.Meta, "fastmcp")); diff != "" {
		return "_meta: " + diff
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil {
		return "content: " + err.Error()
	}
	if compact.String() != text {
		return fmt.Sprintf("content is not compact JSON: %.200q", text)
	}
	if found := escapedLetter.FindString(text); found != "" {
		return fmt.Sprintf("content escapes a character that needs none: %q", found)
	}
	return ""
}

// onlyKey is the object with all other keys left out: later protocol versions put
// keys of their own into _meta.
func onlyKey(raw json.RawMessage, key string) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return raw
	}
	out, err := json.Marshal(map[string]json.RawMessage{key: object[key]})
	if err != nil {
		return raw
	}
	return out
}
