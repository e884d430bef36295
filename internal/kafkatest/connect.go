package kafkatest

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pillarbox-dev/pillarbox/internal/serverlog"
)

// connectPom names Kafka Connect and Debezium's connector for PostgreSQL.
//
//go:embed connect-pom.xml
var connectPom []byte

// DebeziumVersion is that of the connector.
const DebeziumVersion = "3.6.1.Final"

// Connect is a worker of Kafka Connect with one connector, for benchmarks beside it. Its offsets are in a file, which the next worker
// of the same folder goes on from.
type Connect struct {
	log     string
	process *process
}

// StartConnect starts a worker whose files are in a folder of that name. The settings are those of the worker and the connector beyond
// what every one needs.
func (c *Cluster) StartConnect(name string, worker, connector map[string]string) (*Connect, error) {
	lib, err := fetch("debezium-"+DebeziumVersion, "debezium-connector-postgres-*.jar", connectPom)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(c.dir, "connect-"+name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	listen, err := freeAddr()
	if err != nil {
		return nil, err
	}
	all := map[string]string{
		"bootstrap.servers": strings.Join(c.DirectSeeds(), ","), "listeners": "http://" + listen,
		"offset.storage.file.filename": filepath.Join(dir, "offsets"), "plugin.discovery": "only_scan",
	}
	maps.Copy(all, worker)
	workerFile, connectorFile := filepath.Join(dir, "worker.properties"), filepath.Join(dir, "connector.properties")
	for file, settings := range map[string]map[string]string{workerFile: all, connectorFile: connector} {
		if err := writeProperties(file, settings); err != nil {
			return nil, err
		}
	}
	if err := writeLogging(dir); err != nil {
		return nil, err
	}
	k := &Connect{log: filepath.Join(dir, "log")}
	k.process, err = startJava(dir, k.log, []string{"-Xmx2g",
		"-Dlog4j2.configurationFile=file:" + filepath.Join(dir, "log4j2.properties"), "-cp", filepath.Join(lib, "*"),
		"org.apache.kafka.connect.cli.ConnectStandalone", workerFile, connectorFile})
	if err != nil {
		return nil, fmt.Errorf("start Kafka Connect: %w", err)
	}
	return k, nil
}

// Ended is closed when the worker has ended.
func (k *Connect) Ended() <-chan struct{} { return k.process.done }

// Log returns the end of what the worker has logged.
func (k *Connect) Log() string { return serverlog.Tail(k.log, 0) }

// Kill ends the worker as a crash does; the next one goes on from the offsets that were written last. A stop in good order would wait
// for the connector's threads, with Debezium for as long as its executor.shutdown.timeout.ms says.
func (k *Connect) Kill() error { return k.process.end(syscall.SIGKILL) }
