package controlmode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// deadStream is at its end from the start.
type deadStream struct{}

func (deadStream) Read([]byte) (int, error)    { return 0, io.EOF }
func (deadStream) Write(p []byte) (int, error) { return len(p), nil }
func (deadStream) Close() error                { return nil }

// A peer is a tmux that says what the test tells it to.
type peer struct {
	t  *testing.T
	s  io.ReadWriteCloser
	in *bufio.Reader
}

func newPeer(t *testing.T, notify func(Notification)) (*Conn, *peer) {
	ours, theirs := net.Pipe()
	c := NewConn(ours, notify)
	t.Cleanup(func() {
		c.Close()
		theirs.Close()
		<-c.Done()
	})
	return c, &peer{t: t, s: theirs, in: bufio.NewReader(theirs)}
}

func (p *peer) takes(want string) {
	p.t.Helper()
	if got, err := p.in.ReadString('\n'); err != nil || got != want+"\n" {
		p.t.Fatalf("peer got %q, %v; want %q", got, err, want)
	}
}

func (p *peer) says(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.s, format+"\n", args...); err != nil {
		p.t.Fatalf("peer: %v", err)
	}
}

func (p *peer) answers(number int, body string) {
	p.t.Helper()
	p.says("%%begin 1 %d 1\n%s\n%%end 1 %d 1", number, body, number)
}

func send(t *testing.T, c *Conn, line string, n int) *Call {
	t.Helper()
	call, err := c.Send(line, n)
	if err != nil {
		t.Fatalf("send %q: %v", line, err)
	}
	return call
}

func wait(t *testing.T, call *Call) string {
	t.Helper()
	replies, err := call.Wait(testContext(t))
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	var bodies []string
	for _, r := range replies {
		bodies = append(bodies, string(r.Body))
	}
	return strings.Join(bodies, "|")
}

func TestPipelining(t *testing.T) {
	c, p := newPeer(t, nil)
	a, b, d := send(t, c, "a", 1), send(t, c, "b ; c", 2), send(t, c, "d", 1)
	p.takes("a")
	p.takes("b ; c")
	p.takes("d")
	p.answers(1, "A")
	p.answers(2, "B")
	if got := wait(t, a); got != "A" {
		t.Errorf("a got %q", got)
	}
	select {
	case <-b.Done():
		t.Error("the second call is over after one reply of two")
	default:
	}
	p.answers(3, "C")
	p.answers(4, "D")
	if got := wait(t, d); got != "D" {
		t.Errorf("d got %q", got)
	}
	for range 2 { // Wait may be asked again
		if got := wait(t, b); got != "B|C" {
			t.Errorf("b got %q", got)
		}
	}
}

func TestLineEndsAtFailure(t *testing.T) {
	c, p := newPeer(t, nil)
	a, b := send(t, c, "a ; b ; c ; d", 4), send(t, c, "e", 1)
	p.takes("a ; b ; c ; d")
	p.takes("e")
	p.answers(1, "A")
	p.says("%%begin 1 2 1\nno\n%%error 1 2 1")
	p.answers(5, "E")
	if got := wait(t, a); got != "A|no" || !a.replies[1].Failed {
		t.Errorf("got %q", got)
	}
	if got := wait(t, b); got != "E" {
		t.Errorf("next call got %q", got)
	}
}

func TestCancelledCallerLeaves(t *testing.T) {
	c, p := newPeer(t, nil)
	ctx, cancel := context.WithCancel(testContext(t))
	left := make(chan error, 1)
	go func() {
		_, err := c.Do(ctx, "a")
		left <- err
	}()
	p.takes("a")
	cancel()
	if err := <-left; err != context.Canceled {
		t.Fatalf("cancelled call: %v", err)
	}
	next := send(t, c, "b", 1)
	p.takes("b")
	p.answers(1, "A")
	p.answers(2, "B")
	if got := wait(t, next); got != "B" {
		t.Errorf("the call after it got %q", got)
	}
	if _, err := c.Do(ctx, "never sent"); err != context.Canceled {
		t.Errorf("call with a dead context: %v", err)
	}
}

// TestSilentPeer has a peer that takes nothing: no caller is held by it.
func TestSilentPeer(t *testing.T) {
	streams := map[string]func() (ours io.ReadWriteCloser, theirs io.Closer){
		"without descriptor": func() (io.ReadWriteCloser, io.Closer) {
			return net.Pipe()
		},
		"pipes": func() (io.ReadWriteCloser, io.Closer) {
			theirIn, ourOut, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			ourIn, theirOut, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			return &stdio{in: ourIn, out: ourOut, outClosed: make(chan struct{})},
				&stdio{in: theirIn, out: theirOut, outClosed: make(chan struct{})}
		},
	}
	for name, stream := range streams {
		t.Run(name, func(t *testing.T) {
			ours, theirs := stream()
			defer theirs.Close()
			c := NewConn(ours, nil)
			// More than any pipe holds.
			long := send(t, c, strings.Repeat("x", 1<<20), 1)
			ctx, cancel := context.WithTimeout(testContext(t), 10*time.Millisecond)
			defer cancel()
			if _, err := long.Wait(ctx); err != context.DeadlineExceeded {
				t.Errorf("call: %v", err)
			}
			var calls []*Call
			for {
				call, err := c.Send("y", 1)
				if err == ErrBusy {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				calls = append(calls, call)
			}
			if len(calls) != maxPending-1 {
				t.Errorf("%d calls were taken, want %d", len(calls), maxPending-1)
			}
			c.Close()
			<-c.Done()
			for _, call := range calls {
				if replies, err := call.Wait(testContext(t)); err != ErrClosed || replies != nil {
					t.Fatalf("call after Close: %v", err)
				}
			}
		})
	}
}

func TestUnsentIsBounded(t *testing.T) {
	c, _ := newPeer(t, nil)
	line := strings.Repeat("x", 8<<20)
	for i := range 100 {
		if _, err := c.Send(line, 1); err == ErrBusy {
			return
		} else if err != nil {
			t.Fatal(err)
		} else if i > 2*maxUnsent/len(line) {
			t.Fatalf("%d MiB were taken", (i+1)*8)
		}
	}
}

// TestSlowPeer lets lines pile up while the peer reads: all arrive, in order.
func TestSlowPeer(t *testing.T) {
	c, p := newPeer(t, nil)
	var senders sync.WaitGroup
	const n = 200
	calls := make([]*Call, n)
	for i := range n {
		senders.Add(1)
		go func() {
			defer senders.Done()
			calls[i] = send(t, c, fmt.Sprintf("line %d %s", i, strings.Repeat("x", i*10)), 1)
		}()
	}
	for i := range n {
		line, err := p.in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var which int
		var fill string
		fmt.Sscanf(line, "line %d %s", &which, &fill)
		if len(fill) != which*10 {
			t.Errorf("line %d has %d bytes of %d", which, len(fill), which*10)
		}
		p.answers(i, fmt.Sprint(which))
	}
	senders.Wait()
	for i, call := range calls {
		if got := wait(t, call); got != fmt.Sprint(i) {
			t.Errorf("call %d got the reply of %s", i, got)
		}
	}
}

func TestEndUnderPendingCalls(t *testing.T) {
	tests := []struct {
		name string
		end  func(c *Conn, p *peer)
		is   func(error) bool
	}{
		{"closed by us", func(c *Conn, p *peer) { c.Close() }, func(err error) bool { return err == ErrClosed }},
		{"%exit", func(c *Conn, p *peer) { p.says("%%exit too far behind") }, func(err error) bool {
			var e *ExitError
			return errors.As(err, &e) && e.Reason == "too far behind"
		}},
		{"closed by the peer", func(c *Conn, p *peer) { p.s.Close() }, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"in a block", func(c *Conn, p *peer) { p.says("%%begin 1 1 1\n%%exit"); p.s.Close() }, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"stray guard", func(c *Conn, p *peer) { p.says("%%end 1 1 1") }, func(err error) bool { return errors.Is(err, errStrayGuard) }},
		{"close twice", func(c *Conn, p *peer) { c.Close(); p.s.Close(); c.Close() }, func(err error) bool { return err == ErrClosed }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, p := newPeer(t, nil)
			if c.Err() != nil {
				t.Errorf("error before the end: %v", c.Err())
			}
			calls := []*Call{send(t, c, "a", 1), send(t, c, "b", 2)}
			p.takes("a")
			p.takes("b")
			tt.end(c, p)
			for _, call := range calls {
				if _, err := call.Wait(testContext(t)); !tt.is(err) {
					t.Errorf("pending call: %v", err)
				}
			}
			<-c.Done()
			if _, err := c.Do(testContext(t), "c"); !tt.is(err) {
				t.Errorf("later call: %v", err)
			}
			if !tt.is(c.Err()) {
				t.Errorf("Err: %v", c.Err())
			}
		})
	}
}

func TestUnaskedReplyEnds(t *testing.T) {
	c, p := newPeer(t, nil)
	p.says("%%begin 1 1 0\nhook\n%%error 1 1 0")
	call := send(t, c, "a", 1)
	p.takes("a")
	p.answers(2, "A")
	if got := wait(t, call); got != "A" {
		t.Errorf("got %q", got)
	}
	p.answers(3, "?")
	<-c.Done()
	if !errors.Is(c.Err(), errUnasked) {
		t.Errorf("ended with %v", c.Err())
	}
}

// brokenWriter reads from r and cannot be written.
type brokenWriter struct {
	*io.PipeReader
}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestWriteErrorWaitsForLastWords: a peer that goes away while we write has
// mostly said why.
func TestWriteErrorWaitsForLastWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		c := NewConn(brokenWriter{r}, nil)
		call := send(t, c, "a", 1)
		time.Sleep(lastWords / 2)
		io.WriteString(w, "%exit server exited unexpectedly\n")
		<-call.Done()
		var e *ExitError
		if !errors.As(c.Err(), &e) {
			t.Errorf("ended with %v", c.Err())
		}
		time.Sleep(lastWords) // the timer fires within the bubble
	})
	synctest.Test(t, func(t *testing.T) {
		r, _ := io.Pipe()
		c := NewConn(brokenWriter{r}, nil)
		start := time.Now()
		call := send(t, c, "a", 1)
		later := send(t, c, "b", 1)
		<-call.Done()
		<-later.Done()
		if !errors.Is(c.Err(), io.ErrClosedPipe) || time.Since(start) != lastWords {
			t.Errorf("ended after %v with %v", time.Since(start), c.Err())
		}
	})
}

func TestNotificationsInOrder(t *testing.T) {
	heard := make([]string, 0, 300)
	var c *Conn
	c, p := newPeer(t, func(n Notification) { heard = append(heard, n.Name+" "+n.Args) })
	calls := make([]*Call, 100)
	for i := range calls {
		calls[i] = send(t, c, "x", 1)
		p.takes("x")
	}
	go func() {
		for i := range calls {
			fmt.Fprintf(p.s, "%%window-add @%d\n%%begin 1 %d 1\n%%end 1 %d 1\n", i, i, i)
		}
		io.WriteString(p.s, "%exit\n")
	}()
	<-c.Done() // from here on nobody writes heard
	for i, got := range heard {
		if want := fmt.Sprintf("window-add @%d", i); got != want {
			t.Fatalf("notification %d is %q", i, got)
		}
	}
	if len(heard) != len(calls) {
		t.Errorf("%d notifications, want %d", len(heard), len(calls))
	}
}

// TestNotificationBeforeReply reads, without a lock, what the callback wrote
// before the reply; the race detector sees to the order.
func TestNotificationBeforeReply(t *testing.T) {
	var last string
	c, p := newPeer(t, func(n Notification) { last = n.Args })
	for i := range 100 {
		call := send(t, c, "x", 1)
		p.takes("x")
		p.says("%%window-add @%d\n%%begin 1 1 1\n%%end 1 1 1", i)
		wait(t, call)
		if want := fmt.Sprintf("@%d", i); last != want {
			t.Fatalf("the reply came with %q heard, want %q", last, want)
		}
	}
}

func TestLongLines(t *testing.T) {
	c, p := newPeer(t, nil)
	for _, size := range []int{0, readBuffer - 1, readBuffer, readBuffer + 1, 3*readBuffer + 7, 4 << 20, maxLine - 1} {
		call := send(t, c, "x", 1)
		p.takes("x")
		body := strings.Repeat("x", size)
		p.answers(1, body+"\nshort\n"+body)
		if got := wait(t, call); got != body+"\nshort\n"+body {
			t.Errorf("%d bytes came back as %d", size, len(got)/2)
		}
	}
	go io.WriteString(p.s, strings.Repeat("x", maxLine+readBuffer)) // the end of c ends it
	<-c.Done()
	if !errors.Is(c.Err(), errLineLong) {
		t.Errorf("ended with %v", c.Err())
	}
}

func TestSendRefuses(t *testing.T) {
	c, _ := newPeer(t, nil)
	for _, tt := range []struct {
		line string
		n    int
		want error
	}{
		{"", 1, errLine},
		{"a\nb", 1, errLine},
		{"a\x00", 1, errLine},
		{"a", 0, errCount},
		{strings.Repeat("x", maxLine+1), 1, errLineLong},
	} {
		if _, err := c.Send(tt.line, tt.n); !errors.Is(err, tt.want) {
			t.Errorf("Send(%.10q, %d): %v, want %v", tt.line, tt.n, err, tt.want)
		}
	}
}

// TestAllocations holds the hot path, a probe over pipes, to what it needs:
// the Call, its channel and the body.
func TestAllocations(t *testing.T) {
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := NewConn(&stdio{in: ourIn, out: ourOut, outClosed: make(chan struct{})}, nil)
	peerDone := make(chan struct{})
	go func() { // allocates nothing per line itself
		defer close(peerDone)
		defer theirOut.Close()
		answer := []byte("%begin 1796046249 271 1\nparse error: syntax error\n%error 1796046249 271 1\n")
		buf := make([]byte, 16)
		for {
			if _, err := theirIn.Read(buf); err != nil {
				return
			}
			if _, err := theirOut.Write(answer); err != nil {
				return
			}
		}
	}()
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := c.Do(ctx, "}"); err != nil {
			t.Fatal(err)
		}
	}); n > 3 {
		t.Errorf("%v allocations per call, want 3", n)
	}
	c.Close()
	<-c.Done()
	<-peerDone
	theirIn.Close()
}

func FuzzConn(f *testing.F) {
	f.Add([]byte("%begin 1 2 1\n%end 1 2 1\n%exit\n"))
	f.Add([]byte("%begin 1 2 0\nx\n%error 1 2 0\n%window-add @1\n%begin 1 3 1\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r, w := io.Pipe()
		c := NewConn(brokenWriter{r}, nil)
		call, err := c.Send("x", 2)
		w.Write(stream)
		w.Close()
		<-c.Done()
		if err == nil {
			<-call.Done()
		}
		if c.Err() == nil {
			t.Error("ended without a reason")
		}
	})
}
