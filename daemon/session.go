package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"tmux-mcpd/tools"
)

// A session is one MCP client: a connection with frames of newline-delimited
// JSON-RPC both ways, which is exactly MCP's stdio framing.
//
// mcp-go knows the protocol but not connections: its StdioServer has one
// session per process. What a connection needs is here: bounds on what a client
// can make us hold, answers in whole frames, ids echoed byte for byte,
// cancellation, and that nothing a client sends harms another one.
type session struct {
	daemon *Daemon
	id     string
	stream io.ReadWriteCloser
	mcp    *mcpserver.MCPServer // set by the reader, before any request it is for

	frames *frameReader
	// slots bounds the requests that are being answered; a client that sends
	// more is not read from until some are done.
	slots chan struct{}
	calls sync.WaitGroup

	// writeMu is held to write one frame. A client that does not read holds an
	// answer up for writeDeadline at most, and is then dropped.
	writeMu sync.Mutex
	failed  bool // a write failed: the rest of a frame may be missing
	unread  unread
	pace    pace
	// setWriteDeadline is the stream's, nil if it has none.
	setWriteDeadline func(time.Time) error

	// mu guards what follows; never held while waiting.
	mu      sync.Mutex
	caller  tools.Caller
	running map[string]*request // by the bytes of the id
	info    mcp.Implementation
	version string
	modern  []byte // the params._meta that mcp-go has found to be a modern one's
	bridge  string // the version of the bridge between us and the client
	greeted bool   // by a hello
	watches []*watch

	turnover turnover

	// The reader's own: what later requests about subscriptions wait for.
	subscribing  []chan struct{}
	unsubscribed chan struct{}

	// live ends with the connection, or when the daemon stops. background are
	// goroutines that end with it. What has been asked by then is answered until
	// draining ends.
	live       context.Context
	draining   context.Context
	background sync.WaitGroup
	updates    updates
	listens    atomic.Int32 // subscriptions/listen under way

	initialized   atomic.Bool
	spoken        atomic.Bool // the client has sent a request
	callCount     atomic.Uint64
	notifications chan mcp.JSONRPCNotification
	since         time.Time
}

const (
	maxFrame      = 1 << 20 // bytes of one frame from a client
	maxNesting    = 64
	maxRunning    = 64
	maxName       = 256     // bytes of a client's name, and of its version
	maxVariable   = 8 << 10 // bytes of a variable in a hello: two paths
	maxModern     = 4 << 10 // bytes of a _meta that is remembered
	writeDeadline = 5 * time.Second
	// silence is how long a client may be connected without having asked
	// anything.
	silence = 60 * time.Second
	// frameTime is how long a frame may take from its first byte to its last. An
	// honest client writes it at once; one that drips would be served for ever.
	frameTime = 30 * time.Second
	// drain is how long answers may take once the daemon stops.
	drain = 2 * time.Second
)

// JSON-RPC's error codes.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeInvalidParams  = -32602
	codeInternal       = -32603
)

// serveSession serves one client until it hangs up, ctx ends, or it does
// something that ends the connection.
func (d *Daemon) serveSession(ctx context.Context, stream io.ReadWriteCloser, caller tools.Caller) error {
	s := &session{
		daemon:        d,
		id:            "client-" + strconv.FormatUint(d.nextSession.Add(1), 10),
		stream:        stream,
		mcp:           d.mcp,
		slots:         make(chan struct{}, maxRunning),
		caller:        caller,
		running:       make(map[string]*request),
		notifications: make(chan mcp.JSONRPCNotification, 64),
		since:         time.Now(),
		pace:          pace{limit: writeDeadline},
	}
	s.frames = newFrameReader(stream, func() {
		_ = s.writeError(nil, codeInvalidRequest, fmt.Sprintf("a message was begun and not ended within %v", frameTime))
		stream.Close()
	})
	if c, ok := stream.(interface{ SetWriteDeadline(time.Time) error }); ok {
		s.setWriteDeadline = c.SetWriteDeadline
	}
	defer stream.Close()
	d.mu.Lock()
	d.sessions[s] = struct{}{}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.sessions, s)
		d.mu.Unlock()
	}()

	// Calls outlive ctx by drain, so that what was begun is answered.
	callCtx, cancelCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelCalls()
	stop := context.AfterFunc(ctx, func() {
		s.stopReading()
		time.AfterFunc(drain, cancelCalls)
	})
	defer stop()
	quiet := time.AfterFunc(silence, func() {
		if !s.spoken.Load() {
			stream.Close()
		}
	})
	defer quiet.Stop()

	live, end := context.WithCancel(ctx)
	defer end()
	s.live, s.draining = live, callCtx

	err := s.readToEnd(callCtx)
	end()
	s.calls.Wait()
	stream.Close()
	s.unwatch(func(*watch) bool { return true })
	s.background.Wait()
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// stopReading makes the read that is under way return.
func (s *session) stopReading() {
	if c, ok := s.stream.(interface{ SetReadDeadline(time.Time) error }); ok && c.SetReadDeadline(time.Now()) == nil {
		return
	}
	s.stream.Close()
}

// read reads frames and starts what answers them, until there are no more or
// another goroutine reads on. A panic ends this client's connection and nobody
// else's.
func (s *session) read(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.daemon.log.Error("a client's frame panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	ctx = s.mcp.WithContext(ctx, s)
	for {
		frame, err := s.frames.next()
		if errors.Is(err, errFrameTooLong) {
			s.writeError(nil, codeInvalidRequest, fmt.Sprintf("a message is longer than %d bytes", maxFrame))
			return err
		}
		if err != nil {
			return err
		}
		if err := s.handle(ctx, frame); err != nil {
			return err
		}
	}
}

// An envelope is a JSON-RPC message before it is known what it means.
type envelope struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// handle takes one frame, which is only valid until it returns. Its error ends
// the connection.
func (s *session) handle(ctx context.Context, frame []byte) error {
	if tooDeep(frame, maxNesting) {
		return s.writeError(nil, codeParse, fmt.Sprintf("a message is nested deeper than %d levels", maxNesting))
	}
	if c, ok := parseCall(frame); ok && (len(c.arguments) <= len("{}") || json.Valid(c.arguments)) {
		if modern, ok := s.known(c.meta); ok {
			return s.start(ctx, newCallRequest(c, modern))
		}
	}
	var m envelope
	if err := json.Unmarshal(frame, &m); err != nil {
		if frame[0] == '[' && json.Valid(frame) {
			return s.writeError(nil, codeInvalidRequest, "batches are not served: send one message per line")
		}
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) {
			return s.writeError(validID(m.ID), codeInvalidRequest, "not a JSON-RPC 2.0 message: "+wrongType.Field+" is of the wrong type")
		}
		return s.writeError(nil, codeParse, "not valid JSON")
	}
	switch {
	case m.Method == nil:
		if m.Result != nil || m.Error != nil {
			return nil // an answer to a question that we never ask
		}
		return s.writeError(validID(m.ID), codeInvalidRequest, "not a JSON-RPC 2.0 message: no method")
	case m.JSONRPC != "2.0":
		return s.writeError(validID(m.ID), codeInvalidRequest, `not a JSON-RPC 2.0 message: "jsonrpc" must be "2.0"`)
	case m.ID == nil:
		s.notified(ctx, *m.Method, m.Params, frame)
		return nil
	case validID(m.ID) == nil:
		return s.writeError(nil, codeInvalidRequest, "an id must be a string or a number")
	}
	return s.start(ctx, &request{id: bytes.Clone(m.ID), method: *m.Method, params: bytes.Clone(m.Params), frame: bytes.Clone(frame), mcp: s.mcp})
}

// A request is one that is being answered.
type request struct {
	id     []byte
	method string // "" for a call that was read without decoding
	params []byte
	frame  []byte
	mcp    *mcpserver.MCPServer

	// Of a call that was read without decoding.
	tool      int // in tools.All
	arguments []byte
	modern    bool

	cancel    context.CancelFunc // nil for such a call, which is soon over
	cancelled atomic.Bool

	after []chan struct{} // requests that this one must not overtake
	done  chan struct{}   // closed when it has been answered; nil if nobody waits
	lasts bool            // a subscriptions/listen, which takes no slot
}

// newCallRequest takes what is needed out of the reader's buffer.
func newCallRequest(c call, modern bool) *request {
	kept := make([]byte, len(c.id)+len(c.arguments))
	n := copy(kept, c.id)
	copy(kept[n:], c.arguments)
	return &request{id: kept[:n:n], arguments: kept[n:], tool: c.tool, modern: modern}
}

// start answers a request, next to others up to maxRunning.
func (s *session) start(ctx context.Context, r *request) error {
	s.spoken.Store(true)
	if r.method == listenMethod { // which lasts, and has a bound of its own
		if r.lasts = s.listens.Add(1) <= maxListens; !r.lasts {
			s.listens.Add(-1)
		}
	}
	if !r.lasts {
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if r.method != "" {
		ctx, r.cancel = context.WithCancel(ctx)
		s.order(r)
	}
	s.mu.Lock()
	s.running[string(r.id)] = r
	s.mu.Unlock()
	s.calls.Add(1)
	if r.method == "" && !s.frames.more() {
		return s.answerHere(ctx, r)
	}
	go s.answer(ctx, r)
	return nil
}

// validID returns the id if it is one that MCP allows, else nil. encoding/json
// lets strings pass that are no UTF-8; echoed, they would spoil our own frame.
func validID(id json.RawMessage) json.RawMessage {
	if len(id) > 0 && utf8.Valid(id) && (id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9') {
		return id
	}
	return nil
}

// answer answers one request. A request that the client has withdrawn is not
// answered.
func (s *session) answer(ctx context.Context, r *request) {
	defer s.calls.Done()
	defer func() {
		if p := recover(); p != nil {
			s.daemon.log.Error("a request panicked", "method", r.method, "panic", p, "stack", string(debug.Stack()))
			s.writeError(r.id, codeInternal, "internal error")
		}
		s.mu.Lock()
		if s.running[string(r.id)] == r { // not one of the same id that came later
			delete(s.running, string(r.id))
		}
		s.mu.Unlock()
		if r.cancel != nil {
			r.cancel()
		}
		if r.lasts {
			s.listens.Add(-1)
		} else {
			<-s.slots
		}
		if r.done != nil {
			close(r.done)
		}
	}()
	for _, earlier := range r.after {
		<-earlier
	}
	if r.method == "" {
		s.answerCall(ctx, r, r.tool, r.arguments, r.modern)
		return
	}
	response, err := s.respond(ctx, r)
	switch {
	case r.cancelled.Load(), response == nil && err == nil:
	case err != nil:
		s.daemon.log.Error("an answer cannot be encoded", "method", r.method, "err", err)
		s.writeError(r.id, codeInternal, "internal error")
	default:
		s.forward()
		s.write(response)
	}
}

// forward writes the notifications that mcp-go has left with us. It is done
// before an answer: that to subscriptions/listen comes after its
// acknowledgement, and a list that is announced as changed before the answer
// with the change.
func (s *session) forward() {
	for {
		select {
		case n := <-s.notifications:
			frame, err := json.Marshal(n)
			if err != nil {
				s.daemon.log.Error("a notification cannot be encoded", "method", n.Method, "err", err)
				continue
			}
			s.write(append(frame, '\n'))
		default:
			return
		}
	}
}

// answerCall answers a tools/call from prepared bytes, without mcp-go: it would
// encode each answer three times.
func (s *session) answerCall(ctx context.Context, r *request, tool int, arguments []byte, modern bool) {
	begun := time.Now()
	s.callCount.Add(1)
	result, err := tools.All[tool].Call(ctx, tools.Request{Arguments: arguments, Caller: s.who(), Servers: s.daemon, Repeats: &s.daemon.repeats})
	s.daemon.usage[tool].took(time.Since(begun), err != nil)
	s.writeOutcome(r, result, err, modern)
}

// writeOutcome writes what has become of a call.
func (s *session) writeOutcome(r *request, result *tools.Result, err error, modern bool) {
	if r.cancelled.Load() {
		return
	}
	var e *tools.Error
	switch {
	case errors.As(err, &e):
		s.write(s.toolError(r.id, e, modern))
	case err != nil:
		s.writeError(r.id, codeInternal, err.Error())
	default:
		var more tools.Addition
		if modern {
			more = s.daemon.modernAddition
		}
		s.writeResult(r.id, result, more)
	}
}

// respond makes the frame that answers a request; nil if it has been answered
// already.
func (s *session) respond(ctx context.Context, r *request) ([]byte, error) {
	switch r.method {
	case "tools/call":
		return s.respondToCall(ctx, r)
	case StatusMethod:
		return encodeResponse(r.id, mcp.JSONRPCResponse{Result: s.daemon.Status()})
	}
	ctx = context.WithValue(ctx, callerKey{}, tools.Request{Caller: s.who(), Servers: s.daemon})
	switch r.method {
	case listenMethod:
		return s.listen(ctx, r)
	case "resources/read":
		return encodeResponse(r.id, notFound(r.mcp.HandleMessage(ctx, canonicalRead(r)), isModern(metaOf(r.params))))
	}
	return encodeResponse(r.id, r.mcp.HandleMessage(ctx, r.frame))
}

// canonicalRead is the frame of a resources/read with the URI in the form that
// mcp-go's templates match: they do not know "%3" for an id.
func canonicalRead(r *request) []byte {
	var params map[string]json.RawMessage
	var uri string
	if json.Unmarshal(r.params, &params) != nil || json.Unmarshal(params["uri"], &uri) != nil {
		return r.frame
	}
	resource, err := tools.ParseResource(uri)
	if err != nil || resource.URI() == uri {
		return r.frame
	}
	params["uri"], _ = json.Marshal(resource.URI()) // a string always encodes
	frame, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(r.id), "method": r.method, "params": params})
	if err != nil {
		return r.frame
	}
	return frame
}

// respondToCall answers a tools/call that parseCall did not take. The first
// call of the modern protocol goes through mcp-go, which knows whether what it
// says of its client is right; later ones that say the same do not.
func (s *session) respondToCall(ctx context.Context, r *request) ([]byte, error) {
	var params struct {
		Name      json.RawMessage `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(r.params, &params); err != nil {
		return errorFrame(r.id, codeInvalidParams, "params must be an object with the name of a tool"), nil
	}
	var name *string
	if err := json.Unmarshal(params.Name, &name); err != nil || name == nil {
		return errorFrame(r.id, codeInvalidParams, "params.name must be the name of a tool"), nil
	}
	if a := bytes.TrimSpace(params.Arguments); len(a) > 0 && a[0] != '{' && string(a) != "null" {
		return errorFrame(r.id, codeInvalidParams, "params.arguments must be an object"), nil
	}
	modern := isModern(params.Meta)
	tool := slices.IndexFunc(tools.All, func(t tools.Tool) bool { return t.Name == *name })
	switch {
	case tool < 0:
		return s.toolError(r.id, tools.UnknownTool(*name), modern), nil
	case !modern:
		s.answerCall(ctx, r, tool, params.Arguments, false)
		return nil, nil
	}
	begun := time.Now()
	s.callCount.Add(1)
	q := &inquiry{request: tools.Request{Arguments: params.Arguments, Caller: s.who(), Servers: s.daemon}}
	response := r.mcp.HandleMessage(context.WithValue(ctx, inquiryKey{}, q), r.frame)
	s.daemon.usage[tool].took(time.Since(begun), q.result == nil)
	if q.result == nil && q.err == nil { // refused
		return encodeResponse(r.id, response)
	}
	if len(params.Meta) <= maxModern {
		s.mu.Lock()
		s.modern = params.Meta
		s.mu.Unlock()
	}
	s.writeOutcome(r, q.result, q.err, true)
	return nil, nil
}

// known reports whether a call with this params._meta may be answered without
// mcp-go, and whether it is one of the modern protocol.
func (s *session) known(meta []byte) (modern, ok bool) {
	if meta == nil {
		return false, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return true, s.modern != nil && bytes.Equal(meta, s.modern)
}

// appendHead appends a response up to its result or error.
func appendHead(dst []byte, id json.RawMessage) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	if id == nil {
		id = json.RawMessage("null")
	}
	dst = append(dst, id...)
	return append(dst, ',')
}

// toolError is the frame of a tool's own error. A modern result names its type
// and who made it.
func (s *session) toolError(id json.RawMessage, e *tools.Error, modern bool) []byte {
	type meta struct {
		tools.ErrorMeta
		Server *mcp.Implementation `json:"io.modelcontextprotocol/serverInfo,omitempty"`
	}
	result := struct {
		Content []mcp.TextContent `json:"content"`
		Meta    meta              `json:"_meta"`
		IsError bool              `json:"isError"`
		Type    mcp.ResultType    `json:"resultType,omitempty"`
	}{
		Content: []mcp.TextContent{{Type: "text", Text: e.Error()}},
		Meta:    meta{ErrorMeta: e.Meta()},
		IsError: true,
	}
	if modern {
		result.Type = mcp.ResultTypeComplete
		result.Meta.Server = &mcp.Implementation{Name: ServerName, Version: s.daemon.config.Version, Title: serverTitle}
	}
	body, err := json.Marshal(result)
	if err != nil {
		return errorFrame(id, codeInternal, "internal error")
	}
	frame := appendHead(nil, id)
	frame = append(frame, `"result":`...)
	frame = append(frame, body...)
	return append(frame, "}\n"...)
}

// isModern reports whether the _meta of a request is that of the protocol from
// 2026-07-28 on, which has no handshake and says who asks with each request.
func isModern(meta json.RawMessage) bool {
	var m *mcp.Meta // and not a struct of ours, which would take the key in any case
	return len(meta) > 0 && json.Unmarshal(meta, &m) == nil && mcp.IsModernProtocol(m.ProtocolVersion())
}

func errorFrame(id json.RawMessage, code int, message string) []byte {
	text, _ := json.Marshal(message) // a string always encodes
	frame := appendHead(nil, id)
	frame = append(frame, `"error":{"code":`...)
	frame = strconv.AppendInt(frame, int64(code), 10)
	frame = append(frame, `,"message":`...)
	frame = append(frame, text...)
	return append(frame, "}}\n"...)
}

// encodeResponse makes a frame of mcp-go's response, with the id as the client
// wrote it: mcp-go takes numbers through a float64.
func encodeResponse(id json.RawMessage, response mcp.JSONRPCMessage) ([]byte, error) {
	var member string
	var value any
	switch r := response.(type) {
	case mcp.JSONRPCResponse:
		member, value = `"result":`, r.Result
	case mcp.JSONRPCError:
		member, value = `"error":`, r.Error
	default:
		return nil, fmt.Errorf("mcp-go answered a request with %T", response)
	}
	body, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	frame := appendHead(nil, id)
	frame = append(frame, member...)
	frame = append(frame, body...)
	return append(frame, "}\n"...), nil
}

// notified takes a notification of the client.
func (s *session) notified(ctx context.Context, method string, params json.RawMessage, frame []byte) {
	switch method {
	case "notifications/cancelled":
		var p struct {
			RequestID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(params, &p) != nil {
			return
		}
		s.mu.Lock()
		r := s.running[string(p.RequestID)]
		s.mu.Unlock()
		if r != nil && r.method != "initialize" { // which must not be cancelled, says MCP
			r.cancelled.Store(true)
			if r.cancel != nil {
				r.cancel()
			}
		}
	case helloMethod:
		s.hello(params)
	default:
		s.mcp.HandleMessage(ctx, bytes.Clone(frame))
	}
}

func (s *session) writeError(id json.RawMessage, code int, message string) error {
	return s.write(errorFrame(id, code, message))
}

// write writes one frame. After an error the connection is of no use: part of
// a frame may have gone out.
func (s *session) write(frame []byte) error {
	return s.writeWith(func() error {
		_, err := s.stream.Write(frame)
		return err
	})
}

func (s *session) writeWith(write func() error) error {
	s.pace.answerWaits(s.setWriteDeadline)
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.pace.answerBegins(s.setWriteDeadline)
	s.unread.written()
	return s.writeLocked(write)
}

// writeLocked needs writeMu.
func (s *session) writeLocked(write func() error) error {
	if s.failed {
		return net.ErrClosed
	}
	if err := write(); err != nil {
		s.failed = true
		s.stream.Close()
		return err
	}
	return nil
}

// copied is how large a result is at most that is copied into one buffer to be
// written; a larger one is written in pieces at once.
const copied = 16 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2*copied); return &b }}

// writeResult writes the frame of a result.
func (s *session) writeResult(id []byte, result *tools.Result, more tools.Addition) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	head := append(appendHead((*buffer)[:0], id), `"result":`...)
	if conn, ok := s.stream.(*net.UnixConn); ok && len(result.Rows.Plain)+len(result.Rows.Escaped) > copied {
		pieces := net.Buffers(result.Pieces(head, more, "}\n"))
		_ = s.writeWith(func() error {
			_, err := pieces.WriteTo(conn)
			return err
		})
		return
	}
	frame := append(result.AppendJSON(head, more), "}\n"...)
	_ = s.write(frame)
	if cap(frame) <= 4*copied {
		*buffer = frame[:0]
	}
}

// refuse tells a client that there is no place for it.
func refuse(conn net.Conn, limit int) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(errorFrame(nil, codeInternal, fmt.Sprintf("too many clients: %d are connected; close some and try again", limit)))
}

// What mcp-go wants to know of a session.

func (s *session) Initialize()       { s.initialized.Store(true) }
func (s *session) Initialized() bool { return s.initialized.Load() }
func (s *session) SessionID() string { return s.id }
func (s *session) NotificationChannel() chan<- mcp.JSONRPCNotification {
	return s.notifications
}

func (s *session) GetClientInfo() mcp.Implementation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// SetClientInfo keeps what we have a use for: a client can send a megabyte.
func (s *session) SetClientInfo(info mcp.Implementation) {
	info = mcp.Implementation{Name: shortened(info.Name), Version: shortened(info.Version)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info.Name != info.Name || s.info.Version != info.Version {
		s.modern = nil // its calls must introduce their client again
	}
	s.info = info
	s.caller.Client = info.Name + " " + info.Version
}

// shortened is at most maxName bytes of a name, cut between characters.
func shortened(name string) string {
	if len(name) <= maxName {
		return name
	}
	return strings.ToValidUTF8(name[:maxName], "")
}

// What clients are able to do makes no difference to us.

func (s *session) GetClientCapabilities() mcp.ClientCapabilities { return mcp.ClientCapabilities{} }
func (s *session) SetClientCapabilities(mcp.ClientCapabilities)  {}

func (s *session) ProtocolVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

func (s *session) SetProtocolVersion(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

var (
	_ mcpserver.SessionWithClientInfo      = (*session)(nil)
	_ mcpserver.SessionWithProtocolVersion = (*session)(nil)
)
