package http

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/outbox/webhook"
	"github.com/pillarbox-dev/pillarbox/relay"
)

// Without its credentials nothing is sent, and the message does not show them.
func TestUnusableCredentials(t *testing.T) {
	server := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	folder := t.TempDir()
	missing := filepath.Join(folder, "missing")
	good := secretFile(t, "s3cret-good")
	unreadable := folder // a folder cannot be read as a file
	long := secretFile(t, strings.Repeat("x", maxCredential+1))
	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		endpoint Endpoint
		signing  Signing
		message  string
	}{
		"secret missing":        {Endpoint{SecretFiles: []string{missing}}, Signing{Hex: true}, "no such file"},
		"secret empty":          {Endpoint{SecretFiles: []string{secretFile(t, "")}}, Signing{Hex: true}, "is empty"},
		"secret blank":          {Endpoint{SecretFiles: []string{secretFile(t, " \r\n\t ")}}, Signing{Hex: true}, "is empty"},
		"secret a folder":       {Endpoint{SecretFiles: []string{unreadable}}, Signing{Hex: true}, "mount it"},
		"secret a pipe":         {Endpoint{SecretFiles: []string{pipe}}, Signing{Hex: true}, "is empty"},
		"second one missing":    {Endpoint{SecretFiles: []string{good, missing}}, Signing{Hex: true}, "no such file"},
		"secret not base64":     {Endpoint{SecretFiles: []string{good}}, Signing{Standard: true}, "base64"},
		"secret far too long":   {Endpoint{SecretFiles: []string{long}}, Signing{Hex: true}, "is longer"},
		"token missing":         {Endpoint{TokenFile: missing}, Signing{}, "no such file"},
		"token empty":           {Endpoint{TokenFile: secretFile(t, "\n")}, Signing{}, "is empty"},
		"token of two lines":    {Endpoint{TokenFile: secretFile(t, "s3cret-a\ns3cret-b")}, Signing{}, "on one line"},
		"token not ASCII":       {Endpoint{TokenFile: secretFile(t, "s3crét")}, Signing{}, "visible ASCII"},
		"secret blank, no file": {Endpoint{Secret: " \n"}, Signing{Hex: true}, "is blank"},
		"token blank, no file":  {Endpoint{Token: " \n"}, Signing{}, "is blank"},
		"token no line":         {Endpoint{Token: "s3cret\r\nX: y"}, Signing{}, "on one line"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDestination(t, "", func(c *Config) {
				tt.endpoint.URL = server.URL
				c.Endpoint, c.Signing = tt.endpoint, tt.signing
			})
			got := deliver(t, d, newEvent())
			same(t, got, relay.Outcome{Kind: relay.Unavailable, Code: CodeConfig, Pause: true, Message: tt.message})
			if strings.Contains(got.Message, "s3cr") {
				t.Errorf("the message shows the secret: %s", got.Message)
			}
			problems := d.Check(t.Context())
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), tt.message) {
				t.Errorf("Check = %v, want one with %q", problems, tt.message)
			}
		})
	}
}

// Of two secrets the first signs the body, and one that is given without a file goes before those of files.
func TestFirstSecretSigns(t *testing.T) {
	files := []string{secretFile(t, "first"), secretFile(t, "second")}
	for want, endpoint := range map[string]Endpoint{
		"first":  {SecretFiles: files},
		"second": {SecretFiles: []string{files[1], files[0]}},
		"third":  {SecretFiles: files, Secret: " third\n"},
	} {
		got := receive(t, newEvent(), func(c *Config) {
			endpoint.URL = c.Endpoint.URL
			c.Endpoint, c.Signing.Hex = endpoint, true
		})
		if err := webhook.VerifyHex([][]byte{[]byte(want)}, []byte(got.body), got.header.Get("Pillarbox-Signature")); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
	got := receive(t, newEvent(), func(c *Config) { c.Endpoint.Token = "from-the-environment" })
	if a := got.header.Get("Authorization"); a != "Bearer from-the-environment" {
		t.Errorf("Authorization %q", a)
	}
}

// A 401 is sent once more when the credential has changed since it was read, and only then.
func TestUnauthorizedRereads(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile    string // what the file holds by the time of the answer
		want         relay.Outcome
		wantRequests int32
	}{
		"rotated":    {"new", relay.Outcome{Kind: relay.Published, Receipt: "200"}, 2},
		"not it":     {"newer", relay.Outcome{Kind: relay.Unavailable, Code: CodeUnauthorized, Receipt: "401"}, 2},
		"unchanged":  {"old", relay.Outcome{Kind: relay.Unavailable, Code: CodeUnauthorized, Receipt: "401"}, 1},
		"taken away": {"", relay.Outcome{Kind: relay.Unavailable, Code: CodeConfig, Pause: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			file := secretFile(t, "old")
			var requests atomic.Int32
			server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				write(t, file, tt.meanwhile)
				if r.Header.Get("Authorization") != "Bearer new" {
					w.WriteHeader(http.StatusUnauthorized)
				}
			})
			d := newDestination(t, server.URL, func(c *Config) { c.Endpoint.TokenFile = file })
			same(t, deliver(t, d, newEvent()), tt.want)
			if n := requests.Load(); n != tt.wantRequests {
				t.Errorf("%d requests, want %d", n, tt.wantRequests)
			}
		})
	}
}

// Secret and token are rotated again and again under load, by a receiver that knows just the newest. Everything is delivered.
func TestRotationUnderLoad(t *testing.T) { rotateUnderLoad(t, newFiles()) }

func rotateUnderLoad(t *testing.T, f *files) {
	folder := t.TempDir()
	secret, token := filepath.Join(folder, "secret"), filepath.Join(folder, "token")
	var mu sync.RWMutex // the receiver verifies and the rotation happens, never both
	var current string
	rotate := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		current = fmt.Sprintf("generation-%d", n)
		write(t, secret, current+"\n")
		write(t, token, current+"\n")
	}
	rotate(0)
	var refused atomic.Int32
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.RLock()
		defer mu.RUnlock()
		if r.Header.Get("Authorization") != "Bearer "+current ||
			webhook.VerifyHex([][]byte{[]byte(current)}, body, r.Header.Get("Pillarbox-Signature")) != nil {
			refused.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	d := newDestination(t, server.URL, func(c *Config) {
		c.Signing.Hex = true
		c.Endpoint.SecretFiles, c.Endpoint.TokenFile = []string{secret}, token
	})
	d.files = f
	const workers, rotations = 16, 20
	ctx, cancel := context.WithCancel(t.Context())
	var finished [workers]atomic.Int64
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				if out := deliver(t, d, newEvent()); out.Kind != relay.Published {
					t.Errorf("outcome %+v", out)
				}
				finished[i].Add(1)
			}
		})
	}
	for n := 1; n <= rotations; n++ {
		var before [workers]int64
		for i := range workers {
			before[i] = finished[i].Load()
		}
		rotate(n)
		// A delivery is sent twice at most, so the next rotation waits until every worker has finished one since.
		for i := range workers {
			for finished[i].Load() < before[i]+2 && !t.Failed() {
				time.Sleep(time.Millisecond)
			}
		}
	}
	cancel()
	all.Wait()
	if refused.Load() == 0 {
		t.Error("no delivery was caught by a rotation: the test shows nothing")
	}
}

// Endpoints of a table name their files within one folder, and nothing leads out of it.
func TestCredentialFolder(t *testing.T) {
	outside := secretFile(t, "outside")
	folder := t.TempDir()
	write(t, filepath.Join(folder, "token"), "inside")
	// As Kubernetes mounts them: a link to a file in a folder that is itself a link.
	if err := os.Mkdir(filepath.Join(folder, "..2026_11_29"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "..2026_11_29", "mounted"), "mounted")
	for link, to := range map[string]string{
		"..data": "..2026_11_29", "mounted": filepath.Join("..data", "mounted"), "escape": outside,
	} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	relative, err := filepath.Rel(folder, outside)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ folder, file, want string }{
		"inside":    {folder, "token", "inside"},
		"mounted":   {folder, "mounted", "mounted"},
		"absolute":  {folder, outside, ""},
		"relative":  {folder, relative, ""},
		"link":      {folder, "escape", ""},
		"no folder": {"", "token", ""},
		"not there": {filepath.Join(folder, "none"), "token", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := Endpoint{TokenFile: tt.file, folder: tt.folder, within: true}
			got, err := e.credentials(newFiles())
			if got.token != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("token %q, error %v, want %q", got.token, err, tt.want)
			}
		})
	}
}
