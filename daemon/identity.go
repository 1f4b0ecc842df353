package daemon

import (
	"encoding/json"
	"net"
	"slices"

	"tmux-mcpd/tools"
)

// helloMethod is the notification by which a bridge hands over who its host
// is. The socket speaks nothing but JSON-RPC, and MCP has clients tell names,
// not environments.
const helloMethod = "notifications/tmux-mcpd/hello"

type hello struct {
	JSONRPC string      `json:"jsonrpc"`
	Method  string      `json:"method"`
	Params  helloParams `json:"params"`
}

type helloParams struct {
	Version string            `json:"version"`
	Env     map[string]string `json:"env,omitempty"`
	Hints   string            `json:"hints,omitempty"` // HintsReadOnly or nothing
}

// HintsReadOnly asks for tools that are announced as read-only.
const HintsReadOnly = "read-only"

// Hello is the frame by which a bridge introduces its host: its own version,
// those of tools.Variables that lookup (os.LookupEnv) has, and whether the host
// wants the tools announced as read-only.
func Hello(version string, lookup func(string) (string, bool), readOnly bool) []byte {
	p := helloParams{Version: version, Env: CallerFrom(lookup).Env}
	if readOnly {
		p.Hints = HintsReadOnly
	}
	return encodeHello(p)
}

func encodeHello(p helloParams) []byte {
	frame, err := json.Marshal(hello{"2.0", helloMethod, p})
	if err != nil {
		panic(err) // strings always encode
	}
	return append(frame, '\n')
}

// CallerFrom is a caller with the environment that lookup (os.LookupEnv) has.
func CallerFrom(lookup func(string) (string, bool)) tools.Caller {
	c := tools.Caller{Env: make(map[string]string)}
	for _, name := range tools.Variables {
		if value, ok := lookup(name); ok {
			c.Env[name] = value
		}
	}
	return c
}

// peerCaller finds out who has connected by looking at the environment of the
// process at the other end. Where that cannot be seen the caller is unknown.
func peerCaller(conn net.Conn) tools.Caller {
	if pid, ok := PeerPID(conn); ok {
		if env := processEnvironment(pid); env != nil {
			return CallerFrom(func(name string) (string, bool) {
				value, ok := env[name]
				return value, ok
			})
		}
	}
	return tools.Caller{}
}

// hello takes over what a bridge says of its host: all of it, for the bridge
// knows better than the environment of the process that has connected. It counts
// once and before any request: what is being answered is not pulled from under
// its feet, and a client that says nothing else does not make us say it as often.
func (s *session) hello(params json.RawMessage) {
	var h helloParams
	if s.spoken.Load() || json.Unmarshal(params, &h) != nil {
		return
	}
	env := make(map[string]string)
	for name, value := range h.Env {
		if slices.Contains(tools.Variables, name) && len(value) <= maxVariable {
			env[name] = value
		}
	}
	s.mu.Lock()
	again := s.greeted
	if !again {
		s.greeted, s.caller.Env, s.bridge = true, env, shortened(h.Version)
	}
	s.mu.Unlock()
	if again {
		return
	}
	if h.Hints == HintsReadOnly {
		s.mcp = s.daemon.readOnlyMCP()
	}
	// Not by the reader: a client that writes on before it reads would wait for
	// us as we for it.
	s.calls.Go(func() { _ = s.write(encodeHello(helloParams{Version: s.daemon.config.Version})) })
}

// who is the caller of a call.
func (s *session) who() tools.Caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caller
}
