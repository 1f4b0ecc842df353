package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

// session is one run of a Bridge. Lock order: sendMu, mu, link.mu; outMu is taken alone.
type session struct {
	*Bridge
	log     *slog.Logger
	cancel  context.CancelCauseFunc
	host    *lineReader   // used by readHost
	hostEnd chan struct{} // closed when stdin ends

	outMu sync.Mutex // guards out
	out   io.Writer

	// sendMu covers "remember a frame and write it", and all of the greeting of a new connection. So every frame is
	// written once to the connection of its time, or remembered for the next one. It may be held for as long as a
	// server does not read; the goroutine that reads the server never waits for it while the connection is open.
	sendMu      sync.Mutex
	initialize  []byte   // frame of the host, as sent
	initialized []byte   // likewise
	logLevel    []byte   // raw params of logging/setLevel
	watched     [][]byte // raw uris subscribed to

	mu      sync.Mutex // guards what follows
	link    *link      // changed with sendMu held as well
	room    sync.Cond  // pending became shorter, or over
	pending []pending  // unanswered requests, oldest first
	bytes   int        // in their frames
	initID  []byte     // of initialize, answered or not
	refused [][]byte   // raw uris of which a subscription was refused
	ended   bool       // stdin has
	over    bool       // nobody reads answers any more

	// Used by the goroutine of run.
	down       time.Time     // since when no daemon serves; zero while one does
	retry      time.Duration // pause before the next attempt
	skewLogged bool
	served     chan error // the embedded server's return; nil before it is started
	greeting   sync.WaitGroup
}

// pending is a request without an answer.
type pending struct {
	id, frame []byte // id points into frame
	sends     int
	isInit    bool
	isListen  bool   // subscriptions/listen: has no answer before its end
	acked     bool   // the host has been told that it listens
	watches   []byte // the raw uri of a resources/subscribe
}

func newSession(b *Bridge, cancel context.CancelCauseFunc, stdin io.Reader, stdout io.Writer) *session {
	s := &session{
		Bridge:  b,
		log:     b.Log,
		cancel:  cancel,
		host:    newLineReader(stdin, FrameLimit),
		hostEnd: make(chan struct{}),
		out:     stdout,
		retry:   minRetry,
	}
	s.room.L = &s.mu
	if s.log == nil {
		s.log = slog.Default()
	}
	return s
}

func (s *session) run(ctx context.Context) error {
	defer func() {
		s.mu.Lock()
		s.over = true
		s.room.Broadcast()
		l := s.link
		s.mu.Unlock()
		if l != nil {
			l.close()
		}
		s.greeting.Wait()
		s.awaitEmbedded()
	}()
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		l := s.link
		s.mu.Unlock()
		if l != nil {
			l.close()
		}
	})
	defer stop()

	l, err := s.connect(ctx)
	if err != nil {
		return err
	}
	go s.readHost(ctx)
	for {
		err := s.readLink(l)
		l.close()
		s.greeting.Wait()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s.finished() {
			return nil
		}
		if l.embedded {
			return fmt.Errorf("embedded server ended: %w", errors.Join(err, s.awaitEmbedded()))
		}
		if l, err = s.reconnect(ctx, l, err); l == nil {
			return err
		}
	}
}

// connect makes the first connection: one attempt, for an MCP host waits.
func (s *session) connect(ctx context.Context) (*link, error) {
	if s.Dial == nil {
		return s.embed(ctx)
	}
	dialCtx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := s.Dial(dialCtx)
	if err != nil {
		return s.fallBack(ctx, err)
	}
	l := newLink(conn)
	s.attach(ctx, l, patience)
	return l, nil
}

// reconnect replaces the daemon's connection that ended with cause, or falls back to the embedded server. It returns
// neither link nor error when there is nothing left to do.
func (s *session) reconnect(ctx context.Context, old *link, cause error) (*link, error) {
	// An outage goes on through connections that come to nothing, else a daemon that accepts and hangs up, or a
	// stranger at its socket, would keep the host waiting for ever.
	strange := errors.Is(cause, errNotOurs) || errors.Is(cause, errRefused)
	if healthy := old.served || time.Since(old.born) > time.Second; healthy && !strange {
		s.down = time.Time{}
		s.retry = minRetry
	}
	if s.down.IsZero() {
		s.down = time.Now()
		s.log.Info("daemon's connection ended, connecting again", "cause", cause)
	}
	deadline := s.down.Add(patience)
	if err := old.expired(); errors.Is(err, errSilent) {
		return s.fallBack(ctx, err)
	}
	for time.Now().Before(deadline) {
		// Up to a quarter more, so that the bridges of one daemon do not all come at once.
		if !s.sleep(ctx, s.retry+rand.N(s.retry/4)) {
			return nil, context.Cause(ctx)
		}
		s.retry = min(2*s.retry, maxRetry)
		dialCtx, cancel := context.WithDeadline(ctx, deadline)
		conn, err := s.Dial(dialCtx)
		cancel()
		if err != nil {
			cause = err
			continue
		}
		if s.finished() {
			conn.Close()
			return nil, nil
		}
		l := newLink(conn)
		s.attach(ctx, l, max(time.Until(deadline), minRetry))
		return l, nil
	}
	return s.fallBack(ctx, cause)
}

// sleep returns false when ctx ends, or the host with nothing left to answer.
func (s *session) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.hostEnd:
		if s.finished() {
			return false
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func (s *session) fallBack(ctx context.Context, why error) (*link, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if s.Embedded == nil {
		return nil, fmt.Errorf("no daemon to be reached: %w", why)
	}
	s.log.Warn("no daemon to be reached: this process serves the tools itself", "cause", why)
	return s.embed(ctx)
}

func (s *session) embed(ctx context.Context) (*link, error) {
	if s.Embedded == nil {
		return nil, errors.New("neither a daemon nor an embedded server to connect to")
	}
	ours, theirs := streamPair()
	served := make(chan error, 1)
	s.served = served
	go func() {
		err := s.Embedded(ctx, theirs)
		theirs.Close()
		served <- err
	}()
	l := newLink(ours)
	l.embedded = true
	s.attach(ctx, l, 0)
	return l, nil
}

// awaitEmbedded lets the embedded server, whose stream is closed, leave tmux in good order.
func (s *session) awaitEmbedded() error {
	if s.served == nil {
		return nil
	}
	select {
	case err := <-s.served:
		s.served = nil
		return err
	case <-time.After(embeddedTime):
		return errors.New("embedded server does not end")
	}
}

// attach makes l the connection of the session and has it greeted. Greeting is not done here, since answers must be
// read meanwhile: a server that waits for us to read does not read either. term bounds the handshake.
func (s *session) attach(ctx context.Context, l *link, term time.Duration) {
	s.sendMu.Lock() // given back by the goroutine below
	s.mu.Lock()
	s.link = l
	s.mu.Unlock()
	if ctx.Err() != nil {
		l.close() // whoever closes links at the end of ctx may have seen the last one
	}
	if s.initialize != nil && !l.embedded {
		l.closeIn(term, errSilent)
	}
	s.greeting.Add(1)
	go func() {
		defer s.greeting.Done()
		defer s.sendMu.Unlock()
		s.greet(l)
	}()
}

// greet brings a new server to where the last one was: handshake, subscriptions, unanswered requests.
func (s *session) greet(l *link) {
	var first []byte
	if !l.embedded && len(s.Hello) > 0 {
		first = append(bytes.TrimRight(slices.Clone(s.Hello), "\n"), '\n')
	}
	s.send(append(first, s.initialize...))
	if s.initialize != nil {
		select {
		case <-l.ready:
		case <-l.dead:
			return
		}
	}
	var rest bytes.Buffer
	rest.Write(s.initialized)
	if s.logLevel != nil {
		fmt.Fprintf(&rest, `{"jsonrpc":"2.0","id":%slevel","method":"logging/setLevel","params":%s}`+"\n", ownID, s.logLevel)
	}
	s.mu.Lock()
	s.watched = slices.DeleteFunc(s.watched, func(uri []byte) bool { return slices.ContainsFunc(s.refused, equals(uri)) })
	s.refused = nil
	s.mu.Unlock()
	l.mu.Lock()
	l.asked = slices.Clone(s.watched)
	l.mu.Unlock()
	for i, uri := range s.watched {
		fmt.Fprintf(&rest, `{"jsonrpc":"2.0","id":%s%d","method":"resources/subscribe","params":{"uri":%s}}`+"\n", ownID, i, uri)
	}
	for _, lost := range s.again(&rest) {
		s.refuse(lost, -32603, fmt.Sprintf("the daemon ended %d times over this request", maxSends))
	}
	s.send(rest.Bytes())

	s.mu.Lock()
	ended, idle := s.ended, len(s.pending) == 0
	s.mu.Unlock()
	if ended {
		l.closeWrite()
		if idle {
			l.closeIn(partingTime, nil)
		}
	}
}

// again appends the unanswered requests to b and returns the ids of those given up.
func (s *session) again(b *bytes.Buffer) (lost [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(s.pending); {
		p := &s.pending[i]
		switch {
		case p.isInit: // sent already, as the handshake
		case p.sends >= maxSends:
			lost = append(lost, p.id)
			s.removeLocked(i)
			continue
		default:
			b.Write(p.frame)
			p.sends++
		}
		i++
	}
	return lost
}

// send writes to the server; sendMu must be held. A failed write is no loss: what matters is remembered, and what the
// server has still to say is read for a moment before the next connection.
func (s *session) send(p []byte) {
	if len(p) == 0 {
		return
	}
	if _, err := s.link.rwc.Write(p); err != nil {
		s.link.closeIn(partingTime, nil)
	}
}

// finished tells whether the host has ended and waits for nothing.
func (s *session) finished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended && len(s.pending) == 0
}

// readHost takes the host's frames to the server until stdin ends.
func (s *session) readHost(ctx context.Context) {
	for ctx.Err() == nil {
		block, err := s.host.block()
		if err == nil {
			if !s.forward(block) {
				return
			}
			continue
		}
		if errors.Is(err, errLineTooLong) {
			s.refuse(idOfPart(s.host.rest()), -32600, fmt.Sprintf("message longer than %d bytes", FrameLimit))
			if s.host.discard() == nil {
				continue
			}
		} else if rest := bytes.TrimSpace(s.host.rest()); scan(rest).kind != odd {
			s.forward(append(slices.Clone(rest), '\n')) // whole, only the newline is missing
		}
		s.endHost(ctx)
		return
	}
}

// endHost half-closes the connection; what is pending will still be answered.
func (s *session) endHost(ctx context.Context) {
	bound := time.AfterFunc(drainTime, func() { s.cancel(errDrained) })
	context.AfterFunc(ctx, func() { bound.Stop() })

	s.mu.Lock()
	s.ended = true
	for i := 0; i < len(s.pending); {
		if s.pending[i].isListen {
			s.removeLocked(i)
			continue
		}
		i++
	}
	if len(s.pending) == 0 {
		s.link.closeIn(partingTime, nil)
	}
	s.mu.Unlock()
	close(s.hostEnd)

	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	s.link.closeWrite()
}

// forward remembers what must be and writes the block, in one write as a rule. It returns false when the run is over.
func (s *session) forward(block []byte) bool {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	written := 0
	for at := 0; at < len(block); {
		end := at + bytes.IndexByte(block[at:], '\n') + 1
		line := block[at:end]
		f := scan(line)
		if f.kind == odd && len(bytes.TrimSpace(line)) == 0 { // some servers take it for a broken message
			s.send(block[written:at])
			at, written = end, end
			continue
		}
		if f.kind == request && !s.hasRoom(len(line)) {
			s.send(block[written:at])
			written = at
			s.sendMu.Unlock() // a new connection may have to be greeted before there is room
			open := s.awaitRoom(len(line))
			s.sendMu.Lock()
			if !open {
				return false
			}
		}
		s.note(f, line)
		at = end
	}
	s.send(block[written:])
	return true
}

func (s *session) hasRoom(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasRoomLocked(n)
}

func (s *session) hasRoomLocked(n int) bool {
	return len(s.pending) == 0 || len(s.pending) < maxPending && s.bytes+n <= maxPendingBytes
}

func (s *session) awaitRoom(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.over && !s.hasRoomLocked(n) {
		s.room.Wait()
	}
	return !s.over
}

// note remembers what a later connection would have to be told. sendMu must be held.
func (s *session) note(f frame, line []byte) {
	switch f.kind {
	case odd:
		s.link.odd.Store(true)
	case request:
		s.noteRequest(f, line)
	case notification:
		switch f.method {
		case "notifications/initialized":
			s.initialized = bytes.Clone(line)
		case "notifications/cancelled":
			var n struct {
				Params struct{ RequestID json.RawMessage }
			}
			if json.Unmarshal(line, &n) == nil {
				s.forget(n.Params.RequestID)
			}
		}
	}
}

func (s *session) noteRequest(f frame, line []byte) {
	p := pending{frame: bytes.Clone(line), sends: 1}
	at := bytes.Index(line, f.id) // the same bytes, wherever they are first
	p.id = p.frame[at : at+len(f.id)]
	var params struct{ URI json.RawMessage }
	switch f.method {
	case "initialize":
		p.isInit = true
		s.initialize = p.frame
		if !s.link.embedded {
			s.link.closeIn(patience, errSilent) // it is answered from memory: a daemon that cannot do that hangs
		}
	case "subscriptions/listen":
		p.isListen = true
	case "logging/setLevel":
		s.logLevel = paramsOf(line)
	case "resources/subscribe":
		if json.Unmarshal(paramsOf(line), &params) == nil && params.URI != nil && len(s.watched) < maxWatched && len(params.URI) <= maxURI {
			p.watches = params.URI
			if !slices.ContainsFunc(s.watched, equals(params.URI)) {
				s.watched = append(s.watched, params.URI)
			}
		}
	case "resources/unsubscribe":
		if json.Unmarshal(paramsOf(line), &params) == nil {
			s.watched = slices.DeleteFunc(s.watched, equals(params.URI))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.isInit {
		s.initID = p.id
	}
	s.pending = append(s.pending, p)
	s.bytes += len(p.frame)
}

func paramsOf(line []byte) json.RawMessage {
	var m struct{ Params json.RawMessage }
	if json.Unmarshal(line, &m) != nil {
		return nil
	}
	return m.Params
}

func equals(want []byte) func([]byte) bool {
	return func(have []byte) bool { return bytes.Equal(have, want) }
}

// forget drops a request that the host has given up. Its answer, if one comes, still passes.
func (s *session) forget(id []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.findLocked(id); i >= 0 && !s.pending[i].isInit {
		s.removeLocked(i)
	}
}

// findLocked returns the oldest request with that id: a host that uses one twice gets two answers.
func (s *session) findLocked(id []byte) int {
	return slices.IndexFunc(s.pending, func(p pending) bool { return bytes.Equal(p.id, id) })
}

func (s *session) removeLocked(i int) {
	s.bytes -= len(s.pending[i].frame)
	s.pending = slices.Delete(s.pending, i, i+1)
	s.room.Signal()
}

// readLink takes the server's frames to the host until the connection ends, and returns why it did.
func (s *session) readLink(l *link) error {
	lines := newLineReader(l.rwc, answerLimit)
	parting := false
	for {
		block, err := lines.block()
		if err != nil {
			return err // a frame that was cut off is dropped, it will be asked for again
		}
		passed := 0 // bytes of block that are written or withheld
		for at := 0; at < len(block); {
			end := at + bytes.IndexByte(block[at:], '\n') + 1
			pass, err := s.judge(l, block[at:end])
			if !pass || err != nil {
				if err := s.tell(block[passed:at]); err != nil {
					return err
				}
				passed = end
			}
			if err != nil {
				return err
			}
			at = end
		}
		if err := s.tell(block[passed:]); err != nil {
			return err
		}
		if !parting && s.finished() {
			parting = true
			l.closeIn(partingTime, nil)
		}
	}
}

// judge notes what a line of the server means, and tells whether it is for the host.
func (s *session) judge(l *link, line []byte) (pass bool, err error) {
	f := scanAnswer(line)
	switch f.kind {
	case odd:
		if len(bytes.TrimSpace(line)) == 0 {
			return false, nil
		}
		return false, errNotOurs
	case notification:
		switch f.method {
		case helloMethod:
			s.compareVersion(line)
			return false, nil
		case acknowledgedMethod:
			return s.acknowledged(line)
		}
		return true, nil
	case request:
		return true, nil
	}
	if bytes.HasPrefix(f.id, []byte(ownID)) {
		if uri := l.replayed(f.id); uri != nil {
			return false, s.tellUpdated(uri, nil)
		}
		return false, nil
	}
	if string(f.id) == "null" {
		// If nothing was sent that has such an answer, it is meant for the connection: there are too many, say.
		if !l.embedded && !l.served && !l.odd.Load() {
			var m struct{ Error struct{ Message string } }
			json.Unmarshal(line, &m)
			return false, fmt.Errorf("%w: %s", errRefused, strconv.Quote(m.Error.Message))
		}
		return true, nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.findLocked(f.id)
	isInit := i >= 0 && s.pending[i].isInit || i < 0 && !l.isReady && s.initID != nil && bytes.Equal(f.id, s.initID)
	if i >= 0 {
		if uri := s.pending[i].watches; uri != nil {
			s.refused = slices.DeleteFunc(s.refused, equals(uri))
			if f.failed {
				s.refused = append(s.refused, uri)
			}
		}
		s.removeLocked(i)
		l.served = true
	}
	if isInit {
		l.served = true
		if !l.isReady {
			l.isReady = true
			close(l.ready)
			l.stay()
		}
		return i >= 0, nil // else the host has it from an earlier daemon
	}
	return true, nil
}

// acknowledged tells whether the acknowledgement of a subscriptions/listen is for the host: not if the host has it from
// an earlier daemon. What has changed between the two daemons neither of them saw, so that the host is told to look.
func (s *session) acknowledged(line []byte) (pass bool, err error) {
	var m struct {
		Params struct {
			Meta          map[string]json.RawMessage `json:"_meta"`
			Notifications struct{ ResourceSubscriptions []json.RawMessage }
		}
	}
	if json.Unmarshal(line, &m) != nil {
		return true, nil
	}
	id := m.Params.Meta[subscriptionID]
	s.mu.Lock()
	again := false
	if i := s.findLocked(id); i >= 0 && s.pending[i].isListen {
		again = s.pending[i].acked
		s.pending[i].acked = true
		s.pending[i].sends = 1 // no daemon ended over it
	}
	s.mu.Unlock()
	if !again {
		return true, nil
	}
	for _, uri := range m.Params.Notifications.ResourceSubscriptions {
		if err := s.tellUpdated(uri, id); err != nil {
			return false, err
		}
	}
	return false, nil
}

// tellUpdated tells the host that a resource may have changed. id is that of its subscriptions/listen, nil for none.
func (s *session) tellUpdated(uri, id []byte) error {
	meta := ""
	if id != nil {
		meta = fmt.Sprintf(`,"_meta":{"%s":%s}`, subscriptionID, id)
	}
	return s.tell(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%s%s}}`+"\n", uri, meta))
}

func (s *session) compareVersion(line []byte) {
	var m struct{ Params struct{ Version string } }
	if json.Unmarshal(line, &m) != nil || s.Version == "" || m.Params.Version == s.Version || s.skewLogged {
		return
	}
	s.skewLogged = true
	s.log.Warn("the daemon is of another version: restart the older of the two", "bridge", s.Version, "daemon", m.Params.Version)
}

// tell writes to the host. A failure is the end of the run.
func (s *session) tell(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	s.outMu.Lock()
	defer s.outMu.Unlock()
	if _, err := s.out.Write(p); err != nil {
		err = fmt.Errorf("write to the host: %w", err)
		s.cancel(err)
		return err
	}
	return nil
}

// refuse answers a request of the host with an error of our own. A nil id becomes null.
func (s *session) refuse(id []byte, code int, message string) {
	if id == nil {
		id = []byte("null")
	}
	text, _ := json.Marshal(message) // a string always has a JSON form
	s.tell(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`+"\n", id, code, text))
}
