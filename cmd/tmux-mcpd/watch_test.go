package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

func panesPicture(rows ...paneRow) *picture {
	p := &picture{table: paneTable(rows, map[string]string{"$1": "work", "$2": "other"})}
	for _, row := range rows {
		p.ids = append(p.ids, row.ID)
	}
	return p
}

func TestChanges(t *testing.T) {
	vim := paneRow{ID: "%1", Session: "$1", Window: "@1", Width: "80", Height: "24", Command: "vim", Path: "/tmp", Title: "a b", Active: "1"}
	bash := vim
	bash.Command, bash.Title = "bash", ""
	linked := vim
	linked.Session = "$2"
	caller := vim
	caller.IsCaller = true
	odd := vim
	odd.ID, odd.Title = "%2", "\x1b]0;\" x"
	const row = ` window=@1 size=80x24 command=vim path=/tmp title="a b" active=yes` + "\n"
	tests := []struct {
		name     string
		old, new *picture
		want     string
	}{
		{"at first", nil, panesPicture(vim), "+ %1 session=work" + row},
		{"nothing at first", nil, panesPicture(), ""},
		{"nothing", panesPicture(vim), panesPicture(vim), ""},
		{"new", panesPicture(vim), panesPicture(vim, odd), `+ %2 session=work window=@1 size=80x24 command=vim path=/tmp title="\x1b]0;\" x" active=yes` + "\n"},
		{"gone", panesPicture(vim), panesPicture(), "- %1 session=work" + row},
		{"changed", panesPicture(vim), panesPicture(bash), "~ %1 command: vim → bash\n~ %1 title: \"a b\" → \"\"\n"},
		{"linked", panesPicture(vim), panesPicture(vim, linked), "+ %1 session=other" + row},
		{"the caller's own", panesPicture(vim), panesPicture(caller), ""},
	}
	for _, tt := range tests {
		if got := changes(tt.old, tt.new); got != tt.want {
			t.Errorf("%s:\n%swant:\n%s", tt.name, got, tt.want)
		}
	}
}

func TestLiveTableLines(t *testing.T) {
	rows := []paneRow{
		{ID: "%1", Session: "$1", Window: "@1", Width: "80", Height: "24", Command: "vim", Path: "/home/me/src/project", Title: "a title", Active: "1"},
		{ID: "%2", Session: "$1", Window: "@1", Width: "80", Height: "24", Command: "sh", Path: "/", Title: "b", Active: "0"},
		{ID: "%3", Session: "$1", Window: "@1", Width: "80", Height: "24", Command: "sh", Path: "/", Title: "c", Active: "0"},
	}
	tests := []struct {
		name          string
		rows          []paneRow
		notice        string
		width, height int
		wantLines     int
		wantLast      string
	}{
		{"all", rows, "", 0, 0, 4, "%3 "},
		{"fits", rows, "", 200, 4, 4, "%3 "},
		{"too many", rows, "", 200, 3, 3, "… 2 more"},
		{"too many beside a note", rows, "gone\x07", 200, 4, 4, `gone\a`},
		{"narrow", rows, "", 20, 10, 4, "%3 "},
		{"very narrow", rows, "a long note", 5, 10, 5, "a lo…"},
		{"one line", rows, "", 200, 1, 1, "… 4 more"},
		{"one line beside a note", rows, "gone", 200, 1, 1, "gone"},
		{"nothing", nil, "", 200, 10, 2, "none (is a tmux server running?)"},
	}
	for _, tt := range tests {
		d := &liveTable{picture: panesPicture(tt.rows...), notice: tt.notice, because: " (is a tmux server running?)"}
		lines := d.lines(tt.width, tt.height)
		if len(lines) != tt.wantLines || !strings.HasPrefix(lines[len(lines)-1], tt.wantLast) {
			t.Errorf("%s: %q, want %d lines, the last %q", tt.name, lines, tt.wantLines, tt.wantLast)
		}
		for _, line := range lines {
			if width := cells.StringWidth(line); tt.width > 0 && width > tt.width {
				t.Errorf("%s: %q is %d cells wide, the terminal %d", tt.name, line, width, tt.width)
			}
		}
	}
	d := &liveTable{picture: panesPicture(rows...), changed: map[int]bool{1: true}, colour: true}
	for i, line := range d.lines(0, 0) {
		if marked := strings.HasPrefix(line, bold) && strings.HasSuffix(line, plain); marked != (i == 0 || i == 2) {
			t.Errorf("line %d: %q", i, line)
		}
	}
}

// A tty is a pseudo-terminal whose output is kept.
type tty struct {
	t              *testing.T
	master, device *os.File
	mu             sync.Mutex
	seen           bytes.Buffer
}

func openTTY(t *testing.T, columns, rows uint16) *tty {
	t.Helper()
	master, device, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	p := &tty{t: t, master: master, device: device}
	p.resize(columns, rows)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			p.mu.Lock()
			p.seen.Write(buf[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		device.Close() // ends the reading
		<-done
		master.Close()
	})
	return p
}

func (p *tty) resize(columns, rows uint16) {
	p.t.Helper()
	if err := pty.Setsize(p.master, &pty.Winsize{Rows: rows, Cols: columns}); err != nil {
		p.t.Fatal(err)
	}
}

// take waits for a text and forgets all up to it.
func (p *tty) take(want string) string {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		text := p.seen.String()
		at := strings.Index(text, want)
		if at >= 0 {
			p.seen.Next(at + len(want))
		}
		p.mu.Unlock()
		if at >= 0 {
			return text[:at+len(want)]
		}
		if time.Now().After(end) {
			p.t.Fatalf("the terminal does not show %q, but %q", want, text)
		}
	}
}

func TestLiveTable(t *testing.T) {
	p := openTTY(t, 100, 10)
	d := newLiveTable(console{err: io.Discard, lookup: func(string) (string, bool) { return "1", true }}, p.device, "")
	pane := paneRow{ID: "%1", Session: "$1", Window: "@1", Width: "80", Height: "24", Command: "vim", Path: "/home/me/src", Title: "a rather long title", Active: "1"}
	if err := d.show(panesPicture(pane)); err != nil {
		t.Fatal(err)
	}
	p.take(enterScreen + toTop + "PANE")
	if line := p.take(clearBelow); strings.Contains(line, bold) || !strings.Contains(line, "a rather long title") {
		t.Errorf("drawn: %q", line)
	}
	p.resize(40, 10)
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	if line := p.take(clearBelow); strings.Contains(line, "a rather long title") || !strings.HasPrefix(line, toTop) {
		t.Errorf("drawn on a smaller terminal: %q", line)
	}
	d.note("the daemon has gone")
	p.take("the daemon has gone" + clearRight + clearBelow)
	d.note("")
	p.take(clearBelow)
	d.close()
	p.take(leaveScreen)
}

// watched runs list panes --watch on a fake daemon until the returned cancel.
func watched(t *testing.T, out io.Writer, flags ...string) (cancel func(), ended chan int, stderr *lockedBuffer) {
	t.Helper()
	d := startFakeDaemon(t, func(tool string, _ map[string]any) string {
		if tool == "list_sessions" {
			return rowsResult(`[{"session_id":"$1","session_name":"work","window_count":1}]`)
		}
		return rowsResult(`[{"pane_id":"%1","session_id":"$1","pane_current_command":"vim"}]`)
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ended, stderr = make(chan int, 1), &lockedBuffer{}
	go func() {
		ended <- run(ctx, append([]string{"list", "panes", "--watch", "--socket", d.socket}, flags...), console{
			in: strings.NewReader(""), out: out, err: stderr, lookup: func(string) (string, bool) { return "", false },
		})
	}()
	return cancel, ended, stderr
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func wantEnd(t *testing.T, ended chan int, stderr *lockedBuffer) {
	t.Helper()
	select {
	case code := <-ended:
		if code != exitOK || stderr.String() != "" {
			t.Errorf("exit code %d, stderr %q", code, stderr)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("does not end")
	}
}

func TestWatchOnATerminal(t *testing.T) {
	p := openTTY(t, 100, 10)
	cancel, ended, stderr := watched(t, p.device)
	p.take(enterScreen)
	p.take("vim")
	cancel()
	p.take(leaveScreen)
	wantEnd(t, ended, stderr)
}

// TestWatchIntoAPipe: a line per row; the end of the reader is the end of us,
// though nothing more is written.
func TestWatchIntoAPipe(t *testing.T) {
	for flag, want := range map[string]string{
		"--json=false": `+ %1 session=work window="" size="" command=vim path="" title="" active=""` + "\n",
		"--json":       `[{"pane_id":"%1","session_id":"$1","pane_current_command":"vim"}]` + "\n",
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_, ended, stderr := watched(t, w, flag)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Errorf("%s: %q %v, want %q", flag, got, err, want)
		}
		r.Close()
		wantEnd(t, ended, stderr)
		w.Close()
	}
}

func TestWatchErrors(t *testing.T) {
	d := startFakeDaemon(t, func(string, map[string]any) string {
		return `"result":{"isError":true,"content":[{"type":"text","text":"no such session"}]}`
	})
	code, stdout, stderr := execute(nil, "list", "panes", "--watch", "--session", "x", "--socket", d.socket)
	if code != exitFailed || stdout != "" || stderr != "tmux-mcpd: no such session\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	// A tool's error is told from one of the connection.
	var said *toolError
	if err := error(&toolError{text: "x", kind: "TmuxObjectDoesNotExist"}); !errors.As(err, &said) || !said.absent() {
		t.Error("not the error of an object that is absent")
	}
}
