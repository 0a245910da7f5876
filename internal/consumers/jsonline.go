package consumers

import (
	"encoding/base64"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// appendLine appends a delivery as one line of JSON. The payload is a string if it is
// UTF-8, else payload_base64 has it; in all other strings what is no UTF-8 becomes
// U+FFFD.
func appendLine(b []byte, d Delivery) []byte {
	b = appendString(append(b, `{"id":`...), d.ID)
	b = appendString(append(b, `,"tenant":`...), d.Tenant)
	b = appendString(append(b, `,"topic":`...), d.Topic)
	b = strconv.AppendUint(append(b, `,"seq":`...), d.Seq, 10)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(d.Attempt), 10)
	if utf8.Valid(d.Payload) {
		b = appendString(append(b, `,"payload":`...), d.Payload)
	} else {
		b = base64.StdEncoding.AppendEncode(append(b, `,"payload_base64":"`...), d.Payload)
		b = append(b, '"')
	}
	b = append(b, `,"headers":{`...)
	var few [8]string // on the stack
	names := few[:0]
	for name := range d.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':', '[')
		for i, v := range d.Headers[name] {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, v)
		}
		b = append(b, ']')
	}
	b = d.AdmittedAt.UTC().AppendFormat(append(b, `},"admitted_at":"`...), time.RFC3339Nano)
	b = d.ReleasedAt.UTC().AppendFormat(append(b, `","released_at":"`...), time.RFC3339Nano)
	return append(b, "\"}\n"...)
}

// appendString appends a JSON string (RFC 8259 7).
func appendString[T string | []byte](b []byte, s T) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += size
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			const digits = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}
