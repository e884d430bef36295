package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pillarbox-dev/pillarbox/internal/serverlog"
)

// Broker is one server of a cluster. Its methods are not to be called at the same time.
type Broker struct {
	// ID is node.id, from 1 on.
	ID int
	// Addr is where clients reach it. It stays the same over restarts.
	Addr string
	// SecuredAddr is where it takes those who authenticate: by PLAIN as relay with the password right, by OAUTHBEARER with an
	// unsecured token, by SCRAM as whom AddUser made. There it advertises itself alone.
	SecuredAddr string

	cluster    *Cluster
	controller string // where brokers reach it as a controller
	behind     string // where the proxy reaches it
	dir, heap  string
	process    *process // nil while it is down
}

func newBroker(c *Cluster, id int, dir, heap string) (*Broker, error) {
	b := &Broker{ID: id, cluster: c, dir: dir, heap: heap}
	for _, addr := range []*string{&b.Addr, &b.SecuredAddr, &b.controller, &b.behind} {
		var err error
		if *addr, err = freeAddr(); err != nil {
			return nil, err
		}
	}
	return b, os.MkdirAll(dir, 0o755)
}

// settings are what differs from the server's own defaults.
func (b *Broker) settings(brokers int, bootstrap string, proxy *Proxy) map[string]string {
	replicas := strconv.Itoa(min(brokers, 3))
	all := map[string]string{
		"process.roles":                            "broker,controller",
		"node.id":                                  strconv.Itoa(b.ID),
		"controller.quorum.bootstrap.servers":      bootstrap,
		"listeners":                                "DIRECT://" + b.Addr + ",SECURED://" + b.SecuredAddr + ",CONTROLLER://" + b.controller,
		"advertised.listeners":                     "DIRECT://" + b.Addr + ",SECURED://" + b.SecuredAddr + ",CONTROLLER://" + b.controller,
		"listener.security.protocol.map":           "DIRECT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_PLAINTEXT",
		"inter.broker.listener.name":               "DIRECT",
		"controller.listener.names":                "CONTROLLER",
		"log.dirs":                                 filepath.Join(b.dir, "data"),
		"auto.create.topics.enable":                "false",
		"default.replication.factor":               replicas,
		"offsets.topic.replication.factor":         replicas,
		"offsets.topic.num.partitions":             "1",
		"transaction.state.log.replication.factor": replicas,
		"transaction.state.log.min.isr":            "1",
		"group.initial.rebalance.delay.ms":         "0",
		// A broker that was killed is noticed after this.
		"broker.session.timeout.ms":    "3000",
		"broker.heartbeat.interval.ms": "500",

		"listener.name.secured.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		"listener.name.secured.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required " +
			`user_relay="right";`,
		"listener.name.secured.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"listener.name.secured.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"listener.name.secured.oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule " +
			`required unsecuredLoginStringClaim_sub="relay";`,
	}
	if proxy != nil {
		all["listeners"] += ",PROXIED://" + b.behind
		all["advertised.listeners"] += ",PROXIED://" + proxy.Addr
	}
	return all
}

func (b *Broker) propertiesFile() string { return filepath.Join(b.dir, "server.properties") }

func (b *Broker) writeSettings(settings map[string]string) error {
	return errors.Join(writeProperties(b.propertiesFile(), settings), writeLogging(b.dir))
}

// LogFile returns the path of the broker's log.
func (b *Broker) LogFile() string { return filepath.Join(b.dir, "log") }

// PID returns the process id; 0 while the broker is down.
func (b *Broker) PID() int {
	if b.process == nil {
		return 0
	}
	return b.process.pid
}

// Up starts a broker that is down. It returns when the broker takes connections.
func (b *Broker) Up() error {
	if b.process != nil {
		return nil
	}
	logStart := serverlog.Size(b.LogFile())
	p, err := b.launch()
	if err != nil {
		return fmt.Errorf("start Kafka: %w", err)
	}
	b.process = p
	if err := b.awaitReady(p); err != nil {
		err = fmt.Errorf("start Kafka: %w\n%s", err, serverlog.Tail(b.LogFile(), logStart))
		return errors.Join(err, b.Kill())
	}
	return nil
}

func (b *Broker) launch() (*process, error) {
	return startJava(b.dir, b.LogFile(), append(tuning(b.heap),
		"-Dlog4j2.configurationFile=file:"+filepath.Join(b.dir, "log4j2.properties"),
		"-cp", filepath.Join(b.cluster.lib, "*"), "kafka.Kafka", b.propertiesFile()))
}

// tuning lets a small broker start fast, and one that is given memory run fast, with the options of Kafka's own start script.
func tuning(heap string) []string {
	if strings.HasSuffix(heap, "g") {
		return []string{"-Xms" + heap, "-Xmx" + heap, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"}
	}
	return []string{"-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}
}

func (b *Broker) awaitReady(p *process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.Addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.done:
			return errors.New("the broker ended at once; its log says why")
		case <-ctx.Done():
			return fmt.Errorf("no connection within %v: %w", startTimeout, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop takes the broker down in good order: leadership moves away first, where there is somebody to take it.
func (b *Broker) Stop() error { return b.end(syscall.SIGTERM) }

// Kill ends the broker as a crash does. Its data stay.
func (b *Broker) Kill() error { return b.end(syscall.SIGKILL) }

func (b *Broker) end(signal syscall.Signal) error {
	if b.process == nil {
		return nil
	}
	err := b.process.end(signal)
	if err == nil {
		b.process = nil
	}
	return err
}

// Restart takes the broker down in good order and up again, on the same port with the same data.
func (b *Broker) Restart() error {
	if err := b.Stop(); err != nil {
		return err
	}
	return b.Up()
}
