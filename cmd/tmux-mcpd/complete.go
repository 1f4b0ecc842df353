package main

import (
	"strings"

	"github.com/spf13/cobra"

	"tmux-mcpd/daemon"
)

// completeFilter offers what can come next in FIELD[__OPERATOR]=VALUE: fields,
// then operators. What a value may be is for tmux to say.
func completeFilter(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	if strings.Contains(typed, "=") {
		return nil, directive
	}
	fields, operators := daemon.FilterNames()
	var offers []string
	offer := func(text string) {
		if strings.HasPrefix(text, typed) {
			offers = append(offers, text)
		}
	}
	if field, _, hasOperator := strings.Cut(typed, "__"); hasOperator {
		for _, operator := range operators {
			offer(field + "__" + operator + "=")
		}
		return offers, directive
	}
	for _, field := range fields {
		offer(field + "=")
		offer(field + "__")
	}
	return offers, directive
}

// fixed completes a flag that has few values.
func fixed(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// completeFlag attaches a completion to a flag that the command has.
func completeFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // no such flag, or twice: a mistake in this program
	}
}
