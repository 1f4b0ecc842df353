package controlmode

import "strings"

// Quote makes s one argument of a command line sent with [Conn.Send], for
// every string of bytes that tmux can hold: formats, newlines, invalid UTF-8.
// The result is printable ASCII on one line.
//
// A NUL byte cannot be said to tmux in any way. It is kept, so that Send
// refuses the line instead of tmux cutting the argument short. Quoting does not
// stop an argument that begins with '-' from being taken as a flag.
func Quote(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"', c == '\\', c == '$', c == '~':
			// '$' is a variable anywhere in double quotes, '~' a home
			// directory right after the opening one.
			b.WriteByte('\\')
			b.WriteByte(c)
		case c >= ' ' && c <= '~', c == 0:
			b.WriteByte(c)
		default:
			// A newline would end the command, and tmux's lexer takes a
			// raw byte 0xff for the end of input (a signed char of -1).
			b.WriteByte('\\')
			b.WriteByte('0' + c>>6)
			b.WriteByte('0' + c>>3&7)
			b.WriteByte('0' + c&7)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// IsID reports whether s is the id of a session ($1), window (@1) or pane
// (%1). Nothing else is fit to be a target: tmux matches names by prefix and
// pattern.
func IsID(s string) bool {
	if len(s) < 2 || s[0] != '$' && s[0] != '@' && s[0] != '%' {
		return false
	}
	for i := 1; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
