package integration

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"
)

// polling asks a guest again and again from a goroutine of its own.
type polling struct {
	t      testing.TB
	guest  guest
	server *tmuxServer
	ended  chan struct{}
	halt   func()

	mu       sync.Mutex // held for each call: the guest's client is for one at a time
	polls    int
	attached int   // what session_attached must add up to, -1 for anything
	fault    error // the first
}

// startPolling asks for sessions and panes in turn, at a rate per second or as
// fast as the guest answers. All answers must show the wanted number of clients.
func (g guest) startPolling(t testing.TB, server *tmuxServer, rate, attached int) *polling {
	t.Helper()
	p := &polling{t: t, guest: g, server: server, attached: attached, ended: make(chan struct{})}
	stop := make(chan struct{})
	p.halt = sync.OnceFunc(func() { close(stop) })
	t.Cleanup(func() { p.halt(); <-p.ended })
	go func() {
		defer close(p.ended)
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				p.poll()
			}
		}
	}()
	return p
}

func (p *polling) poll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	tool := []string{"list_sessions", "list_panes"}[p.polls%2]
	rows, err := p.guest.client.list(tool, map[string]any{"socket_name": p.server.name})
	if err == nil && tool == "list_sessions" && len(rows) > 0 {
		total := 0
		for _, r := range rows {
			n, _ := strconv.Atoi(fmt.Sprint(r["session_attached"]))
			total += n
		}
		if p.attached >= 0 && total != p.attached {
			err = fmt.Errorf("session_attached is %d over all sessions, want %d", total, p.attached)
		}
	}
	if err != nil && p.fault == nil {
		p.fault = fmt.Errorf("poll %d: %s: %w", p.polls, tool, err)
	}
	p.polls++
}

// expect does something after which another number of clients is attached;
// meanwhile any is right.
func (p *polling) expect(attached int, do func()) {
	want := func(n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.attached = n
	}
	want(-1)
	do()
	want(attached)
}

// count is how often it has been asked.
func (p *polling) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.polls
}

// mustAnswerRightly compares both tools with tmux.
func (p *polling) mustAnswerRightly() {
	p.t.Helper()
	if err := p.server.home.settle(); err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.guest.poll(p.t, p.server, 1)
}

// serverStatus is what tmux-mcpd says of a tmux server.
type serverStatus struct {
	Socket, Mode, Reason                                        string
	Requests, Probes, Dumps, Fetches, Attaches, Exits, OneShots uint64
}

// status asks the guest about its tmux server.
func (p *polling) status() serverStatus {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.guest.client.status(p.server.socket)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// status asks tmux-mcpd about one tmux server.
func (c *mcpClient) status(socket string) (serverStatus, error) {
	raw, err := c.result("tmux-mcpd/status", nil)
	if err != nil {
		return serverStatus{}, err
	}
	var status struct{ Servers []serverStatus }
	if err := json.Unmarshal(raw, &status); err != nil {
		return serverStatus{}, err
	}
	for _, s := range status.Servers {
		if s.Socket == socket {
			return s, nil
		}
	}
	return serverStatus{}, fmt.Errorf("status knows no server %s: %s", socket, raw)
}

// stop ends the polling and returns how many calls there were. A wrong answer to
// any of them fails the test.
func (p *polling) stop() int {
	p.t.Helper()
	p.halt()
	<-p.ended
	if p.fault != nil {
		p.t.Error(p.fault)
	}
	return p.polls
}
