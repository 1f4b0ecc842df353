package daemon

import "golang.org/x/sys/unix"

// outQueue is the memory of what was sent and has not been read (SIOCOUTQ,
// which is TIOCOUTQ), in bytes with the kernel's own for each message; 0 if the
// kernel does not tell.
func outQueue(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}
