package consumers

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// aSecret is a secret of so many bytes, all of one value.
func aSecret(bytes int, value byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(value)), bytes)))
}

// The vector of the scheme's own libraries.
func TestSignatureVector(t *testing.T) {
	s, err := newSigner("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := s.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
	if got := (signer{}).sign("id", time.Unix(1, 0), nil); got != "" {
		t.Errorf("without a secret: %s", got)
	}
}

// While a secret is replaced, receivers with the old one and with the new one verify.
func TestEachSecretVerifies(t *testing.T) {
	old, next := aSecret(24, 'a'), aSecret(64, 'b')
	s, err := newSigner(" " + old + "  " + next + " ")
	if err != nil {
		t.Fatal(err)
	}
	payload, now := []byte("\x00\xff any bytes"), time.Now()
	h := http.Header{}
	h.Set("webhook-id", "acme/1")
	h.Set("webhook-timestamp", unixSeconds(now))
	h.Set("webhook-signature", s.sign("acme/1", now, payload))
	for secret, verifies := range map[string]bool{old: true, next: true, aSecret(32, 'c'): false} {
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := hook.Verify(payload, h); (err == nil) != verifies {
			t.Errorf("%s: %v", secret, err)
		}
	}
}

func TestSecretsForm(t *testing.T) {
	for _, right := range []string{"", "  ", aSecret(24, 'x'), aSecret(64, 'x'), aSecret(24, 'x') + " " + aSecret(32, 'y')} {
		if _, err := newSigner(right); err != nil {
			t.Errorf("%q: %v", right, err)
		}
	}
	for name, wrong := range map[string]string{
		"short":          aSecret(23, 'x'),
		"long":           aSecret(65, 'x'),
		"without prefix": strings.TrimPrefix(aSecret(24, 'x'), "whsec_"),
		"another prefix": "whsk_" + strings.TrimPrefix(aSecret(24, 'x'), "whsec_"),
		"no base64":      "whsec_hunter2hunter2hunter2hunter2!hunter2",
		"second":         aSecret(24, 'x') + " hunter2",
		"with a comma":   aSecret(24, 'x') + "," + aSecret(24, 'x'),
	} {
		_, err := newSigner(wrong)
		wantError(t, err, "whsec_", "24 to 64 bytes")
		for _, part := range strings.Fields(wrong) {
			if strings.Contains(err.Error(), strings.TrimPrefix(part, "whsec_")) {
				t.Errorf("%s: the error shows the secret: %v", name, err)
			}
		}
	}
}

func TestSecretInConfig(t *testing.T) {
	for name, c := range map[string]struct {
		url, secret, says string
	}{
		"http":            {"http://h/", aSecret(32, 'x'), ""},
		"https":           {"https://h/", aSecret(32, 'x'), ""},
		"wrong":           {"https://h/", "hunter2", "FLOWGATE_CONSUMER_HTTP_SECRET: secret 1 of 1"},
		"another scheme":  {"sqlite:", aSecret(32, 'x'), "FLOWGATE_CONSUMER_HTTP_SECRET: signs deliveries over HTTP"},
		"nothing to sign": {"stdout:", aSecret(32, 'x'), "FLOWGATE_CONSUMER_HTTP_SECRET"},
	} {
		cfg := testConfig()
		cfg.URL, cfg.HTTPSecret = c.url, c.secret
		err := cfg.Validate()
		if c.says == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantError(t, err, c.says)
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
