package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pillarbox-dev/pillarbox/examples/linkostar/supplier"
	"github.com/pillarbox-dev/pillarbox/internal/child"
)

// world is everything around the platform in a demo: four suppliers in two processes, one in Go and one in Node.js, their
// secrets, and the configuration that knows them.
type world struct {
	dir      string
	config   string // the file
	node     bool   // globex is the one in Node.js
	children []*child.Process
	inboxes  []string // URLs
	sockets  []*os.File
}

// loseEvery: of each supplier's answers the tenth is lost, with the work done.
const loseEvery = 10

// worldOptions are how a world is.
type worldOptions struct {
	dir   string
	node  string        // the folder of the supplier in Node.js; "": there is none, and why stands in noNode
	down  time.Duration // how long umbrella is down, from the start on
	retry retryConfig
	lease time.Duration
}

// newWorld starts the suppliers and writes the configuration.
func newWorld(ctx context.Context, o worldOptions) (w *world, err error) {
	w = &world{dir: o.dir, config: filepath.Join(o.dir, "linkostar.yaml"), node: o.node != ""}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	suppliers := []supplier.Supplier{
		{Name: "acme", TokenFile: w.path("acme.token")},
		{Name: "initech", NoBalance: brokeTenant, NoLegacy: true},
		{Name: "umbrella", DownFor: o.down},
	}
	if !w.node {
		suppliers = append(suppliers, supplier.Supplier{Name: "globex"})
	}
	for i := range suppliers {
		suppliers[i].SecretFile, suppliers[i].LoseEvery = w.path(suppliers[i].Name+".secret"), loseEvery
	}
	for _, name := range []string{"acme.secret", "acme.token", "globex.secret", "initech.secret", "umbrella.secret"} {
		if err := os.WriteFile(w.path(name), []byte(rand.Text()+rand.Text()+"\n"), 0o600); err != nil {
			return w, fmt.Errorf("write a secret: %w", err)
		}
	}
	goAddr, err := w.start(ctx, "Go suppliers", func(settings string) *exec.Cmd { return self("suppliers", settings) },
		supplier.Config{Database: w.path("suppliers.db"), Suppliers: suppliers})
	if err != nil {
		return w, err
	}
	addrs := map[string]string{"acme": goAddr, "initech": goAddr, "umbrella": goAddr, "globex": goAddr}
	if w.node {
		addrs["globex"], err = w.start(ctx, "Node.js supplier", func(settings string) *exec.Cmd {
			cmd := exec.CommandContext(context.WithoutCancel(ctx), "node", "supplier.js", settings) // the world ends it
			cmd.Dir = o.node
			return cmd
		}, map[string]any{
			"name": "globex", "secretFile": w.path("globex.secret"), "inbox": w.path("globex.jsonl"), "loseEvery": loseEvery,
		})
		if err != nil {
			return w, err
		}
	}
	return w, w.configure(addrs, o)
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// self is this program again, as a part of its own demo.
func self(args ...string) *exec.Cmd {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	cmd := exec.CommandContext(context.Background(), program, args...) // its standard input ends it
	cmd.Env = append(os.Environ(), childEnv+"=1")
	return cmd
}

// childEnv tells the test binary that it is to be the program.
const childEnv = "LINKOSTAR_CHILD"

// start starts a process of suppliers on a socket that it inherits: nobody else can take the port, and nothing has to wait until
// it listens.
func (w *world) start(
	ctx context.Context, name string, command func(settings string) *exec.Cmd, settings any,
) (addr string, err error) {
	text, err := json.Marshal(settings)
	if err != nil {
		return "", err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for the %s: %w", name, err)
	}
	defer func() { _ = listener.Close() }() // the socket stays open
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return "", fmt.Errorf("listen for the %s: %w", name, err)
	}
	w.sockets = append(w.sockets, socket)
	process := &child.Process{Name: name, Log: w.path(fmt.Sprintf("suppliers-%d.log", len(w.children))), Command: func() *exec.Cmd {
		cmd := command(string(text))
		cmd.ExtraFiles = []*os.File{socket}
		return cmd
	}}
	w.children = append(w.children, process)
	w.inboxes = append(w.inboxes, "http://"+listener.Addr().String()+"/inbox")
	return listener.Addr().String(), process.Start()
}

// configure writes the configuration file.
func (w *world) configure(addrs map[string]string, o worldOptions) error {
	c := config{
		Suppliers:    map[string]supplierConfig{},
		Registration: registrationConfig{Retry: o.retry, Timeout: time.Second, AllowAddresses: []string{"127.0.0.1"}},
		Relay:        relayConfig{Lease: o.lease},
	}
	for name, addr := range addrs {
		base := "http://" + addr + "/" + name
		s := supplierConfig{
			UUID: newUUID(), HubRegistrationURL: base + "/hub", DeviceRegistrationURL: base + "/device",
			ActivationURL: base + "/activation", SecretFile: w.path(name + ".secret"),
		}
		if name == "acme" {
			s.TokenFile = w.path("acme.token")
		}
		c.Suppliers[name] = s
	}
	text, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.config, text, 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// inbox asks the suppliers what they hold.
func (w *world) inbox(ctx context.Context) (all supplier.Inbox, err error) {
	client := http.Client{Timeout: 10 * time.Second}
	for _, url := range w.inboxes {
		var one supplier.Inbox
		if err := get(ctx, &client, url, &one); err != nil {
			return all, fmt.Errorf("ask a supplier for its inbox: %w", err)
		}
		all.Received = append(all.Received, one.Received...)
		all.Duplicates += one.Duplicates
	}
	return all, nil
}

func get(ctx context.Context, client *http.Client, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// stop ends the suppliers.
func (w *world) stop() error {
	var problems []error
	for _, process := range w.children {
		problems = append(problems, process.Stop())
	}
	for _, socket := range w.sockets {
		_ = socket.Close()
	}
	return errors.Join(problems...)
}

// findNode returns the folder of the supplier in Node.js, with its packages installed.
func findNode(ctx context.Context, folder string) (string, error) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", errors.New("node is not installed")
	}
	if _, err := os.Stat(filepath.Join(folder, "supplier.js")); err != nil {
		return "", fmt.Errorf("%w: run it from the top of the repository, or give --node", err)
	}
	if _, err := os.Stat(filepath.Join(folder, "node_modules", "express")); err == nil {
		return folder, nil
	}
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = folder
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci in %s: %w\n%s", folder, err, out)
	}
	return folder, nil
}
