package daemon

import (
	"fmt"
	"testing"

	"tmux-mcpd/daemon/state"
)

// BenchmarkProcesses is the reading of what runs in the panes, by one goroutine
// and by two: parallelPanes is where the second begins to pay.
func BenchmarkProcesses(b *testing.B) {
	for _, n := range []int{1, 4, 8, 12, 16, 20, 24, 32, 64, 200} {
		b.Run(fmt.Sprintf("%d_panes", n), func(b *testing.B) {
			socket := benchTmux(b, n)
			d := New(Config{})
			defer d.stop()
			s := d.server(socket)
			snapshot, err := s.snapshot(b.Context(), nil)
			if err != nil {
				b.Fatal(err)
			}
			summary := s.summary.Load()
			processes := make([]state.Process, n)
			for _, by := range []struct {
				name string
				read func() []int
			}{
				{"one", func() []int {
					return s.processes.readSome(snapshot.Panes, processes, 0, summary.ProcPID, summary.Version)
				}},
				{"two", func() []int {
					return s.processes.readHalves(snapshot.Panes, processes, summary.ProcPID, summary.Version)
				}},
			} {
				b.Run(by.name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if unknown := by.read(); len(unknown) > 0 {
							b.Fatalf("%d panes are unknown", len(unknown))
						}
					}
				})
			}
		})
	}
}
