package integration

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImports holds the seams of the project: which of its packages may import
// which, and that the two lowest know nothing but the standard library.
func TestImports(t *testing.T) {
	allowed := map[string][]string{
		"tmux-mcpd/cmd/setup":     nil,
		"tmux-mcpd/cmd/tmux-mcpd": {"tmux-mcpd/daemon", "tmux-mcpd/daemon/bridge"},
		"tmux-mcpd/controlmode":   nil,
		"tmux-mcpd/daemon":        {"tmux-mcpd/controlmode", "tmux-mcpd/daemon/state", "tmux-mcpd/tools"},
		"tmux-mcpd/daemon/bridge": nil,
		"tmux-mcpd/daemon/state":  nil,
		"tmux-mcpd/integration":   nil,
		"tmux-mcpd/tools":         {"tmux-mcpd/daemon/state"},
	}
	standardOnly := []string{"tmux-mcpd/controlmode", "tmux-mcpd/daemon/state"}

	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		may, known := allowed[fields[0]]
		if !known {
			t.Errorf("package %s is not part of the design", fields[0])
			continue
		}
		seen++
		for _, imported := range fields[1:] {
			switch {
			case strings.HasPrefix(imported, "tmux-mcpd/"):
				if !slices.Contains(may, imported) {
					t.Errorf("%s imports %s", fields[0], imported)
				}
			case slices.Contains(standardOnly, fields[0]) && strings.Contains(imported, "."):
				t.Errorf("%s imports %s, which is not of the standard library", fields[0], imported)
			}
		}
	}
	if seen != len(allowed) {
		t.Errorf("%d packages of %d looked at", seen, len(allowed))
	}
}
