package tools

import "sync"

// Repeats remembers the arguments of calls, decoded: agents poll with the same
// ones again and again. Its zero value is empty. It may be used by any number of
// goroutines.
type Repeats struct {
	mu    sync.Mutex
	calls [2]map[string]arguments // by scope and by the bytes that were sent
}

const (
	maxRepeats  = 64
	maxRepeated = 4 << 10 // bytes of arguments that are worth remembering
)

func (m *Repeats) find(scope Scope, raw []byte) (arguments, bool) {
	if m == nil {
		return arguments{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.calls[scope][string(raw)]
	return a, ok
}

func (m *Repeats) remember(scope Scope, raw []byte, a arguments) {
	if m == nil || len(raw) > maxRepeated {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.calls[scope]) >= maxRepeats || m.calls[scope] == nil {
		m.calls[scope] = make(map[string]arguments)
	}
	m.calls[scope][string(raw)] = a
}
