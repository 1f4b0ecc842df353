// Package tools is the contract of the MCP tools: what they are called, which
// arguments they take, and what they answer.
//
// A tool is one file: its embedded contract, its input and its handler. The
// handler is a function of a request and of a Server, the interface through
// which the daemon gives it a snapshot that is as fresh as the request:
//
//	for _, tool := range tools.All {
//		result, err := tool.Call(ctx, request) // err is a *tools.Error
//	}
//
// Nothing here talks to tmux or to a client.
package tools
