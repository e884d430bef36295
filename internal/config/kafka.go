package config

import (
	"time"

	"github.com/pillarbox-dev/pillarbox/destination/kafka"
	"github.com/pillarbox-dev/pillarbox/envelope"
)

// Kafka is a target in a Kafka cluster. See kafka.Config.
type Kafka struct {
	Brokers        []string          `yaml:"brokers" rule:"required" hint:"name at least one: brokers: [kafka:9092]"`
	Topic          string            `yaml:"topic,omitempty"`
	TopicMap       map[string]string `yaml:"topic_map,omitempty"`
	Envelope       *Envelope         `yaml:"envelope,omitempty"`
	MaxBatch       int               `yaml:"max_batch,omitempty"`
	BatchSize      Size              `yaml:"batch_size,omitempty"`
	MaxRecordSize  Size              `yaml:"max_record_size,omitempty"`
	Linger         Duration          `yaml:"linger,omitempty" rule:"zero"`
	Compression    string            `yaml:"compression,omitempty" oneof:"zstd,lz4,snappy,gzip,none"`
	RequestTimeout Duration          `yaml:"request_timeout,omitempty"`
	ClientID       string            `yaml:"client_id,omitempty"`
	TLS            *KafkaTLS         `yaml:"tls,omitempty"`
	SASL           *SASL             `yaml:"sasl,omitempty"`
}

// KafkaTLS switches TLS on. See kafka.TLS.
type KafkaTLS struct {
	CAFile     string `yaml:"ca_file,omitempty"`
	CertFile   string `yaml:"cert_file,omitempty"`
	KeyFile    string `yaml:"key_file,omitempty"`
	ServerName string `yaml:"server_name,omitempty"`
}

// SASL says who we are to the brokers. See kafka.SASL.
type SASL struct {
	Mechanism    string `yaml:"mechanism" rule:"required" hint:"name one: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER" oneof:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"`
	User         string `yaml:"user,omitempty"`
	PasswordFile string `yaml:"password_file,omitempty"`
	Password     Secret `yaml:"password,omitempty"`
	TokenFile    string `yaml:"token_file,omitempty"`
	Token        Secret `yaml:"token,omitempty"`
}

// Config returns the settings of the destination.
func (k *Kafka) Config() kafka.Config {
	c := kafka.Config{
		Brokers: k.Brokers, Topic: k.Topic, Topics: k.TopicMap, MaxBatch: k.MaxBatch, BatchSize: int(k.BatchSize),
		MaxRecordSize: int(k.MaxRecordSize), Linger: time.Duration(k.Linger), Compression: k.Compression,
		RequestTimeout: time.Duration(k.RequestTimeout), ClientID: k.ClientID,
	}
	c.Envelope, _ = envelope.New(k.Envelope.config(envelope.Kafka)) // checked when it was loaded
	if k.TLS != nil {
		c.TLS = &kafka.TLS{CAFile: k.TLS.CAFile, CertFile: k.TLS.CertFile, KeyFile: k.TLS.KeyFile, ServerName: k.TLS.ServerName}
	}
	if s := k.SASL; s != nil {
		c.SASL = &kafka.SASL{
			Mechanism: kafka.Mechanism(s.Mechanism), User: s.User, PasswordFile: s.PasswordFile, Password: s.Password.Reveal(),
			TokenFile: s.TokenFile, Token: s.Token.Reveal(),
		}
	}
	return c
}

func (d *decoder) checkKafka(path string, k *Kafka) {
	d.checkEnvelope(join(path, "envelope"), k.Envelope, envelope.Kafka)
	if d.failedBelow(path) {
		return
	}
	made, err := kafka.New(k.Config())
	if err != nil {
		d.wrongWithin(path, err)
		return
	}
	made.Close()
}
