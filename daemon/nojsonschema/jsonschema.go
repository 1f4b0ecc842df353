// Package jsonschema stands in for github.com/santhosh-tekuri/jsonschema/v6
// (see the replace directive in go.mod), of which mcp-go's optional validation
// of tool arguments is the only user. That validation is off here: the tools
// check their arguments themselves.
//
// The real package compiles ten schemas before main is called. That took 4 to
// 10 ms and 1.7 MB in every process, `tmux-mcpd stdio` and `version` among
// them: more than all else that they do. Here every schema fails to compile,
// which mcp-go takes for "do not validate". It holds no code of the real one.
package jsonschema

import (
	"encoding/json"
	"errors"
	"io"
)

var errNotLinked = errors.New("JSON schema validation is not part of this program")

// A Compiler compiles nothing.
type Compiler struct{}

// NewCompiler returns a Compiler.
func NewCompiler() *Compiler { return &Compiler{} }

// AddResource fails.
func (*Compiler) AddResource(string, any) error { return errNotLinked }

// Compile fails.
func (*Compiler) Compile(string) (*Schema, error) { return nil, errNotLinked }

// A Schema is never made.
type Schema struct{}

// Validate fails.
func (*Schema) Validate(any) error { return errNotLinked }

// UnmarshalJSON decodes a document.
func UnmarshalJSON(r io.Reader) (any, error) {
	decoder := json.NewDecoder(r)
	decoder.UseNumber()
	var v any
	err := decoder.Decode(&v)
	return v, err
}

// A ValidationError is never made.
type ValidationError struct {
	InstanceLocation []string
	ErrorKind        any
	Causes           []*ValidationError
}

func (*ValidationError) Error() string { return errNotLinked.Error() }
