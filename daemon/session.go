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
	"strconv"
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

	frames frameReader
	// slots bounds the requests that are being answered; a client that sends
	// more is not read from until some are done.
	slots chan struct{}
	calls sync.WaitGroup

	// writeMu is held to write one frame. A client that does not read holds it
	// for writeDeadline at most, and is then dropped.
	writeMu sync.Mutex
	failed  bool // a write failed: the rest of a frame may be missing

	// mu guards what follows; never held while waiting.
	mu      sync.Mutex
	caller  tools.Caller
	running map[string]context.CancelFunc // by the bytes of the id
	info    mcp.Implementation
	caps    mcp.ClientCapabilities
	version string
	bridge  string // the version of the bridge between us and the client

	initialized   atomic.Bool
	spoken        atomic.Bool // the client has sent a request
	calls_        atomic.Uint64
	notifications chan mcp.JSONRPCNotification
	since         time.Time
}

const (
	maxFrame      = 1 << 20 // bytes of one frame from a client
	maxNesting    = 64
	maxRunning    = 64
	writeDeadline = 5 * time.Second
	// silence is how long a client may be connected without having asked
	// anything.
	silence = 60 * time.Second
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
		running:       make(map[string]context.CancelFunc),
		notifications: make(chan mcp.JSONRPCNotification, 64),
		since:         time.Now(),
	}
	s.frames = newFrameReader(stream)
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

	err := s.read(callCtx)
	s.calls.Wait()
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

// read reads frames and starts what answers them, until there are no more.
func (s *session) read(ctx context.Context) error {
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
	s.spoken.Store(true)
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	frame = bytes.Clone(frame)
	m.ID, m.Params = bytes.Clone(m.ID), bytes.Clone(m.Params)
	ctx, cancel := context.WithCancel(ctx)
	key := string(m.ID)
	s.mu.Lock()
	s.running[key] = cancel
	s.mu.Unlock()
	s.calls.Go(func() {
		defer func() {
			s.mu.Lock()
			delete(s.running, key)
			s.mu.Unlock()
			cancel()
			<-s.slots
		}()
		s.answer(ctx, m, frame)
	})
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

// answer answers one request.
func (s *session) answer(ctx context.Context, m envelope, frame []byte) {
	defer func() {
		if p := recover(); p != nil {
			s.daemon.log.Error("a request panicked", "method", *m.Method, "panic", p, "stack", string(debug.Stack()))
			s.writeError(m.ID, codeInternal, "internal error")
		}
	}()
	response, err := s.respond(ctx, m, frame)
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) && s.cancelled(m.ID) {
		return // a cancelled request is not answered
	}
	if err != nil {
		s.daemon.log.Error("an answer cannot be encoded", "method", *m.Method, "err", err)
		s.writeError(m.ID, codeInternal, "internal error")
		return
	}
	s.write(response)
}

// cancelled reports whether the client has withdrawn a request, which takes it
// out of running.
func (s *session) cancelled(id json.RawMessage) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, running := s.running[string(id)]
	return !running
}

// respond makes the frame that answers a request.
func (s *session) respond(ctx context.Context, m envelope, frame []byte) ([]byte, error) {
	if *m.Method == "tools/call" {
		return s.respondToCall(ctx, m, frame)
	}
	return encodeResponse(m.ID, s.mcp.HandleMessage(ctx, frame))
}

// respondToCall answers tools/call. Calls of the modern protocol go through
// mcp-go, which knows what their results need; all others are answered here,
// from prepared bytes.
func (s *session) respondToCall(ctx context.Context, m envelope, frame []byte) ([]byte, error) {
	s.calls_.Add(1)
	var params struct {
		Name      json.RawMessage `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(m.Params, &params); err != nil {
		return errorFrame(m.ID, codeInvalidParams, "params must be an object with the name of a tool"), nil
	}
	var name *string
	if err := json.Unmarshal(params.Name, &name); err != nil || name == nil {
		return errorFrame(m.ID, codeInvalidParams, "params.name must be the name of a tool"), nil
	}
	if a := bytes.TrimSpace(params.Arguments); len(a) > 0 && a[0] != '{' && string(a) != "null" {
		return errorFrame(m.ID, codeInvalidParams, "params.arguments must be an object"), nil
	}
	request := tools.Request{Arguments: params.Arguments, Caller: s.who(), Servers: s.daemon}
	tool, ok := tools.Lookup(*name)
	if !ok {
		return s.toolError(m.ID, tools.UnknownTool(*name), isModern(params.Meta)), nil
	}
	if len(params.Meta) > 0 {
		ctx = context.WithValue(ctx, requestKey{}, request)
		return encodeResponse(m.ID, s.mcp.HandleMessage(ctx, frame))
	}
	result, err := tool.Call(ctx, request)
	if err != nil {
		var e *tools.Error
		if errors.As(err, &e) {
			return s.toolError(m.ID, e, false), nil
		}
		return errorFrame(m.ID, codeInternal, err.Error()), nil
	}
	response := make([]byte, 0, len(result.Rows.Plain)+len(result.Rows.Escaped)+len(m.ID)+256)
	response = appendHead(response, m.ID)
	response = append(response, `"result":`...)
	response = result.AppendJSON(response)
	return append(response, "}\n"...), nil
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
	var m struct {
		Version string `json:"io.modelcontextprotocol/protocolVersion"`
	}
	return len(meta) > 0 && json.Unmarshal(meta, &m) == nil && mcp.IsModernProtocol(m.Version)
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
		cancel := s.running[string(p.RequestID)]
		delete(s.running, string(p.RequestID))
		s.mu.Unlock()
		if cancel != nil {
			cancel()
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
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if s.failed {
		return net.ErrClosed
	}
	if c, ok := s.stream.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = c.SetWriteDeadline(time.Now().Add(writeDeadline))
	}
	if _, err := s.stream.Write(frame); err != nil {
		s.failed = true
		s.stream.Close()
		return err
	}
	return nil
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

func (s *session) SetClientInfo(info mcp.Implementation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = info
	s.caller.Client = info.Name + " " + info.Version
}

func (s *session) GetClientCapabilities() mcp.ClientCapabilities {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caps
}

func (s *session) SetClientCapabilities(caps mcp.ClientCapabilities) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caps = caps
}

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
