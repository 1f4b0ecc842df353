package daemon

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tmux-mcpd/tools"
)

// TestCallThatHangs: a call that waits for a tmux that does not answer keeps
// neither the calls after it from being answered nor its cancellation from being
// heard, again and again.
func TestCallThatHangs(t *testing.T) {
	path, err := TmuxPath("")
	if err != nil {
		t.Skip(err)
	}
	const deadline = 3 * time.Second
	d := New(Config{Tmux: path, Version: "test", Deadline: deadline})
	t.Cleanup(d.stop)
	base, err := os.MkdirTemp("/tmp", "tm-") // short: a socket path has 104 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	dir := filepath.Join(base, fmt.Sprintf("tmux-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	hung, err := net.Listen("unix", filepath.Join(dir, "hung")) // takes connections, and that is all
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hung.Close() })

	ours, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- d.serveSession(t.Context(), theirs, tools.Caller{Env: map[string]string{"TMUX_TMPDIR": base}})
	}()
	in := bufio.NewReader(ours)
	send := func(format string, args ...any) {
		t.Helper()
		if _, err := fmt.Fprintf(ours, format+"\n", args...); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(want string) {
		t.Helper()
		line, err := in.ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Fatalf("received %.200q, %v; want %s", line, err, want)
		}
	}
	call := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"list_sessions","arguments":{"socket_name":%q}}}`
	begun := time.Now()
	for i := range 3 {
		send(call, 100+i, "hung")
		send(call, 200+i, "absent")
		receive(fmt.Sprintf(`"id":%d,"result"`, 200+i))
	}
	send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":100}}`)
	send(call, 300, "absent")
	receive(`"id":300,"result"`)
	if took := time.Since(begun); took > deadline/2 {
		t.Errorf("calls that hang held others up: %v", took)
	}
	left := map[string]bool{`"id":101,`: true, `"id":102,`: true} // and not 100
	for range len(left) {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for id := range left {
			if strings.Contains(line, id) {
				found = true
				delete(left, id)
			}
		}
		if !found || !strings.Contains(line, `"isError":true`) {
			t.Errorf("received %.200q", line)
		}
	}
	ours.Close()
	if err := <-ended; err != nil && !strings.Contains(err.Error(), "closed") {
		t.Errorf("session ended with %v", err)
	}
}
