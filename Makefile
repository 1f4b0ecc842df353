# For those who type make. The commands are the README's.
.PHONY: all setup build test ci transcript clean

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

clean:
	rm -rf bin dist
