package daemon

import (
	"slices"
	"strings"
	"testing"
)

func TestSocketPaths(t *testing.T) {
	long := "/" + strings.Repeat("l", 100)
	for _, c := range []struct {
		name string
		flag string
		env  map[string]string
		goos string
		ours string // directories of this user, separated by spaces
		want []string
		err  string
	}{
		{name: "nothing", want: []string{"/tmp/tmux-mcpd-1000/mcp.sock"}},
		{name: "flag", flag: "/a/b.sock", env: map[string]string{"TMUX_MCPD_SOCKET": "/c"}, want: []string{"/a/b.sock"}},
		{name: "variable", env: map[string]string{"TMUX_MCPD_SOCKET": "/c/../d", "XDG_RUNTIME_DIR": "/x"}, ours: "/x", want: []string{"/d"}},
		{name: "runtime dir", env: map[string]string{"XDG_RUNTIME_DIR": "/x"}, ours: "/x /run/user/1000",
			want: []string{"/x/tmux-mcpd/mcp.sock", "/run/user/1000/tmux-mcpd/mcp.sock", "/tmp/tmux-mcpd-1000/mcp.sock"}},
		{name: "runtime dir is the usual one", env: map[string]string{"XDG_RUNTIME_DIR": "/run/user/1000/"}, ours: "/run/user/1000/ /run/user/1000",
			want: []string{"/run/user/1000/tmux-mcpd/mcp.sock", "/tmp/tmux-mcpd-1000/mcp.sock"}},
		{name: "cron", ours: "/run/user/1000", want: []string{"/run/user/1000/tmux-mcpd/mcp.sock", "/tmp/tmux-mcpd-1000/mcp.sock"}},
		{name: "runtime dir of another", env: map[string]string{"XDG_RUNTIME_DIR": "/run/user/0"}, want: []string{"/tmp/tmux-mcpd-1000/mcp.sock"}},
		{name: "runtime dir relative", env: map[string]string{"XDG_RUNTIME_DIR": "x"}, ours: "x", want: []string{"/tmp/tmux-mcpd-1000/mcp.sock"}},
		{name: "runtime dir too long", env: map[string]string{"XDG_RUNTIME_DIR": long}, ours: long, want: []string{"/tmp/tmux-mcpd-1000/mcp.sock"}},
		{name: "TMPDIR on Linux", env: map[string]string{"TMPDIR": "/v"}, ours: "/v", want: []string{"/tmp/tmux-mcpd-1000/mcp.sock"}},
		{name: "macOS", goos: "darwin", env: map[string]string{"TMPDIR": "/v/T/"}, ours: "/v/T/ /run/user/1000",
			want: []string{"/v/T/tmux-mcpd/mcp.sock", "/tmp/tmux-mcpd-1000/mcp.sock"}},
		{name: "flag too long", flag: long + "/mcp", err: "--socket: socket path " + long + "/mcp is 105 bytes long, the system allows 103: choose a shorter one"},
		{name: "flag as long as may be", flag: long + "/m", want: []string{long + "/m"}},
		{name: "variable too long", env: map[string]string{"TMUX_MCPD_SOCKET": long + long}, err: "TMUX_MCPD_SOCKET"},
	} {
		t.Run(c.name, func(t *testing.T) {
			goos := c.goos
			if goos == "" {
				goos = "linux"
			}
			p := places{
				getenv: func(name string) string { return c.env[name] },
				uid:    1000,
				goos:   goos,
				ours:   func(dir string) bool { return slices.Contains(strings.Fields(c.ours), dir) },
			}
			got, err := p.socketPaths(c.flag)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v, want %s", err, c.err)
				}
				return
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %q %v, want %q", got, err, c.want)
			}
		})
	}
}
