package jsontext

import (
	"encoding/base64"
	"slices"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// TimeLayout is how times are written: RFC 3339 in UTC, with the microseconds that databases keep and a width that never changes.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

// AppendTime appends a time in TimeLayout, without quotes.
func AppendTime(dst []byte, at time.Time) []byte { return at.UTC().AppendFormat(dst, TimeLayout) }

// AppendString appends s as a JSON string. It escapes the quote, the backslash and control characters alone. What is not valid
// UTF-8 becomes U+FFFD.
func AppendString[T string | []byte](dst []byte, s T) []byte { return appendString(dst, s, false) }

// AppendStringPairs is AppendString with characters beyond U+FFFF escaped as pairs of surrogates, which is how Jackson, the JSON
// library of Kafka Connect, writes UTF-8.
func AppendStringPairs[T string | []byte](dst []byte, s T) []byte { return appendString(dst, s, true) }

func appendString[T string | []byte](dst []byte, s T, pairs bool) []byte {
	dst = append(dst, '"')
	from := 0 // what begins here is still to be copied
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == '"' || c == '\\' {
				dst = appendEscape(append(dst, s[from:i]...), c)
				from = i + 1
			}
			i++
			continue
		}
		r, size := decodeRune(s, i)
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(append(dst, s[from:i]...), "\uFFFD"...)
			from = i + 1
		case pairs && r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			dst = appendUnit(appendUnit(append(dst, s[from:i]...), high), low)
			from = i + size
		}
		i += size
	}
	return append(append(dst, s[from:]...), '"')
}

// decodeRune does not make a string of bytes, or bytes of a string.
func decodeRune[T string | []byte](s T, at int) (rune, int) {
	var room [utf8.UTFMax]byte
	n := copy(room[:], s[at:min(len(s), at+utf8.UTFMax)])
	return utf8.DecodeRune(room[:n])
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return appendUnit(dst, rune(c))
}

// appendUnit escapes one unit of UTF-16.
func appendUnit(dst []byte, u rune) []byte {
	const hex = "0123456789ABCDEF"
	return append(dst, '\\', 'u', hex[u>>12&0xF], hex[u>>8&0xF], hex[u>>4&0xF], hex[u&0xF])
}

// Object writes a JSON object member by member, in the order of the calls, without spaces. It does not notice a name that is
// given twice.
type Object struct{ text []byte }

// NewObject makes room for a number of bytes.
func NewObject(size int) *Object { return &Object{append(make([]byte, 0, size), '{')} }

// Close ends the object and returns its text.
func (o *Object) Close() []byte { return append(o.text, '}') }

// String writes a member that is a string.
func (o *Object) String(name, value string) { o.text = AppendString(o.name(name), value) }

// Int writes a member that is a whole number.
func (o *Object) Int(name string, value int64) { o.text = strconv.AppendInt(o.name(name), value, 10) }

// Raw writes a member that is JSON text already, byte for byte. It must have passed Check.
func (o *Object) Raw(name string, text []byte) { o.text = append(o.name(name), text...) }

// Time writes a member that is a time, as a string in TimeLayout.
func (o *Object) Time(name string, at time.Time) {
	o.text = append(AppendTime(append(o.name(name), '"'), at), '"')
}

// Base64 writes a member that is a string of standard Base64, padded (RFC 4648, 4).
func (o *Object) Base64(name string, data []byte) { o.text = AppendBase64(o.name(name), data) }

func (o *Object) name(name string) []byte {
	if len(o.text) > 1 {
		o.text = append(o.text, ',')
	}
	return append(AppendString(o.text, name), ':')
}

// AppendBase64 appends data as a JSON string of standard Base64.
func AppendBase64(dst, data []byte) []byte {
	dst = slices.Grow(append(dst, '"'), base64.StdEncoding.EncodedLen(len(data))+1)
	return append(base64.StdEncoding.AppendEncode(dst, data), '"')
}
