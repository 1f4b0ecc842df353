# For those who type make. The commands are the README's.
.PHONY: all setup build test ci transcript man dist bench clean

all: build

# Install tmux if it is missing, build, list this machine's panes.
setup:
	go run ./cmd/setup

build:
	CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=$$(git describe --tags --always --dirty 2>/dev/null || echo dev)" -o bin/tmux-mcpd ./cmd/tmux-mcpd

# Linters, then all tests with the race detector.
test:
	go run ./cmd/setup test

ci:
	.ci/run

# Put a fresh transcript into the README.
transcript:
	go run ./cmd/setup transcript

# The manual pages, from the commands, into dist/man.
man:
	go run ./cmd/setup man

# Static binaries, MCP bundles, Debian packages and checksums, into dist. With
# REPOSITORY=https://github.com/OWNER/tmux-mcpd also the registry's server.json.
dist:
	go run ./cmd/setup dist

# Measure everything beside what it cannot beat, and what of the promised figures
# is met: ten minutes on a quiet machine.
bench:
	go test ./integration -v -run '^TestBenchReport$$' -timeout 30m -bench-report -

clean:
	rm -rf bin dist
