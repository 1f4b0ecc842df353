//go:build !linux

package integration

// supervise does nothing here: only Linux can hand orphans to a process of its
// own choice. Every test still checks the processes that it started.
func supervise() (code int, done bool) { return 0, false }

// childrenOf is known on Linux only.
func childrenOf(int) []int { return nil }
