//go:build !linux

package controlmode

import "syscall"

// maxSocketPath is the size of sun_path in bytes less the NUL that tmux keeps
// at its end; macOS and the BSDs have 104.
const maxSocketPath = 103

// sysProcAttr puts tmux in a process group of its own, out of the way of ^C.
// There is no parent-death signal here; tmux leaves when its input ends.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
