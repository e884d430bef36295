package pgtest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// findBin returns the folder of the server's binaries, or an error that says how to get them.
func findBin(bin string) (string, error) {
	if bin == "" {
		bin = os.Getenv("PILLARBOX_PG_BIN")
	}
	if bin == "" {
		bin = newestBin("/usr/lib/postgresql")
	}
	if bin == "" {
		return "", errors.New("no PostgreSQL server found in $PILLARBOX_PG_BIN or /usr/lib/postgresql/*/bin: " +
			"install one (apt-get install postgresql; other versions: internal/pgtest/fetch.sh)")
	}
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return "", fmt.Errorf("no PostgreSQL server in %s (%w): set PILLARBOX_PG_BIN to a folder that holds initdb "+
				"and postgres, or install one (apt-get install postgresql)", bin, err)
		}
	}
	return bin, nil
}

// newestBin picks the bin folder of the highest version below root; "" when there is none.
func newestBin(root string) string {
	entries, _ := os.ReadDir(root)
	newest, bin := -1, ""
	for _, e := range entries {
		version, err := strconv.Atoi(e.Name())
		if err == nil && version > newest {
			newest, bin = version, filepath.Join(root, e.Name(), "bin")
		}
	}
	return bin
}

// account returns who runs the server: nil for the user of this process, or the user postgres when that is root.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no other user for it: "+
			"%w (apt-get install postgresql makes one, or: useradd --system postgres)", err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return nil, fmt.Errorf("the ids of the user postgres: %w", err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// command prepares a program of the server, run by the server's account in its folder and out of reach of a Ctrl-C that is
// meant for the test.
func command(bin, dir, name string, args ...string) (*exec.Cmd, error) {
	who, err := account()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Setpgid: true}
	return cmd, nil
}

// initCluster makes the data folder.
func initCluster(bin, dir, data string) error {
	who, err := account()
	if err != nil {
		return err
	}
	if who != nil {
		if err := os.Chown(dir, int(who.Uid), int(who.Gid)); err != nil {
			return fmt.Errorf("give %s to the user postgres: %w", dir, err)
		}
	}
	cmd, err := command(bin, dir, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C",
		"--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s (the user that runs PostgreSQL must be able to read %s and reach %s)",
			err, strings.TrimSpace(string(out)), bin, dir)
	}
	return nil
}

// writeSettings writes what differs from the server's own defaults, the caller's word last.
func (s *Server) writeSettings(settings map[string]string) error {
	all := map[string]string{
		"listen_addresses":          "127.0.0.1",
		"port":                      strconv.Itoa(s.port),
		"unix_socket_directories":   s.dir,
		"max_connections":           "200",
		"max_prepared_transactions": "64",
	}
	maps.Copy(all, settings)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(all[name], "'", "''"))
	}
	// initdb made postgresql.auto.conf, so it stays the server's own; it is read last and overrides postgresql.conf.
	if err := os.WriteFile(filepath.Join(s.dataDir(), "postgresql.auto.conf"), []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write the settings of PostgreSQL: %w", err)
	}
	return nil
}
