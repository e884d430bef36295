package http

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Whatever is done to a file that was read and remembered, the next read shows it.
func TestFilesNoticeEveryChange(t *testing.T) {
	const settled = 50 * time.Millisecond
	for name, change := range map[string]func(t *testing.T, path string){
		"replaced": func(t *testing.T, path string) { write(t, path, "second") },
		"written in place, same size, same time": func(t *testing.T, path string) {
			before, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("second"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
				t.Fatal(err)
			}
		},
		"replaced by an older one": func(t *testing.T, path string) {
			old := write(t, filepath.Join(filepath.Dir(path), "old"), "second")
			if err := os.Chtimes(old, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(old, path); err != nil {
				t.Fatal(err)
			}
		},
		"a link that is swapped": func(t *testing.T, path string) {
			folder := filepath.Dir(path)
			write(t, filepath.Join(folder, "other"), "second")
			if err := os.Symlink("other", filepath.Join(folder, "link")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(folder, "link"), path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &files{settled: settled}
			path := secretFile(t, "first.")
			read := func(want string) {
				t.Helper()
				if got, err := f.read(path); err != nil || string(got) != want {
					t.Errorf("read %q, %v, want %q", got, err, want)
				}
			}
			read("first.")
			if _, ok := f.known.Load(path); ok {
				t.Error("a file that was just written is remembered: a write within the same tick would not show")
			}
			time.Sleep(2 * settled)
			read("first.")
			read("first.")
			if _, ok := f.known.Load(path); !ok {
				t.Error("a file that has settled is not remembered")
			}
			change(t, path)
			read("second")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if got, err := f.read(path); err == nil {
				t.Errorf("a file that is gone: %q", got)
			}
		})
	}
}

// Within one tick of the clock as well: a file is written and read in turn, as fast as it goes.
func TestFilesNoticeQuickChanges(t *testing.T) {
	f := newFiles()
	path := secretFile(t, "x")
	for i := range 2000 {
		want := string(rune('a' + i%26))
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := f.read(path); err != nil || string(got) != want {
			t.Fatalf("write %d: read %q, %v, want %q", i, got, err, want)
		}
	}
}

// The same as TestRotationUnderLoad, with files that are remembered from the first read on.
func TestRotationOfRememberedFiles(t *testing.T) {
	rotateUnderLoad(t, &files{settled: time.Millisecond})
}

// After a 401 a file is read whatever its times say: a file system may not be honest about them.
func TestUnauthorizedForgets(t *testing.T) {
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer current" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	d := newDestination(t, server.URL, func(c *Config) { c.Endpoint.TokenFile = secretFile(t, "current") })
	d.files = new(files) // every file has settled
	token := d.config.Endpoint.TokenFile
	if _, err := d.files.read(token); err != nil {
		t.Fatal(err)
	}
	known, ok := d.files.known.Load(token)
	if !ok {
		t.Fatal("not remembered")
	}
	d.files.known.Store(token, knownFile{known.(knownFile).state, []byte("stale")})
	same(t, deliver(t, d, newEvent()), relay.Outcome{Kind: relay.Published, Receipt: "200"})
}
