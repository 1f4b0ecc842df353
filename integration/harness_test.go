package integration

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// parallelScenarios bounds the tests that run at once. They wait for tmux much
// more than they compute, so the default (the number of cores) leaves cores idle.
const parallelScenarios = "6"

func TestMain(m *testing.M) {
	if code, done := supervise(); done {
		os.Exit(code)
	}
	os.Exit(runTests(m))
}

// runTests is what TestMain does inside the supervisor: deferred calls run
// before os.Exit.
func runTests(m *testing.M) int {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", parallelScenarios); err != nil {
			fmt.Fprintln(os.Stderr, "integration:", err)
			return 1
		}
	}
	defer os.RemoveAll(runDir())
	if path, version, err := realTmux(); err != nil {
		fmt.Println("integration: no usable tmux:", err)
	} else {
		fmt.Printf("integration: %s is tmux %s, race detector %v\n", path, version, raceEnabled)
	}
	before := runtime.NumGoroutine()
	code := m.Run()
	if left := goroutinesLeft(before, 5*time.Second); left != "" {
		fmt.Fprintf(os.Stderr, "integration: goroutines left behind by the tests:\n%s\n", left)
		if code == 0 {
			code = 1
		}
	}
	return code
}

// goroutinesLeft waits until no more than want goroutines run, and returns the
// stacks of all of them if that does not come true in time.
func goroutinesLeft(want int, within time.Duration) string {
	for end := time.Now().Add(within); runtime.NumGoroutine() > want; time.Sleep(pollEvery) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			return string(buf[:runtime.Stack(buf, true)])
		}
	}
	return ""
}

// runDir is the temporary directory of this run; runTests removes it.
var runDir = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "tmux-mcpd-test-")
	if err != nil {
		panic(err)
	}
	return dir
})

// realTmux is the path and version of the tmux under test.
func realTmux() (path, version string, err error) {
	t, err := findTmux()
	return t.path, t.version, err
}

type foundTmux struct{ path, version string }

var findTmux = sync.OnceValues(func() (foundTmux, error) {
	path := os.Getenv("TMUX_MCPD_TEST_TMUX")
	if path == "" {
		var err error
		if path, err = exec.LookPath("tmux"); err != nil {
			return foundTmux{}, err
		}
	}
	out, err := exec.Command(path, "-V").Output()
	if err != nil {
		return foundTmux{}, fmt.Errorf("%s -V: %w", path, err)
	}
	return foundTmux{path, strings.TrimPrefix(strings.TrimSpace(string(out)), "tmux ")}, nil
})

// requireTmux returns the path of the tmux under test, or fails the test.
func requireTmux(t testing.TB) string {
	t.Helper()
	// go test caches a result by the variables that tests read, but TestMain has
	// read this one before the reading is recorded: without a second look the
	// result of one tmux is given out as that of another.
	_ = os.Getenv("TMUX_MCPD_TEST_TMUX")
	path, _, err := realTmux()
	if err != nil {
		t.Fatalf("no usable tmux: %v", err)
	}
	return path
}

// requireProduct returns the path of the tmux-mcpd binary, built once per run.
func requireProduct(t testing.TB) string {
	t.Helper()
	path, err := buildProduct()
	if err != nil {
		t.Fatalf("tmux-mcpd cannot be built: %v", err)
	}
	return path
}

var buildProduct = sync.OnceValues(func() (string, error) {
	// go test caches a result by the files that the test process itself opened or
	// looked at. The product is compiled by another process, so look at its source
	// here: else a changed product would be answered with "(cached)".
	for _, dir := range []string{"cmd", "controlmode", "daemon", "tools"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			_, err = os.Stat(path)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	path := filepath.Join(runDir(), "tmux-mcpd")
	return path, build(path, "")
})

// build makes a tmux-mcpd that calls itself by a version, "" for what Go knows:
// as make dist does, but for the race detector, which needs cgo.
func build(path, version string) error {
	flags := "-s -w"
	if version != "" {
		flags += " -X main.version=" + version
	}
	args := []string{"build", "-trimpath", "-ldflags", flags, "-o", path}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if raceEnabled {
		cmd = exec.Command("go", append(args, "-race")...)
	}
	cmd.Args = append(cmd.Args, "./cmd/tmux-mcpd")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// pollEvery is how often a condition is looked at while a test waits for it.
const pollEvery = 10 * time.Millisecond

// eventually waits for check to report true. The text that check gives is the
// state it saw, for the message of a test that waits in vain.
func eventually(t testing.TB, what string, within time.Duration, check func() (bool, string)) {
	t.Helper()
	if saw, ok := holdsWithin(within, check); !ok {
		t.Fatalf("%s: not so within %v; last seen: %s", what, within, saw)
	}
}

// holdsWithin is eventually for callers that are not the test's own goroutine.
func holdsWithin(within time.Duration, check func() (bool, string)) (saw string, ok bool) {
	for end := time.Now().Add(within); ; time.Sleep(pollEvery) {
		// The time is taken before the look: a look that began in time counts.
		late := time.Now().After(end)
		if ok, saw = check(); ok || late {
			return saw, ok
		}
	}
}
