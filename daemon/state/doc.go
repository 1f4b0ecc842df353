// Package state holds what is known of one tmux server as an immutable value.
//
// A Snapshot is built from the rows of one dump (fields.go says of which
// columns a row consists) and never changed afterwards: one goroutine builds
// and publishes it, any number read it without a lock. The JSON of each row is
// encoded when the snapshot is built, so that an answer is a copy of bytes.
//
// The package knows nothing of connections, processes or MCP.
package state
