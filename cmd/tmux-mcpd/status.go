package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tmux-mcpd/daemon"
)

// askTimeout bounds what a daemon may take to say how it is: nothing of that
// waits for tmux.
const askTimeout = 5 * time.Second

// A statusReport is what `status --json` prints. It is stable, as
// daemon.Status is: members are added, never renamed.
type statusReport struct {
	ClientVersion string          `json:"client_version"`
	Socket        string          `json:"socket"`
	Running       bool            `json:"running"`
	Daemon        json.RawMessage `json:"daemon"` // as the daemon sent it, so that members of a newer one are not lost
}

func statusCommand(c console) *cobra.Command {
	var p place
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the daemon is doing",
		Long: `Show what the daemon is doing: its version and this command's, the MCP clients
it serves, the tmux servers it is connected to, and how long answers take. With
no daemon it says how to start one and exits with 1. A daemon that systemd holds
the socket for is started by the question.

With --json it prints one object. Members may be added, none is ever renamed:

  client_version  version of this command
  socket          path of the daemon's socket
  running         whether a daemon has answered
  daemon          null, or what the daemon says of itself:
    pid, version, started_at (RFC 3339), uptime_seconds
    clients  list of: name, version, protocol_version, bridge (version of its
             tmux-mcpd stdio, "" without one), pane, calls, connected_at;
             this command is one of them
    servers  list of: socket, version, pid, mode ("control", "one-shot" or
             "none"), reason (why not "control"), sessions, windows, panes,
             requests, probes, dumps, fetches, one_shots, notifications,
             attaches, exits, last_error
    tools    list of: name, calls, errors, p50_us, p99_us (microseconds from
             having read a call to having its answer)`,
		Example: `  tmux-mcpd status
  tmux-mcpd status --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.status(cmd.Context(), c, asJSON)
		},
	}
	cmd.Flags().StringVar(&p.socket, "socket", "", "`path` of the daemon's socket (or $TMUX_MCPD_SOCKET)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (p place) status(ctx context.Context, c console, asJSON bool) error {
	report := statusReport{ClientVersion: versionText()}
	paths, err := daemon.SocketPaths(p.socket)
	if err != nil {
		return err
	}
	report.Socket = paths[0]
	conn, dialErr := daemon.Dial(ctx, paths...)
	if dialErr == nil {
		defer conn.Close()
		report.Running, report.Socket = true, conn.RemoteAddr().String()
		if report.Daemon, err = askStatus(ctx, c, conn); err != nil {
			return fmt.Errorf("the daemon on %s: %w", report.Socket, err)
		}
	}
	if asJSON {
		text, err := json.Marshal(report)
		if err != nil {
			return err
		}
		if err := printJSON(c.out, text); err != nil {
			return err
		}
	}
	if dialErr != nil {
		return fmt.Errorf(`no daemon is running (%s)
Hosts are served all the same: each "tmux-mcpd stdio" then works by itself.
To start a daemon that all share: "tmux-mcpd service install", or in a terminal "tmux-mcpd serve"`,
			strings.ReplaceAll(dialErr.Error(), "\n", "; "))
	}
	if asJSON {
		return nil
	}
	var status daemon.Status
	if err := json.Unmarshal(report.Daemon, &status); err != nil {
		return fmt.Errorf("answer to %s: %w", daemon.StatusMethod, err)
	}
	return writeStatus(c.out, terminalWidth(c.out), report.Socket, status)
}

// codeNoMethod is JSON-RPC's error code for a method that is not known.
const codeNoMethod = -32601

// askStatus asks the daemon at the other end of conn for its daemon.Status.
func askStatus(ctx context.Context, c console, conn net.Conn) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	mcp, err := connect(ctx, conn, "tmux-mcpd status", c.hello(false))
	var answer json.RawMessage
	if err == nil {
		answer, err = mcp.request(daemon.StatusMethod, struct{}{})
	}
	var refused *rpcError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("does not answer within %v", askTimeout)
	case errors.As(err, &refused) && refused.Code == codeNoMethod:
		return nil, errors.New("is too old to say what it does: restart it")
	}
	return answer, err
}

// writeStatus prints a status for people.
func writeStatus(w io.Writer, width int, socket string, s daemon.Status) error {
	uptime := time.Duration(s.UptimeSeconds * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(w, "daemon   %s, pid %d, up %v\n", printable(s.Version), s.PID, uptime)
	if s.Version != versionText() {
		fmt.Fprintf(w, "client   %s: not the daemon's version (tmux-mcpd doctor says how to restart it)\n", versionText())
	} else {
		fmt.Fprintf(w, "client   %s\n", versionText())
	}
	fmt.Fprintf(w, "socket   %s\n", socket)

	fmt.Fprintln(w)
	clients := clientTable(s.Clients, time.Now())
	if len(clients.rows) == 0 {
		fmt.Fprintln(w, "no MCP clients")
	} else if err := clients.write(w, width); err != nil {
		return err
	}

	for _, server := range s.Servers {
		fmt.Fprintln(w)
		writeServer(w, server)
	}
	if len(s.Servers) == 0 {
		fmt.Fprint(w, "\nno tmux server has been asked for yet\n")
	}

	fmt.Fprintln(w)
	return toolTable(s.Tools).write(w, width)
}

// clientTable leaves out the connection that is just asking.
func clientTable(clients []daemon.ClientStatus, now time.Time) table {
	t := table{columns: []column{
		{"CLIENT", cutEnd}, {"VERSION", cutEnd}, {"PROTOCOL", cutNever}, {"BRIDGE", cutEnd}, {"PANE", cutNever},
		{"CALLS", cutNever}, {"CONNECTED", cutNever},
	}}
	for _, client := range clients {
		if client.Name == "tmux-mcpd status" {
			continue
		}
		t.rows = append(t.rows, []string{
			client.Name, client.Version, client.ProtocolVersion, client.Bridge, client.Pane,
			strconv.FormatUint(client.Calls, 10), now.Sub(client.ConnectedAt).Round(time.Second).String(),
		})
	}
	return t
}

func writeServer(w io.Writer, s daemon.ServerStatus) {
	about := "not seen running"
	if s.PID != 0 {
		about = fmt.Sprintf("%s, pid %d", s.Version, s.PID)
	}
	fmt.Fprintf(w, "tmux     %s (%s)\n", printable(s.Socket), printable(about))
	mode := s.Mode
	if s.Reason != "" {
		mode += ": " + s.Reason
	}
	lines := [][2]string{
		{"mode", mode},
		{"holds", fmt.Sprintf("%s, %s, %s", plural(s.Sessions, "session"), plural(s.Windows, "window"), plural(s.Panes, "pane"))},
		{"asked", fmt.Sprintf("%s: %s, %s, %s, %s", plural(s.Requests, "request"),
			plural(s.Probes, "probe"), plural(s.Dumps, "dump"), plural(s.Fetches, "fetch"), plural(s.OneShots, "one-shot"))},
		{"heard", fmt.Sprintf("%s; %s, %s", plural(s.Notifications, "notification"), plural(s.Attaches, "attach"), plural(s.Exits, "exit"))},
		{"error", s.LastError},
	}
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(w, "  %-6s %s\n", line[0], printable(line[1]))
		}
	}
}

// plural is "1 probe", "2 probes", "2 attaches".
func plural[N int | uint64](n N, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "ch"):
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func toolTable(tools []daemon.ToolStatus) table {
	t := table{columns: []column{
		{"TOOL", cutNever}, {"CALLS", cutNever}, {"ERRORS", cutNever}, {"P50", cutNever}, {"P99", cutNever},
	}}
	micros := func(us float64, calls uint64) string {
		if calls == 0 {
			return ""
		}
		if us >= 10_000 {
			return fmt.Sprintf("%.0f ms", us/1000)
		}
		return fmt.Sprintf("%.0f µs", us)
	}
	for _, tool := range tools {
		t.rows = append(t.rows, []string{
			tool.Name, strconv.FormatUint(tool.Calls, 10), strconv.FormatUint(tool.Errors, 10),
			micros(tool.P50, tool.Calls), micros(tool.P99, tool.Calls),
		})
	}
	return t
}
