package integration

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// commandClient is a control client of the test that waits for its replies: one
// command line at a time. It reads on between them, so that tmux never waits.
type commandClient struct {
	process *process
	blocks  chan block // closed when tmux closes the connection
}

// block is what tmux answers to one command of a line.
type block struct {
	number uint32 // tmux's count of the items that it has run
	failed bool
	body   string
}

// newCommandClient attaches to a session. It takes no part in window sizes.
func newCommandClient(t testing.TB, server *tmuxServer, session string) *commandClient {
	t.Helper()
	argv := server.argv("-C", "attach-session", "-t", session, "-f", "ignore-size,no-output")
	c := &commandClient{blocks: make(chan block, 64),
		process: startProcess(t, argv, server.home.environ(), server.home.dir)}
	go c.read()
	if _, err := c.do("display-message -p hello"); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *commandClient) read() {
	defer close(c.blocks)
	in := bufio.NewReader(c.process)
	var body strings.Builder
	guard := "" // that of the block being read: "TIME NUMBER FLAGS"
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		name, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case guard == "" && name == "%begin":
			guard = rest
			body.Reset()
		case guard != "" && rest == guard && (name == "%end" || name == "%error"):
			// Flags are 1 for our own commands, 0 for what attaching has run.
			if f := strings.Fields(rest); len(f) == 3 && f[2] == "1" {
				number, _ := strconv.ParseUint(f[1], 10, 32)
				c.blocks <- block{number: uint32(number), failed: name == "%error", body: body.String()}
			}
			guard = ""
		case guard != "":
			body.WriteString(line)
		}
	}
}

// do runs one command line and returns what it printed when its last command is
// done.
func (c *commandClient) do(line string) (string, error) {
	blocks, err := c.doAll(line, strings.Count(line, " ; ")+1)
	var out strings.Builder
	for _, b := range blocks {
		out.WriteString(b.body)
	}
	return out.String(), err
}

func (c *commandClient) doAll(line string, n int) ([]block, error) {
	if _, err := c.process.Write([]byte(line + "\n")); err != nil {
		return nil, err
	}
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	var blocks []block
	for range n {
		select {
		case b, ok := <-c.blocks:
			if !ok {
				return blocks, errors.New("the control client has ended")
			}
			if blocks = append(blocks, b); b.failed {
				return blocks, fmt.Errorf("%q: %s", line, b.body)
			}
		case <-timer.C:
			return blocks, fmt.Errorf("%q: no reply", line)
		}
	}
	return blocks, nil
}

// number is tmux's count of the items that it has run. Asking for it counts.
func (c *commandClient) number(t testing.TB) uint32 {
	t.Helper()
	blocks, err := c.doAll("display-message -p x", 1)
	if err != nil {
		t.Fatal(err)
	}
	return blocks[0].number
}

// commandLine quotes words for a control client; a lone ; stays what it is.
func commandLine(args []string) string {
	words := slices.Clone(args)
	for i, w := range words {
		if w != ";" {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
