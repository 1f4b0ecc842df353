package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"

	"tmux-mcpd/daemon/state"
)

// A Tool is one MCP tool.
type Tool struct {
	Name string
	// Contract is the tool's entry in tools/list, as published.
	Contract []byte
	// Call answers a call. Every error is an *Error, to be shown as the
	// tool's own error (isError), or that of the context.
	Call func(ctx context.Context, r Request) (*Result, error)
}

//go:embed list_sessions.json
var listSessionsContract []byte

//go:embed list_panes.json
var listPanesContract []byte

// All lists the tools in the order in which tools/list shows them.
var All = []Tool{
	{Name: "list_panes", Contract: listPanesContract, Call: listPanes},
	{Name: "list_sessions", Contract: listSessionsContract, Call: listSessions},
}

// Lookup finds a tool by its name.
func Lookup(name string) (Tool, bool) {
	for _, t := range All {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}

// Instructions is what `initialize` tells the client's model.
const Instructions = `Answers describe tmux as it is at the moment of the call: never cached or stale, so poll freely and do not guess.
Start with list_sessions (what is there), then list_panes; narrow with session_name, session_id or window_id, or with filters such as {"pane_current_command__contains": "vim"}.
is_caller true marks the pane that you run in. Ids ($1, @2, %3) stay the same while the thing lives; names and indexes do not.
These tools only list. For the text of a pane run: tmux capture-pane -p -t %N. To act on one: tmux send-keys -t %N, tmux split-window -t %N, tmux kill-pane -t %N.`

// A Request is one call of a tool.
type Request struct {
	// Arguments is the JSON object of the call; nil or null stand for {}.
	Arguments json.RawMessage
	Caller    Caller
	Servers   Servers
	Repeats   *Repeats // nil remembers nothing
}

// A Caller is the client that asks, known by its environment. A variable that
// is missing is one that the client has not got, or that is not known.
type Caller struct {
	Env    map[string]string
	Client string // the client program's name and version, for texts
}

// Variables are the environment variables that a Caller is made of.
var Variables = []string{"TMUX", "TMUX_PANE", "TMUX_TMPDIR", "LIBTMUX_SOCKET", "LIBTMUX_SOCKET_PATH"}

// Servers finds tmux servers. The daemon implements it.
type Servers interface {
	// Server is the server that a caller means with a socket name, which is
	// nil if none is given. It does not tell whether that server is running.
	Server(caller Caller, socketName *string) (Server, error)
}

// ErrLater says that something cannot be had while tmux is being asked for
// something else: ask again after that.
var ErrLater = errors.New("tmux is being asked for something else")

// ErrChanged says that what was asked about is not what tmux has any more: the
// answer has to be made anew from a newer snapshot.
var ErrChanged = errors.New("tmux has changed meanwhile")

// A Server is one tmux server, running or not.
type Server interface {
	// Snapshot returns what tmux has at a moment after the call. A server
	// that is not running is an empty snapshot; one that cannot be asked is an
	// *Error. While tmux is being asked, meanwhile (if not nil) is called with
	// the snapshot that will be returned if nothing has changed since: work
	// done there is for nothing if Snapshot returns another one. With the
	// context that it gets, what needs tmux fails with ErrLater.
	Snapshot(ctx context.Context, meanwhile func(context.Context, *state.Snapshot)) (*state.Snapshot, error)

	// Fetch is a Snapshot together with the values of fields that are not part
	// of it, all of one moment: values[row][i] belongs to fields[i] of the
	// snapshot's pane or session in that place.
	Fetch(ctx context.Context, scope Scope, fields []string) (s *state.Snapshot, values [][]string, err error)

	// Processes returns what runs in each of the panes at a moment after the
	// request for this Server. It may be others' too and must not be changed; it
	// is shared with those who ask for the same slice of panes. It fails with
	// ErrChanged if one of them has gone or got another process since its
	// snapshot.
	Processes(ctx context.Context, panes []*state.Pane) ([]state.Process, error)

	// Socket is the path of the server's socket with all links resolved.
	// SocketName is the name that it was asked for by, "" if by none.
	Socket() string
	SocketName() string

	// Memo is the server's own, the same each time.
	Memo() *Memo
}

// A Result is the answer of a call: a JSON array of rows, plain and escaped to
// stand inside a JSON string.
type Result struct {
	Rows state.Fragment
}

// The pieces of a result object around the two forms of the rows, in order.
const (
	resultOpen   = `{"content":[{"type":"text","text":"`
	resultMiddle = `"}],"structuredContent":{"result":`
	resultMeta   = `},"_meta":{"fastmcp":{"wrap_result":true}`
	resultClose  = `},"isError":false`
)

// An Addition is what a version of the protocol wants in every result beside
// what the contract says: members of _meta and of the result itself, as JSON,
// each after a comma.
type Addition struct{ Meta, Result string }

// AppendJSON appends the result as the `result` of a tools/call response.
func (r *Result) AppendJSON(dst []byte, more Addition) []byte {
	dst = append(dst, resultOpen...)
	dst = append(dst, r.Rows.Escaped...)
	dst = append(dst, resultMiddle...)
	dst = append(dst, r.Rows.Plain...)
	return appendEnd(dst, more)
}

func appendEnd(dst []byte, more Addition) []byte {
	dst = append(dst, resultMeta...)
	dst = append(dst, more.Meta...)
	dst = append(dst, resultClose...)
	dst = append(dst, more.Result...)
	return append(dst, '}')
}

// Pieces returns what AppendJSON appends after head, and tail after it, in
// pieces of which the large ones are not copied: for one vectored write. They
// must not be changed.
func (r *Result) Pieces(head []byte, more Addition, tail string) [][]byte {
	return [][]byte{
		append(head, resultOpen...), r.Rows.Escaped, []byte(resultMiddle), r.Rows.Plain,
		append(appendEnd(nil, more), tail...),
	}
}

// ServerError says that a tmux server cannot be asked, which is never the same
// as that it has nothing.
func ServerError(socket string, reason error) *Error {
	return &Error{
		Text:     "Cannot ask the tmux server at " + socket + ": " + reason.Error(),
		Type:     "TmuxServerError",
		Expected: true,
	}
}
