// Command relay connects to a unix socket and copies stdin to it and it to
// stdout: a client of the daemon that says nothing of who it is.
package main

import (
	"io"
	"log"
	"net"
	"os"
)

func main() {
	conn, err := net.Dial("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin) // ends with the test
		conn.Close()
	}()
	_, _ = io.Copy(os.Stdout, conn)
}
