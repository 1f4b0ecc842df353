package integration

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

// TestToolsList wants the two tools as the recorded tools/list has them: every
// value, and the schemas byte for byte (in compact form), since key order is what
// an agent reads.
func TestToolsList(t *testing.T) {
	scenarios := loadScenarios(t)
	i := slices.IndexFunc(scenarios, func(sc *scenario) bool { return sc.Name == "contract_tools_list" })
	if i < 0 {
		t.Fatal("no recorded tools/list")
	}
	var want []map[string]json.RawMessage
	if err := json.Unmarshal(scenarios[i].Calls[0].Result, &want); err != nil {
		t.Fatal(err)
	}
	for _, mode := range guestModes {
		t.Run(mode.name, func(t *testing.T) {
			g := mode.open(t, newTmuxHome(t))
			defer g.leave()
			raw, err := g.client.result("tools/list", map[string]any{})
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Tools []map[string]json.RawMessage `json:"tools"`
			}
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatal(err)
			}
			for _, tool := range want {
				i := slices.IndexFunc(got.Tools, func(listed map[string]json.RawMessage) bool {
					return diffJSON(tool["name"], listed["name"]) == ""
				})
				if i < 0 {
					t.Errorf("tools/list lacks %s", tool["name"])
					continue
				}
				for key, value := range tool {
					if listed, ok := got.Tools[i][key]; !ok {
						t.Errorf("%s has no %s", tool["name"], key)
					} else if diff := diffJSON(value, listed); diff != "" {
						t.Errorf("%s.%s: %s", tool["name"], key, diff)
					}
				}
				for _, key := range []string{"inputSchema", "outputSchema"} {
					if a, b := compact(t, tool[key]), compact(t, got.Tools[i][key]); a != b {
						t.Errorf("%s.%s differs in its bytes\nwant %s\ngot  %s", tool["name"], key, a, b)
					}
				}
			}
		})
	}
}

// compact is the JSON text without white space, with its escapes as they are.
func compact(t testing.TB, raw json.RawMessage) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		t.Errorf("%v: %.200q", err, raw)
	}
	return out.String()
}
