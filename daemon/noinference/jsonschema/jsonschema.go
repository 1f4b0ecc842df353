// Package jsonschema stands in for github.com/google/jsonschema-go/jsonschema
// (see the replace directive in go.mod), of which mcp-go's making of schemas from
// Go types is the only user. It is not used here: the tools' schemas are embedded
// as published.
//
// The real package makes regular expressions and schemas before main is called:
// 0.4 ms in every process, a fifth of what `tmux-mcpd stdio` takes to start. Here
// no type has a schema. It holds no code of the real one.
package jsonschema

import (
	"errors"
	"reflect"
)

var errNotLinked = errors.New("schemas of Go types are not part of this program")

// For fails.
func For[T any](*ForOptions) (*Schema, error) { return nil, errNotLinked }

// ForType fails.
func ForType(reflect.Type, *ForOptions) (*Schema, error) { return nil, errNotLinked }

// ForOptions are not looked at.
type ForOptions struct{ IgnoreInvalidTypes bool }

// A Schema is never made.
type Schema struct {
	Type, Description                string
	Properties                       map[string]*Schema
	PropertyOrder, Required          []string
	Items, AdditionalProperties, Not *Schema
	Enum                             []any
}
