package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"golang.org/x/sys/unix"
	"tmux-mcpd/daemon"
)

// listTimeout bounds a whole listing. The daemon's own deadline is shorter
// (5 s per answer), so its reason is what people get to see.
const listTimeout = 15 * time.Second

// A listing is what the flags of `list sessions` and `list panes` ask for.
type listing struct {
	place   place
	filters []string
	session string
	window  string
	server  string
	json    bool
	watch   bool
}

func listCommand(c console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list sessions|panes",
		Short: "Show sessions or panes, as agents get to see them",
		Long: `Show the answers of the MCP tools list_sessions and list_panes: a table for
people, the tool's JSON with --json for programs. Asks the daemon if one runs,
else reads tmux itself.`,
		Example: `  tmux-mcpd list panes
  tmux-mcpd list panes --filter pane_current_command=vim
  tmux-mcpd list sessions --json`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("list what: sessions or panes?")
			}
			return usagef("cannot list %q: say sessions or panes", args[0])
		},
	}
	cmd.AddCommand(listSessionsCommand(c), listPanesCommand(c))
	return cmd
}

func listSessionsCommand(c console) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "Show the sessions of a tmux server",
		Example: `  tmux-mcpd list sessions
  tmux-mcpd list sessions --filter session_name__startswith=work
  tmux-mcpd list sessions -L other --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.sessions(cmd.Context(), c) },
	}
	l.addFlags(cmd)
	return cmd
}

func listPanesCommand(c console) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "panes",
		Short: "Show the panes of a tmux server, a session or a window",
		Long: `Show the panes of a tmux server, a session or a window. A star marks the pane
that this command runs in.`,
		Example: `  tmux-mcpd list panes
  tmux-mcpd list panes --session work --window 2
  tmux-mcpd list panes --watch
  tmux-mcpd list panes --filter pane_current_path__contains=src --filter pane_active=1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.panes(cmd.Context(), c) },
	}
	l.addFlags(cmd)
	cmd.Flags().StringVar(&l.session, "session", "", "only this session: its exact name, or its `$ID`")
	cmd.Flags().StringVar(&l.window, "window", "", "only this window: its `@ID`, or its index in the session")
	completeFlag(cmd, "session", cobra.NoFileCompletions)
	completeFlag(cmd, "window", cobra.NoFileCompletions)
	return cmd
}

func (l *listing) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	// An array, not a slice: commas belong to the value.
	f.StringArrayVar(&l.filters, "filter", nil, "only rows where `FIELD[__OPERATOR]=VALUE` holds; may be repeated, all must hold")
	completeFlag(cmd, "filter", completeFilter)
	f.StringVarP(&l.server, "tmux-socket", "L", "", "`name` of the tmux server's socket, as tmux -L")
	f.BoolVar(&l.watch, "watch", false, "go on and show each change: a live table on a terminal, else a line per change")
	f.BoolVar(&l.json, "json", false, "print the tool's answer as a JSON array")
	completeFlag(cmd, "tmux-socket", cobra.NoFileCompletions)
	l.place.addFlags(cmd)
}

func (l *listing) sessions(ctx context.Context, c console) error {
	arguments, err := l.arguments()
	if err != nil {
		return err
	}
	if l.watch {
		return l.follow(ctx, c, sessionsFeed(l, arguments))
	}
	return l.answer(ctx, c, func(mcp *client, width int) error {
		rows, err := mcp.callTool("list_sessions", arguments)
		if err != nil {
			return err
		}
		if l.json {
			return printJSON(c.out, rows)
		}
		var sessions []sessionRow
		if err := json.Unmarshal(rows, &sessions); err != nil {
			return fmt.Errorf("answer of list_sessions: %w", err)
		}
		if len(sessions) == 0 {
			fmt.Fprintln(c.err, "tmux-mcpd: no sessions"+l.because())
			return nil
		}
		return sessionTable(sessions, time.Local).write(c.out, width)
	})
}

func (l *listing) panes(ctx context.Context, c console) error {
	arguments, err := l.arguments()
	if err != nil {
		return err
	}
	if l.watch {
		return l.follow(ctx, c, panesFeed(l, arguments))
	}
	return l.answer(ctx, c, func(mcp *client, width int) error {
		rows, err := mcp.callTool("list_panes", arguments)
		if err != nil {
			return err
		}
		if l.json {
			return printJSON(c.out, rows)
		}
		var panes []paneRow
		if err := json.Unmarshal(rows, &panes); err != nil {
			return fmt.Errorf("answer of list_panes: %w", err)
		}
		if len(panes) == 0 {
			fmt.Fprintln(c.err, "tmux-mcpd: no panes"+l.because())
			return nil
		}
		// Rows carry the session's id only; people know its name.
		names, err := mcp.sessionNames(l.server)
		if err != nil {
			return err
		}
		return paneTable(panes, names).write(c.out, width)
	})
}

// because says what may have emptied a listing.
func (l *listing) because() string {
	if len(l.filters) > 0 {
		return " pass the filter"
	}
	return " (is a tmux server running?)"
}

// answer connects to the daemon, or to one in this process, and lets ask put
// its questions.
func (l *listing) answer(ctx context.Context, c console, ask func(mcp *client, width int) error) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	hello := c.hello(false)
	var stream io.ReadWriteCloser
	if daemonConn, err := l.place.dial(ctx); err == nil {
		stream = daemonConn
	} else {
		ours, theirs := net.Pipe()
		served := make(chan struct{})
		d := l.place.embedded(c, c.log(slog.LevelError), false, defaultTimes)
		go func() {
			defer close(served)
			d.ServeConn(ctx, theirs, daemon.CallerFrom(c.lookup)) // its error reaches us as a closed stream
		}()
		// Leave tmux before the process ends, rather than by its end.
		defer func() { ours.Close(); <-served }()
		stream = ours
	}
	defer stream.Close()

	mcp, err := connect(ctx, stream, "tmux-mcpd list", hello)
	if err == nil {
		err = ask(mcp, terminalWidth(c.out))
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", listTimeout)
	}
	return err
}

var (
	sessionID   = regexp.MustCompile(`^\$[0-9]+$`)
	windowID    = regexp.MustCompile(`^@[0-9]+$`)
	windowIndex = regexp.MustCompile(`^[0-9]+$`)
)

// arguments translates the flags into the tool's arguments.
func (l *listing) arguments() (map[string]any, error) {
	arguments := make(map[string]any)
	if l.server != "" {
		arguments["socket_name"] = l.server
	}
	switch {
	case l.session == "":
	case sessionID.MatchString(l.session):
		arguments["session_id"] = l.session
	default:
		arguments["session_name"] = l.session
	}
	switch {
	case l.window == "":
	case windowID.MatchString(l.window):
		arguments["window_id"] = l.window
	case windowIndex.MatchString(l.window):
		arguments["window_index"] = l.window
	default:
		return nil, usagef("--window %q is neither an id (@3) nor an index (3)", l.window)
	}
	filters, err := parseFilters(l.filters)
	if err != nil {
		return nil, err
	}
	if filters != "" {
		arguments["filters"] = filters
	}
	return arguments, nil
}

// parseFilters turns FIELD=VALUE flags into the JSON text that the tools
// take. For the operators in and nin a JSON array is a list of values.
func parseFilters(flags []string) (string, error) {
	if len(flags) == 0 {
		return "", nil
	}
	filters := make(map[string]any, len(flags))
	for _, flag := range flags {
		key, value, found := strings.Cut(flag, "=")
		if !found || key == "" {
			return "", usagef("--filter %q is not of the form FIELD=VALUE", flag)
		}
		if _, twice := filters[key]; twice {
			return "", usagef("--filter %s is given twice", key)
		}
		var list []any
		if (strings.HasSuffix(key, "__in") || strings.HasSuffix(key, "__nin")) && json.Unmarshal([]byte(value), &list) == nil {
			filters[key] = list
		} else {
			filters[key] = value
		}
	}
	text, err := json.Marshal(filters)
	return string(text), err
}

// sessionNames maps the ids of a server's sessions to their names.
func (c *client) sessionNames(server string) (map[string]string, error) {
	arguments := make(map[string]any)
	if server != "" {
		arguments["socket_name"] = server
	}
	rows, err := c.callTool("list_sessions", arguments)
	if err != nil {
		return nil, err
	}
	var sessions []sessionRow
	if err := json.Unmarshal(rows, &sessions); err != nil {
		return nil, fmt.Errorf("answer of list_sessions: %w", err)
	}
	names := make(map[string]string, len(sessions))
	for _, s := range sessions {
		names[s.ID] = s.Name
	}
	return names, nil
}

// The rows of the two tools, as far as the tables show them. A null becomes
// an empty string.
type sessionRow struct {
	ID         string `json:"session_id"`
	Name       string `json:"session_name"`
	Windows    int    `json:"window_count"`
	Attached   string `json:"session_attached"`
	Created    string `json:"session_created"`
	ActivePane string `json:"active_pane_id"`
}

type paneRow struct {
	ID       string `json:"pane_id"`
	Session  string `json:"session_id"`
	Window   string `json:"window_id"`
	Width    string `json:"pane_width"`
	Height   string `json:"pane_height"`
	Command  string `json:"pane_current_command"`
	Path     string `json:"pane_current_path"`
	Title    string `json:"pane_title"`
	Active   string `json:"pane_active"`
	IsCaller bool   `json:"is_caller"`
}

func sessionTable(sessions []sessionRow, zone *time.Location) table {
	t := table{columns: []column{
		{"SESSION", cutEnd}, {"ID", cutNever}, {"WINDOWS", cutNever}, {"ATTACHED", cutNever},
		{"CREATED", cutNever}, {"ACTIVE PANE", cutNever},
	}}
	for _, s := range sessions {
		created := s.Created
		if seconds, err := strconv.ParseInt(s.Created, 10, 64); err == nil {
			created = time.Unix(seconds, 0).In(zone).Format("2006-01-02 15:04:05")
		}
		t.rows = append(t.rows, []string{s.Name, s.ID, strconv.Itoa(s.Windows), s.Attached, created, s.ActivePane})
	}
	return t
}

func paneTable(panes []paneRow, sessionNames map[string]string) table {
	t := table{columns: []column{
		{"PANE", cutNever}, {"SESSION", cutEnd}, {"WINDOW", cutNever}, {"SIZE", cutNever},
		{"COMMAND", cutEnd}, {"PATH", cutStart}, {"TITLE", cutEnd}, {"ACTIVE", cutNever},
	}}
	yesNo := map[string]string{"1": "yes", "0": "no"}
	for _, p := range panes {
		id := p.ID
		if p.IsCaller {
			id += "*"
		}
		session, known := sessionNames[p.Session]
		if !known { // born or renamed between the two questions
			session = p.Session
		}
		t.rows = append(t.rows, []string{
			id, session, p.Window, size(p.Width, p.Height), p.Command, p.Path, p.Title, yesNo[p.Active],
		})
	}
	return t
}

func printJSON(w io.Writer, rows json.RawMessage) error {
	_, err := w.Write(append(rows, '\n'))
	return err
}

// terminalWidth returns the number of columns of a terminal, 0 if w is none
// or does not know its size.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
