package controlmode

import "syscall"

// maxSocketPath is the size of sun_path in bytes less the NUL that tmux keeps
// at its end.
const maxSocketPath = 107

// sysProcAttr puts tmux in a process group of its own, out of the way of ^C,
// and has it killed when we die. The signal must be SIGKILL: a tmux client
// whose output nobody reads any more does not leave by itself, and holds up a
// later kill-server.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
