package daemon

import (
	"strings"
	"unicode/utf8"

	"tmux-mcpd/controlmode"
)

// commandName makes of an argv[0] what tmux shows as pane_current_command
// (names.c, parse_window_name): a leading quote, "exec ", spaces and dashes
// go, the rest up to the next quote or space stays, of a path its last
// element. The bytes are taken as C takes them: a name cut inside a UTF-8
// sequence stays cut. From 3.7 on a name that is not printable UTF-8 is empty
// and a backslash is doubled.
func commandName(argv0 string, v controlmode.Version) string {
	name := strings.TrimPrefix(argv0, `"`)
	if i := strings.IndexByte(name, '"'); i >= 0 {
		name = name[:i]
	}
	name = strings.TrimPrefix(name, "exec ")
	name = strings.TrimLeft(name, " -")
	if i := strings.IndexByte(name, ' '); i >= 0 {
		name = name[:i]
	}
	for len(name) > 1 && !printable(name[len(name)-1]) {
		name = name[:len(name)-1]
	}
	if strings.HasPrefix(name, "/") {
		name = baseName(name)
	}
	if v.AtLeast(3, 7) {
		if !cleanName(name) {
			return ""
		}
		name = strings.ReplaceAll(name, `\`, `\\`)
	}
	return name
}

// printable is C's isalnum or ispunct.
func printable(b byte) bool { return b > ' ' && b < 0x7f }

// baseName is C's basename for a path that begins with a slash.
func baseName(path string) string {
	path = strings.TrimRight(path, "/")
	if path == "" {
		return "/"
	}
	return path[strings.LastIndexByte(path, '/')+1:]
}

func cleanName(name string) bool {
	if !utf8.ValidString(name) {
		return false
	}
	for _, r := range name {
		if r < ' ' || r == 0x7f {
			return false
		}
	}
	return true
}
