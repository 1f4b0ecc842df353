package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"tmux-mcpd/tools"
)

// Subscriptions of a session. mcp-go answers the requests and asks the session
// to take note; telling the client is ours. The classic way is
// resources/subscribe; from 2026-07-28 on it is subscriptions/listen, a request
// that lasts as long as the subscription.

const (
	maxSubscriptions = 256 // of one client
	maxListens       = 16  // requests of one client that last
)

const listenMethod = "subscriptions/listen"

var (
	_ mcpserver.SessionWithResourceSubscriptionsErr = (*session)(nil)
	_ mcpserver.SessionWithResourceSubscriptionsErr = (*listener)(nil)
)

// SubscribeToResourceErr subscribes the client to a resource.
func (s *session) SubscribeToResourceErr(uri string) error {
	return s.watch(uri, nil)
}

// SubscribeToResource is not called: SubscribeToResourceErr is there.
func (s *session) SubscribeToResource(uri string) { _ = s.SubscribeToResourceErr(uri) }

// UnsubscribeFromResource ends the client's subscription to a resource.
func (s *session) UnsubscribeFromResource(uri string) {
	s.unwatch(func(w *watch) bool { return w.listen == nil && w.uri == uri })
}

// SubscribedResources lists what the client is subscribed to.
func (s *session) SubscribedResources() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var uris []string
	for _, w := range s.watches {
		if w.listen == nil {
			uris = append(uris, w.uri)
		}
	}
	return uris
}

// IsSubscribedToResource reports whether the client is subscribed to a resource.
func (s *session) IsSubscribedToResource(uri string) bool {
	return slices.Contains(s.SubscribedResources(), uri)
}

// watching reports whether there is such a subscription. It needs mu.
func (s *session) watching(uri string, listen *request) bool {
	return slices.ContainsFunc(s.watches, func(w *watch) bool { return w.uri == uri && w.listen == listen })
}

// watch subscribes to a resource, for a subscriptions/listen or classically.
func (s *session) watch(uri string, listen *request) error {
	r, err := tools.ParseResource(uri)
	if err != nil {
		return fmt.Errorf("%w: %s", err, shortened(uri))
	}
	server, _, err := s.daemon.find(s.who(), r.Socket)
	if err != nil {
		return err
	}
	s.mu.Lock()
	switch {
	case s.watching(uri, listen):
		s.mu.Unlock()
		return nil
	case len(s.watches) >= maxSubscriptions:
		s.mu.Unlock()
		return fmt.Errorf("more than %d subscriptions: end some first", maxSubscriptions)
	}
	if s.updates.ready == nil {
		s.updates.ready = make(chan struct{}, 1)
		s.background.Go(s.sendUpdates)
	}
	s.mu.Unlock()
	// A client drops what comes before it has been told that it listens.
	w := &watch{session: s, uri: uri, listen: listen, held: listen != nil}
	if err := server.subscribe(s.draining, w, r); err != nil {
		return fmt.Errorf("%w: %s", err, uri)
	}
	s.mu.Lock()
	twice := s.watching(uri, listen)
	if !twice {
		s.watches = append(s.watches, w)
	}
	s.mu.Unlock()
	if twice { // by two requests at once
		w.end()
	}
	return nil
}

// unwatch ends the subscriptions that which chooses. The client is told nothing
// of them after that.
func (s *session) unwatch(which func(*watch) bool) {
	var ended []*watch
	s.mu.Lock()
	s.watches = slices.DeleteFunc(s.watches, func(w *watch) bool {
		if which(w) {
			ended = append(ended, w)
			return true
		}
		return false
	})
	s.mu.Unlock()
	for _, w := range ended {
		w.over.Store(true)
		w.end()
		s.updates.remove(w)
	}
}

// order makes a request about subscriptions wait for those before it: requests
// are answered next to each other, and an unsubscribe that overtakes its
// subscribe would end nothing. Only the reader calls it.
func (s *session) order(r *request) {
	switch r.method {
	case "resources/subscribe":
		if s.unsubscribed != nil {
			r.after = []chan struct{}{s.unsubscribed}
		}
		s.subscribing = slices.DeleteFunc(s.subscribing, isClosed)
		r.done = make(chan struct{})
		s.subscribing = append(s.subscribing, r.done)
	case "resources/unsubscribe":
		r.after = s.subscribing
		if s.unsubscribed != nil {
			r.after = append(r.after, s.unsubscribed)
		}
		r.done = make(chan struct{})
		s.subscribing, s.unsubscribed = nil, r.done
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// frame is the notification of an update.
func (w *watch) frame() []byte {
	type meta struct {
		ID json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
	}
	params := struct {
		URI  string `json:"uri"`
		Meta *meta  `json:"_meta,omitempty"`
	}{URI: w.uri}
	if w.listen != nil {
		params.Meta = &meta{ID: w.listen.id}
	}
	frame, err := json.Marshal(struct {
		JSONRPC string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", string(mcp.MethodNotificationResourceUpdated), params})
	if err != nil {
		panic(err) // an id that came as JSON and a string
	}
	return append(frame, '\n')
}

// A listener is a session as a subscriptions/listen sees it: mcp-go keeps one
// filter per session, but a client may have several such requests.
type listener struct {
	*session
	request *request
	acks    chan mcp.JSONRPCNotification
	// subscribed: it is about something, and lasts until the client withdraws it.
	subscribed atomic.Bool
}

// NotificationChannel takes the acknowledgement.
func (l *listener) NotificationChannel() chan<- mcp.JSONRPCNotification { return l.acks }

// SubscribeToResourceErr subscribes on behalf of the request.
func (l *listener) SubscribeToResourceErr(uri string) error {
	l.subscribed.Store(true)
	return l.watch(uri, l.request)
}

// UnsubscribeFromResource ends what SubscribeToResourceErr began.
func (l *listener) UnsubscribeFromResource(uri string) {
	l.unwatch(func(w *watch) bool { return w.listen == l.request && w.uri == uri })
}

// listen answers a subscriptions/listen, when it ends.
func (s *session) listen(ctx context.Context, r *request) ([]byte, error) {
	if !r.lasts {
		return errorFrame(r.id, codeInternal, fmt.Sprintf("more than %d %s: end some first", maxListens, listenMethod)), nil
	}
	l := &listener{session: s, request: r, acks: make(chan mcp.JSONRPCNotification, 1)}
	ctx, cancel := context.WithCancel(r.mcp.WithContext(ctx, l))
	defer cancel()
	stop := context.AfterFunc(s.live, cancel)
	defer stop()
	acknowledged := make(chan struct{})
	go func() {
		defer close(acknowledged)
		for ack := range l.acks {
			s.acknowledge(ack, r)
		}
	}()
	response := r.mcp.HandleMessage(ctx, r.frame)
	// mcp-go sends to the session before it returns, and never after. The
	// acknowledgement comes before the end.
	close(l.acks)
	<-acknowledged
	if l.subscribed.Load() && s.live.Err() != nil {
		return nil, nil // not ended, but cut off: a bridge asks the next daemon again
	}
	return encodeResponse(r.id, response)
}

// acknowledge passes mcp-go's acknowledgement on, with the id as the client
// wrote it, and lets the updates go that waited for it.
func (s *session) acknowledge(ack mcp.JSONRPCNotification, r *request) {
	ack.Params.Meta[mcp.MetaKeySubscriptionID] = json.RawMessage(r.id)
	if frame, err := json.Marshal(ack); err == nil {
		_ = s.write(append(frame, '\n'))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		if w.listen == r {
			s.updates.release(w)
		}
	}
}

// callerKey is the context key of who asks, as a tools.Request without
// arguments, for what goes through mcp-go.
type callerKey struct{}

// readResource answers mcp-go's request to read a resource.
func readResource(ctx context.Context, request mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	call, ok := ctx.Value(callerKey{}).(tools.Request)
	if !ok {
		return nil, errors.New("resource read outside of a session")
	}
	r, err := tools.ParseResource(request.Params.URI)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", mcpserver.ErrResourceNotFound, request.Params.URI)
	}
	rows, err := r.Read(ctx, call.Caller, call.Servers)
	if errors.Is(err, tools.ErrResource) {
		return nil, fmt.Errorf("%w: %s", mcpserver.ErrResourceNotFound, request.Params.URI)
	}
	if err != nil {
		return nil, err
	}
	return []mcp.ResourceContents{mcp.TextResourceContents{URI: request.Params.URI, MIMEType: "application/json", Text: string(rows)}}, nil
}

// notFound gives the error of a resource that does not exist the code that the
// protocol has for it; mcp-go makes every error of a handler an internal one.
func notFound(response mcp.JSONRPCMessage, modern bool) mcp.JSONRPCMessage {
	e, ok := response.(mcp.JSONRPCError)
	if !ok || !strings.HasPrefix(e.Error.Message, mcpserver.ErrResourceNotFound.Error()) {
		return response
	}
	e.Error.Code = mcp.RESOURCE_NOT_FOUND
	if modern {
		e.Error.Code = mcp.INVALID_PARAMS
	}
	return e
}

// metaOf is the _meta of a request's params.
func metaOf(params []byte) json.RawMessage {
	var p struct {
		Meta json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(params, &p) // what is no object has none
	return p.Meta
}

// addResources registers the resources with mcp-go.
func addResources(s *mcpserver.MCPServer) {
	for i := range tools.ResourceKinds {
		k := &tools.ResourceKinds[i]
		if !k.HasID() {
			s.AddResource(mcp.NewResource(k.URI, k.Name, mcp.WithResourceTitle(k.Title), mcp.WithMIMEType("application/json"),
				mcp.WithResourceDescription(k.Description)), readResource)
		}
		s.AddResourceTemplate(mcp.NewResourceTemplate(k.URI+"{?socket}", k.Name, mcp.WithTemplateTitle(k.Title), mcp.WithTemplateMIMEType("application/json"),
			mcp.WithTemplateDescription(k.Description+" Of the server with the given socket name, or else the caller's own.")),
			readResource)
	}
}

// resourceCompletion completes ids.
type resourceCompletion struct{}

// CompleteResourceArgument lists the ids that there are.
func (resourceCompletion) CompleteResourceArgument(ctx context.Context, uri string, argument mcp.CompleteArgument, given mcp.CompleteContext) (*mcp.Completion, error) {
	call, ok := ctx.Value(callerKey{}).(tools.Request)
	if !ok || argument.Name != "id" {
		return &mcp.Completion{Values: []string{}}, nil
	}
	for i := range tools.ResourceKinds {
		k := &tools.ResourceKinds[i]
		if uri != k.URI && uri != k.URI+"{?socket}" {
			continue
		}
		var socket *string
		if name, ok := given.Arguments["socket"]; ok {
			socket = &name
		}
		server, err := call.Servers.Server(call.Caller, socket)
		if err != nil {
			return nil, err
		}
		snapshot, err := server.Snapshot(ctx, nil)
		if err != nil {
			return nil, err
		}
		ids := k.IDs(snapshot, argument.Value)
		return &mcp.Completion{Values: ids[:min(len(ids), 100)], Total: len(ids), HasMore: len(ids) > 100}, nil
	}
	return &mcp.Completion{Values: []string{}}, nil
}
