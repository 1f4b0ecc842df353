// Command echo is the floor of every answer over a unix socket: it listens at
// the path that it is given, and answers each line with a line of the length
// that the first line of the connection says, in bytes with its newline.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"log"
	"net"
	"os"
)

func main() {
	ln, err := net.Listen("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for {
		conn, err := ln.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(conn)
	}
}

func serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	var length int
	if _, err := fmt.Fscanf(in, "%d\n", &length); err != nil || length < 1 {
		return
	}
	answer := append(bytes.Repeat([]byte{'x'}, length-1), '\n')
	for {
		if _, err := in.ReadSlice('\n'); err != nil {
			return
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}
