package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A host is an MCP host whose configuration we know how to read.
type host struct {
	name  string
	paths []string // below home; the first that exists counts
	// sections are the JSON keys under which servers are named; "*" stands for
	// every key. Nil means Codex's TOML.
	sections [][]string
	desktop  bool // it may be started without a shell's PATH
}

// hosts are in the README in the same order.
func (s *service) hosts() []host {
	config := func(path string) string { return filepath.Join(s.config, path) }
	home := func(path string) string { return filepath.Join(s.home, path) }
	app := config
	if s.goos == "darwin" {
		app = func(path string) string { return home("Library/Application Support/" + path) }
	}
	claude, codex := home(".claude.json"), home(".codex")
	if dir := s.c.getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		claude = filepath.Join(dir, ".claude.json")
	}
	if dir := s.c.getenv("CODEX_HOME"); dir != "" {
		codex = dir
	}
	servers := [][]string{{"mcpServers"}}
	return []host{
		{"Claude Code", []string{claude}, [][]string{{"mcpServers"}, {"projects", "*", "mcpServers"}}, false},
		{"Codex", []string{filepath.Join(codex, "config.toml")}, nil, false},
		{"Gemini CLI", []string{home(".gemini/settings.json")}, servers, false},
		{"Cursor", []string{home(".cursor/mcp.json")}, servers, true},
		{"VS Code", []string{app("Code/User/mcp.json")}, [][]string{{"servers"}}, true},
		{"Claude Desktop", []string{app("Claude/claude_desktop_config.json")}, servers, true},
		{"Zed", []string{config("zed/settings.json")}, [][]string{{"context_servers"}}, true},
		{"opencode", []string{config("opencode/opencode.json"), config("opencode/opencode.jsonc")}, [][]string{{"mcp"}}, false},
	}
}

// A serverEntry is one MCP server in a host's configuration.
type serverEntry struct {
	name    string
	words   []string // the command and its arguments
	envVars []string // Codex: variables that are handed on
}

// ours is the index of the word that runs us, -1 if none does.
func (e serverEntry) ours() int {
	return slices.IndexFunc(e.words, func(word string) bool { return filepath.Base(word) == "tmux-mcpd" })
}

func (d *doctor) checkHosts(ctx context.Context) {
	configured := false
	for _, h := range d.service.hosts() {
		for _, path := range h.paths {
			text, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			var entries []serverEntry
			if err == nil {
				entries, err = h.read(text)
			}
			if err != nil {
				d.found(warn, "hosts", "mend "+path, "%s: %s cannot be read: %v", h.name, path, err)
				break
			}
			entries = slices.DeleteFunc(entries, func(e serverEntry) bool { return e.ours() < 0 })
			if len(entries) == 0 {
				d.found(ok, "hosts", "", "%s does not use tmux-mcpd (%s)", h.name, path)
			}
			for _, e := range entries {
				configured = true
				d.checkEntry(ctx, h, path, e)
			}
			break
		}
	}
	if !configured {
		d.found(warn, "hosts", "claude mcp add --scope user tmux -- "+d.self+" stdio (other hosts: README)", "no MCP host whose configuration we know uses tmux-mcpd")
	}
}

func (d *doctor) checkEntry(ctx context.Context, h host, path string, e serverEntry) {
	at := e.ours()
	program := e.words[at]
	edit := fmt.Sprintf("in %s, server %q: the command must be %s, with the argument stdio", path, e.name, d.self)
	if !slices.Contains(e.words[at:], "stdio") {
		d.found(fail, "hosts", edit, "%s runs %q, which is no MCP server", h.name, strings.Join(e.words, " "))
		return
	}
	if at > 0 {
		d.found(ok, "hosts", "", "%s uses tmux-mcpd through %s (not checked further)", h.name, e.words[0])
		return
	}
	switch {
	case strings.HasPrefix(program, "~") || strings.Contains(program, "$"):
		d.found(fail, "hosts", edit, "%s runs %s, but hosts expand neither ~ nor variables", h.name, program)
		return
	case !strings.Contains(program, "/"):
		resolved, err := exec.LookPath(program)
		if err != nil {
			d.found(fail, "hosts", edit, "%s runs %s, which is not on PATH", h.name, program)
			return
		}
		if h.desktop {
			d.found(warn, "hosts", edit, "%s runs %s by name, but programs of the desktop are often started without your PATH", h.name, program)
			return
		}
		program = resolved
	case !filepath.IsAbs(program):
		d.found(fail, "hosts", edit, "%s runs %s, a relative path", h.name, program)
		return
	}
	if err := executable(program); err != nil {
		d.found(fail, "hosts", edit, "%s runs %s: %v", h.name, program, err)
		return
	}
	version := d.programVersion(ctx, program)
	if version == "" {
		d.found(fail, "hosts", program+" version", "%s runs %s, which does not say that it is tmux-mcpd", h.name, program)
		return
	}
	if version != versionText() {
		d.found(warn, "hosts", edit, "%s runs %s, version %s; this program is %s", h.name, program, version, versionText())
	} else {
		d.found(ok, "hosts", "", "%s runs %s", h.name, program)
	}
	if h.sections == nil && !slices.Contains(e.envVars, "TMUX_PANE") {
		d.found(warn, "hosts", fmt.Sprintf(`in %s, [mcp_servers.%s]: env_vars = ["TMUX", "TMUX_PANE", "TMUX_TMPDIR"]`, path, e.name),
			"%s hands TMUX and TMUX_PANE on only if told to: agents cannot find their own pane", h.name)
	}
}

// read finds the MCP servers of a configuration.
func (h host) read(text []byte) ([]serverEntry, error) {
	if h.sections == nil {
		return codexServers(string(text))
	}
	if text = plainJSON(text); len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	var entries []serverEntry
	for _, section := range h.sections {
		found, err := jsonServers(text, section)
		if err != nil {
			return nil, err
		}
		entries = append(entries, found...)
	}
	return entries, nil
}

func jsonServers(text json.RawMessage, section []string) ([]serverEntry, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	var entries []serverEntry
	if len(section) > 0 {
		for key, value := range members {
			if section[0] == "*" || key == section[0] {
				found, err := jsonServers(value, section[1:])
				if err != nil {
					return nil, err
				}
				entries = append(entries, found...)
			}
		}
		return entries, nil
	}
	for name, value := range members {
		var server struct {
			Command json.RawMessage
			Args    []string
		}
		if json.Unmarshal(value, &server) != nil {
			continue // not a server of a kind that could be ours
		}
		var command string
		var list []string
		var object struct { // Zed's older form
			Path string
			Args []string
		}
		switch {
		case json.Unmarshal(server.Command, &command) == nil:
			list = append([]string{command}, server.Args...)
		case json.Unmarshal(server.Command, &list) == nil: // opencode
		case json.Unmarshal(server.Command, &object) == nil:
			list = append([]string{object.Path}, object.Args...)
		}
		entries = append(entries, serverEntry{name: name, words: list})
	}
	slices.SortFunc(entries, func(a, b serverEntry) int { return strings.Compare(a.name, b.name) })
	return entries, nil
}

// plainJSON takes the comments and trailing commas out that VS Code, Zed and
// opencode allow.
func plainJSON(text []byte) []byte {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	plain := make([]byte, 0, len(text))
	comma := -1 // place in plain of a comma that nothing has followed yet
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			end := i + 1
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(text))
			plain = append(plain, text[i:end]...)
			i, comma = end-1, -1
		case bytes.HasPrefix(text[i:], []byte("//")):
			if end := bytes.IndexByte(text[i:], '\n'); end >= 0 {
				i += end - 1
			} else {
				i = len(text)
			}
		case bytes.HasPrefix(text[i:], []byte("/*")):
			if end := bytes.Index(text[i+2:], []byte("*/")); end >= 0 {
				i += end + 3
			} else {
				i = len(text)
			}
		default:
			if (c == ']' || c == '}') && comma >= 0 {
				plain[comma] = ' '
			}
			if c == ',' {
				comma = len(plain)
			} else if !bytes.ContainsRune([]byte(" \t\r\n"), rune(c)) {
				comma = -1
			}
			plain = append(plain, c)
		}
	}
	return plain
}

// codexServers reads the mcp_servers tables of Codex's TOML, as far as Codex
// and its documentation write them: plain tables with strings and lists of
// strings.
func codexServers(text string) ([]serverEntry, error) {
	var entries []serverEntry
	var current *serverEntry
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if strings.HasPrefix(line, "[") {
			current = nil
			name, isServer := strings.CutPrefix(strings.TrimSpace(strings.SplitN(line, "]", 2)[0]), "[mcp_servers.")
			name = strings.Trim(name, `"'`)
			if isServer && !strings.Contains(name, ".") { // not its env table
				entries = append(entries, serverEntry{name: name, words: []string{""}})
				current = &entries[len(entries)-1]
			}
			continue
		}
		key, value, isSetting := strings.Cut(line, "=")
		if current == nil || !isSetting || strings.HasPrefix(line, "#") {
			continue
		}
		first, value := i+1, strings.TrimSpace(value)
		for strings.HasPrefix(value, "[") && !strings.Contains(withoutStrings(value), "]") && i+1 < len(lines) {
			i++
			value += "\n" + strings.TrimSpace(lines[i])
		}
		switch strings.TrimSpace(key) {
		case "command", "args", "env_vars":
		default:
			continue
		}
		list, err := tomlStrings(value)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", first, err)
		}
		switch strings.TrimSpace(key) {
		case "command":
			if len(list) != 1 {
				return nil, fmt.Errorf("line %d: a command is one string", first)
			}
			current.words = append(list, current.words[1:]...)
		case "args":
			current.words = append(current.words[:1:1], list...)
		case "env_vars":
			current.envVars = list
		}
	}
	return entries, nil
}

// tomlStrings returns all strings in a value, of one string or a list of them.
func tomlStrings(value string) ([]string, error) {
	var list []string
	for value != "" {
		switch value[0] {
		case '"':
			end := 1
			for end < len(value) && value[end] != '"' {
				if value[end] == '\\' {
					end++
				}
				end++
			}
			var s string
			if end >= len(value) || json.Unmarshal([]byte(value[:end+1]), &s) != nil {
				return nil, errors.New("a string cannot be read")
			}
			list, value = append(list, s), value[end+1:]
		case '\'':
			s, rest, closed := strings.Cut(value[1:], "'")
			if !closed {
				return nil, errors.New("a string does not end")
			}
			list, value = append(list, s), rest
		case '#':
			_, value, _ = strings.Cut(value, "\n")
		default:
			value = value[1:]
		}
	}
	return list, nil
}

// withoutStrings blanks strings and comments, so that brackets can be seen.
func withoutStrings(value string) string {
	var b strings.Builder
	quote := rune(0)
	comment, escaped := false, false
	for _, r := range value {
		switch {
		case escaped:
			escaped = false
		case comment:
			comment = r != '\n'
		case quote != 0:
			escaped = r == '\\' && quote == '"'
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '#':
			comment = true
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
