package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pillarbox-dev/pillarbox/relay"
)

// Codes of outcomes, besides those of package envelope and, for errors that have no name here, KAFKA_ and Kafka's own.
const (
	CodeUnknownTopic  = "UNKNOWN_TOPIC"       // reject: there is no such topic
	CodeInvalidTopic  = "INVALID_TOPIC"       // reject: there can be no such topic
	CodeTooLarge      = "RECORD_TOO_LARGE"    // reject: the topic takes no record of that size
	CodeInvalidRecord = "INVALID_RECORD"      // reject: the topic takes no such record
	CodeTopicDenied   = "TOPIC_NOT_ALLOWED"   // reject: we may not write to the topic
	CodeHeaders       = "INVALID_HEADERS"     // reject: the event's headers cannot be read
	CodeNoReplicas    = "NOT_ENOUGH_REPLICAS" // unavailable
	CodeNoLeader      = "NO_LEADER"           // unavailable: the partition is on its way to another broker
	CodeBroker        = "BROKER_ERROR"        // unavailable: its disk, its load, its quota
	CodeProducer      = "PRODUCER_STATE"      // unavailable: the producer was fenced or lost its place, and is made anew
	CodeDial          = "DIAL_FAILED"         // unavailable: no connection
	CodeReset         = "CONNECTION_LOST"     // unavailable
	CodeTLS           = "TLS_FAILED"          // unavailable, paused
	CodeAuth          = "NOT_AUTHENTICATED"   // unavailable, paused
	CodeDenied        = "NOT_AUTHORIZED"      // unavailable, paused: the cluster does not let us produce
	CodeVersion       = "UNSUPPORTED"         // unavailable, paused: the broker cannot do what we need
	CodeConfig        = "CONFIGURATION"       // unavailable, paused: a credential is missing
	CodeTimeout       = "TIMEOUT"             // unavailable: no answer by the deadline
)

// Codes are all that Deliver answers with, for the label of a metric.
func Codes() []string {
	return []string{
		CodeUnknownTopic, CodeInvalidTopic, CodeTooLarge, CodeInvalidRecord, CodeTopicDenied, CodeHeaders, CodeNoReplicas, CodeNoLeader,
		CodeBroker, CodeProducer, CodeDial, CodeReset, CodeTLS, CodeAuth, CodeDenied, CodeVersion, CodeConfig, CodeTimeout,
	}
}

// meaning is what an error of Kafka's means for a delivery.
type meaning struct {
	err       *kerr.Error
	kind      relay.Kind
	code      string
	hint      string
	pause     bool
	uncertain bool
}

const (
	hintLeader  = "it is retried; check the brokers when it stays so"
	hintAuth    = "check sasl: its mechanism, user and credential file"
	hintReplica = "check the brokers that hold the partition, and min.insync.replicas"
)

var meanings = []meaning{
	{err: kerr.UnknownTopicOrPartition, kind: relay.Reject, code: CodeUnknownTopic,
		hint: "create the topic, or map it to one with topic_map, then retry"},
	{err: kerr.UnknownTopicID, kind: relay.Reject, code: CodeUnknownTopic, hint: "create the topic, then retry"},
	{err: kerr.InvalidTopicException, kind: relay.Reject, code: CodeInvalidTopic, hint: topicHint},
	{err: kerr.MessageTooLarge, kind: relay.Reject, code: CodeTooLarge,
		hint: "raise max.message.bytes of the topic and max_record_size, then retry, or discard the event"},
	{err: kerr.RecordListTooLarge, kind: relay.Reject, code: CodeTooLarge,
		hint: "raise segment.bytes of the topic, then retry, or discard the event"},
	{err: kerr.InvalidRecord, kind: relay.Reject, code: CodeInvalidRecord,
		hint: "a compacted topic takes no record without a key, and a timestamp must be near the present: see the topic's settings"},
	{err: kerr.InvalidTimestamp, kind: relay.Reject, code: CodeInvalidRecord,
		hint: "see message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic"},
	{err: kerr.PolicyViolation, kind: relay.Reject, code: CodeInvalidRecord, hint: "ask who set the policy of the cluster"},
	{err: kerr.TopicAuthorizationFailed, kind: relay.Reject, code: CodeTopicDenied,
		hint: "give the relay's user the right WRITE on the topic, then retry"},

	{err: kerr.NotEnoughReplicas, kind: relay.Unavailable, code: CodeNoReplicas, hint: hintReplica},
	{err: kerr.NotEnoughReplicasAfterAppend, kind: relay.Unavailable, code: CodeNoReplicas, hint: hintReplica, uncertain: true},
	{err: kerr.LeaderNotAvailable, kind: relay.Unavailable, code: CodeNoLeader, hint: hintLeader},
	{err: kerr.NotLeaderForPartition, kind: relay.Unavailable, code: CodeNoLeader, hint: hintLeader},
	{err: kerr.FencedLeaderEpoch, kind: relay.Unavailable, code: CodeNoLeader, hint: hintLeader},
	{err: kerr.UnknownLeaderEpoch, kind: relay.Unavailable, code: CodeNoLeader, hint: hintLeader},
	{err: kerr.ReplicaNotAvailable, kind: relay.Unavailable, code: CodeNoLeader, hint: hintLeader},
	{err: kerr.RequestTimedOut, kind: relay.Unavailable, code: CodeTimeout, hint: hintReplica, uncertain: true},
	{err: kerr.KafkaStorageError, kind: relay.Unavailable, code: CodeBroker, hint: "check the disks of the broker"},
	{err: kerr.CorruptMessage, kind: relay.Unavailable, code: CodeBroker, hint: "check the network and the memory of both sides"},
	{err: kerr.ThrottlingQuotaExceeded, kind: relay.Unavailable, code: CodeBroker, hint: "raise the quota of the client"},
	{err: kerr.CoordinatorNotAvailable, kind: relay.Unavailable, code: CodeBroker, hint: hintLeader},
	{err: kerr.CoordinatorLoadInProgress, kind: relay.Unavailable, code: CodeBroker, hint: hintLeader},
	{err: kerr.NetworkException, kind: relay.Unavailable, code: CodeReset, hint: hintLeader, uncertain: true},

	{err: kerr.OutOfOrderSequenceNumber, kind: relay.Unavailable, code: CodeProducer, hint: "the next try has a new producer"},
	{err: kerr.UnknownProducerID, kind: relay.Unavailable, code: CodeProducer, hint: "the next try has a new producer"},
	{err: kerr.InvalidProducerEpoch, kind: relay.Unavailable, code: CodeProducer, hint: "the next try has a new producer"},
	{err: kerr.InvalidProducerIDMapping, kind: relay.Unavailable, code: CodeProducer, hint: "the next try has a new producer"},
	{err: kerr.ProducerFenced, kind: relay.Unavailable, code: CodeProducer, hint: "the next try has a new producer"},

	{err: kerr.SaslAuthenticationFailed, kind: relay.Unavailable, code: CodeAuth, hint: hintAuth, pause: true},
	{err: kerr.UnsupportedSaslMechanism, kind: relay.Unavailable, code: CodeAuth, hint: hintAuth, pause: true},
	{err: kerr.IllegalSaslState, kind: relay.Unavailable, code: CodeAuth, hint: hintAuth, pause: true},
	{err: kerr.ClusterAuthorizationFailed, kind: relay.Unavailable, code: CodeDenied,
		hint: "give the relay's user the right IDEMPOTENT_WRITE on the cluster", pause: true},
	{err: kerr.SecurityDisabled, kind: relay.Unavailable, code: CodeDenied, pause: true,
		hint: "check the security settings of the cluster"},
	{err: kerr.UnsupportedVersion, kind: relay.Unavailable, code: CodeVersion, pause: true,
		hint: "use brokers of version 1.0 or later"},
	{err: kerr.UnsupportedForMessageFormat, kind: relay.Unavailable, code: CodeVersion, pause: true,
		hint: "raise the message format of the topic"},
	{err: kerr.UnsupportedCompressionType, kind: relay.Unavailable, code: CodeVersion, pause: true,
		hint: "choose another compression"},
	{err: kerr.InvalidRequiredAcks, kind: relay.Unavailable, code: CodeVersion, pause: true,
		hint: "the broker does not know acks=all"},
}

// outcomeOf says what an error means for the deliveries that it stopped.
func outcomeOf(err error) relay.Outcome {
	var kafka *kerr.Error
	var missing *credentialError
	text := errorText(err)
	switch {
	case err == nil:
		return unavailable(CodeReset, "the producer ended without an answer: it is retried")
	case errors.As(err, &missing):
		return paused(CodeConfig, missing.Error())
	case isCertificateFault(err):
		return paused(CodeTLS, text+": check tls.ca_file, and that the brokers speak TLS on this port")
	case errors.As(err, &kafka):
		return ofKafka(kafka, text)
	}
	return ofConnection(err, text)
}

func ofKafka(kafka *kerr.Error, text string) relay.Outcome {
	for _, m := range meanings {
		if m.err == kafka {
			return relay.Outcome{Kind: m.kind, Code: m.code, Message: text + ": " + m.hint, Pause: m.pause, Uncertain: m.uncertain}
		}
	}
	out := relay.Outcome{Code: "KAFKA_" + kafka.Message, Message: text, Trouble: true}
	if kafka.Retriable {
		out.Kind = relay.Unavailable
	}
	return out
}

func ofConnection(err error, text string) relay.Outcome {
	var first *kgo.ErrFirstReadEOF
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &first):
		return unavailable(CodeReset, text)
	case errors.As(err, &dns):
		return unavailable(CodeDial, text+": check brokers, and whether this machine resolves the names that they advertise")
	case errors.As(err, &op) && op.Op == "dial", strings.Contains(text, "unable to dial"):
		return unavailable(CodeDial, text+": check that the brokers are up, and the way to the addresses that they advertise")
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable(CodeTimeout, "the brokers did not answer: check them, and the way to them")
	case strings.Contains(text, "SASL"), strings.Contains(text, "sasl"):
		return paused(CodeAuth, text+": "+hintAuth)
	}
	return unavailable(CodeReset, text)
}

// errorText is at most 500 bytes of an error, on one line.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	return fmt.Sprintf("%.500s", text)
}

// interrupted is the outcome of what was under way when the context ended. A broker that does not answer says nothing about the
// event, so none is charged for it: what a broker does not want it refuses.
func interrupted(ctx context.Context, written bool) relay.Outcome {
	if errors.Is(context.Cause(ctx), relay.ErrShutdown) {
		return relay.Outcome{Kind: relay.Released, Uncertain: written}
	}
	return relay.Outcome{Kind: relay.Unavailable, Code: CodeTimeout, Uncertain: written,
		Message: "no answer by the deadline: check the brokers, or raise timeout, and relay.lease to one and a half of it"}
}

// isRecordFault: the broker refuses a batch because of some record in it, or because of its size.
func isRecordFault(err error) bool {
	for _, fault := range []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.PolicyViolation,
	} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}

func isUnknownTopic(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

// isUnknownPartition: the client knows fewer partitions than the record was meant for. Nothing was sent; franz-go has no name for it.
func isUnknownPartition(err error) bool {
	return strings.Contains(err.Error(), "invalid record partitioning choice")
}

// isFinalFault: another connection would fail in the same way.
func isFinalFault(err error) bool { return outcomeOf(err).Pause }

// isCertificateFault: one side does not trust the other's certificate, or does not speak TLS.
func isCertificateFault(err error) bool {
	var verification *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	var op *net.OpError
	return errors.As(err, &verification) || errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &record) ||
		errors.As(err, &op) && op.Op == "remote error"
}

func reject(code, message string) *relay.Outcome {
	return &relay.Outcome{Kind: relay.Reject, Code: code, Message: message}
}

func unavailable(code, message string) relay.Outcome {
	return relay.Outcome{Kind: relay.Unavailable, Code: code, Message: message}
}

// paused is Unavailable where waiting mends nothing.
func paused(code, message string) relay.Outcome {
	return relay.Outcome{Kind: relay.Unavailable, Code: code, Message: message, Pause: true}
}
