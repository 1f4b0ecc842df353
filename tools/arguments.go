package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
)

// An argument is a string argument: absent, or a value, "" among them.
type argument struct {
	value string
	set   bool
}

// pointer is nil for an argument that is absent.
func (a argument) pointer() *string {
	if !a.set {
		return nil
	}
	return &a.value
}

// arguments are those of both tools.
type arguments struct {
	socketName  argument
	sessionName argument
	sessionID   argument
	windowID    argument
	windowIndex argument
	// match is what the filters say; nil lets every row through. Its error is
	// kept until the target has been resolved: a target that does not exist is
	// reported first.
	match    *Filter
	matchErr error
}

// parameter ties a name of the contract to its place.
type parameter struct {
	name  string
	place func(*arguments) *argument
}

var (
	sessionParameters = []parameter{
		{"socket_name", func(a *arguments) *argument { return &a.socketName }},
	}
	paneParameters = append([]parameter{
		{"session_name", func(a *arguments) *argument { return &a.sessionName }},
		{"session_id", func(a *arguments) *argument { return &a.sessionID }},
		{"window_id", func(a *arguments) *argument { return &a.windowID }},
		{"window_index", func(a *arguments) *argument { return &a.windowIndex }},
	}, sessionParameters...)
)

// ErrArguments says that the arguments of a call are no JSON object: an error
// of the protocol, not of the tool.
var ErrArguments = errors.New("arguments must be a JSON object")

// readArguments reads the arguments of the scope's tool, or remembers them. The
// filter is the call's own.
func readArguments(r Request, scope Scope, parameters []parameter) (arguments, error) {
	if a, ok := r.Repeats.find(scope, r.Arguments); ok {
		a.match = a.match.Again()
		return a, nil
	}
	a, err := decodeArguments(r, scope, parameters)
	if err == nil && a.matchErr == nil {
		r.Repeats.remember(scope, r.Arguments, a)
		a.match = a.match.Again()
	}
	return a, err
}

// decodeArguments decodes the arguments of the scope's tool. null counts as absent
// everywhere. A number is taken by its digits, because hosts send indexes as
// numbers; anything else that is no string is refused, and so is a name that
// the tool has not, so that a misspelt target never widens the answer.
func decodeArguments(r Request, scope Scope, parameters []parameter) (arguments, error) {
	var a arguments
	var filters json.RawMessage
	raw := bytes.TrimSpace(r.Arguments)
	if len(raw) == 0 || string(raw) == "null" || string(raw) == "{}" {
		return a, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return a, ErrArguments
	}
	var problems []Problem
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return a, ErrArguments
		}
		name, _ := key.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return a, ErrArguments
		}
		if name == "filters" {
			filters = value
			_, wrong := readFilters(value)
			problems = append(problems, wrong...)
			continue
		}
		i := slices.IndexFunc(parameters, func(p parameter) bool { return p.name == name })
		if i < 0 {
			problems = append(problems, UnexpectedArgument(name))
			continue
		}
		arg, ok := decodeArgument(value)
		if !ok {
			problems = append(problems, NotAString(name))
		}
		*parameters[i].place(&a) = arg
	}
	if len(problems) > 0 {
		return a, Invalid(scope.tool(), r.Caller.Client, problems)
	}
	a.match, a.matchErr = CompileFilter(filters, scope)
	return a, nil
}

func decodeArgument(value json.RawMessage) (argument, bool) {
	switch c := value[0]; {
	case c == 'n':
		return argument{}, true
	case c == '"':
		var s string
		if err := json.Unmarshal(value, &s); err != nil {
			return argument{}, false
		}
		return argument{value: s, set: true}, true
	case c == '-' || c >= '0' && c <= '9':
		return argument{value: string(value), set: true}, true
	}
	return argument{}, false
}
