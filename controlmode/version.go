package controlmode

import (
	"cmp"
	"strconv"
	"strings"
)

// A Version is that of a tmux: what `tmux -V` prints or, for a running server,
// #{version}, which is the one that decides how the server behaves.
type Version struct {
	Major, Minor int
	Patch        string // the letter of "3.3a", "-rc2" of "3.7-rc2", mostly empty
	Known        bool   // false: no number of tmux's own in it
	text         string
}

// ParseVersion never fails: of what it does not know ("master", "openbsd-7.5")
// it assumes the newest, since these are built from the newest source. The
// "next-3.4" of a development build counts as 3.4.
func ParseVersion(s string) Version {
	text := strings.TrimPrefix(strings.TrimSpace(s), "tmux ")
	v := Version{text: text}
	// OpenBSD's tmux carries the number of the system, not its own.
	if strings.Contains(text, "openbsd") {
		return v
	}
	start := strings.IndexAny(text, "0123456789")
	if start < 0 {
		return v
	}
	major, rest := leadingNumber(text[start:])
	if !strings.HasPrefix(rest, ".") {
		return v
	}
	minor, rest := leadingNumber(rest[1:])
	var err1, err2 error
	v.Major, err1 = strconv.Atoi(major)
	v.Minor, err2 = strconv.Atoi(minor)
	if cmp.Or(err1, err2) != nil {
		return Version{text: text}
	}
	v.Patch, _, _ = strings.Cut(rest, " ")
	v.Known = true
	return v
}

func leadingNumber(s string) (digits, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// AtLeast reports whether v is major.minor or newer. It is true for a version
// that is not known.
func (v Version) AtLeast(major, minor int) bool {
	return !v.Known || v.Major > major || v.Major == major && v.Minor >= minor
}

// String gives the version as tmux wrote it, without the leading "tmux ".
func (v Version) String() string { return v.text }
