//go:build !race

package integration

// raceEnabled makes the product be built like the test that drives it.
const raceEnabled = false
