package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
)

// A table prints rows in aligned columns for people. Programs take --json.
type table struct {
	columns []column
	rows    [][]string
}

// A column that may be cut gives up cells when the terminal is too narrow.
type column struct {
	title string
	cut   cut
}

type cut uint8

const (
	cutNever cut = iota
	cutEnd       // drop the end: the start of a title says most
	cutStart     // drop the start: the end of a path says most
)

const (
	gap       = "  "
	narrowest = 8   // cells that a column keeps when it is cut
	emptyCell = "-" // so that no cell of a row is missing to the eye
	cutMark   = "…"
)

// cells measures as terminals do: ambiguous characters narrow, emoji wide.
// A value of its own, because the package's default changes with the locale.
var cells = &runewidth.Condition{StrictEmojiNeutral: true}

// write prints the table. Lines longer than width cells are cut; a width of 0
// means that there is no limit (a pipe, a file).
func (t table) write(w io.Writer, width int) error {
	lines := make([][]string, 0, len(t.rows)+1)
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	lines = append(lines, titles)
	for _, row := range t.rows {
		line := make([]string, len(t.columns))
		for i := range line {
			line[i] = printable(row[i])
			if line[i] == "" {
				line[i] = emptyCell
			}
		}
		lines = append(lines, line)
	}

	widths := t.fit(lines, width)
	var out strings.Builder
	for _, line := range lines {
		var text strings.Builder
		for i, cell := range line {
			if i > 0 {
				text.WriteString(gap)
			}
			cell = t.columns[i].shorten(cell, widths[i])
			text.WriteString(cell)
			text.WriteString(strings.Repeat(" ", max(0, widths[i]-cells.StringWidth(cell))))
		}
		whole := strings.TrimRight(text.String(), " ")
		if width > 0 {
			// Even the narrowest columns may be too wide together: better a
			// cut line than one that wraps.
			whole = cells.Truncate(whole, width, cutMark)
		}
		out.WriteString(whole)
		out.WriteByte('\n')
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// fit returns the width of each column: that of its longest cell, and when
// the sum is too much, the widest columns that may be cut give way first.
func (t table) fit(lines [][]string, width int) []int {
	widths := make([]int, len(t.columns))
	total := len(gap) * (len(t.columns) - 1)
	for i := range widths {
		for _, line := range lines {
			widths[i] = max(widths[i], cells.StringWidth(line[i]))
		}
		total += widths[i]
	}
	for width > 0 && total > width {
		widest := -1
		for i, c := range t.columns {
			if c.cut != cutNever && widths[i] > narrowest && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

// shorten cuts a cell to the width of its column.
func (c column) shorten(cell string, width int) string {
	switch wide := cells.StringWidth(cell); {
	case wide <= width || c.cut == cutNever:
		return cell
	case c.cut == cutStart:
		return cells.TruncatePrefix(cell, width, cutMark)
	default:
		return cells.Truncate(cell, width, cutMark)
	}
}

// printable escapes what must not reach a terminal: pane titles and directory
// names are set by programs (also remote ones), and a control character or a
// change of writing direction in them could forge other rows or drive the
// terminal.
func printable(s string) string {
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if !unprintable(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// unprintable holds for control and format characters and line separators,
// except the joiners that emoji and several scripts are written with.
// Private-use characters stay: prompts draw with them.
func unprintable(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && !isJoiner(r)
}

func isJoiner(r rune) bool { return r == '\u200c' || r == '\u200d' }

// size joins a width and a height as tmux writes them.
func size(width, height string) string {
	if width == "" || height == "" {
		return ""
	}
	return fmt.Sprintf("%sx%s", width, height)
}
