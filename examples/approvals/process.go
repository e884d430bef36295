package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
)

// self is this program again, as one of its parts. It inherits the socket, unless that is nil.
func self(role string, s settings, socket *os.File) *exec.Cmd {
	name, err := os.Executable()
	if err != nil {
		name = os.Args[0]
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // texts, times and a bool
	}
	cmd := exec.CommandContext(context.Background(), name, role) // whoever starts it ends it
	cmd.Env = append(os.Environ(), settingsEnv+"="+string(text))
	if socket != nil {
		cmd.ExtraFiles = []*os.File{socket}
	}
	return cmd
}

// newSocket takes an address for a process to come: it stays the same however often that is killed.
func newSocket(ctx context.Context, address string) (socket *os.File, url string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, "", fmt.Errorf("listen on %s: %w: choose another address", address, err)
	}
	defer func() { _ = listener.Close() }() // the file is another descriptor of it
	socket, err = listener.(*net.TCPListener).File()
	return socket, "http://" + listener.Addr().String(), err
}

// inherited is the socket of this process.
func inherited() (net.Listener, error) {
	listener, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return nil, fmt.Errorf("the socket that was to be inherited: %w", err)
	}
	return listener, nil
}
