package limits

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowgate/flowgate/internal/algorithms"
)

func TestKeys(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, c := range []struct {
		scope Scope
		key   string
		says  string // empty: it is right
	}{
		{Gateway, "*", ""},
		{Gateway, "x", "only the key *"},
		{Gateway, "", "only the key *"},
		{Service, "*", ""}, {Service, "orders", ""}, {Service, "orders-*", ""}, {Service, "größe", ""},
		{Service, "orders.eu", "not a service"}, {Service, "a b", "not a service"}, {Service, ">", "not a service"}, {Service, "", "is empty"},
		{Tenant, "*", ""}, {Tenant, "acme", ""}, {Tenant, "free-*", ""}, {Tenant, "[a-c]*", ""}, {Tenant, "t?", ""}, {Tenant, long, ""},
		{Tenant, long + "x", "not a tenant"}, {Tenant, "a.b", "not a tenant"}, {Tenant, "a/*", "not a tenant"}, {Tenant, "größe", "not a tenant"},
		{Tenant, "", "is empty"}, {Tenant, "[a", "not a glob"}, {Tenant, "a\x00", "without NUL"},
		{User, "*", ""}, {User, "ann@example.org", ""}, {User, "a/b c", ""}, {User, `DOMAIN\ann`, ""}, {User, "größe", ""}, {User, "*@example.org", ""},
		{User, strings.Repeat("x", 255), ""}, {User, strings.Repeat("x", 256), "too long"}, {User, "\xff", "UTF-8"}, {User, "a\x00b", "without NUL"}, {User, "[", "not a glob"},
		{IP, "*", ""}, {IP, "192.0.2.7", ""}, {IP, "2001:db8::7", ""}, {IP, "192.0.2.*", ""}, {IP, "2001:db8:*", ""},
		{IP, "2001:DB8::7", "written 2001:db8::7"}, {IP, "::ffff:192.0.2.7", "written 192.0.2.7"}, {IP, "192.0.2.07", "not an address"},
		{IP, "192.0.2.0/24", "not an address"}, {IP, "fe80::1%eth0", "not an address"}, {IP, "host*", "not an address"},
		{APIKey, "*", ""}, {APIKey, "ak-0123456789abcdef", ""},
		{APIKey, "geheim", "flowgate limits fingerprint"}, {APIKey, "ak-0123456789ABCDEF", "fingerprint"}, {APIKey, "ak-*", "fingerprint"},
		{"tennant", "x", "it accepts gateway, service, tenant, user, ip, api_key"}, {"", "x", "it accepts gateway"},
	} {
		err := entry(t, c.scope, c.key, "token-bucket:1/s").Validate()
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %q: %v, want %q", c.scope, c.key, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "geheim") {
			t.Errorf("a secret is shown: %v", err)
		}
		if err != nil {
			continue
		}
		scope, key, err := splitBucketKey(bucketKey(c.scope, c.key))
		if scope != c.scope || key != c.key || err != nil {
			t.Errorf("%s %q comes back from the bucket's key as %s %q, %v", c.scope, c.key, scope, key, err)
		}
	}
}

// The names that the public interface promises.
func TestTheBucketsForm(t *testing.T) {
	if k := bucketKey(Tenant, "acme"); k != "tenant.YWNtZQ" {
		t.Errorf("key %s", k)
	}
	if k := bucketKey(User, "??>"); k != "user.Pz8-" {
		t.Errorf("key %s", k)
	}
	e := entry(t, Tenant, "acme", "token-bucket:100/s")
	e.At = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"scope":"tenant","key":"acme","limit":"token-bucket:100/s","author":"ann","reason":"because","at":"2026-01-02T03:04:05Z"}`
	if string(text) != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	if text, _ = json.Marshal(Entry{Scope: Gateway, Key: "*"}); string(text) != `{"scope":"gateway","key":"*","limit":"unlimited"}` {
		t.Errorf("unlimited is %s", text)
	}
}

func TestTexts(t *testing.T) {
	for _, c := range []struct{ author, reason, says string }{
		{"", "", ""}, {"Ann Über", "ticket #17: “noisy”", ""}, {strings.Repeat("x", 100), strings.Repeat("x", 500), ""},
		{strings.Repeat("x", 101), "", "author: 101 bytes are too long"}, {"", strings.Repeat("x", 501), "reason: 501 bytes are too long"},
		{"a\x1b[31m", "", "author:"}, {"", "two\nlines", "reason:"}, {"\xff", "", "author:"},
	} {
		e := entry(t, Tenant, "acme", "token-bucket:1/s")
		e.Author, e.Reason = c.author, c.reason
		if err := e.Validate(); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q %q: %v, want %q", c.author, c.reason, err, c.says)
		}
	}
}

// Everything that is wrong with an entry is said at once.
func TestAllThatIsWrongIsSaid(t *testing.T) {
	e := entry(t, Tenant, "a.b", "token-bucket:1/s")
	for n := range uint64(8) {
		e.Rules = append(e.Rules, algorithms.Rule{Algorithm: algorithms.TokenBucket, Rate: e.Rules[0].Rate, Burst: n + 2})
	}
	e.Author, e.Reason = "\n", "\n"
	err := e.Validate()
	for _, part := range []string{"key:", "limit: algorithms: 9 limits for one key", "author:", "reason:"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("not %q in %v", part, err)
		}
	}
}

// Whatever lies in a bucket is read as a valid entry of its own place, or refused;
// and what is read is written back as the same.
func FuzzDecode(f *testing.F) {
	for _, key := range []string{"tenant.YWNtZQ", "gateway.Kg", "api_key.Kg", "x", ".", "tenant.YWNtZR", "ip.MTAuMC4wLjE"} {
		for _, value := range []string{
			`{"scope":"tenant","key":"acme","limit":"token-bucket:1/s;token-bucket:5/m,burst=9","author":"a","reason":"b","at":"2026-01-02T03:04:05Z"}`,
			`{"scope":"gateway","key":"*","limit":"unlimited"}`, `{"scope":"ip","key":"10.0.0.1","limit":"token-bucket:0/s"}`, `null`, `{}`, `[]`, `{"limit":1}`, ``,
		} {
			f.Add(key, []byte(value))
		}
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		_ = shownKey(key)
		e, err := decode(key, value)
		if err != nil {
			return
		}
		if err := e.Validate(); err != nil {
			t.Errorf("read, and not valid: %v", err)
		}
		if k := bucketKey(e.Scope, e.Key); k != key {
			t.Errorf("it lies at %s and belongs to %s", key, k)
		}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(key, text)
		if err != nil {
			t.Fatalf("%s is not read again: %v", text, err)
		}
		if diff := cmp.Diff(e, again); diff != "" {
			t.Errorf("written and read (-was +is):\n%s", diff)
		}
	})
}
