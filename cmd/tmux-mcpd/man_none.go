//go:build !man

package main

import "github.com/spf13/cobra"

// buildCommands are those of the build; the product has none.
func buildCommands(console) []*cobra.Command { return nil }
