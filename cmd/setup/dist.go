package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	distDir     = "dist"
	manDir      = "dist/man"
	nfpmVersion = "v2.45.2"
	summary     = "Tells AI agents what is in your tmux: sessions, windows, panes, never stale"
)

// A target is a system that binaries are built for.
type target struct{ goos, goarch string }

var targets = []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// A release is one version's files in the making.
type release struct {
	version string    // as git describes it
	when    time.Time // of the commit: files of one version are always the same
	dir     string
	files   []string // made so far, in dir
}

// dist makes everything that is published: static binaries, bundles for MCP
// hosts, Debian packages, the registry's server.json, and checksums of all.
func dist(ctx context.Context) error {
	r, err := newRelease(ctx, distDir)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(r.dir); err != nil {
		return err
	}
	for _, t := range targets {
		if err := r.binary(ctx, t); err != nil {
			return err
		}
		if err := r.bundle(t); err != nil {
			return err
		}
		if t.goos == "linux" {
			if err := r.deb(ctx, t); err != nil {
				return err
			}
		}
	}
	if err := os.RemoveAll(filepath.Join(r.dir, "stage")); err != nil {
		return err
	}
	if repository := os.Getenv("REPOSITORY"); repository != "" {
		if err := r.serverJSON(repository); err != nil {
			return err
		}
	} else {
		fmt.Println("server.json is not written: set REPOSITORY=https://github.com/OWNER/tmux-mcpd")
	}
	return r.checksums()
}

func newRelease(ctx context.Context, dir string) (*release, error) {
	r := &release{version: describe(ctx), when: time.Unix(0, 0), dir: dir}
	if out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output(); err == nil {
		if seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64); err == nil {
			r.when = time.Unix(seconds, 0)
		}
	}
	return r, nil
}

// describe is the version of what is checked out.
func describe(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "dev"
	}
	return strings.TrimSpace(string(out))
}

var semantic = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+.*)$`)

// semver is the version for those who want three numbers.
func (r *release) semver() string {
	if m := semantic.FindStringSubmatch(r.version); m != nil {
		return m[1]
	}
	return "0.0.0-g" + r.version // a commit; with the g of git describe, as a number may not begin with 0
}

// debian is the version as dpkg orders it: with a tilde, what is before a
// release sorts before it.
func (r *release) debian() string {
	return strings.Replace(r.semver(), "-", "~", 1)
}

func (r *release) path(format string, args ...any) string {
	return filepath.Join(r.dir, fmt.Sprintf(format, args...))
}

func (r *release) binaryPath(t target) string {
	return r.path("tmux-mcpd_%s_%s_%s", r.semver(), t.goos, t.goarch)
}

func (r *release) binary(ctx context.Context, t target) error {
	path := r.binaryPath(t)
	step("build %s", path)
	r.files = append(r.files, path)
	return buildFor(ctx, t, path, r.version)
}

// buildFor makes a binary static and the same from everywhere: no cgo, no
// paths of this machine in it.
func buildFor(ctx context.Context, t target, path, version string) error {
	cmd := command(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version, "-o", path, "./cmd/tmux-mcpd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.goos, "GOARCH="+t.goarch)
	return runCommand(cmd)
}

// bundle makes the file that hosts such as Claude Desktop install by a click
// (MCPB): a zip archive with the binary and how to start it.
func (r *release) bundle(t target) error {
	program, err := os.ReadFile(r.binaryPath(t))
	if err != nil {
		return err
	}
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	type object = map[string]any
	manifest, err := json.MarshalIndent(object{
		"manifest_version": "0.3",
		"name":             "tmux-mcpd",
		"display_name":     "tmux",
		"version":          r.semver(),
		"description":      summary,
		"author":           object{"name": "the authors of tmux-mcpd"},
		"license":          "MIT",
		"server": object{
			"type":        "binary",
			"entry_point": "server/tmux-mcpd",
			"mcp_config":  object{"command": "${__dirname}/server/tmux-mcpd", "args": []string{"stdio"}, "env": object{}},
		},
		"tools": []object{
			{"name": "list_sessions", "description": "Lists the sessions of a tmux server"},
			{"name": "list_panes", "description": "Lists the panes of a tmux server, session or window"},
		},
		"compatibility": object{"platforms": []string{t.goos}},
	}, "", "  ")
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for _, f := range []struct {
		name string
		mode os.FileMode
		data []byte
	}{{"manifest.json", 0o644, manifest}, {"LICENSE", 0o644, licence}, {"server/tmux-mcpd", 0o755, program}} {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.when.UTC()}
		header.SetMode(f.mode)
		w, err := z.CreateHeader(header)
		if err == nil {
			_, err = w.Write(f.data)
		}
		if err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	path := r.bundlePath(t)
	r.files = append(r.files, path)
	return os.WriteFile(path, archive.Bytes(), 0o644)
}

func (r *release) bundlePath(t target) string { return r.binaryPath(t) + ".mcpb" }

// deb makes the Debian package of a binary that has been built.
func (r *release) deb(ctx context.Context, t target) error {
	stage := r.path("stage/%s", t.goarch)
	if err := r.stage(ctx, t, stage); err != nil {
		return err
	}
	path := r.path("tmux-mcpd_%s_%s.deb", r.debian(), t.goarch)
	step("package %s", path)
	// The package's architecture is not that of the tool that makes it, but both
	// are told by GOARCH: the tool gets it only when it runs.
	cmd := command(ctx, "go", "run", "-exec", "env GOARCH="+t.goarch, "github.com/goreleaser/nfpm/v2/cmd/nfpm@"+nfpmVersion,
		"package", "--config", "cmd/setup/packaging/nfpm.yaml", "--packager", "deb", "--target", path)
	cmd.Env = append(os.Environ(), "VERSION="+r.debian(), "STAGE="+stage,
		"MAINTAINER="+cmp.Or(os.Getenv("MAINTAINER"), "the authors of tmux-mcpd <tmux-mcpd@localhost>"),
		"SOURCE_DATE_EPOCH="+strconv.FormatInt(r.when.Unix(), 10))
	r.files = append(r.files, path)
	return runCommand(cmd)
}

// stage puts what goes into a package into a directory: the binary, and what
// the program of this machine says of itself.
func (r *release) stage(ctx context.Context, t target, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "man"), 0o755); err != nil {
		return err
	}
	program, err := os.ReadFile(r.binaryPath(t))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "tmux-mcpd"), program, 0o755); err != nil {
		return err
	}
	own := filepath.Join(dir, "own") // runs here, whatever the target is
	if err := buildFor(ctx, target{runtime.GOOS, runtime.GOARCH}, own, r.version); err != nil {
		return err
	}
	defer os.Remove(own)
	install := []string{"service", "install", "--print", "--binary", "/usr/bin/tmux-mcpd"}
	for name, args := range map[string][]string{
		"tmux-mcpd.socket":  append(slices.Clip(install), "tmux-mcpd.socket"),
		"tmux-mcpd.service": append(slices.Clip(install), "tmux-mcpd.service"),
		"tmux-mcpd.bash":    {"completion", "bash"},
		"_tmux-mcpd":        {"completion", "zsh"},
		"tmux-mcpd.fish":    {"completion", "fish"},
	} {
		cmd := command(ctx, own, args...)
		cmd.Stdout = nil
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	pages := filepath.Join(dir, "pages")
	defer os.RemoveAll(pages)
	if err := r.man(ctx, pages); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(pages, "*.1"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := compress(file, filepath.Join(dir, "man", filepath.Base(file)+".gz")); err != nil {
			return err
		}
	}
	return nil
}

// man writes the manual pages.
func (r *release) man(ctx context.Context, dir string) error {
	step("write the manual pages to %s", dir)
	cmd := command(ctx, "go", "run", "-tags", "man", "-ldflags", "-X main.version="+r.version, "./cmd/tmux-mcpd", "man", dir)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.when.Unix(), 10))
	return runCommand(cmd)
}

// compress is gzip -9n.
func compress(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return os.WriteFile(to, out.Bytes(), 0o644)
}

// serverJSON describes the release to the MCP registry. The bundles are
// looked for where GitHub puts the files of a release.
func (r *release) serverJSON(repository string) error {
	owner, isGitHub := strings.CutPrefix(strings.TrimSuffix(repository, "/"), "https://github.com/")
	owner, name, isRepository := strings.Cut(owner, "/")
	if !isGitHub || !isRepository {
		return fmt.Errorf("REPOSITORY is %q and not https://github.com/OWNER/NAME", repository)
	}
	type object = map[string]any
	var packages []object
	for _, t := range targets {
		sum, err := sha256File(r.bundlePath(t))
		if err != nil {
			return err
		}
		packages = append(packages, object{
			"registryType": "mcpb",
			"identifier":   fmt.Sprintf("https://github.com/%s/%s/releases/download/%s/%s", owner, name, r.version, filepath.Base(r.bundlePath(t))),
			"version":      r.semver(),
			"fileSha256":   sum,
			"transport":    object{"type": "stdio"},
		})
	}
	text, err := json.MarshalIndent(object{
		"$schema":     "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
		"name":        "io.github." + owner + "/" + name,
		"title":       "tmux",
		"description": summary,
		"version":     r.semver(),
		"repository":  object{"url": "https://github.com/" + owner + "/" + name, "source": "github"},
		"packages":    packages,
	}, "", "  ")
	if err != nil {
		return err
	}
	path := r.path("server.json")
	r.files = append(r.files, path)
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// checksums are what `sha256sum -c SHA256SUMS` reads.
func (r *release) checksums() error {
	var sums strings.Builder
	for _, path := range r.files {
		sum, err := sha256File(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, filepath.Base(path))
	}
	fmt.Print(sums.String())
	return os.WriteFile(r.path("SHA256SUMS"), []byte(sums.String()), 0o644)
}

func sha256File(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
