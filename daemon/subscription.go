package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	if s.IsSubscribedToResource(uri) {
		return nil
	}
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
	uris := make([]string, 0, len(s.watches))
	for _, w := range s.watches {
		uris = append(uris, w.uri)
	}
	return uris
}

// IsSubscribedToResource reports whether the client is subscribed to a resource.
func (s *session) IsSubscribedToResource(uri string) bool {
	return slices.Contains(s.SubscribedResources(), uri)
}

// watch subscribes to a resource, for a subscriptions/listen or classically.
func (s *session) watch(uri string, listen []byte) error {
	r, err := tools.ParseResource(uri)
	if err != nil {
		return fmt.Errorf("%w: %s", err, uri)
	}
	server, _, err := s.daemon.find(s.who(), r.Socket)
	if err != nil {
		return err
	}
	w := &watch{session: s, uri: uri, listen: listen}
	s.mu.Lock()
	if len(s.watches) >= maxSubscriptions {
		s.mu.Unlock()
		return fmt.Errorf("more than %d subscriptions: end some first", maxSubscriptions)
	}
	if s.updates.ready == nil {
		s.updates.ready = make(chan struct{}, 1)
		s.background.Go(s.sendUpdates)
	}
	s.mu.Unlock()
	if err := server.subscribe(s.live, w, r); err != nil {
		return fmt.Errorf("%w: %s", err, uri)
	}
	s.mu.Lock()
	s.watches = append(s.watches, w)
	s.mu.Unlock()
	return nil
}

// unwatch ends the subscriptions that which chooses.
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
		w.end()
		s.updates.remove(w)
	}
}

// sendUpdates tells the client of updates, until the session ends. A client
// that does not read is waited for without a bound and holds nobody up: its
// updates are merged meanwhile.
func (s *session) sendUpdates() {
	for {
		select {
		case <-s.live.Done():
			return
		case <-s.updates.ready:
		}
		for w := s.updates.next(); w != nil; w = s.updates.next() {
			if s.writeUpdate(w.frame()) != nil {
				return
			}
		}
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
		params.Meta = &meta{ID: w.listen}
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
}

// NotificationChannel takes the acknowledgement.
func (l *listener) NotificationChannel() chan<- mcp.JSONRPCNotification { return l.acks }

// SubscribeToResourceErr subscribes on behalf of the request.
func (l *listener) SubscribeToResourceErr(uri string) error { return l.watch(uri, l.request.id) }

// UnsubscribeFromResource ends what SubscribeToResourceErr began.
func (l *listener) UnsubscribeFromResource(uri string) {
	l.unwatch(func(w *watch) bool { return string(w.listen) == string(l.request.id) && w.uri == uri })
}

// listen answers a subscriptions/listen, when it ends.
func (s *session) listen(ctx context.Context, r *request) ([]byte, error) {
	if s.listens.Add(1) > maxListens {
		s.listens.Add(-1)
		return errorFrame(r.id, codeInternal, fmt.Sprintf("more than %d %s: end some first", maxListens, listenMethod)), nil
	}
	defer s.listens.Add(-1)
	l := &listener{session: s, request: r, acks: make(chan mcp.JSONRPCNotification, 1)}
	ctx, cancel := context.WithCancel(r.mcp.WithContext(ctx, l))
	defer cancel()
	stop := context.AfterFunc(s.live, cancel)
	defer stop()
	done := make(chan struct{})
	s.background.Go(func() {
		select {
		case ack := <-l.acks:
			s.acknowledge(ack, r.id)
		case <-done:
		}
	})
	response := r.mcp.HandleMessage(ctx, r.frame)
	close(done)
	return encodeResponse(r.id, response)
}

// acknowledge passes mcp-go's acknowledgement on, with the id as the client
// wrote it.
func (s *session) acknowledge(ack mcp.JSONRPCNotification, id []byte) {
	ack.Params.Meta[mcp.MetaKeySubscriptionID] = json.RawMessage(id)
	if frame, err := json.Marshal(ack); err == nil {
		_ = s.write(append(frame, '\n'))
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
			s.AddResource(mcp.NewResource(k.URI, k.Name, mcp.WithMIMEType("application/json"),
				mcp.WithResourceDescription(k.Description)), readResource)
		}
		s.AddResourceTemplate(mcp.NewResourceTemplate(k.URI+"{?socket}", k.Name, mcp.WithTemplateMIMEType("application/json"),
			mcp.WithTemplateDescription(k.Description+" Of the server with the given socket name, or else the caller's own.")),
			readResource)
	}
}

// resourceCompletion completes ids.
type resourceCompletion struct{}

// CompleteResourceArgument lists the ids that there are.
func (resourceCompletion) CompleteResourceArgument(ctx context.Context, uri string, argument mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	call, ok := ctx.Value(callerKey{}).(tools.Request)
	if !ok || argument.Name != "id" {
		return &mcp.Completion{Values: []string{}}, nil
	}
	for i := range tools.ResourceKinds {
		k := &tools.ResourceKinds[i]
		if uri != k.URI && uri != k.URI+"{?socket}" {
			continue
		}
		server, err := call.Servers.Server(call.Caller, nil)
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
