package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
)

// callWithin bounds one request of an mcpClient. It is for hangs only, so it is far
// above what a loaded machine needs.
const callWithin = 60 * time.Second

// mcpClient speaks MCP over any stream, one frame a line. It does no more than
// tests need and hides nothing: frames can be sent and taken raw. All methods are
// for one goroutine, except that close may be called from another.
type mcpClient struct {
	stream        io.ReadWriteCloser
	nextID        int
	frames        chan frame // closed at the end of the stream
	readErr       error      // why the stream ended; set before frames is closed
	notifications []frame    // those that came while a response was waited for
}

// frame is one JSON-RPC message and its bytes.
type frame struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
	raw    []byte
	at     time.Time // when it was read
}

// rpcError is a JSON-RPC error object.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (e *rpcError) Error() string { return fmt.Sprintf("JSON-RPC error %d: %s", e.Code, e.Message) }

// toolError is a tool result with isError.
type toolError struct{ result toolResult }

func (e *toolError) Error() string { return "tool error: " + e.result.text() }

// toolResult is the result of tools/call.
type toolResult struct {
	IsError bool `json:"isError"`
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	StructuredContent json.RawMessage `json:"structuredContent"`
	Meta              json.RawMessage `json:"_meta"`
}

// errStreamEnded is returned when the server closes the connection.
var errStreamEnded = errors.New("the server closed the connection")

// errNoFrame is returned when nothing comes in time.
var errNoFrame = errors.New("no frame")

// newMCPClient begins to read from the stream. The client closes it at the end of
// the test, if the test has not.
func newMCPClient(t testing.TB, stream io.ReadWriteCloser) *mcpClient {
	c := &mcpClient{stream: stream, frames: make(chan frame, 64)}
	go c.read()
	t.Cleanup(func() {
		c.close()
		c.drain(10 * time.Second)
	})
	return c
}

// drain drops what still comes until the stream ends and with it the reader. A
// server that does not end in time is left to the cleanup of its process.
func (c *mcpClient) drain(within time.Duration) {
	for end := time.Now().Add(within); ; {
		if _, err := c.receive(time.Until(end)); err != nil {
			return
		}
	}
}

func (c *mcpClient) read() {
	defer close(c.frames)
	for in := bufio.NewReaderSize(c.stream, 64<<10); ; {
		line, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			f := frame{raw: bytes.TrimRight(line, "\r\n"), at: time.Now()}
			if jsonErr := json.Unmarshal(line, &f); jsonErr != nil {
				c.readErr = fmt.Errorf("not a JSON-RPC frame: %w: %.200q", jsonErr, line)
				return
			}
			c.frames <- f
		}
		if err != nil {
			c.readErr = errStreamEnded
			return
		}
	}
}

// close ends the connection.
func (c *mcpClient) close() { _ = c.stream.Close() }

// send writes one frame as it is.
func (c *mcpClient) send(raw []byte) error {
	_, err := c.stream.Write(append(bytes.Clone(raw), '\n'))
	return err
}

// receive returns the next frame of any kind.
func (c *mcpClient) receive(within time.Duration) (frame, error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case f, ok := <-c.frames:
		if !ok {
			return frame{}, c.readErr
		}
		return f, nil
	case <-timer.C:
		return frame{}, fmt.Errorf("%w within %v", errNoFrame, within)
	}
}

// notify sends a notification.
func (c *mcpClient) notify(method string, params any) error {
	return c.sendMessage(map[string]any{"jsonrpc": "2.0", "method": method}, params)
}

func (c *mcpClient) sendMessage(message map[string]any, params any) error {
	if params != nil {
		message["params"] = params
	}
	raw, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return c.send(raw)
}

// request sends one request and returns the frame that answers it. Notifications
// that come first are kept in c.notifications; requests of the server are refused.
func (c *mcpClient) request(method string, params any) (frame, error) {
	c.nextID++
	id := c.nextID
	if err := c.sendMessage(map[string]any{"jsonrpc": "2.0", "id": id, "method": method}, params); err != nil {
		// The reason is on the other half: a server that ends closes both.
		if f, readErr := c.receive(time.Second); readErr != nil {
			return f, errors.Join(err, readErr)
		}
		return frame{}, err
	}
	want := fmt.Sprint(id)
	for end := time.Now().Add(callWithin); ; {
		f, err := c.receive(time.Until(end))
		switch {
		case err != nil:
			return f, fmt.Errorf("%s: %w", method, err)
		case f.Method != "" && f.ID == nil:
			c.notifications = append(c.notifications, f)
		case f.Method != "":
			refusal := map[string]any{"jsonrpc": "2.0", "id": f.ID, "error": &rpcError{Code: -32601, Message: "Method not found"}}
			if err := c.sendMessage(refusal, nil); err != nil {
				return f, err
			}
		case string(f.ID) != want:
			return f, fmt.Errorf("%s: answer to %s where %s is open: %.200s", method, f.ID, want, f.raw)
		default:
			return f, nil
		}
	}
}

// result is request for methods that must succeed; a JSON-RPC error is an *rpcError.
func (c *mcpClient) result(method string, params any) (json.RawMessage, error) {
	f, err := c.request(method, params)
	if err != nil {
		return nil, err
	}
	if f.Error != nil {
		return nil, f.Error
	}
	return f.Result, nil
}

// initialize does the handshake.
func (c *mcpClient) initialize() error {
	_, err := c.result("initialize", map[string]any{
		"protocolVersion": "2025-06-18",
		"capabilities":    map[string]any{},
		"clientInfo":      map[string]any{"name": "tmux-mcpd-test", "version": "1"},
	})
	if err != nil {
		return err
	}
	return c.notify("notifications/initialized", nil)
}

// hello tells the daemon whom it serves, as the bridge does in its first frame.
func (c *mcpClient) hello(env map[string]string) error {
	return c.notify("notifications/tmux-mcpd/hello", map[string]any{"version": "test", "env": env})
}

// call calls one tool. A nil args sends no arguments. A tool's own error is no
// error here: it is in the result.
func (c *mcpClient) call(tool string, args any) (toolResult, error) {
	params := map[string]any{"name": tool}
	if args != nil {
		params["arguments"] = args
	}
	raw, err := c.result("tools/call", params)
	if err != nil {
		return toolResult{}, err
	}
	return parseToolResult(raw)
}

func parseToolResult(raw json.RawMessage) (toolResult, error) {
	var r toolResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("tool result: %w: %.200s", err, raw)
	}
	return r, nil
}

// list calls one tool and returns its rows; a tool's own error is a *toolError.
func (c *mcpClient) list(tool string, args any) ([]row, error) {
	r, err := c.call(tool, args)
	if err != nil {
		return nil, err
	}
	if r.IsError {
		return nil, &toolError{r}
	}
	return r.rows()
}

// text is the text of all text blocks.
func (r *toolResult) text() string {
	var all string
	for _, c := range r.Content {
		if c.Type == "text" {
			all += c.Text
		}
	}
	return all
}

// rows decodes structuredContent.result; numbers stay json.Number.
func (r *toolResult) rows() ([]row, error) {
	var structured struct {
		Result *[]row `json:"result"`
	}
	if err := decodeExact(r.StructuredContent, &structured); err != nil {
		return nil, fmt.Errorf("structuredContent: %w: %.200s", err, r.StructuredContent)
	}
	if structured.Result == nil {
		return nil, fmt.Errorf("structuredContent has no list under result: %.200s", r.StructuredContent)
	}
	return *structured.Result, nil
}

// decodeExact decodes JSON with numbers kept as they are written.
func decodeExact(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}

// withoutCaller takes is_caller out of the rows, for comparison with what tmux
// says; the rows are copied.
func withoutCaller(rows []row) []row {
	out := make([]row, 0, len(rows))
	for _, r := range rows {
		kept := row{}
		for k, v := range r {
			if k != "is_caller" {
				kept[k] = v
			}
		}
		out = append(out, kept)
	}
	return out
}
