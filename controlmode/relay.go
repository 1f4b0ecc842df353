package controlmode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// A relay stands between a tmux client in control mode and a server that a
// client can crash by connecting.
//
// A tmux client introduces itself in some hundred messages. Up to 3.6b the
// server takes it for a control client from the message with its flags on, but
// makes ready to write to it only at the last one; if it has to notify control
// clients in between (a session is renamed or ended by anybody), it follows a null
// pointer and takes all sessions along (tmux's issue 4980, mended in 3.7; 8 of
// 115 attaches crashed 3.3a beside a loop of renames). The client sends its
// messages in several writes, because each passes one descriptor, and between
// two reads the server serves others.
//
// The relay forwards all messages as they come, but keeps those with the flags
// and sends them together with the last one in one write: the server reads and
// handles them in one go. The order is of no importance to it: each sets what
// it is about. After the introduction bytes are copied in both directions; what
// is said in control mode never comes here, as the server has the client's
// stdin and stdout by then.
type relay struct {
	dir    string
	ln     *net.UnixListener
	server *net.UnixConn
	done   chan struct{}
	err    error // why the introduction failed; after done
}

// needsRelay reports whether the server is of a version that can crash, or of
// one that is not given.
func needsRelay(server Version) bool {
	return server == Version{} || !server.AtLeast(3, 7)
}

// newRelay listens at a socket of its own for one client of the server at
// socket. It is nil if nobody can be reached there: tmux says why in words that
// are known.
func newRelay(socket string) (*relay, error) {
	server, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	switch {
	case errors.Is(err, syscall.EAGAIN): // it lives, and is too busy to take us
		return nil, err
	case err != nil:
		return nil, nil
	}
	r := &relay{server: server, done: make(chan struct{})}
	if err := r.listen(); err != nil {
		server.Close()
		return nil, err
	}
	go r.run()
	return r, nil
}

func (r *relay) listen() (err error) {
	const name = "tmux-mcpd-"
	if r.dir, err = os.MkdirTemp("", name); err == nil && len(r.socket()) > maxSocketPath {
		os.Remove(r.dir)
		r.dir, err = os.MkdirTemp("/tmp", name)
	}
	if err != nil {
		return err
	}
	if r.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: r.socket(), Net: "unix"}); err != nil {
		os.Remove(r.dir)
	}
	return err
}

// socket is where the client has to connect.
func (r *relay) socket() string { return filepath.Join(r.dir, "s") }

// close ends the relay: no client will come any more, or the one that came has
// gone. There may be no relay.
func (r *relay) close() {
	if r != nil {
		r.ln.Close()
		<-r.done
	}
}

// failure is why the introduction failed, nil if it did not. The relay must
// have been closed.
func (r *relay) failure() error {
	if r == nil {
		return nil
	}
	return r.err
}

func (r *relay) run() {
	defer close(r.done)
	defer r.server.Close()
	client, err := r.ln.AcceptUnix()
	r.ln.Close() // which removes the socket
	os.Remove(r.dir)
	if err != nil {
		return // closed: the client never came
	}
	defer client.Close()

	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, r.server)
		// What is left to be forwarded goes nowhere: the server has closed.
		client.Close()
	})
	defer back.Wait()
	defer r.server.Close()
	in := &introduction{from: client}
	if r.err = in.forward(r.server); r.err != nil {
		return
	}
	_, _ = io.Copy(r.server, client)
}

// The messages of tmux's protocol (version 8, all releases since 2.1) that the
// relay has to know: those that carry flags, and the last of an introduction.
const (
	msgIdentifyFlags     = 100
	msgIdentifyDone      = 106
	msgIdentifyLongFlags = 111
	msgIdentifyMin       = 100
	msgIdentifyMax       = 199

	messageHeader = 16       // type, length, peer, pid; each of 32 bits
	maxMessage    = 16 << 10 // as in tmux
	// With the message comes a descriptor: the mark in the upper half of the
	// length, up to 3.6 and later.
	hasFD    = 1 << 16
	hasFDNew = 1 << 31

	// maxIntroduction is less than the server reads at once. In more it could
	// find the last write divided.
	maxIntroduction = 60 << 10
)

var errIntroduction = errors.New("the tmux client does not introduce itself as expected")

// An introduction reads the first messages of a tmux client.
type introduction struct {
	from *net.UnixConn
	data []byte // read and not yet taken
	fds  []int  // came with data, in the order of the messages that they belong to
}

// forward forwards the introduction to the server, and whatever has been read
// beyond it.
func (in *introduction) forward(server *net.UnixConn) (err error) {
	defer func() {
		for _, fd := range in.fds {
			syscall.Close(fd)
		}
	}()
	var last []byte
	for sent := 0; ; {
		message, fd, err := in.next()
		if err != nil {
			return err
		}
		kind := binary.NativeEndian.Uint32(message)
		switch {
		case kind < msgIdentifyMin || kind > msgIdentifyMax:
			return fmt.Errorf("%w (message %d)", errIntroduction, kind)
		case kind == msgIdentifyFlags || kind == msgIdentifyLongFlags:
			last = append(last, message...)
			continue
		}
		if sent += len(message); sent+len(last) > maxIntroduction {
			return fmt.Errorf("the environment is too large to attach safely to this tmux: over %d bytes", maxIntroduction)
		}
		if kind != msgIdentifyDone {
			if err := pass(server, message, fd); err != nil {
				return err
			}
			continue
		}
		last = append(last, message...)
		if err := pass(server, last, -1); err != nil {
			return err
		}
		_, err = server.Write(in.data)
		return err
	}
}

// pass writes a message in one piece, with a descriptor if fd is one, and
// closes that.
func pass(to *net.UnixConn, message []byte, fd int) error {
	var rights []byte
	if fd >= 0 {
		defer syscall.Close(fd)
		rights = syscall.UnixRights(fd)
	}
	n, _, err := to.WriteMsgUnix(message, rights, nil)
	if err == nil && n < len(message) {
		err = io.ErrShortWrite
	}
	return err
}

// next takes the next message. fd is the descriptor that came with it, or -1.
func (in *introduction) next() (message []byte, fd int, err error) {
	for {
		if len(in.data) >= messageHeader {
			length := binary.NativeEndian.Uint32(in.data[4:])
			marked := length&(hasFD|hasFDNew) != 0
			length &^= hasFD | hasFDNew
			if length < messageHeader || length > maxMessage {
				return nil, -1, fmt.Errorf("%w (a message of %d bytes)", errIntroduction, length)
			}
			if len(in.data) >= int(length) && (!marked || len(in.fds) > 0) {
				message, in.data = in.data[:length], in.data[length:]
				fd = -1
				if marked {
					fd, in.fds = in.fds[0], in.fds[1:]
				}
				return message, fd, nil
			}
		}
		if err := in.read(); err != nil {
			return nil, -1, err
		}
	}
}

func (in *introduction) read() error {
	data := make([]byte, maxMessage)
	control := make([]byte, syscall.CmsgSpace(4*4))
	n, nc, _, _, err := in.from.ReadMsgUnix(data, control)
	if err != nil {
		return err
	}
	if n == 0 {
		return io.EOF
	}
	in.data = append(in.data, data[:n]...)
	messages, err := syscall.ParseSocketControlMessage(control[:nc])
	if err != nil {
		return err
	}
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			return err
		}
		in.fds = append(in.fds, fds...)
	}
	return nil
}
