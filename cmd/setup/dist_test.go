package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestReleaseVersions(t *testing.T) {
	tests := []struct{ git, semver, debian string }{
		{"v1.2.3", "1.2.3", "1.2.3"},
		{"1.2.3", "1.2.3", "1.2.3"},
		{"v1.2.3-rc.1", "1.2.3-rc.1", "1.2.3~rc.1"},
		{"e61947d", "0.0.0-ge61947d", "0.0.0~ge61947d"},
		{"0123456-dirty", "0.0.0-g0123456-dirty", "0.0.0~g0123456-dirty"},
		{"dev", "0.0.0-gdev", "0.0.0~gdev"},
	}
	for _, test := range tests {
		r := release{version: test.git}
		if r.semver() != test.semver || r.debian() != test.debian {
			t.Errorf("%s: %s and %s, want %s and %s", test.git, r.semver(), r.debian(), test.semver, test.debian)
		}
	}
}

// The bundle of a stand-in for the binary, and what the registry is told.
func TestBundleAndServerJSON(t *testing.T) {
	t.Chdir("../..")
	r := &release{version: "v1.2.3", when: time.Unix(1e9, 0), dir: t.TempDir()}
	for _, target := range targets {
		if err := os.WriteFile(r.binaryPath(target), []byte(target.goos), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := r.bundle(target); err != nil {
			t.Fatal(err)
		}
	}
	z, err := zip.OpenReader(r.bundlePath(targets[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		if f.Name == "server/tmux-mcpd" && f.Mode().Perm() != 0o755 {
			t.Errorf("the binary has mode %v", f.Mode())
		}
	}
	text, err := fs.ReadFile(z, "manifest.json")
	var manifest struct {
		ManifestVersion string `json:"manifest_version"`
		Version         string
		Server          struct {
			EntryPoint string `json:"entry_point"`
		}
	}
	if err != nil || json.Unmarshal(text, &manifest) != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if _, err := z.Open(manifest.Server.EntryPoint); err != nil || manifest.Version != "1.2.3" || manifest.ManifestVersion == "" {
		t.Errorf("entry point: %v; manifest: %s", err, text)
	}

	if err := r.serverJSON("https://example.com/x"); err == nil {
		t.Error("a repository elsewhere is taken")
	}
	if err := r.serverJSON("https://github.com/me/tmux-mcpd"); err != nil {
		t.Fatal(err)
	}
	var server struct {
		Schema      string `json:"$schema"`
		Name        string
		Title       string
		Description string
		Version     string
		Packages    []struct {
			RegistryType, Identifier, Version, FileSha256 string
			Transport                                     struct{ Type string }
		}
	}
	text, err = os.ReadFile(r.path("server.json"))
	if err != nil || json.Unmarshal(text, &server) != nil {
		t.Fatalf("%v: %s", err, text)
	}
	// The bounds are those of the registry's schema of 2025-12-11.
	if !regexp.MustCompile(`^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$`).MatchString(server.Name) || server.Version != "1.2.3" ||
		len(server.Description) == 0 || len(server.Description) > 100 || len(server.Title) > 100 || len(server.Packages) != len(targets) {
		t.Errorf("%s", text)
	}
	for _, p := range server.Packages {
		if p.RegistryType != "mcpb" || p.Transport.Type != "stdio" || p.Version != "1.2.3" || !regexp.MustCompile(`^[a-f0-9]{64}$`).MatchString(p.FileSha256) ||
			!strings.HasPrefix(p.Identifier, "https://github.com/me/tmux-mcpd/releases/download/v1.2.3/") {
			t.Errorf("%+v", p)
		}
	}
}

// files lists what is in a directory, but for what dpkg notes down itself.
func files(t *testing.T, dir string) string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if relative, _ := filepath.Rel(dir, path); relative != "var/lib/dpkg" {
			list = append(list, relative)
			return err
		}
		return fs.SkipDir
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, "\n")
}

// The package installs into a root of its own, what is in it runs, and its
// removal leaves nothing.
func TestDeb(t *testing.T) {
	switch {
	case testing.Short():
		t.Skip("it compiles the packager")
	case !onPath("dpkg")():
		t.Skip("dpkg is missing")
	case os.Geteuid() != 0:
		t.Skip("dpkg installs as root only")
	case runtime.GOOS != "linux":
		t.Skip("the packages are for Linux")
	}
	t.Chdir("../..")
	ctx := t.Context()
	r, err := newRelease(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	here := target{"linux", runtime.GOARCH}
	if err := r.binary(ctx, here); err != nil {
		t.Fatal(err)
	}
	if err := r.deb(ctx, here); err != nil {
		// Only the packager comes from elsewhere.
		if out, proxyErr := exec.CommandContext(ctx, "go", "mod", "download", "github.com/goreleaser/nfpm/v2@"+nfpmVersion).CombinedOutput(); proxyErr != nil {
			t.Skipf("nfpm cannot be had: %s", out)
		}
		t.Fatal(err)
	}
	deb := r.files[len(r.files)-1]

	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"var/lib/dpkg/status", "var/lib/dpkg/available"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(ctx, "dpkg", append([]string{"--root=" + root, "--log=" + filepath.Join(root, "var/lib/dpkg/log")}, args...)...).CombinedOutput()
		t.Logf("dpkg %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			t.Fatal(err)
		}
	}
	before := files(t, root)
	dpkg("--install", deb)
	installed := files(t, root)
	for _, want := range []string{
		"usr/bin/tmux-mcpd", "usr/lib/systemd/user/tmux-mcpd.socket", "usr/lib/systemd/user/tmux-mcpd.service",
		"usr/share/bash-completion/completions/tmux-mcpd", "usr/share/zsh/vendor-completions/_tmux-mcpd", "usr/share/fish/vendor_completions.d/tmux-mcpd.fish",
		"usr/share/man/man1/tmux-mcpd.1.gz", "usr/share/doc/tmux-mcpd/copyright",
	} {
		if !strings.Contains(installed, want) {
			t.Errorf("the package lacks %s:\n%s", want, installed)
		}
	}
	// In the root there is nothing else, not even a C library.
	out, err := exec.CommandContext(ctx, "chroot", root, "/usr/bin/tmux-mcpd", "version").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("tmux-mcpd "+r.version)) {
		t.Errorf("%v: %s", err, out)
	}
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/user/tmux-mcpd.service"))
	if err != nil || !bytes.Contains(unit, []byte("\nExecStart=/usr/bin/tmux-mcpd serve\n")) {
		t.Errorf("%v: %s", err, unit)
	}
	dpkg("--purge", "tmux-mcpd")
	if after := files(t, root); after != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
}
