package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	staticcheckVersion = "v0.8.2"
	cacheDir           = ".cache"
)

// test runs the linters and then all tests. The output of go test comes last
// and its exit code is ours.
func test(ctx context.Context, args []string) error {
	for _, r := range []requirement{tmuxPackage, compilerPackage} {
		if err := need(ctx, r); err != nil {
			return err
		}
	}
	// Without these some tests are skipped and say so.
	if err := need(ctx, venvPackage); err != nil {
		fmt.Printf("%v\n", err)
	}
	if !onPath("npm")() {
		fmt.Println("npm is missing: the tests with the TypeScript MCP client are skipped")
	}
	if err := lint(ctx); err != nil {
		return err
	}
	goTest := append([]string{"test", "-race", "-timeout", "20m"}, args...)
	if !namesPackages(args) {
		goTest = append(goTest, "./...")
	}
	step("go %s", strings.Join(goTest, " "))
	cmd := command(ctx, "go", goTest...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // for -race
	return runCommand(cmd)
}

// namesPackages reports whether go test is already told what to test.
func namesPackages(args []string) bool {
	for _, arg := range args {
		if arg == "-args" || arg == "--args" {
			return false
		}
		if strings.HasPrefix(arg, "./") || arg == "." {
			return true
		}
	}
	return false
}

func lint(ctx context.Context) error {
	step("gofmt")
	if err := gofmt(ctx); err != nil {
		return err
	}
	staticcheck, err := installStaticcheck(ctx)
	if err != nil {
		return err
	}
	checks := [][]string{
		{"go", "vet", "./..."},
		{staticcheck, "./..."},
		{"go", "vet", "-tags", "man", "./cmd/tmux-mcpd"},
	}
	for _, goos := range []string{"linux", "darwin"} {
		for _, check := range checks {
			step("GOOS=%s %s", goos, strings.Join(check, " "))
			cmd := command(ctx, check[0], check[1:]...)
			// Without cgo, for the other system's C headers are not here.
			cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
			if err := runCommand(cmd); err != nil {
				return err
			}
		}
	}
	return nil
}

func gofmt(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "./...").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	var files []string
	for _, dir := range strings.Fields(string(out)) {
		// Not from go list: files of other systems count too.
		more, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return err
		}
		files = append(files, more...)
	}
	unformatted, err := exec.CommandContext(ctx, "gofmt", append([]string{"-l"}, files...)...).CombinedOutput()
	if err != nil || len(unformatted) > 0 {
		return errors.Join(err, fmt.Errorf("not as gofmt writes it:\n%s", bytes.TrimSpace(unformatted)))
	}
	return nil
}

// installStaticcheck builds the linter once. "go run" would not do: with
// GOOS=darwin it would build the linter itself for darwin.
func installStaticcheck(ctx context.Context) (string, error) {
	dir, err := filepath.Abs(filepath.Join(cacheDir, "staticcheck-"+staticcheckVersion))
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "staticcheck")
	if onPath(path)() {
		return path, nil
	}
	step("install staticcheck %s", staticcheckVersion)
	cmd := command(ctx, "go", "install", "honnef.co/go/tools/cmd/staticcheck@"+staticcheckVersion)
	cmd.Env = append(os.Environ(), "GOBIN="+dir)
	return path, runCommand(cmd)
}
