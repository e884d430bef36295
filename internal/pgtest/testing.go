package pgtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/pillarbox-dev/pillarbox/internal/serverlog"
)

// shared starts, at its first call, the one server that all tests of a binary use. It needs no TestMain: the server's guard
// ends it with the process.
var shared = sync.OnceValues(func() (*Server, error) { return Start(Options{}) })

// Shared returns the server that all tests of the binary use. A test must not restart it.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// New starts a server for one test, which stops it at its end.
func New(t testing.TB, opts Options) *Server {
	t.Helper()
	s, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Database makes an empty database in the shared server and returns its URL. See Server.Database.
func Database(t testing.TB) string {
	t.Helper()
	return Shared(t).Database(t)
}

// Database makes an empty database and returns its URL. At the end of the test its connections are broken off and it is
// dropped; when the test has failed, what the server logged meanwhile is shown.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	logStart := serverlog.Size(s.LogFile())
	name := fmt.Sprintf("%s_%d", databaseName(t.Name()), s.databases.Add(1))
	url, err := s.CreateDatabase(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("server log:\n" + serverlog.Tail(s.LogFile(), logStart))
		}
		if s.process == nil {
			return
		}
		if err := s.DropDatabase(context.Background(), name); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return url
}

// databaseName makes a short plain name out of a test's.
func databaseName(test string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(test))
	return name[:min(len(name), 40)]
}
