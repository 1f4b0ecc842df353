package tools

import (
	"fmt"
	"strings"
)

// An Error is the answer of a tool that could not do its work: MCP's result
// with isError set, not an error of JSON-RPC. Its texts are those of the
// published contract.
type Error struct {
	Text       string // without the suggestion
	Type       string // one of the error types below
	Expected   bool   // the caller can do something about it
	Suggestion string // what to do instead; "" for none
}

// The error types of the contract. Programs read them from _meta.
const (
	typeExpected   = "ExpectedToolError"
	typeNotFound   = "TmuxObjectDoesNotExist"
	typeValidation = "ValidationError"
	typeJSON       = "JSONDecodeError"
	typeNoTool     = "NotFoundError"
)

// Error returns the text of the content block: the suggestion, if there is
// one, is its last line.
func (e *Error) Error() string {
	if e.Suggestion == "" {
		return e.Text
	}
	return e.Text + "\n" + e.Suggestion
}

// Meta returns what belongs in the _meta of the result.
func (e *Error) Meta() ErrorMeta {
	return ErrorMeta{ErrorType: e.Type, Expected: e.Expected, Suggestion: e.Suggestion}
}

// ErrorMeta is the _meta of a result that is an Error.
type ErrorMeta struct {
	ErrorType  string `json:"error_type"`
	Expected   bool   `json:"expected"`
	Suggestion string `json:"suggestion,omitempty"`
}

// Refused is an error that the caller can act upon, with a text of any kind.
func Refused(format string, args ...any) *Error {
	return &Error{Text: fmt.Sprintf(format, args...), Type: typeExpected, Expected: true}
}

// NotFound says that no session or window has the value that the target
// argument key asks for.
func NotFound(key, value string) *Error {
	return &Error{
		Text:       fmt.Sprintf("Object not found: Could not find %s=%s", key, value),
		Type:       typeNotFound,
		Expected:   true,
		Suggestion: "Call list_sessions / list_windows / list_panes to discover valid ids.",
	}
}

// UnknownTool says that there is no tool of that name.
func UnknownTool(name string) *Error {
	return &Error{Text: fmt.Sprintf("Unknown tool: '%s'", name), Type: typeNoTool}
}

// A Problem is what is wrong with one argument of a call.
type Problem struct {
	Path    string // of the argument
	Message string
	Kind    string
	Hint    string // becomes (part of) the suggestion
}

const unexpectedArgument = "unexpected_keyword_argument"

// UnexpectedArgument is the problem of an argument that the tool does not have.
func UnexpectedArgument(name string) Problem {
	return Problem{Path: name, Message: "Unexpected keyword argument", Kind: unexpectedArgument}
}

// NotAString is the problem of an argument that is no string.
func NotAString(path string) Problem {
	return Problem{Path: path, Message: "Input should be a valid string", Kind: "string_type"}
}

// schedulingArgument is put into calls by some clients that batch them. It is
// refused like every unknown argument, but the refusal explains it.
const schedulingArgument = "wait_for_previous"

// Invalid says what is wrong with the arguments of a call of tool. The client
// is the caller's name and version, for the text only. Problems must not be
// empty.
func Invalid(tool, client string, problems []Problem) *Error {
	var text strings.Builder
	plural := "s"
	if len(problems) == 1 {
		plural = ""
	}
	fmt.Fprintf(&text, "%d validation error%s for call[%s]", len(problems), plural, tool)

	var unexpected, hints []string
	for _, p := range problems {
		path := p.Path
		if path == "" {
			path = "__root__"
		}
		fmt.Fprintf(&text, "\n%s\n  %s [type=%s]", path, p.Message, p.Kind)
		if p.Kind == unexpectedArgument {
			unexpected = append(unexpected, p.Path)
		}
		if p.Hint != "" {
			hints = append(hints, p.Hint)
		}
	}
	if unexpected != nil {
		remove := "Remove or correct the unrecognized argument(s): " + strings.Join(unexpected, ", ") + "."
		for _, name := range unexpected {
			if name == schedulingArgument {
				remove += fmt.Sprintf(" %s is a scheduling flag your client (%s) can leak into batched tool calls; retry the call without it.", name, client)
				break
			}
		}
		hints = append([]string{remove}, hints...)
	}
	return &Error{
		Text:       text.String(),
		Type:       typeValidation,
		Expected:   true,
		Suggestion: strings.Join(hints, " "),
	}
}
