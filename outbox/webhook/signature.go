package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks (https://www.standardwebhooks.com). They also go by another prefix than
// "webhook" at some senders, with the same three endings.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// DefaultTolerance is how far a signed timestamp may lie from the receiver's clock, in both directions.
const DefaultTolerance = 5 * time.Minute

// Why a signature did not hold. A receiver answers 401 with an empty body to all of them alike; which one it was
// belongs in its log and its metrics.
var (
	ErrNoSecret     = errors.New("no secret to verify with: configure at least one")
	ErrNoSignature  = errors.New("signature header is missing")
	ErrMalformed    = errors.New("signature is not of its scheme's form")
	ErrWrong        = errors.New("signature fits none of the active secrets")
	ErrNotInTime    = errors.New("signed timestamp is too far from this clock")
	ErrSecretFormat = errors.New("a Standard Webhooks secret is base64, with or without whsec_ before it: " +
		"make one with openssl rand -base64 32")
)

// ---- sha256-hex --------------------------------------------------------------------------------------------------

const (
	hexPrefix = "sha256="
	hexLength = len(hexPrefix) + 2*sha256.Size
)

// SignHex returns "sha256=" and the lower-case hex of HMAC-SHA256(secret, body). It covers the raw body and nothing
// else: where the event id matters, it must be in the body.
func SignHex(secret, body []byte) string {
	return hexPrefix + hex.EncodeToString(sum(secret, body))
}

// VerifyHex checks a signature made by SignHex against every active secret; nil: one of them fits. Its form is
// ^sha256=[0-9A-Fa-f]{64}$. What is compared is decoded, in constant time.
func VerifyHex(secrets [][]byte, body []byte, signature string) error {
	if len(secrets) == 0 {
		return ErrNoSecret
	}
	given, err := decodeHex(signature)
	if err != nil {
		return err
	}
	return given.verify(secrets, body)
}

// hexSignature is a decoded signature of the first scheme.
type hexSignature []byte

func decodeHex(signature string) (hexSignature, error) {
	switch {
	case signature == "":
		return nil, ErrNoSignature
	case len(signature) != hexLength || !strings.HasPrefix(signature, hexPrefix):
		return nil, ErrMalformed
	}
	given, err := hex.DecodeString(signature[len(hexPrefix):])
	if err != nil {
		return nil, ErrMalformed
	}
	return given, nil
}

func (given hexSignature) verify(secrets [][]byte, body []byte) error {
	// Every secret is tried, so that the time does not tell which one fits.
	fits := false
	for _, secret := range secrets {
		fits = hmac.Equal(given, sum(secret, body)) || fits
	}
	if !fits {
		return ErrWrong
	}
	return nil
}

// ---- Standard Webhooks -------------------------------------------------------------------------------------------

const (
	standardVersion = "v1,"
	secretPrefix    = "whsec_"
)

// ParseSecret decodes the text of a Standard Webhooks secret: base64, usually with whsec_ before it. Space around it
// is ignored. The error, ErrSecretFormat, does not show the text.
func ParseSecret(text string) ([]byte, error) {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(text), secretPrefix))
	if err != nil || len(secret) == 0 {
		return nil, ErrSecretFormat
	}
	return secret, nil
}

// SignStandard returns the value of HeaderSignature: one v1 signature of "id.timestamp.body" for each secret,
// separated by one space. The timestamp is in whole seconds; sign anew on every attempt, or a late one is refused.
func SignStandard(secrets [][]byte, id string, at time.Time, body []byte) string {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	var b strings.Builder
	for i, secret := range secrets {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(standardVersion)
		b.WriteString(base64.StdEncoding.EncodeToString(standardSum(secret, id, timestamp, body)))
	}
	return b.String()
}

// Standard holds the values of the three headers as they came.
type Standard struct{ ID, Timestamp, Signature string }

// VerifyStandard checks the headers of Standard Webhooks against every active secret; nil: one of them fits.
// Signatures of other versions than v1 are passed over. A tolerance of zero means DefaultTolerance.
func VerifyStandard(secrets [][]byte, s Standard, body []byte, now time.Time, tolerance time.Duration) error {
	if len(secrets) == 0 {
		return ErrNoSecret
	}
	given, err := parseStandard(s)
	if err != nil {
		return err
	}
	return given.verify(secrets, body, now, tolerance)
}

// standardSignature is the three headers, well-formed.
type standardSignature struct {
	Standard
	seconds    int64
	signatures [][]byte
}

func parseStandard(s Standard) (*standardSignature, error) {
	if s.ID == "" || s.Timestamp == "" || s.Signature == "" {
		return nil, ErrNoSignature
	}
	seconds, err := strconv.ParseUint(s.Timestamp, 10, 62)
	if err != nil {
		return nil, fmt.Errorf("%w: the timestamp is not a number of seconds", ErrMalformed)
	}
	given := decodeStandard(s.Signature)
	if len(given) == 0 {
		return nil, ErrMalformed
	}
	return &standardSignature{s, int64(seconds), given}, nil
}

// verify looks at the time last: it is worth something only when it was signed.
func (given *standardSignature) verify(secrets [][]byte, body []byte, now time.Time, tolerance time.Duration) error {
	fits := false
	for _, secret := range secrets {
		want := standardSum(secret, given.ID, given.Timestamp, body)
		for _, got := range given.signatures {
			fits = hmac.Equal(got, want) || fits
		}
	}
	if !fits {
		return ErrWrong
	}
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	// Compared in seconds: the difference of two far times does not fit in a Duration.
	off := now.Unix() - given.seconds
	if off > int64(tolerance/time.Second) || -off > int64(tolerance/time.Second) {
		return ErrNotInTime
	}
	return nil
}

// decodeStandard returns the well-formed v1 signatures of a header's value.
func decodeStandard(value string) [][]byte {
	var given [][]byte
	for part := range strings.SplitSeq(value, " ") {
		text, ok := strings.CutPrefix(part, standardVersion)
		if !ok || len(text) != base64.StdEncoding.EncodedLen(sha256.Size) {
			continue
		}
		signature, err := base64.StdEncoding.Strict().DecodeString(text)
		if err == nil && len(signature) == sha256.Size {
			given = append(given, signature)
		}
	}
	return given
}

func standardSum(secret []byte, id, timestamp string, body []byte) []byte {
	return sum(secret, []byte(id+"."+timestamp+"."), body)
}

func sum(secret []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, secret)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}
