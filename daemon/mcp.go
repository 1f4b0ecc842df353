package daemon

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"tmux-mcpd/tools"
)

// ServerName is how we call ourselves to MCP clients.
const (
	ServerName  = "tmux-mcpd"
	serverTitle = "tmux"
)

// newMCP makes the protocol side that sessions share: mcp-go knows the
// methods, the versions and the forms of their results.
func newMCP(version string, readOnly bool) *mcpserver.MCPServer {
	s := mcpserver.NewMCPServer(ServerName, version,
		mcpserver.WithToolCapabilities(false),
		mcpserver.WithResourceCapabilities(true, false),
		mcpserver.WithCompletions(),
		mcpserver.WithResourceCompletionProvider(resourceCompletion{}),
		mcpserver.WithInstructions(tools.Instructions),
		mcpserver.WithRecovery(),
		mcpserver.WithTitle(serverTitle),
	)
	for _, t := range tools.All {
		s.AddTool(newMCPTool(t, readOnly), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return callTool(ctx, t)
		})
	}
	addResources(s)
	return s
}

// modernAddition is what mcp-go adds to the results of the protocol from
// 2026-07-28 on.
func modernAddition(version string) tools.Addition {
	identity, err := json.Marshal(mcp.Implementation{Name: ServerName, Version: version, Title: serverTitle})
	if err != nil {
		panic(err) // strings always encode
	}
	return tools.Addition{
		Meta:   `,"` + mcp.MetaKeyServerInfo + `":` + string(identity),
		Result: `,"resultType":"` + string(mcp.ResultTypeComplete) + `"`,
	}
}

// contract is what mcp-go needs of a tool's entry in tools/list, the schemas
// byte for byte.
type contract struct {
	Name         string
	Title        string
	Description  string
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage
	Annotations  mcp.ToolAnnotation
	Meta         map[string]any `json:"_meta"`
}

func newMCPTool(t tools.Tool, readOnly bool) mcp.Tool {
	var c contract
	if err := json.Unmarshal(t.Contract, &c); err != nil {
		panic("tools: the contract of " + t.Name + " is no JSON: " + err.Error())
	}
	tool := mcp.NewToolWithRawSchema(c.Name, c.Description, c.InputSchema)
	tool.Title = c.Title
	tool.RawOutputSchema = c.OutputSchema
	tool.Annotations = c.Annotations
	if readOnly {
		tool.Annotations.ReadOnlyHint = mcp.ToBoolPtr(true)
		tool.Annotations.DestructiveHint = mcp.ToBoolPtr(false)
		tool.Annotations.IdempotentHint = mcp.ToBoolPtr(true)
		tool.Annotations.OpenWorldHint = mcp.ToBoolPtr(false)
	}
	if c.Meta != nil {
		tool.Meta = mcp.NewMetaFromMap(c.Meta)
	}
	return tool
}

// An inquiry is a call that goes through mcp-go for its judgement of how it is
// made. Call and answer pass it by: it would hand on the arguments decoded (the
// order of filters and the digits of numbers would be lost), and leave members
// of the contract out of the result.
type inquiry struct {
	request tools.Request
	// Set once mcp-go has let the call through.
	result *tools.Result
	err    error
}

// inquiryKey is the context key of the *inquiry.
type inquiryKey struct{}

// callTool carries a call out that mcp-go has let through.
func callTool(ctx context.Context, t tools.Tool) (*mcp.CallToolResult, error) {
	q, ok := ctx.Value(inquiryKey{}).(*inquiry)
	if !ok {
		return nil, errors.New("tool called outside of a session")
	}
	q.result, q.err = t.Call(ctx, q.request)
	return &mcp.CallToolResult{}, nil
}
