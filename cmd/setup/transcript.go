package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// transcriptLines is what the README shows. It is played on the demo server,
// so that the README can only show what really happens.
var transcriptLines = []string{
	`tmux-mcpd list panes`,
	`tmux split-window -d -t work:build -c /usr/share sleep 600`,
	`tmux-mcpd list panes --window @1     # the next answer has it`,
	`tmux-mcpd list sessions --json`,
}

const (
	readme          = "README.md"
	transcriptBegin = "<!-- transcript: made by `go run ./cmd/setup transcript`, do not edit -->\n"
	transcriptEnd   = "<!-- end of transcript -->\n"
)

// transcript plays transcriptLines and puts them with their output into the
// README, between the two marks.
func transcript(ctx context.Context, root string) error {
	if err := need(ctx, tmuxPackage); err != nil {
		return err
	}
	if err := build(ctx); err != nil {
		return err
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(text, []byte(transcriptBegin))
	_, after, ended := bytes.Cut(rest, []byte(transcriptEnd))
	if !found || !ended {
		return errors.New(readme + " has no place for the transcript")
	}

	d, err := startDemo(ctx)
	if err != nil {
		return err
	}
	// For the reader "tmux" is the demo server's and "tmux-mcpd" the binary
	// just built; the latter itself gets the real tmux.
	path := os.Getenv("PATH")
	script := fmt.Sprintf("#!/bin/sh\nPATH='%s' exec tmux -u -S '%s' \"$@\"\n", path, d.socket())
	err = os.WriteFile(filepath.Join(d.dir, "tmux"), []byte(script), 0o755)
	realTmux, lookErr := exec.LookPath("tmux")
	var output bytes.Buffer
	if err = errors.Join(err, lookErr); err == nil {
		reader := *d
		reader.env = append(slices.Clip(d.env), "TMUX_MCPD_TMUX="+realTmux,
			"PATH="+d.dir+":"+filepath.Join(root, filepath.Dir(binary))+":"+path)
		err = reader.play(ctx, &output, transcriptLines)
	}
	if err := errors.Join(err, d.stop()); err != nil {
		return err
	}

	var out bytes.Buffer
	out.Write(before)
	out.WriteString(transcriptBegin + "```console\n")
	out.Write(output.Bytes())
	out.WriteString("```\n" + transcriptEnd)
	out.Write(after)
	step("write the transcript to %s", readme)
	os.Stdout.Write(output.Bytes())
	return os.WriteFile(readme, out.Bytes(), 0o644)
}
