package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/examples/approvals/audit"
	"github.com/pillarbox-dev/pillarbox/internal/child"
	"github.com/pillarbox-dev/pillarbox/store/sqlite"
)

// serveAudit is the process of the audit store. It inherits its socket.
func serveAudit(ctx context.Context, s settings) error {
	token, err := os.ReadFile(s.TokenFile) // at the start alone: the store's own token changes when it is told to
	if err != nil {
		return fmt.Errorf("the token: %w", err)
	}
	secret, err := os.ReadFile(s.SecretFile)
	if err != nil {
		return fmt.Errorf("the secret: %w", err)
	}
	handler, err := audit.New(ctx, s.Store, strings.TrimSpace(string(token)), bytes.TrimSpace(secret))
	if err != nil {
		return err
	}
	defer func() { _ = handler.Close() }()
	listener, err := inherited()
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		<-ctx.Done()
		// What is being handled is brought to its end.
		bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer stop()
		_ = server.Shutdown(bounded)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	<-closed
	return nil
}

// auditCore is the audit store as its neighbours see it: a process, an address, and the credentials for it.
type auditCore struct {
	process  *child.Process
	settings settings
	url      string
	socket   *os.File
	store    *sql.DB // to look at what it holds
}

// startAudit starts it in a folder.
func startAudit(ctx context.Context, dir string) (a *auditCore, err error) {
	a = &auditCore{settings: settings{
		Store: filepath.Join(dir, "audit.db"), TokenFile: filepath.Join(dir, "token"), SecretFile: filepath.Join(dir, "secret"),
	}}
	if err := errors.Join(write(a.settings.TokenFile, rand.Text()), write(a.settings.SecretFile, rand.Text())); err != nil {
		return nil, err
	}
	if a.socket, a.url, err = newSocket(ctx, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	a.process = &child.Process{Name: "audit store", Log: filepath.Join(dir, "audit.log"), Command: func() *exec.Cmd {
		return self(auditRole, a.settings, a.socket)
	}}
	if err := a.process.Start(); err != nil {
		return a, err
	}
	if err := a.tell(ctx, audit.Control{}); err != nil { // it answers when its tables are there
		return a, err
	}
	a.store, err = sqlite.OpenDB(ctx, sqlite.Config{Path: a.settings.Store})
	return a, err
}

// write puts a credential into the place of another, at once: a reader sees the one or the other.
func write(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text+"\n"), 0o600); err != nil {
		return fmt.Errorf("write a credential: %w", err)
	}
	return os.Rename(path+".new", path)
}

// tell changes how it behaves.
func (a *auditCore) tell(ctx context.Context, c audit.Control) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, a.url+"/control", bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return errors.Join(fmt.Errorf("tell the audit store: %w", err), a.process.Died())
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("tell the audit store: it answered %s", answer.Status)
	}
	return nil
}

// rotate makes it accept another token alone. The file with the relay's follows when the function that is returned is called.
func (a *auditCore) rotate(ctx context.Context) (follow func() error, err error) {
	token := rand.Text()
	return func() error { return write(a.settings.TokenFile, token) }, a.tell(ctx, audit.Control{Token: &token})
}

func (a *auditCore) stop() error {
	var problems []error
	if a.process != nil {
		problems = append(problems, a.process.Stop())
	}
	if a.store != nil {
		problems = append(problems, a.store.Close())
	}
	if a.socket != nil {
		problems = append(problems, a.socket.Close())
	}
	return errors.Join(problems...)
}
