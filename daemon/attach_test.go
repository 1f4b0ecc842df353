package daemon

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := backOff{}
		b.meets("7 1700000000")
		quick := func() { b.ended(time.Now()) }
		// The first is an accident: we come back at once. Those that follow wait,
		// longer each time, with jitter around the step.
		quick()
		if !b.allows() {
			t.Error("the first quick end keeps us away")
		}
		for i, step := range []time.Duration{backOffMin, 2 * backOffMin, 4 * backOffMin} {
			quick()
			if wait := time.Until(b.until); wait < step/2 || wait > step*3/2 {
				t.Errorf("quick end %d keeps us away for %v, want about %v", i+2, wait, step)
			}
			time.Sleep(step * 3 / 2)
			if !b.allows() {
				t.Errorf("we stay away after the time of quick end %d", i+2)
			}
		}
		quick()
		if wait := time.Until(b.until); wait != stayAwayFor {
			t.Errorf("%d quick ends keep us away for %v, want %v", quickExits, wait, stayAwayFor)
		}
		// Whatever the old server did, the new one has done nothing.
		stayed := b
		b.meets("7 1700000000")
		if b != stayed {
			t.Errorf("the same server is forgiven: %+v", b)
		}
		b.meets("7 1700000009")
		if !b.allows() || b.failures != 0 {
			t.Errorf("a new server is blamed for the old one: %+v", b)
		}
		// A connection that lived makes up for those before.
		quick()
		quick()
		since := time.Now()
		time.Sleep(quickExit + time.Second)
		b.ended(since)
		if !b.allows() || b.failures != 0 {
			t.Errorf("after a long connection: %+v", b)
		}
	})
}
