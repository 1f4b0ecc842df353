// Package integration tests the built tmux-mcpd binary against real tmux
// servers, real terminals and real MCP clients. It holds tests only.
//
// What it promises to whoever runs it: every tmux server is private (a socket in
// a temporary directory, an environment without TMUX*), is ended by the test
// that started it, and a process or goroutine that outlives the tests fails them.
//
//	go test -race ./integration                        # everything
//	go test -run TestVectors/embedded/zoomed ./integration
//
// Environment:
//
//	TMUX_MCPD_TEST_TMUX     the tmux to test with (default: tmux on PATH)
//	TMUX_MCPD_TEST_COMMAND  another stdio MCP server for TestVectors/embedded
//	TMUX_MCPD_TEST_VECTORS  "any": play the vectors on a tmux other than 3.3a too
//	TMUX_MCPD_TEST_CHECKS   answers that TestFreshness judges (default 2000)
//	TMUX_MCPD_TEST_CHANGES  changes of each kind that TestPushLatency makes (default 20)
//	TMUX_MCPD_TEST_PUSHES   changes of TestPushLosesNothing (default 200)
//	TMUX_MCPD_TEST_STRICT   "1": the figures of the push tests must hold, and these
//	                        tests run alone
//	TMUX_MCPD_TEST_SEED     seed of the changes in the load test
//	TMUX_MCPD_TEST_SOAK     how long TestSoak runs ("10m"); it is skipped without
//	TMUX_MCPD_CACHE         where the MCP SDKs are installed (default: .cache)
package integration
