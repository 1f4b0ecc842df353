package daemon

import (
	"sync/atomic"
	"time"

	"tmux-mcpd/controlmode"
	"tmux-mcpd/daemon/state"
)

// freshness proves that a cached snapshot is what tmux has now. Its owner
// holds the server's turn.
//
// The proof. Every %begin carries NUMBER, a counter that tmux advances for
// each item of its command queues: each command and key binding of any client,
// each hook, and up to 3.7 each internal event (a title set by a program, an
// exit, a resize). It is one counter for the whole server, so:
//
//  1. A probe is a line that cannot parse. tmux runs nothing for it and answers
//     with a block whose NUMBER is n. If n is the NUMBER of our previous reply
//     plus one, no item ran between the two replies.
//  2. A snapshot whose dump ran at NUMBER d is true at d. If all our replies
//     since then were consecutive, it is still true at n, and a change whose
//     command completed before the probe was sent is in it.
//  3. A dump alone does not start such a chain: it may run in the same pass of
//     tmux's loop between a command and what that command left for the end of
//     the pass (a window's resize). If a reply of ours has arrived before the
//     dump was sent and the dump's NUMBER is the next one, then the last item
//     before it ran in an earlier pass, which is over: only then is the
//     snapshot a clean baseline. Else it answers this request, being no older
//     than it, and the next request dumps again.
//  4. A notification is a hint that something changed, whatever the counter
//     says (from 3.8 on events are no items). The hints are counted when a dump
//     is sent: those that come later make it dirty.
//
// The counter is a uint32 and wraps; plus one wraps with it.
//
// What this does not prove is bounded by maxAge (see connection.interval): choices
// made in a prompt, a menu, a popup or customize-mode, the resume of a
// suspended client, what waits behind a hook that blocks tmux's queue, and from
// 3.8 on titles, exits, resizes and hang-ups. For these, from 3.8 on, the
// moved scheduling count of the server's process is a further hint.
type freshness struct {
	snapshot *state.Snapshot
	number   uint32    // NUMBER of our last reply
	clean    bool      // all replies since snapshot's dump were consecutive
	hints    uint64    // notifications that were in before the dump was sent
	sent     time.Time // when the dump was sent
}

// reply takes note of a reply of ours. It reports whether nothing ran in tmux
// since the one before.
func (f *freshness) reply(r controlmode.Reply) bool {
	consecutive := r.Number == f.number+1
	f.number = r.Number
	if !consecutive {
		f.clean = false
	}
	return consecutive
}

// dumped takes note of a dump: the snapshot made of it, its first reply's
// NUMBER, and what was known when it was sent.
func (f *freshness) dumped(s *state.Snapshot, consecutive bool, hints uint64, sent time.Time) {
	f.snapshot = s
	f.clean = consecutive
	f.hints = hints
	f.sent = sent
}

// proven reports whether the snapshot is what tmux had at our last reply.
func (f *freshness) proven(hints *atomic.Uint64) bool {
	return f.clean && f.hints == hints.Load()
}
