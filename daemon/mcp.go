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

// requestKey is the context key of the tools.Request of a call that goes
// through mcp-go, which would hand on its arguments decoded: the order of
// filters and the digits of numbers would be lost.
type requestKey struct{}

// callTool answers a call that came through mcp-go.
func callTool(ctx context.Context, t tools.Tool) (*mcp.CallToolResult, error) {
	request, ok := ctx.Value(requestKey{}).(tools.Request)
	if !ok {
		return nil, errors.New("tool called outside of a session")
	}
	result, err := t.Call(ctx, request)
	if err != nil {
		var e *tools.Error
		if !errors.As(err, &e) {
			return nil, err
		}
		meta := map[string]any{"error_type": e.Type, "expected": e.Expected}
		if e.Suggestion != "" {
			meta["suggestion"] = e.Suggestion
		}
		failed := mcp.NewToolResultError(e.Error())
		failed.Meta = mcp.NewMetaFromMap(meta)
		return failed, nil
	}
	structured := append(append([]byte(`{"result":`), result.Rows.Plain...), '}')
	return &mcp.CallToolResult{
		Result:               mcp.Result{Meta: mcp.NewMetaFromMap(map[string]any{"fastmcp": map[string]any{"wrap_result": true}})},
		Content:              []mcp.Content{mcp.NewTextContent(string(result.Rows.Plain))},
		StructuredContent:    json.RawMessage(structured),
		RawStructuredContent: structured,
	}, nil
}
