package controlmode

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// lex reads one double-quoted token as tmux's cmd-parse.y (3.2 to 3.8) does,
// and refuses what it would expand or take for an end.
func lex(s string) (string, error) {
	if len(s) < 2 || s[0] != '"' {
		return "", errors.New("no opening quote")
	}
	var out []byte
	for i := 1; ; i++ {
		if i == len(s) {
			return "", errors.New("no closing quote")
		}
		switch c := s[i]; {
		case c == '"':
			if i != len(s)-1 {
				return "", fmt.Errorf("token ends at byte %d of %d", i, len(s))
			}
			return string(out), nil
		case c == '$', c == '~' && i == 1:
			return "", fmt.Errorf("expansion at byte %d", i)
		case c == '\n', c == 0xff, c == 0:
			return "", fmt.Errorf("end of input at byte %d", i)
		case c != '\\':
			out = append(out, c)
		default:
			i++
			c = s[i]
			switch {
			case c >= '0' && c <= '7':
				var v int
				if n, err := fmt.Sscanf(s[i:i+3], "%3o", &v); n != 1 || err != nil || v > 255 {
					return "", fmt.Errorf("octal escape %q", s[i:i+3])
				}
				out = append(out, byte(v))
				i += 2
			case strings.IndexByte("abefnrstuUv\n", c) >= 0:
				return "", fmt.Errorf("special escape %q", c)
			default:
				out = append(out, c)
			}
		}
	}
}

// nasty are strings that hurt somewhere on the way into tmux.
func nasty() []string {
	list := []string{
		"", " ", "  two  ", "\t", "\n", "\n\n", " \n  indented", "a\r\nb", "#", "# comment", "#{pid}", "#{E:x}", "#(id)", "#[bold]", "#,",
		"\n# comment\nx", "~", "~root", "~/x", "a~", "$HOME", "${HOME}", "$", "\\$HOME", "\\", "\\\\", "a\\", "\\n", "\\101", "\\u00e9",
		"'", "\"", "'\"'", "a;b", ";", "a;", "\\;", "a ; kill-server", "}", "{", "{ x }", "%if", "%end 1 2 1", "%1", "%%", "&", "&&", "|",
		"`id`", "*", "?", "[a]", "!", "=", "A=b", "@x", "-a", "--", "^", "(", ")", "<", ">", "é", "日本語", "␞", "🙂", "\xff", "\xfe\xff",
		"\xff\"x", "\xc3", "\xc3\x28", "\x80", "\x1b[31m", "\x7f", "\x01\x02\x03", "\x1e\x1f", "x\x1bPtmux;\x1b\\", strings.Repeat("long ", 2000),
	}
	for c := 1; c < 256; c++ {
		list = append(list, string([]byte{byte(c)}), string([]byte{'a', byte(c), 'b'}), string([]byte{byte(c), '7'}))
	}
	// Mixtures, always the same ones.
	r := rand.New(rand.NewPCG(1, 2))
	const heat = "\"'\\$~#{};%&\n\t \r0179abenstu()\xff\xc3\xa9-=@"
	for range 200 {
		b := make([]byte, 1+r.IntN(20))
		for i := range b {
			b[i] = heat[r.IntN(len(heat))]
		}
		list = append(list, string(b))
	}
	return list
}

func checkQuote(t *testing.T, s string) {
	t.Helper()
	q := Quote(s)
	for i := range len(q) {
		if q[i] < ' ' || q[i] > '~' {
			t.Fatalf("Quote(%q) = %q: byte %d is not printable ASCII", s, q, i)
		}
	}
	if got, err := lex(q); err != nil || got != s {
		t.Fatalf("Quote(%q) = %s, which tmux reads as %q, %v", s, q, got, err)
	}
}

func TestQuote(t *testing.T) {
	for _, s := range nasty() {
		checkQuote(t, s)
	}
	for _, tt := range []struct{ in, want string }{
		{"", `""`},
		{"#{session_id} #{session_name}", `"#{session_id} #{session_name}"`},
		{"a\n\xffé", `"a\012\377\303\251"`},
		{`~$1"\`, `"\~\$1\"\\"`},
	} {
		if got := Quote(tt.in); got != tt.want {
			t.Errorf("Quote(%q) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range nasty() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.IndexByte(s, 0) < 0 {
			checkQuote(t, s)
		}
	})
}

// TestQuoteRoundTrip sets a user option to each string and reads it back.
func TestQuoteRoundTrip(t *testing.T) {
	eachTmux(t, func(t *testing.T, path string) {
		s := newServer(t, path)
		c := s.attach(nil)
		ctx := testContext(t)
		version := ParseVersion(s.run("display-message", "-p", "#{version}"))
		escapes := version.AtLeast(3, 4) && !version.AtLeast(3, 6)
		for _, in := range nasty() {
			replies, err := c.DoAll(ctx, "set-option -g @x "+Quote(in)+" ; show-options -gqv @x ; display-message -p "+Quote("#{n:@x}"), 3)
			if err != nil {
				t.Fatalf("%q: %v", in, err)
			}
			if len(replies) != 3 {
				t.Errorf("%q: %s", in, replies[len(replies)-1].Body)
				continue
			}
			if got, want := string(replies[2].Body), fmt.Sprint(len(in)); got != want {
				t.Errorf("%q: length %s, want %s", in, got, want)
			}
			if got := string(replies[1].Body); got != in && !(escapes && octal(got) == octal(in)) {
				t.Errorf("%q came back as %q", in, got)
			}
		}
	})
}

// octal writes control bytes as tmux 3.4 and 3.5 print them (server_client_print
// with VIS_OCTAL|VIS_CSTYLE|VIS_NOSLASH).
func octal(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && r != 0xfffd:
			b.WriteRune(r)
		case r >= '\a' && r <= '\r':
			b.WriteByte('\\')
			b.WriteByte("abtnvfr"[r-'\a'])
		default:
			fmt.Fprintf(&b, "\\%03o", s[i])
		}
	}
	return b.String()
}

func TestQuoteNUL(t *testing.T) {
	c := NewConn(deadStream{}, nil)
	if _, err := c.Send("set-option -g @x "+Quote("a\x00b"), 1); !errors.Is(err, errLine) {
		t.Errorf("NUL: %v", err)
	}
	<-c.Done()
}

func TestIsID(t *testing.T) {
	for _, tt := range []struct {
		id   string
		want bool
	}{
		{"$0", true}, {"@12", true}, {"%4294967295", true},
		{"", false}, {"$", false}, {"0", false}, {"=0", false}, {"$0:", false}, {"%1 ", false}, {"$-1", false}, {"@1\n", false}, {"%x", false}, {"$$1", false},
	} {
		if got := IsID(tt.id); got != tt.want {
			t.Errorf("IsID(%q) = %t", tt.id, got)
		}
	}
}
