package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tmux-mcpd/daemon"
	"tmux-mcpd/daemon/bridge"
)

// list --watch subscribes to a resource, as an agent does, and asks the tool
// again whenever it is told of an update. The connection is a bridge's: it
// outlives the daemon, and if none is left it reads tmux in this process.

const updatedMethod = "notifications/resources/updated"

// awaitUpdate waits until a resource has changed since the last call.
func (c *client) awaitUpdate() error {
	for c.updates == 0 {
		frame, err := c.r.ReadBytes('\n')
		if err != nil {
			return err
		}
		var message struct{ Method string }
		if json.Unmarshal(frame, &message) == nil && message.Method == updatedMethod {
			c.updates++
		}
	}
	c.updates = 0
	return nil
}

// A feed is what is watched.
type feed struct {
	resources []string // that tell when to ask again
	ask       func(mcp *client) (*picture, error)
}

// A picture is one answer.
type picture struct {
	json  json.RawMessage
	table table
	ids   []string // of the table's rows
}

// sessionsFeed watches what list_sessions answers.
func sessionsFeed(l *listing, arguments map[string]any) feed {
	return feed{
		resources: []string{l.resource("tmux://sessions")},
		ask: func(mcp *client) (*picture, error) {
			p := &picture{}
			var rows []sessionRow
			if err := p.call(mcp, "list_sessions", arguments, &rows); err != nil {
				return nil, err
			}
			for _, row := range rows {
				p.ids = append(p.ids, row.ID)
			}
			p.table = sessionTable(rows, time.Local)
			return p, nil
		},
	}
}

// panesFeed watches what list_panes answers. The table shows names of sessions
// too, which no row of a pane has.
func panesFeed(l *listing, arguments map[string]any) feed {
	f := feed{resources: []string{l.resource("tmux://panes")}}
	if !l.json {
		f.resources = append(f.resources, l.resource("tmux://sessions"))
	}
	f.ask = func(mcp *client) (*picture, error) {
		p := &picture{}
		var rows []paneRow
		if err := p.call(mcp, "list_panes", arguments, &rows); err != nil {
			return nil, err
		}
		var names map[string]string
		if !l.json && len(rows) > 0 {
			var err error
			if names, err = mcp.sessionNames(l.server); err != nil {
				return nil, err
			}
		}
		for _, row := range rows {
			p.ids = append(p.ids, row.ID)
		}
		p.table = paneTable(rows, names)
		return p, nil
	}
	return f
}

// resource is a resource's URI for the server that the flags name.
func (l *listing) resource(uri string) string {
	if l.server != "" {
		uri += "?socket=" + url.QueryEscape(l.server)
	}
	return uri
}

func (p *picture) call(mcp *client, tool string, arguments map[string]any, rows any) (err error) {
	if p.json, err = mcp.callTool(tool, arguments); err != nil {
		return err
	}
	if err := json.Unmarshal(p.json, rows); err != nil {
		return fmt.Errorf("answer of %s: %w", tool, err)
	}
	return nil
}

// A display shows pictures, each different from the one before.
type display interface {
	show(p *picture) error
	// note tells people what is the matter; "" takes it back. warn tells them
	// something that holds from now on.
	note(text string)
	warn(text string)
	close()
}

// follow shows what a feed gives until ctx ends or nobody can see it any more.
// Neither is an error.
func (l *listing) follow(ctx context.Context, c console, f feed) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Caught, not ignored (which tmux would inherit): a broken stdout becomes
	// an error of the write, and there is time to restore the terminal and to
	// leave tmux in order.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGPIPE, syscall.SIGHUP)
	defer signal.Stop(signals)
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	if out, ok := c.out.(*os.File); ok {
		defer untilClosed(out, cancel)()
	}

	d := l.display(c)
	defer d.close()
	notes := &noteWriter{display: d}
	stream, ended := l.connection(ctx, c, notes)
	defer func() { stream.Close(); <-ended }()
	err := l.pump(ctx, stream, f, d, &notes.open)
	switch {
	case ctx.Err() != nil, errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EIO):
		return nil
	}
	return err
}

// pump asks and shows, until the stream ends. shown is set once there is a
// picture.
func (l *listing) pump(ctx context.Context, stream io.ReadWriteCloser, f feed, d display, shown *atomic.Bool) error {
	mcp, err := connect(ctx, stream, "tmux-mcpd list", nil)
	if err != nil {
		return err
	}
	for _, uri := range f.resources {
		if _, err := mcp.request("resources/subscribe", map[string]any{"uri": uri}); err != nil {
			return err
		}
	}
	var last *picture
	for {
		p, err := f.ask(mcp)
		var said *toolError
		switch {
		case errors.As(err, &said) && last != nil:
			// The session that is watched has gone, or tmux does not answer:
			// that may pass.
			d.note(said.Error())
			if !said.absent() {
				select {
				case <-time.After(time.Second):
					continue
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			p = &picture{json: json.RawMessage("[]"), table: table{columns: last.table.columns}}
		case err != nil:
			return err
		default:
			d.note("")
		}
		if last == nil || !p.same(last) {
			if err := d.show(p); err != nil {
				return err
			}
			last = p
			shown.Store(true)
		}
		if err := mcp.awaitUpdate(); err != nil {
			return err
		}
	}
}

func (p *picture) same(other *picture) bool {
	if !bytes.Equal(p.json, other.json) || len(p.table.rows) != len(other.table.rows) {
		return false
	}
	for i, row := range p.table.rows {
		for j, cell := range row {
			if cell != other.table.rows[i][j] {
				return false
			}
		}
	}
	return true
}

// connection is a bridge in this process. ended is closed when it has left tmux
// in order.
func (l *listing) connection(ctx context.Context, c console, notes *noteWriter) (stream io.ReadWriteCloser, ended <-chan struct{}) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	b := bridge.Bridge{
		Dial:    l.place.dial,
		Hello:   c.hello(false),
		Version: versionText(),
		Embedded: func(ctx context.Context, stream io.ReadWriteCloser) error {
			return l.place.embedded(c, slog.New(slog.DiscardHandler), false, defaultTimes).ServeConn(ctx, stream, daemon.CallerFrom(c.lookup))
		},
		Log: slog.New(slog.NewTextHandler(notes, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: onlyMessage})),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		outW.CloseWithError(b.Run(ctx, inR, outW)) // nil is io.EOF to the reader
		inR.Close()
	}()
	return pipes{outR, inW}, done
}

// pipes is the host's end of a bridge.
type pipes struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func (p pipes) Read(b []byte) (int, error) { return p.r.Read(b) }

// Write leaves out what is empty, which a pipe would wait for a reader of.
func (p pipes) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return p.w.Write(b)
}

func (p pipes) Close() error {
	p.w.Close()
	return p.r.Close()
}

// noteWriter makes warnings of a logger's lines, once it is open: that no daemon
// runs to begin with is nothing to speak of.
type noteWriter struct {
	display
	open atomic.Bool
}

func (w *noteWriter) Write(p []byte) (int, error) {
	if !w.open.Load() {
		return len(p), nil
	}
	text := strings.TrimSuffix(strings.TrimPrefix(string(p), "msg="), "\n")
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	w.warn(text)
	return len(p), nil
}

func onlyMessage(_ []string, a slog.Attr) slog.Attr {
	if a.Key != slog.MessageKey {
		return slog.Attr{}
	}
	return a
}

// untilClosed calls closed when nobody can read what is written to out any
// more, which a quiet server would not let us notice. The caller calls stop.
func untilClosed(out *os.File, closed func()) (stop func()) {
	r, w, err := os.Pipe() // its end wakes the poll
	if err != nil {
		return func() {}
	}
	fds := []unix.PollFd{{Fd: int32(out.Fd())}, {Fd: int32(r.Fd()), Events: unix.POLLIN}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			_, err := unix.Poll(fds, -1)
			switch {
			case err == unix.EINTR:
				continue
			case err == nil && fds[1].Revents == 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0:
				closed()
			}
			// Or macOS, which does not poll terminals: POLLNVAL.
			return
		}
	}()
	return func() {
		w.Close()
		<-done
		r.Close()
	}
}

// display chooses how to show.
func (l *listing) display(c console) display {
	out, isFile := c.out.(*os.File)
	switch {
	case l.json:
		return &jsonLines{stderrNotes{c: c}}
	case isFile && isTerminal(out) && c.getenv("TERM") != "dumb":
		return newLiveTable(c, out, l.because())
	default:
		return &changeLines{stderrNotes: stderrNotes{c: c}}
	}
}

// jsonLines prints each answer as one line.
type jsonLines struct{ stderrNotes }

func (d *jsonLines) show(p *picture) error { return printJSON(d.c.out, p.json) }

// stderrNotes keeps notes apart from what programs read.
type stderrNotes struct {
	c    console
	last string // so that what goes on is told once
}

func (n *stderrNotes) note(text string) {
	if text != "" && text != n.last {
		n.warn(text)
	}
	n.last = text
}

func (n *stderrNotes) warn(text string) { fmt.Fprintln(n.c.err, "tmux-mcpd: "+printable(text)) }
func (n *stderrNotes) close()           {}

// changeLines prints a line per change: + for what is new (at first all), - for
// what has gone, ~ for each cell that is another one.
type changeLines struct {
	stderrNotes
	shown *picture
}

func (d *changeLines) show(p *picture) error {
	_, err := io.WriteString(d.c.out, changes(d.shown, p))
	d.shown = p
	return err
}

// changes are the lines that lead from one picture to the next; old may be nil.
func changes(old, p *picture) string {
	var b strings.Builder
	before := map[string][]string{}
	if old != nil {
		before = old.byKey()
	}
	after := p.byKey()
	if old != nil {
		for i, key := range old.keys() {
			if after[key] == nil {
				b.WriteString("- " + old.line(i) + "\n")
			}
		}
	}
	for i, key := range p.keys() {
		was := before[key]
		if was == nil {
			b.WriteString("+ " + p.line(i) + "\n")
			continue
		}
		for j, cell := range p.table.rows[i] {
			if cell != was[j] && !p.isID(i, j) {
				fmt.Fprintf(&b, "~ %s %s: %s → %s\n", p.ids[i], p.field(j), word(was[j]), word(cell))
			}
		}
	}
	return b.String()
}

// keys tell the rows apart. A pane of a linked window has one row per session.
func (p *picture) keys() []string {
	seen := make(map[string]int)
	keys := make([]string, len(p.ids))
	for i, id := range p.ids {
		keys[i] = id + "/" + strconv.Itoa(seen[id])
		seen[id]++
	}
	return keys
}

func (p *picture) byKey() map[string][]string {
	rows := make(map[string][]string)
	for i, key := range p.keys() {
		rows[key] = p.table.rows[i]
	}
	return rows
}

// isID reports whether a cell only repeats the row's id.
func (p *picture) isID(row, column int) bool {
	return strings.TrimSuffix(p.table.rows[row][column], callerMark) == p.ids[row]
}

const callerMark = "*"

// field is the name of a column in a line.
func (p *picture) field(column int) string {
	return strings.ReplaceAll(strings.ToLower(p.table.columns[column].title), " ", "_")
}

// line is a row: its id, and its cells by name.
func (p *picture) line(row int) string {
	line := p.ids[row]
	for j, cell := range p.table.rows[row] {
		if !p.isID(row, j) {
			line += " " + p.field(j) + "=" + word(cell)
		}
	}
	return line
}

// word is a value that can stand between spaces, and harm no terminal.
func word(value string) string {
	if value = printable(value); value == "" || strings.ContainsAny(value, " \"") {
		return `"` + strings.ReplaceAll(value, `"`, `\"`) + `"`
	}
	return value
}

// liveTable draws a table on a terminal's other screen, and again when it
// changes or the terminal does.
type liveTable struct {
	c       console
	out     *os.File
	colour  bool
	because string

	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	picture *picture
	changed map[int]bool // the rows that the last change was about
	notice  string
	warning string // shown where there is no notice
	open    bool
}

// What a terminal is told. Only the sequences that every terminal has known for
// decades; nothing is asked of it.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the other screen, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	clearRight  = "\x1b[K"
	clearBelow  = "\x1b[J"
	bold        = "\x1b[1m"
	dim         = "\x1b[2m"
	plain       = "\x1b[0m"
)

func newLiveTable(c console, out *os.File, because string) *liveTable {
	d := &liveTable{c: c, out: out, colour: c.getenv("NO_COLOR") == "", because: because, stop: make(chan struct{}), done: make(chan struct{})}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
	go func() {
		defer close(d.done)
		defer signal.Stop(signals)
		for {
			select {
			case <-d.stop:
				return
			case s := <-signals:
				d.signalled(s)
			}
		}
	}()
	return d
}

// signalled redraws, and gives the terminal back while we are stopped.
func (d *liveTable) signalled(s os.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s == syscall.SIGTSTP {
		d.leave()
		// Not SIGTSTP again, which we have caught. Everything stops here, and
		// goes on with a SIGCONT.
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	_ = d.draw() // an error that stays meets the next change
}

func (d *liveTable) show(p *picture) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = make(map[int]bool)
	if d.picture != nil {
		before := d.picture.byKey()
		for i, key := range p.keys() {
			was := before[key]
			for j, cell := range p.table.rows[i] {
				if was == nil || cell != was[j] {
					d.changed[i] = true
				}
			}
		}
	}
	d.picture = p
	return d.draw()
}

func (d *liveTable) note(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if text == d.notice {
		return
	}
	d.notice = text
	_ = d.draw()
}

func (d *liveTable) warn(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.warning = text
	_ = d.draw()
}

// foot is what stands below the table.
func (d *liveTable) foot() string {
	if d.notice != "" {
		return d.notice
	}
	return d.warning
}

// draw needs mu.
func (d *liveTable) draw() error {
	if d.picture == nil {
		return nil
	}
	width, height := terminalSize(d.out)
	frame := toTop + strings.Join(d.lines(width, height), clearRight+"\r\n") + clearRight + clearBelow
	if !d.open {
		frame = enterScreen + frame
		d.open = true
	}
	_, err := io.WriteString(d.out, frame)
	return err
}

// lines are what fits on a screen of that size; 0 is no limit.
func (d *liveTable) lines(width, height int) []string {
	var text strings.Builder
	_ = d.picture.table.write(&text, width) // a Builder takes everything
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	if len(d.picture.ids) == 0 {
		lines = append(lines, fitLine("none"+d.because, width))
	}
	for i := range lines {
		if i == 0 || d.changed[i-1] {
			lines[i] = d.styled(bold, lines[i])
		}
	}
	foot := ""
	if text := d.foot(); text != "" {
		foot = d.styled(dim, fitLine(printable(text), width))
		if height == 1 {
			return []string{foot}
		}
		height = max(0, height-1)
	}
	if height > 0 && len(lines) > height {
		rest := len(lines) - height + 1
		lines = append(lines[:height-1], d.styled(dim, fitLine(fmt.Sprintf("… %d more", rest), width)))
	}
	if foot != "" {
		lines = append(lines, foot)
	}
	return lines
}

func (d *liveTable) styled(style, text string) string {
	if !d.colour {
		return text
	}
	return style + text + plain
}

// fitLine makes a line fit.
func fitLine(line string, width int) string {
	if width > 0 {
		return cells.Truncate(line, width, cutMark)
	}
	return line
}

// leave needs mu.
func (d *liveTable) leave() {
	if d.open {
		_, _ = io.WriteString(d.out, leaveScreen)
		d.open = false
	}
}

func (d *liveTable) close() {
	close(d.stop)
	<-d.done
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leave()
	if text := d.foot(); text != "" {
		fmt.Fprintln(d.c.err, "tmux-mcpd: "+printable(text))
	}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// terminalSize returns zeros if the terminal does not know its size.
func terminalSize(f *os.File) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}
