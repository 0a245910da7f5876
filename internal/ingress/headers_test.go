package ingress

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
)

// brokerHeaders are the names of nats-server 2.15 and nats.go 1.55 that begin with
// Nats-, and some that nobody knows yet.
var brokerHeaders = strings.Fields(`
Nats-Batch-Commit Nats-Batch-Id Nats-Batch-Sequence Nats-Consumer-Stalled Nats-Counter-Sources
Nats-Expected-Last-Msg-Id Nats-Expected-Last-Sequence Nats-Expected-Last-Subject-Sequence
Nats-Expected-Last-Subject-Sequence-Subject Nats-Incr Nats-Last-Consumer Nats-Last-Sequence
Nats-Last-Stream Nats-Marker-Reason Nats-Msg-Size Nats-No-Masking Nats-Num-Pending
Nats-Pending-Bytes Nats-Pending-Messages Nats-Pin-Id Nats-Required-Api-Level Nats-Response-Type
Nats-Rollup Nats-Schedule Nats-Schedule-Next Nats-Schedule-Rollup Nats-Schedule-Source
Nats-Schedule-Target Nats-Schedule-Time-Zone Nats-Schedule-TTL Nats-Scheduler Nats-Sequence
Nats-Server-Xkey Nats-Service-Error Nats-Service-Error-Code Nats-Stream Nats-Stream-Identity
Nats-Stream-Source Nats-Subject Nats-Time-Stamp Nats-Trace-Dest Nats-Trace-Hop Nats-Trace-Only
Nats-Trace-Origin-Account Nats-TTL Nats-UpTo-Sequence
Nats- Nats-X Nats-Msg-Id2 Nats-Msg-Ids Nats-Expected-Streams`)

func TestBrokerHeaders(t *testing.T) {
	for _, name := range brokerHeaders {
		for _, key := range []string{name, strings.ToLower(name), strings.ToUpper(name), "nATS" + name[4:]} {
			h := nats.Header{"X": {"y"}, key: {"1"}}
			if _, r := readHeaders(h, "acme", "_INBOX.x", time.Now()); r == nil || r.Reason != Invalid || r.Wait != NoRetry || !strings.Contains(r.Text, key) {
				t.Errorf("%s: %+v", key, r)
			}
		}
	}
	for _, key := range []string{"nats-msg-id", "NATS-MSG-ID", "Nats-Msg-ID", "nats-expected-stream"} {
		// The broker does not know these spellings; a later one might.
		if _, r := readHeaders(nats.Header{key: {"1"}}, "acme", "", time.Now()); r == nil || r.Reason != Invalid {
			t.Errorf("%s: %+v", key, r)
		}
	}
	for _, key := range []string{"Natsx", "Nats", "X-Nats-Rollup", "Natural-Order"} {
		h := nats.Header{key: {"1", "2"}}
		if _, r := readHeaders(h, "acme", "", time.Now()); r != nil || len(h[key]) != 2 {
			t.Errorf("%s: %+v, kept %v", key, r, h)
		}
	}
	h := nats.Header{"Nats-Expected-Stream": {"FLOWGATE"}}
	if _, r := readHeaders(h, "acme", "", time.Now()); r != nil || h.Get("Nats-Expected-Stream") != "FLOWGATE" {
		t.Errorf("Nats-Expected-Stream: %+v, kept %v", r, h)
	}
}

func TestRequestInfo(t *testing.T) {
	for reply, believed := range map[string]bool{
		"_R_.abc.def": true, "_R_": false, "_R_x.y": false, "_INBOX._R_.x": false, "": false, "r": false, "_r_.x": false,
	} {
		h := nats.Header{"Nats-Request-Info": {`{"acc":"A"}`}, "X": {"y"}}
		_, r := readHeaders(h, "acme", reply, time.Now())
		if believed && (r != nil || len(h) != 1) {
			t.Errorf("reply %q: %+v, kept %v", reply, r, h)
		}
		if !believed && (r == nil || r.Reason != Invalid) {
			t.Errorf("reply %q: believed", reply)
		}
	}
	h := nats.Header{"nats-request-info": {"{}"}}
	if _, r := readHeaders(h, "acme", "_R_.x", time.Now()); r == nil {
		t.Error("nats-request-info, which the broker does not write, was believed")
	}
}

func TestHeaders(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 500_000_000, time.FixedZone("", 2*3600))
	id255 := strings.Repeat("i", 255)
	sized := func(n int) string { return strings.Repeat("v", n-len("NATS/1.0\r\nX: \r\n\r\n")-len("acme/")) }
	for _, c := range []struct {
		name   string
		in     nats.Header
		out    nats.Header // nil: as it came in
		cost   int64       // 0: refused
		due    string      // the deadline, RFC 3339
		reason Reason
		text   string
	}{
		{name: "empty", in: nats.Header{}, cost: 1},
		{name: "kept as sent", in: nats.Header{"a": {"1", "1", ""}, "A": {" é\xff "}, "traceparent": {"00-x"}, "Flowgate-Users": {"u", "v"}}, cost: 1},
		{name: "id", in: nats.Header{"Nats-Msg-Id": {"7"}}, out: nats.Header{"Nats-Msg-Id": {"acme/7"}}, cost: 1},
		{name: "id with another tenant's name", in: nats.Header{"Nats-Msg-Id": {"globex/7"}}, out: nats.Header{"Nats-Msg-Id": {"acme/globex/7"}}, cost: 1},
		{name: "empty id", in: nats.Header{"Nats-Msg-Id": {" "}}, out: nats.Header{}, cost: 1},
		{name: "longest id", in: nats.Header{"Nats-Msg-Id": {id255}}, out: nats.Header{"Nats-Msg-Id": {"acme/" + id255}}, cost: 1},
		{name: "too long an id", in: nats.Header{"Nats-Msg-Id": {id255 + "i"}}, reason: Invalid, text: "255"},
		{name: "id not UTF-8", in: nats.Header{"Nats-Msg-Id": {"\xff"}}, reason: Invalid, text: "UTF-8"},
		{name: "two ids", in: nats.Header{"Nats-Msg-Id": {"1", "2"}}, reason: Invalid, text: "2 times"},
		{name: "cost", in: nats.Header{"Flowgate-Cost": {"1000000"}}, cost: 1_000_000},
		{name: "cost with room around it", in: nats.Header{"Flowgate-Cost": {" 7 "}}, cost: 7},
		{name: "cost 0", in: nats.Header{"Flowgate-Cost": {"0"}}, reason: Invalid, text: "from 1 to 1000000"},
		{name: "cost too high", in: nats.Header{"Flowgate-Cost": {"1000001"}}, reason: Invalid},
		{name: "cost beyond 32 bits", in: nats.Header{"Flowgate-Cost": {"4294967297"}}, reason: Invalid},
		{name: "cost beyond 64 bits", in: nats.Header{"Flowgate-Cost": {"18446744073709551617"}}, reason: Invalid},
		{name: "cost negative", in: nats.Header{"Flowgate-Cost": {"-1"}}, reason: Invalid},
		{name: "cost signed", in: nats.Header{"Flowgate-Cost": {"+1"}}, reason: Invalid},
		{name: "cost empty", in: nats.Header{"Flowgate-Cost": {""}}, reason: Invalid},
		{name: "cost in hexadecimal", in: nats.Header{"Flowgate-Cost": {"0x10"}}, reason: Invalid},
		{name: "cost not whole", in: nats.Header{"Flowgate-Cost": {"1.5"}}, reason: Invalid},
		{name: "cost in words", in: nats.Header{"Flowgate-Cost": {"one\"<"}}, reason: Invalid, text: `"one\"<"`},
		{name: "cost twice", in: nats.Header{"Flowgate-Cost": {"1", "1"}}, reason: Invalid, text: "2 times"},
		{name: "deadline", in: nats.Header{"Flowgate-Deadline": {"2026-05-04T05:00:00.25+02:00"}}, cost: 1, due: "2026-05-04T03:00:00.25Z"},
		{name: "last deadline there is", in: nats.Header{"Flowgate-Deadline": {"9999-12-31T23:59:59-23:59"}}, cost: 1, due: "10000-01-01T23:58:59Z"},
		{
			name: "deadline as a duration", in: nats.Header{"Flowgate-Deadline": {"1m30s"}},
			out: nats.Header{"Flowgate-Deadline": {"2026-05-04T01:03:31.5Z"}}, cost: 1, due: "2026-05-04T01:03:31.5Z",
		},
		{
			name: "deadline past", in: nats.Header{"Flowgate-Deadline": {"-1s"}},
			out: nats.Header{"Flowgate-Deadline": {"2026-05-04T01:02:00.5Z"}}, cost: 1, due: "2026-05-04T01:02:00.5Z",
		},
		{name: "deadline without a unit", in: nats.Header{"Flowgate-Deadline": {"30"}}, reason: Invalid, text: "RFC 3339"},
		{name: "deadline without a zone", in: nats.Header{"Flowgate-Deadline": {"2026-05-04T05:00:00"}}, reason: Invalid},
		{name: "deadline empty", in: nats.Header{"Flowgate-Deadline": {""}}, reason: Invalid},
		{name: "deadline twice", in: nats.Header{"Flowgate-Deadline": {"1s", "1s"}}, reason: Invalid},
		{name: "API key", in: nats.Header{"flowgate-API-key": {"k"}, "Flowgate-Api-Keys": {"x"}}, out: nats.Header{"Flowgate-Api-Keys": {"x"}}, cost: 1},
		{name: "line break", in: nats.Header{"X": {"a\r\nNats-Rollup: all"}}, reason: Invalid, text: "line break"},
		{name: "line feed", in: nats.Header{"X": {"a\n"}}, reason: Invalid},
		{name: "NUL", in: nats.Header{"X": {"a\x00"}}, reason: Invalid},
		{name: "name with a space", in: nats.Header{"Nats-Rollup ": {"all"}}, reason: Invalid, text: "header name"},
		{name: "name with a line break", in: nats.Header{"X: y\r\nNats-Rollup": {"all"}}, reason: Invalid},
		{name: "name not ASCII", in: nats.Header{"é": {"x"}}, reason: Invalid},
		{name: "Nats- with a long s", in: nats.Header{"natſ-Rollup": {"all"}}, reason: Invalid},
		{name: "no name", in: nats.Header{"": {"x"}}, reason: Invalid},
		{name: "largest", in: nats.Header{"X": {sized(65535)}}, cost: 1},
		{name: "too large", in: nats.Header{"X": {sized(65536)}}, reason: TooLarge, text: "65535"},
		{name: "many values too large", in: nats.Header{"X": strings.Split(strings.Repeat("v,", 14000), ",")}, reason: TooLarge},
		{name: "too large with the deadline written out", in: nats.Header{"X": {sized(65535 - len("Flowgate-Deadline: 1s\r\n"))}, "Flowgate-Deadline": {"1s"}}, reason: TooLarge},
	} {
		want := c.out
		if want == nil {
			want = maps.Clone(c.in)
		}
		w, r := readHeaders(c.in, "acme", "_INBOX.x", now)
		if c.reason != "" {
			if r == nil || r.Reason != c.reason || r.Wait != NoRetry || !strings.Contains(r.Text, c.text) {
				t.Errorf("%s: %+v", c.name, r)
			}
			continue
		}
		if r != nil || w.cost != c.cost {
			t.Errorf("%s: cost %d, %+v", c.name, w.cost, r)
		}
		due := ""
		if !w.deadline.IsZero() {
			due = w.deadline.UTC().Format(time.RFC3339Nano)
		}
		if due != c.due {
			t.Errorf("%s: deadline %s, want %s", c.name, due, c.due)
		}
		if fmt.Sprint(c.in) != fmt.Sprint(want) {
			t.Errorf("%s: stored %v, want %v", c.name, c.in, want)
		}
	}
}

// Whatever headers come, those that pass cannot drive the stream, carry no key, fit
// the broker and survive the client library; the deadline stored is the one decided on.
func FuzzHeaders(f *testing.F) {
	for _, name := range brokerHeaders {
		f.Add(name, "1", "Nats-Msg-Id", "7", "_INBOX.x")
	}
	f.Add("Flowgate-Api-Key", "k", "flowgate-API-key", "k", "")
	f.Add("Flowgate-Cost", "9", "Flowgate-Deadline", "30s", "")
	f.Add("Flowgate-Deadline", "9999-12-31T23:59:59-23:59", "Nats-Request-Info", "{}", "_R_.x")
	f.Add("x/y", "a", "X", "\r\nNats-Rollup: all", "")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2, reply string) {
		now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
		h := nats.Header{}
		h[k1] = append(h[k1], v1)
		h[k2] = append(h[k2], v2)
		w, r := readHeaders(h, "acme", reply, now)
		if r != nil {
			if r.Reason != Invalid && r.Reason != TooLarge || !utf8.ValidString(r.Text) || len(r.Text) > 512 {
				t.Errorf("refused with %q: %q", r.Reason, r.Text)
			}
			return
		}
		m := nats.Msg{Subject: "s", Header: h}
		if size := m.Size() - 1; len(h) > 0 && (size == 0 || size > 65535) {
			t.Errorf("%v is sent on in %d bytes", h, size)
		}
		for key, values := range h {
			switch lower := strings.ToLower(key); {
			case lower == "flowgate-api-key":
				t.Errorf("kept the key in %q", key)
			case key == "Nats-Msg-Id":
				if len(values) != 1 || !strings.HasPrefix(values[0], "acme/") {
					t.Errorf("id %q", values)
				}
			case key != "Nats-Expected-Stream" && strings.HasPrefix(lower, "nats-"):
				t.Errorf("let %q in", key)
			}
		}
		if w.cost < 1 || w.cost > 1_000_000 {
			t.Errorf("cost %d", w.cost)
		}
		if v := h.Get("Flowgate-Deadline"); v != "" {
			at, err := time.Parse(time.RFC3339Nano, v)
			if err != nil || !at.Equal(w.deadline) {
				t.Errorf("deadline %v is stored as %q: %v", w.deadline, v, err)
			}
		}
	})
}
