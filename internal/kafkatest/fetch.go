package kafkatest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// pom names the version of Kafka and what it needs.
//
//go:embed pom.xml
var pom []byte

const version = "4.3.1"

// fetch returns a folder of jars: $PILLARBOX_KAFKA_LIB, if one of them has that name, or one in .cache of the repository, where
// Maven puts what the pom names, once. Several processes may ask at the same time.
func fetch(name, jar string, pom []byte) (string, error) {
	if lib := os.Getenv("PILLARBOX_KAFKA_LIB"); lib != "" {
		if jars, _ := filepath.Glob(filepath.Join(lib, jar)); len(jars) == 0 {
			return "", fmt.Errorf("no %s in PILLARBOX_KAFKA_LIB=%s: name the libs folder of Kafka %s, or unset it", jar, lib, version)
		}
		return lib, needs("java", "default-jre-headless")
	}
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	if err := needs("java", "default-jdk-headless"); err != nil {
		return "", err
	}
	lib := filepath.Join(cache, name)
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	unlock, err := lock(lib + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(lib); err == nil {
		return lib, nil // another process was faster
	}
	if err := needs("mvn", "maven"); err != nil {
		return "", err
	}
	return lib, download(lib, pom)
}

func needs(program, debian string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("the tests run a real Apache Kafka %s, which needs %s: %w (apt-get install %s)", version, program, err, debian)
	}
	return nil
}

// download lets the folder appear as a whole or not at all.
func download(lib string, pom []byte) error {
	work := lib + ".part"
	if err := errors.Join(os.RemoveAll(work), os.MkdirAll(work, 0o755)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), "mvn", "-B", "-q", "-f", filepath.Join(work, "pom.xml"),
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies", "-DoutputDirectory="+filepath.Join(work, "lib"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch Apache Kafka %s with Maven: %w (is its repository reachable?)\n%s", version, err, out)
	}
	if err := os.Rename(filepath.Join(work, "lib"), lib); err != nil {
		return err
	}
	return os.RemoveAll(work)
}

// cacheFolder is .cache beside go.work, which git ignores.
func cacheFolder() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			cache := filepath.Join(dir, ".cache")
			return cache, os.MkdirAll(cache, 0o755)
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("there is no go.work at or above %s: run this within the repository, or set PILLARBOX_KAFKA_LIB", start)
		}
	}
}

// lock waits for the file's lock, which ends with the process too.
func lock(name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}
