package daemon

import (
	"strings"
	"testing"

	"tmux-mcpd/controlmode"
)

// commandNames are argv[0]s and what tmux makes of them. TestProcesses runs a
// process of each name in a real tmux.
var commandNames = []struct {
	argv0      string
	old, since string // up to 3.6 and from 3.7 on
}{
	{"sleep", "sleep", "sleep"},
	{"-sh", "sh", "sh"},
	{"--x", "x", "x"},
	{"- -x", "x", "x"},
	{"/usr/bin/sleep", "sleep", "sleep"},
	{"/usr/bin/", "bin", "bin"},
	{"/", "/", "/"},
	{"///", "/", "/"},
	{"-/usr/bin/vi", "vi", "vi"},
	{"a/b/c", "a/b/c", "a/b/c"},
	{"two words", "two", "two"},
	{"  leading", "leading", "leading"},
	{"trailing  ", "trailing", "trailing"},
	{"/opt/my app/bin", "my", "my"},
	{"exec sleep", "sleep", "sleep"},
	{"exec exec sleep", "exec", "exec"},
	{" exec sleep", "exec", "exec"},
	{"exec", "exec", "exec"},
	{"exec  -l", "l", "l"},
	{`"quoted"`, "quoted", "quoted"},
	{`"quoted words"`, "quoted", "quoted"},
	{`"exec in quotes"`, "in", "in"},
	{`half"quoted`, "half", "half"},
	{`""second"`, "", ""},
	{`back\slash`, `back\slash`, `back\\slash`},
	{"it's", "it's", "it's"},
	{"new\nline", "new\nline", ""},
	{"end\n", "end", "end"},
	{"end\n\t\x01", "end", "end"},
	{"tab\tstop", "tab\tstop", ""},
	{"\n", "\n", ""},
	{"\n\n", "\n", ""},
	{"%end 1 1 1", "%end", "%end"},
	{"\x1b[31mred", "\x1b[31mred", ""},
	{"del\x7fete", "del\x7fete", ""},
	{"端末", "\xe7", ""},
	{"端末x", "端末x", "端末x"},
	{"é", "\xc3", ""},
	{"caf\u00e9 au lait", "caf", "caf"},
	{"x\u00e9x", "x\u00e9x", "x\u00e9x"},
	{"bad\xff\xfebytes", "bad\xff\xfebytes", ""},
	{"\xff", "\xff", ""},
	{"#{pane_id}", "#{pane_id}", "#{pane_id}"},
	{"#(touch", "#(touch", "#(touch"},
	{"tmux: server", "tmux:", "tmux:"},
	{strings.Repeat("long", 500), strings.Repeat("long", 500), strings.Repeat("long", 500)},
	// More than a page of an argument is nothing that one read gives.
	{strings.Repeat("page", 1500), strings.Repeat("page", 1500), strings.Repeat("page", 1500)},
}

func TestCommandName(t *testing.T) {
	for _, tt := range commandNames {
		for version, want := range map[string]string{"3.2a": tt.old, "3.6b": tt.old, "3.7": tt.since, "next-3.8": tt.since} {
			if got := commandName(tt.argv0, controlmode.ParseVersion(version)); got != want {
				t.Errorf("%.40q on %s: %.40q, want %.40q", tt.argv0, version, got, want)
			}
		}
	}
}

func FuzzCommandName(f *testing.F) {
	for _, tt := range commandNames {
		f.Add(tt.argv0)
	}
	old, since := controlmode.ParseVersion("3.6"), controlmode.ParseVersion("3.7")
	f.Fuzz(func(t *testing.T, argv0 string) {
		name := commandName(argv0, old)
		if strings.ContainsAny(name, ` "`) || len(name) > len(argv0) {
			t.Errorf("%q gives %q", argv0, name)
		}
		if clean := commandName(argv0, since); clean != "" && strings.ReplaceAll(clean, `\\`, `\`) != name {
			t.Errorf("%q gives %q, and %q from 3.7 on", argv0, name, clean)
		}
	})
}
