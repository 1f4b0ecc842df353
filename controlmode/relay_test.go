package controlmode

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAttachAmidChanges attaches while another client renames a session without
// pause. Without the relay a 3.3a crashed in one of 14 such attaches, a 3.5a in
// one of 50.
func TestAttachAmidChanges(t *testing.T) {
	attaches := 60
	if testing.Short() {
		attaches = 20
	}
	eachTmux(t, func(t *testing.T, path string) {
		s := newServer(t, path)
		t.Setenv("TMPDIR", filepath.Dir(s.Socket))
		mutator := s.attach(nil)
		ctx, stop := context.WithCancel(testContext(t))
		stopped := make(chan int)
		go func() {
			renames := 0
			for ; ctx.Err() == nil; renames++ {
				if _, err := mutator.Do(ctx, "rename-session -t $0 "+string('a'+byte(renames%2))); err != nil {
					break
				}
			}
			stopped <- renames
		}()
		for i := range attaches {
			c, err := s.Attach(testContext(t), "$0", nil)
			if err != nil {
				t.Errorf("attach %d of %d: %v", i+1, attaches, err)
				break
			}
			c.Close()
		}
		stop()
		t.Logf("%d attaches beside %d renames of a session", attaches, <-stopped)
		if !running(s.pid) {
			t.Error("the tmux server is gone")
		}
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*-*")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// TestRelayForwards sends what a client could send in pieces that no client
// sends, and looks at what arrives at the server.
func TestRelayForwards(t *testing.T) {
	message := func(kind uint32, mark uint32, body string) string {
		b := make([]byte, messageHeader)
		binary.NativeEndian.PutUint32(b, kind)
		binary.NativeEndian.PutUint32(b[4:], uint32(messageHeader+len(body))|mark)
		return string(b) + body
	}
	const term, stdin, environ, command = 101, 104, 105, 200
	flags := message(msgIdentifyFlags, 0, "\x00\x20\x00\x00") + message(msgIdentifyLongFlags, 0, "\x00\x20\x00\x00\x00\x00\x00\x00")
	done := message(msgIdentifyDone, 0, "")
	for _, tt := range []struct {
		name, sent, arrives, failure string
		fds                          int
	}{
		{name: "flags go last", fds: 1,
			sent:    flags + message(term, 0, "xterm\x00") + message(stdin, hasFD, "") + message(environ, 0, "A=1\x00") + done + message(command, 0, "x"),
			arrives: message(term, 0, "xterm\x00") + message(stdin, hasFD, "") + message(environ, 0, "A=1\x00") + flags + done + message(command, 0, "x")},
		{name: "the mark of 3.7", fds: 1,
			sent:    flags + message(stdin, hasFDNew, "") + done,
			arrives: message(stdin, hasFDNew, "") + flags + done},
		{name: "another message before the end", sent: flags + message(command, 0, "x"), failure: "message 200"},
		{name: "no message at all", sent: "GET / HTTP/1.0\r\n\r\n", failure: "as expected"},
		{name: "too much", sent: strings.Repeat(message(environ, 0, strings.Repeat("x", 8000)), 8) + flags + done, failure: "environment is too large"},
		{name: "an end in the middle", sent: flags, failure: "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "cm")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			ln, err := net.Listen("unix", filepath.Join(dir, "s"))
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			r, err := newRelay(filepath.Join(dir, "s"))
			if err != nil {
				t.Fatal(err)
			}
			server, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			client, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.socket(), Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			var rights []byte
			if tt.fds > 0 {
				rights = syscall.UnixRights(int(os.Stdin.Fd()))
			}
			// The first byte carries the descriptor, the rest comes byte by byte.
			for i := range tt.sent {
				if _, _, err := client.WriteMsgUnix([]byte(tt.sent[i:i+1]), rights, nil); err != nil {
					break // the relay has given up
				}
				rights = nil
			}
			client.CloseWrite()
			in := &introduction{from: server.(*net.UnixConn)}
			for in.read() == nil {
			}
			r.close()
			client.Close()
			defer func() {
				for _, fd := range in.fds {
					syscall.Close(fd)
				}
			}()
			if tt.failure != "" {
				if err := r.failure(); err == nil || !strings.Contains(err.Error(), tt.failure) {
					t.Errorf("failure %v, want one with %q", err, tt.failure)
				}
				if strings.Contains(string(in.data), done) {
					t.Error("the introduction was ended all the same")
				}
				return
			}
			if err := r.failure(); err != nil {
				t.Error(err)
			}
			if string(in.data) != tt.arrives || len(in.fds) != tt.fds {
				t.Errorf("arrived %d descriptors and\n%q, want\n%q", len(in.fds), in.data, tt.arrives)
			}
		})
	}
}
