package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// protocolVersion is what we ask for; the daemon may answer with another.
const protocolVersion = "2025-11-25"

// A client speaks MCP over one stream, one request after the other.
//
// It is not mcp-go's client, because that decodes a result into maps: the
// order of keys would be lost, and --json must print the answer as it came.
type client struct {
	w    io.Writer
	r    *bufio.Reader
	last int // id of the last request
}

// An rpcError is a JSON-RPC error as the server sent it.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return e.Message }

// connect introduces us on a stream: who asks (hello), then MCP's own
// handshake under a client's name. When ctx ends, the stream is closed and calls fail with ctx's
// error.
func connect(ctx context.Context, stream io.ReadWriteCloser, name string, hello []byte) (*client, error) {
	context.AfterFunc(ctx, func() { stream.Close() })
	c := &client{w: stream, r: bufio.NewReader(stream)}
	if _, err := c.w.Write(hello); err != nil {
		return nil, err
	}
	_, err := c.request("initialize", map[string]any{
		"protocolVersion": protocolVersion,
		"capabilities":    struct{}{},
		"clientInfo":      map[string]string{"name": name, "version": versionText()},
	})
	if err != nil {
		return nil, err
	}
	return c, c.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

// callTool returns the rows that a tool answers with, as compact JSON.
func (c *client) callTool(name string, arguments map[string]any) (json.RawMessage, error) {
	result, err := c.request("tools/call", map[string]any{"name": name, "arguments": arguments})
	if err != nil {
		return nil, err
	}
	var answer struct {
		IsError bool
		Content []struct{ Text string }
		Rows    struct {
			Result json.RawMessage
		} `json:"structuredContent"`
	}
	if err := json.Unmarshal(result, &answer); err != nil {
		return nil, fmt.Errorf("answer of %s: %w", name, err)
	}
	if answer.IsError {
		if len(answer.Content) == 0 {
			return nil, fmt.Errorf("%s failed without saying why", name)
		}
		return nil, errors.New(answer.Content[0].Text)
	}
	if answer.Rows.Result == nil {
		return nil, fmt.Errorf("answer of %s holds no rows", name)
	}
	return answer.Rows.Result, nil
}

func (c *client) request(method string, params any) (json.RawMessage, error) {
	c.last++
	err := c.send(map[string]any{"jsonrpc": "2.0", "id": c.last, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	for {
		frame, err := c.r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the daemon closed the connection")
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(frame)) == 0 {
			continue
		}
		var message struct {
			ID     *int
			Method string
			Result json.RawMessage
			Error  *rpcError
		}
		if err := json.Unmarshal(frame, &message); err != nil {
			return nil, fmt.Errorf("answer to %s: %w", method, err)
		}
		switch {
		case message.Method != "":
			// A notification or a request of the server's: nothing of it
			// concerns one question.
		case message.Error != nil:
			return nil, message.Error
		case message.ID != nil && *message.ID == c.last:
			return message.Result, nil
		}
	}
}

func (c *client) send(message any) error {
	frame, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = c.w.Write(append(frame, '\n'))
	return err
}
