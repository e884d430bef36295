package envelope

import (
	"strings"
	"unicode/utf8"
)

// attributeFault says what is in a text that the type String of CloudEvents forbids (specification 1.0.2, Type System); "":
// nothing.
func attributeFault(text string) string {
	for i, r := range text {
		switch {
		case r < ' ' || r >= 0x7F && r <= 0x9F:
			return "has a control character"
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			return "is not valid UTF-8"
		case r >= 0xFDD0 && r <= 0xFDEF || r&0xFFFE == 0xFFFE:
			return "has a code point that is no character"
		}
	}
	return ""
}

// appendEscaped percent-encodes a value for an HTTP header (HTTP binding 1.0.2, 3.1.3.2): the space, the double quote, the
// percent sign and everything that is not printable ASCII. Nothing else may be encoded.
func appendEscaped(dst []byte, value string) []byte {
	const hex = "0123456789ABCDEF"
	for _, c := range []byte(value) {
		if c <= ' ' || c >= 0x7F || c == '"' || c == '%' {
			dst = append(dst, '%', hex[c>>4], hex[c&0xF])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

// isVisible tells whether a text is printable ASCII without spaces, which a URI is.
func isVisible(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}
