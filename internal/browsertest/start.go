package browsertest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Start starts a browser of its own for a test, and ends it with the test. A browser that is missing fails the test.
func Start(t testing.TB, more ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	program := find()
	if program == "" {
		t.Fatal("there is no Chromium: apt-get install chromium")
	}
	// What it keeps in the temporary folder it leaves there when it is ended. The path is short, since that of a socket may have 107 bytes.
	dir, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove what the browser left: %v", err)
		}
	})
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, // the tests may be run by root, whom Chromium gives no sandbox
		chromedp.UserDataDir(t.TempDir()), chromedp.Env("TMPDIR="+dir), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WSURLReadTimeout(time.Minute))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), append(options, more...)...)
	t.Cleanup(stop)
	ctx, leave := chromedp.NewContext(ctx)
	t.Cleanup(leave)
	if err := chromedp.Do(ctx); err != nil { // without a time limit, which would be the browser's
		t.Fatalf("start %s: %v", program, err)
	}
	return ctx
}

func find() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	return ""
}
