package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tmux-mcpd/daemon/state"
)

// A peer is a client on a pipe, which has no buffer: what it does not read is
// not written.
type peer struct {
	t       *testing.T
	conn    net.Conn
	r       *bufio.Reader
	session *session
	ended   chan error
}

// newPeer serves a client of a daemon that reaches no tmux.
func newPeer(t *testing.T) *peer {
	t.Helper()
	d, caller := lonelyDaemon(t)
	ours, theirs := net.Pipe()
	p := &peer{t: t, conn: ours, r: bufio.NewReader(ours), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { p.ended <- d.serveSession(ctx, theirs, caller) }()
	t.Cleanup(func() {
		cancel()
		ours.Close()
		<-p.ended
		d.stop()
	})
	p.send(ask("1", "initialize", initializeParams))
	p.want("1 result")
	d.mu.Lock()
	defer d.mu.Unlock()
	for s := range d.sessions {
		p.session = s
	}
	return p
}

func (p *peer) send(frames string) {
	p.t.Helper()
	if _, err := io.WriteString(p.conn, frames); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) receive() answer {
	p.t.Helper()
	line, err := p.r.ReadBytes('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return parseAnswer(p.t, line[:len(line)-1])
}

func (p *peer) want(want string) answer {
	p.t.Helper()
	a := p.receive()
	if a.String() != want {
		p.t.Fatalf("answered %v %s, want %s", a, a.Params, want)
	}
	return a
}

// silent reports whether nothing is being written to the client. It is for
// bubbles of synctest.
func (p *peer) silent() bool {
	synctest.Wait()
	_ = p.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	defer p.conn.SetReadDeadline(time.Time{})
	_, err := p.r.Peek(1)
	return err != nil
}

// watches are the session's subscriptions.
func (p *peer) watches() []*watch {
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	return slices.Clone(p.session.watches)
}

const (
	updated      = "notifications/resources/updated"
	acknowledged = "notifications/subscriptions/acknowledged"
)

func subscribeTo(id, uri string) string {
	return ask(id, "resources/subscribe", `{"uri":"`+uri+`"}`)
}

// TestSlowClient: a client that does not read is not dropped for the updates
// that it does not read, and gets one for all that it has missed; one that
// wants answers and does not read them is dropped as any other.
func TestSlowClient(t *testing.T) {
	const limit = 100 * time.Millisecond
	p := newPeer(t)
	p.send(subscribeTo("2", "tmux://sessions"))
	p.want("2 result")
	// begin has the update that is being written wait for its reader.
	w := p.watches()[0]
	begin := func() {
		t.Helper()
		w.session.updates.add(w)
		for end := time.Now().Add(10 * time.Second); ; {
			w.session.pace.mu.Lock()
			begun := w.session.pace.updating
			w.session.pace.limit = limit // no answer is being written
			w.session.pace.mu.Unlock()
			if begun {
				return
			}
			if time.Now().After(end) {
				t.Fatal("no update is being written")
			}
			runtime.Gosched()
		}
	}
	begin()
	for range 100 {
		w.session.updates.add(w)
	}
	select {
	case err := <-p.ended:
		p.ended <- err
		t.Fatalf("dropped for reading slowly: %v", err)
	case <-time.After(3 * limit):
	}
	p.want(updated) // this one had begun
	p.want(updated)
	p.send(ask("3", "ping", ""))
	p.want("3 result") // and no third update before it

	begin()
	begun := time.Now()
	p.send(ask("4", "ping", ""))
	err := <-p.ended
	p.ended <- err
	if took := time.Since(begun); took < limit {
		t.Errorf("dropped after %v, want %v", took, limit)
	}
}

// TestPace: an answer that waits behind an update bounds it, once; the deadline
// of an answer does not become that of the update after it.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var deadline time.Duration // from start; 0 for none
		set := deadlineSetter(func(at time.Time) error {
			deadline = 0
			if !at.IsZero() {
				deadline = at.Sub(start)
			}
			return nil
		})
		p := pace{limit: 5 * time.Second}
		steps := []struct {
			name string
			do   func(deadlineSetter)
			want time.Duration
		}{
			{"an answer waits", p.answerWaits, 0},
			{"is written", p.answerBegins, 6 * time.Second},
			{"an update is written", p.updateBegins, 0},
			{"an answer waits behind it", p.answerWaits, 8 * time.Second},
			{"another one too", p.answerWaits, 8 * time.Second},
			{"the update is over", func(deadlineSetter) { p.updateEnds() }, 8 * time.Second},
			{"another update overtakes the answers", p.updateBegins, 11 * time.Second},
			{"and is over", func(deadlineSetter) { p.updateEnds() }, 11 * time.Second},
			{"the first answer", p.answerBegins, 13 * time.Second},
			{"the second answer", p.answerBegins, 14 * time.Second},
			{"an update with nothing behind it", p.updateBegins, 0},
		}
		for _, step := range steps {
			if step.do(set); deadline != step.want {
				t.Errorf("%s: deadline after %v, want %v", step.name, deadline, step.want)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestUnsubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		p.send(subscribeTo("2", "tmux://sessions"))
		p.want("2 result")
		w := p.watches()[0]
		p.send(subscribeTo("3", "tmux://sessions")) // twice is once
		p.want("3 result")
		if n := len(p.watches()); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
		p.send(ask("4", "resources/unsubscribe", `{"uri":"tmux://sessions"}`))
		p.want("4 result")
		w.session.updates.add(w)
		if !p.silent() {
			t.Error("an update after the answer to unsubscribe")
		}
		server, _, err := p.session.daemon.find(p.session.who(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if server.push.active() {
			t.Error("the server is still being watched")
		}
		for _, uri := range []string{"tmux://pane/3", "tmux://nothing", "x"} {
			p.send(subscribeTo("5", uri))
			p.want("5 -32002")
		}
	})
}

// TestUnsubscribeInOrder: requests are answered next to each other, but an
// unsubscribe does not overtake its subscribe, which has to wait here.
func TestUnsubscribeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		server, _, err := p.session.daemon.find(p.session.who(), nil)
		if err != nil {
			t.Fatal(err)
		}
		server.turn <- struct{}{}
		p.send(subscribeTo("2", "tmux://sessions") + ask("3", "resources/unsubscribe", `{"uri":"tmux://sessions"}`) +
			subscribeTo("4", "tmux://panes") + ask("5", "ping", ""))
		p.want("5 result")
		if !p.silent() {
			t.Error("answered out of order")
		}
		server.endTurn()
		for range 3 {
			p.receive()
		}
		if watches := p.watches(); len(watches) != 1 || watches[0].uri != "tmux://panes" {
			t.Errorf("%d subscriptions", len(watches))
		}
	})
}

// TestListenRequest: updates come after the acknowledgement, with the id of their
// request, and end with it. An URI given twice is one subscription.
func TestListenRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		listen := func(id string) string {
			return ask(id, listenMethod, `{"notifications":{"resourceSubscriptions":["tmux://sessions","tmux://sessions"]},`+modernMeta+`}`)
		}
		p.send(listen("2"))
		// The acknowledgement is being written, and not read yet.
		synctest.Wait()
		w := p.watches()[0]
		w.session.updates.add(w)
		synctest.Wait()
		if a := p.want(acknowledged); !strings.Contains(string(a.Params), `"io.modelcontextprotocol/subscriptionId":2`) {
			t.Errorf("acknowledged with %s", a.Params)
		}
		if a := p.want(updated); !strings.Contains(string(a.Params), `"io.modelcontextprotocol/subscriptionId":2`) {
			t.Errorf("updated with %s", a.Params)
		}
		if n := len(p.watches()); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
		p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}` + "\n" + ask("3", "ping", ""))
		p.want("3 result")
		if !p.silent() || len(p.watches()) != 0 {
			t.Error("a listen that was cancelled goes on")
		}

		for i := range maxListens {
			p.send(listen(fmt.Sprintf(`"l%d"`, i)))
			p.want(acknowledged)
		}
		p.send(listen("4"))
		p.want("4 -32603")
		// A listen that fails takes what it had subscribed to with it.
		p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l0"}}` + "\n")
		synctest.Wait()
		p.send(ask("5", listenMethod, `{"notifications":{"resourceSubscriptions":["tmux://panes","tmux://pane/1"]},`+modernMeta+`}`))
		p.want("5 -32602")
		if n := len(p.watches()); n != maxListens-1 {
			t.Errorf("%d subscriptions, want %d", n, maxListens-1)
		}
	})
}

// TestSubscriptionsAreBounded: more than a client may have are refused.
func TestSubscriptionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t)
		for i := range maxSubscriptions {
			p.send(subscribeTo("2", fmt.Sprintf("tmux://sessions?socket=s%d", i)))
			p.want("2 result")
		}
		p.send(subscribeTo("3", "tmux://sessions"))
		if a := p.receive(); a.Error == nil || !strings.Contains(*a.Error.Message, "subscriptions") {
			t.Errorf("answered %v", a)
		}
	})
}

func TestUpdatesAreMerged(t *testing.T) {
	u := updates{ready: make(chan struct{}, 1)}
	a, b, held := &watch{uri: "a"}, &watch{uri: "b"}, &watch{uri: "held", held: true}
	for range 3 {
		for _, w := range []*watch{a, b, held} {
			u.add(w)
		}
	}
	if got := []*watch{u.next(), u.next(), u.next()}; got[0] != a || got[1] != b || got[2] != nil {
		t.Errorf("updates %v", got)
	}
	u.release(held)
	u.add(a)
	u.remove(a)
	u.add(a)
	if got := []*watch{u.next(), u.next()}; got[0] != held || got[1] != nil {
		t.Errorf("updates %v", got)
	}
}

// TestUnread: on a socket, an update that has not been read is not followed by
// another of the same resource; of another one it is.
func TestUnread(t *testing.T) {
	ours, theirs := unixPair(t)
	if _, err := theirs.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if unreadBytes(theirs) == 0 {
		t.Skip("this system does not tell what has not been read")
	}
	s := &session{stream: theirs, setWriteDeadline: theirs.SetWriteDeadline}
	a, b := &watch{uri: "a"}, &watch{uri: "b"}
	tell := func(watches ...*watch) {
		t.Helper()
		for _, w := range watches {
			if err := s.writeUpdate(w); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := bufio.NewReaderSize(ours, 16)
	if _, err := r.ReadByte(); err != nil {
		t.Fatal(err)
	}
	read := func(want ...string) {
		t.Helper()
		for _, uri := range want {
			line, err := r.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			var f struct{ Params struct{ URI string } }
			if err := json.Unmarshal(line, &f); err != nil || f.Params.URI != uri {
				t.Fatalf("read %s, want an update of %q", line, uri)
			}
		}
		if n := unreadBytes(theirs); n != 0 {
			t.Fatalf("%d more bytes", n)
		}
	}
	tell(a, a, b, a, b)
	read("a", "b")
	tell(a)
	if err := s.write([]byte(`{"params":{"uri":"an answer"}}` + "\n")); err != nil {
		t.Fatal(err)
	}
	tell(a, a) // the older one may have been read
	read("a", "an answer", "a")
	tell(a, b)
	if _, err := r.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	tell(b, b)
	read("b", "b")
}

func unixPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	ln, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client.(*net.UnixConn), server.(*net.UnixConn)
}

// TestAskedProcesses: what tmux has said of a pane serves until it is old or the
// pane has another process.
func TestAskedProcesses(t *testing.T) {
	pane := &state.Pane{PID: 10}
	said := askedProcesses{until: time.Now().Add(time.Hour), panes: map[string]askedProcess{"": {pid: 10, process: state.Process{Command: "vim"}}}}
	if process, ok := said.of(pane); !ok || process.Command != "vim" || !said.cover([]*state.Pane{pane}, []int{0}) {
		t.Errorf("not known: %v", process)
	}
	for _, other := range []*state.Pane{{PID: 11}, {PID: 10, Dead: true}} {
		if said.cover([]*state.Pane{other}, []int{0}) {
			t.Errorf("known of another process: %v", other)
		}
	}
	said.until = time.Now()
	if said.cover([]*state.Pane{pane}, []int{0}) {
		t.Error("known for ever")
	}
}
