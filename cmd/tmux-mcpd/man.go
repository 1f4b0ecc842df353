//go:build man

package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// buildCommands are those of the build (go run -tags man): what they need is
// not in the product.
func buildCommands(c console) []*cobra.Command {
	return []*cobra.Command{{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := rootCommand(c)
			root.DisableAutoGenTag = true
			root.InitDefaultCompletionCmd()
			root.Long += "\n" + exitCodes
			keepLayout(root)
			// The date is that of SOURCE_DATE_EPOCH, if it is set.
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "tmux-mcpd " + versionText(), Manual: "tmux-mcpd"}, args[0])
		},
	}}
}

// keepLayout makes indented lines of descriptions literal: the generator takes
// them for Markdown and would fill them.
func keepLayout(cmd *cobra.Command) {
	var text strings.Builder
	literal := false
	for line := range strings.Lines(cmd.Long) {
		indented := strings.HasPrefix(line, "  ")
		if indented && !literal {
			text.WriteString("\n")
		}
		if indented {
			text.WriteString("  ") // four make a literal block
		}
		literal = indented
		text.WriteString(line)
	}
	cmd.Long = text.String()
	for _, sub := range cmd.Commands() {
		keepLayout(sub)
	}
}
