package controlmode

import "testing"

func TestParseVersion(t *testing.T) {
	tests := []struct {
		in           string
		major, minor int
		patch        string
		known        bool
		text         string
	}{
		{"tmux 3.3a\n", 3, 3, "a", true, "3.3a"},
		{"3.3a", 3, 3, "a", true, "3.3a"},
		{"tmux 3.8", 3, 8, "", true, "3.8"},
		{"tmux next-3.4", 3, 4, "", true, "next-3.4"},
		{"tmux 3.7-rc2", 3, 7, "-rc2", true, "3.7-rc2"},
		{"3.1-rc", 3, 1, "-rc", true, "3.1-rc"},
		{"tmux 3.10", 3, 10, "", true, "3.10"},
		{"tmux 3.4 (Fedora)", 3, 4, "", true, "3.4 (Fedora)"},
		{"mytmux 2.9a", 2, 9, "a", true, "mytmux 2.9a"},
		{"tmux openbsd-7.5", 0, 0, "", false, "openbsd-7.5"},
		{"tmux master", 0, 0, "", false, "master"},
		{"tmux 4", 0, 0, "", false, "4"},
		{"tmux 3.", 0, 0, "", false, "3."},
		{"tmux 99999999999999999999.1", 0, 0, "", false, "99999999999999999999.1"},
		{"", 0, 0, "", false, ""},
	}
	for _, tt := range tests {
		want := Version{Major: tt.major, Minor: tt.minor, Patch: tt.patch, Known: tt.known, text: tt.text}
		if got := ParseVersion(tt.in); got != want {
			t.Errorf("ParseVersion(%q) = %+v, want %+v", tt.in, got, want)
		}
	}
}

func TestVersionAtLeast(t *testing.T) {
	tests := []struct {
		v            string
		major, minor int
		want         bool
	}{
		{"3.2a", 3, 2, true},
		{"3.1c", 3, 2, false},
		{"2.9", 3, 2, false},
		{"4.0", 3, 2, true},
		{"next-3.8", 3, 8, true},
		{"3.10", 3, 8, true},
		{"master", 3, 8, true},
		{"openbsd-7.5", 99, 0, true},
	}
	for _, tt := range tests {
		if got := ParseVersion(tt.v).AtLeast(tt.major, tt.minor); got != tt.want {
			t.Errorf("%s at least %d.%d: %t", tt.v, tt.major, tt.minor, got)
		}
	}
}
