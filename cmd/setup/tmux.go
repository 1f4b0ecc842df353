package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A tmuxBuild is a tmux version and the Debian suite that carries it. Suites
// move on: then the version found there is another, and fetch says so.
type tmuxBuild struct {
	version string
	suite   string
}

var tmuxBuilds = []tmuxBuild{
	{"3.5a", "trixie"},
	{"3.7c", "forky"},
	{"3.8", "sid"},
}

// tmuxPackages are tmux and the libraries it is linked with, down to the C
// library: the suites are newer than the system may be, so tmux runs with its
// suite's own dynamic linker.
var tmuxPackages = []string{
	"tmux", "libc6", "libevent-core-2.1-7t64", "libtinfo6", "libsystemd0", "libcap2",
	"libjemalloc2", "libgcc-s1", "libstdc++6",
}

// fetchTmux puts a script that runs tmux VERSION at .cache/tmux/VERSION/tmux.
// The packages are only unpacked there: the system and its apt are not
// changed. A version that cannot be had is printed with the reason, and an
// error only if it was asked for by name.
func fetchTmux(ctx context.Context, versions []string) error {
	var failed error
	for _, b := range tmuxBuilds {
		if len(versions) > 0 && !slices.Contains(versions, b.version) {
			continue
		}
		path, err := b.fetch(ctx)
		if err != nil {
			fmt.Printf("tmux %s: cannot be had: %v\n", b.version, err)
			failed = errors.Join(failed, fmt.Errorf("tmux %s: %w", b.version, err))
			continue
		}
		fmt.Printf("tmux %s: %s\n", b.version, path)
	}
	for _, v := range versions {
		known := slices.ContainsFunc(tmuxBuilds, func(b tmuxBuild) bool { return b.version == v })
		if !known {
			fmt.Printf("tmux %s: cannot be had: in no suite that we know\n", v)
			failed = errors.Join(failed, fmt.Errorf("tmux %s: unknown version", v))
		}
	}
	if len(versions) > 0 {
		return failed
	}
	return nil
}

func (b tmuxBuild) fetch(ctx context.Context) (string, error) {
	dir, err := filepath.Abs(filepath.Join(cacheDir, "tmux", b.version))
	if err != nil {
		return "", err
	}
	script := filepath.Join(dir, "tmux")
	if b.check(ctx, script) == nil {
		return script, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	triplet, linker, err := platform()
	if err != nil {
		return "", err
	}
	mirror, keyring, err := debianMirror()
	if err != nil {
		return "", err
	}

	apt := aptIn{dir: dir}
	source := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, mirror, b.suite)
	if err := apt.prepare(source); err != nil {
		return "", err
	}
	step("fetch tmux %s from %s", b.version, b.suite)
	if _, err := apt.run(ctx, dir, "apt-get", "-qq", "update"); err != nil {
		return "", err
	}
	downloads := filepath.Join(dir, "download")
	if _, err := apt.run(ctx, downloads, "apt-get", append([]string{"-qq", "download"}, tmuxPackages...)...); err != nil {
		return "", err
	}
	packages, err := filepath.Glob(filepath.Join(downloads, "*.deb"))
	if err != nil {
		return "", err
	}
	root := filepath.Join(dir, "root")
	for _, p := range packages {
		if _, err := apt.run(ctx, dir, "dpkg-deb", "-x", p, root); err != nil {
			return "", err
		}
	}
	lib := filepath.Join(root, "usr/lib", triplet)
	text := fmt.Sprintf("#!/bin/sh\nexec '%s' --argv0 tmux --library-path '%s' '%s' \"$@\"\n",
		filepath.Join(lib, linker), lib, filepath.Join(root, "usr/bin/tmux"))
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		return "", err
	}
	// What is unpacked is enough; the lists alone are 100 MB.
	for _, d := range []string{"lists", "archives", "download"} {
		if err := os.RemoveAll(filepath.Join(dir, d)); err != nil {
			return "", err
		}
	}
	return script, b.check(ctx, script)
}

// check runs tmux -V.
func (b tmuxBuild) check(ctx context.Context, script string) error {
	out, err := exec.CommandContext(ctx, script, "-V").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s -V: %w: %s", script, err, bytes.TrimSpace(out))
	}
	if got := strings.TrimSpace(string(out)); got != "tmux "+b.version {
		return fmt.Errorf("%s has %s now", b.suite, got)
	}
	return nil
}

// aptIn runs apt with all its state in one directory, so that neither root is
// needed nor the system's own apt touched.
type aptIn struct{ dir string }

func (a aptIn) prepare(source string) error {
	for _, d := range []string{"lists/partial", "archives/partial", "download", "root"} {
		if err := os.MkdirAll(filepath.Join(a.dir, d), 0o755); err != nil {
			return err
		}
	}
	config := fmt.Sprintf(`Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "%[1]s/lists";
Dir::State::status "/dev/null";
Dir::Cache::archives "%[1]s/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Sandbox::User "%[2]s";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "20";
`, a.dir, sandboxUser())
	if err := os.WriteFile(filepath.Join(a.dir, "apt.conf"), []byte(config), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte(source), 0o644)
}

// sandboxUser keeps apt, when it is run by root, from changing to its own
// user, who may not be able to write here.
func sandboxUser() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return ""
}

// run returns the output; an error holds the last line that was printed.
func (a aptIn) run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := command(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(a.dir, "apt.conf"), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = nil, nil
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		return nil, fmt.Errorf("%s %s: %w: %s", name, args[0], err, lines[len(lines)-1])
	}
	return out, nil
}

// platform names this machine as Debian does, and its dynamic linker.
func platform() (triplet, linker string, err error) {
	switch runtime.GOOS + "/" + runtime.GOARCH {
	case "linux/amd64":
		return "x86_64-linux-gnu", "ld-linux-x86-64.so.2", nil
	case "linux/arm64":
		return "aarch64-linux-gnu", "ld-linux-aarch64.so.1", nil
	default:
		return "", "", fmt.Errorf("not known how on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
}

// debianMirror finds the mirror that this machine installs Debian from. No
// mirror is named here: what may be reached is the machine's business.
func debianMirror() (mirror, keyring string, err error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", "", errors.New("not on Debian")
	}
	codename, isDebian := "", false
	for line := range strings.Lines(string(release)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			isDebian = value == "debian"
		case "VERSION_CODENAME":
			codename = value
		}
	}
	if !isDebian || codename == "" {
		return "", "", errors.New("not on Debian")
	}
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
	if _, err := os.Stat(keyring); err != nil {
		return "", "", err
	}
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, file := range append([]string{"/etc/apt/sources.list"}, files...) {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", "", err
		}
		if mirror := mirrorOf(filepath.Ext(file), string(text), codename); mirror != "" {
			return mirror, keyring, nil
		}
	}
	return "", "", fmt.Errorf("no source of %s in /etc/apt", codename)
}

// mirrorOf returns the first archive in an apt source file that carries the
// component main of a suite, "" if none does. Both formats are read: one line
// per source (.list) and paragraphs (.sources).
func mirrorOf(ext, text, suite string) string {
	type source struct{ types, uris, suites, components []string }
	var sources []source
	if ext == ".sources" {
		var s source
		for line := range strings.Lines(text + "\n\n") {
			key, value, _ := strings.Cut(line, ":")
			switch words := strings.Fields(value); strings.ToLower(strings.TrimSpace(key)) {
			case "":
				sources = append(sources, s)
				s = source{}
			case "types":
				s.types = words
			case "uris":
				s.uris = words
			case "suites":
				s.suites = words
			case "components":
				s.components = words
			}
		}
	} else {
		lines := bufio.NewScanner(strings.NewReader(text))
		for lines.Scan() {
			line := lines.Text()
			if open := strings.IndexByte(line, '['); open >= 0 { // options
				end := strings.IndexByte(line, ']')
				if end < open {
					continue
				}
				line = line[:open] + line[end+1:]
			}
			if words := strings.Fields(line); len(words) >= 4 {
				sources = append(sources, source{words[:1], words[1:2], words[2:3], words[3:]})
			}
		}
	}
	for _, s := range sources {
		if slices.Contains(s.types, "deb") && slices.Contains(s.suites, suite) &&
			slices.Contains(s.components, "main") && len(s.uris) > 0 {
			return s.uris[0]
		}
	}
	return ""
}
