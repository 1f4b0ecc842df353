package daemon

import (
	"os"
	"strconv"
	"strings"
)

// processEnvironment is the environment that a process was started with, nil
// if it may not be seen.
func processEnvironment(pid int) map[string]string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	env := make(map[string]string)
	for entry := range strings.SplitSeq(string(data), "\x00") {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return env
}
