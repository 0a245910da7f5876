package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
)

// expired publishes messages that nobody wants any more when they are due, and waits
// until they are dead letters.
func expired(t *testing.T, g gate, environ []string, tenant string, payloads ...string) {
	t.Helper()
	nc, err := nats.Connect(g.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range payloads {
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "ingress." + tenant + ".orders", Data: []byte(p), Header: nats.Header{
			"Flowgate-Deadline": {"2020-01-01T00:00:00Z"}, "Nats-Msg-Id": {fmt.Sprintf("o-%d", i+1)}, "Content-Type": {"text/plain"},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, out, errs := asked(t, environ, "", "dlq", "list", "--json", "--tenant", tenant)
		if strings.Count(out, "\n") == len(payloads) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no dead letters: %s%s", out, errs)
		}
	}
}

func TestDeadLettersFromTheCommandLine(t *testing.T) {
	// Shadow mode admits what is late; one at a time they die in order.
	g := serve(t, "FLOWGATE_ADMIN_TOKEN=s3cr3t", "FLOWGATE_MODE=shadow", "FLOWGATE_CONSUMER_CONCURRENCY=1")
	environ := []string{"USER=ann", "FLOWGATE_ADMIN_LISTEN=" + g.admin, "FLOWGATE_ADMIN_TOKEN=s3cr3t"}
	step := func(args string, code int, out, errs string) {
		t.Helper()
		c, o, e := asked(t, environ, "", strings.Fields(args)...)
		if c != code || since.ReplaceAllString(o, "<time>") != out || !strings.Contains(e, errs) || errs == "" && e != "" {
			t.Errorf("%q: exit %d, want %d\nstdout\n%s\nwant\n%s\nstderr %s, want %s", args, c, code, o, out, e, errs)
		}
	}
	step("dlq list", 0, "", "no dead letters\n")
	step("dlq list --json", 0, "", "")
	expired(t, g, environ, "acme", "one", "two\x1b[2J", "\xff\x00")
	expired(t, g, environ, "globex", "four")

	const header = "SEQ  DIED                  TENANT  TOPIC   CLASS    ATTEMPTS  BYTES  ID          ERROR\n"
	table := func(lines ...string) string {
		s := since.ReplaceAllString(strings.ReplaceAll(header, "DIED                ", "DIED  "), "<time>")
		for _, l := range lines {
			s += l + "\n"
		}
		return strings.Join(strings.Fields(s), " ")
	}
	list := func(args string, lines ...string) {
		t.Helper()
		c, o, e := asked(t, environ, "", strings.Fields(args)...)
		if got := strings.Join(strings.Fields(since.ReplaceAllString(o, "<time>")), " "); c != 0 || got != table(lines...) {
			t.Errorf("%q: exit %d\n%s\nwant\n%s\n%s", args, c, got, table(lines...), e)
		}
	}
	const why = "expired: its Flowgate-Deadline passed while it waited"
	four := "4 <time> globex orders expired 0 4 globex/o-1 " + why
	three := "3 <time> acme orders expired 0 2 acme/o-3 " + why
	two := "2 <time> acme orders expired 0 7 acme/o-2 " + why
	one := "1 <time> acme orders expired 0 3 acme/o-1 " + why
	list("dlq list", four, three, two, one)
	list("dlq list --oldest --limit=2", one, two)
	list("dlq list --tenant globex --class expired --newer-than 1h", four)
	list("dlq list --seq 2-3", three, two)
	list("dlq list --seq 3- --limit 0", four, three)
	step("dlq list --class permanent --older-than 1h", 0, "", "no dead letters")
	if _, _, errs := asked(t, environ, "", "dlq", "list", "--limit=1"); !strings.Contains(errs, "--seq=1-3 goes on from here") {
		t.Errorf("%s", errs)
	}
	_, out, _ := asked(t, environ, "", "dlq", "list", "--json", "--seq=3")
	var d app.DeadLetter
	if err := json.Unmarshal([]byte(out), &d); err != nil || d.Seq != 3 || d.ID != "acme/o-3" || d.Class != "expired" || d.Bytes != 2 {
		t.Errorf("%+v %v", d, err)
	}

	for seq, raw := range map[string]string{"1": "one", "2": "two\x1b[2J", "3": "\xff\x00"} {
		if c, o, e := asked(t, environ, "", "dlq", "show", seq, "--raw"); c != 0 || o != raw || e != "" {
			t.Errorf("exit %d %q %s", c, o, e)
		}
		c, o, _ := asked(t, environ, "", "dlq", "show", seq)
		if c != 0 || strings.ContainsRune(o, 0x1b) || !strings.Contains(o, "header Content-Type") || !strings.Contains(o, "acme/o-"+seq) {
			t.Errorf("exit %d %q", c, o)
		}
		if want := map[string]string{"1": "\n3 bytes\none\n", "2": "\n7 bytes, in base64\ndHdvG1sySg==\n", "3": "\n2 bytes, in base64\n/wA=\n"}[seq]; !strings.HasSuffix(o, want) {
			t.Errorf("%q does not end in %q", o, want)
		}
	}
	_, out, _ = asked(t, environ, "", "dlq", "show", "--json", "3")
	var content app.DeadLetterContent
	if err := json.Unmarshal([]byte(out), &content); err != nil || content.Payload != "/wA=" || !content.Base64 || content.Headers["Content-Type"] == nil {
		t.Errorf("%+v %v", content, err)
	}
	step("dlq show 99", 1, "", "no such dead letter: 99")

	step("dlq replay 1 --reason mended", 0, "dead letter 1 is in the backlog again: acme/o-1\n", "")
	step("dlq replay 1", 1, "", "no such dead letter: 1")
	step("dlq replay --tenant=acme --class=expired", 0, "2 replayed\n", "")
	step("dlq replay --all --json", 0, `{"replayed":1,"skipped":0}`+"\n", "")
	step("dlq replay --all", 0, "0 replayed\n", "")
	step("dlq list", 0, "", "no dead letters\n")

	expired(t, g, environ, "initech", "a", "b", "c", "d")
	step("dlq purge 5", 2, "", "say --yes")
	step("dlq purge 5 --yes", 0, "dead letter 5 is deleted\n", "")
	step("dlq purge 5 --yes", 1, "", "no such dead letter")
	step("dlq purge --seq=6 --yes", 0, "1 purged\n", "")
	step("dlq purge --tenant=initech --yes --json", 0, `{"purged":2,"skipped":0}`+"\n", "")
	step("dlq list", 0, "", "no dead letters\n")

	// Without the token: the list, and no more.
	environ = environ[:2]
	step("dlq list --json", 0, "", "")
	for _, args := range []string{"dlq show 1", "dlq replay --all", "dlq purge --all --yes"} {
		step(args, 1, "", "FLOWGATE_ADMIN_TOKEN")
	}
}

func TestDeadLetterCommandsUsedWrongly(t *testing.T) {
	environ := []string{"FLOWGATE_ADMIN_LISTEN=127.0.0.1:1"}
	for args, want := range map[string]string{
		"dlq":                             "dlq is followed by one of these",
		"dlq lsit":                        "dlq is followed by one of these",
		"dlq list 7":                      `"7" is not understood`,
		"dlq list --class odd":            "permanent, attempts, expired, crashed or unknown",
		"dlq list --older-than 5":         "older_than",
		"dlq list --seq 9-5":              "neither a sequence nor a range",
		"dlq list --seq 0":                "neither a sequence nor a range",
		"dlq list --seq -5":               "neither a sequence nor a range",
		"dlq list --limit -1":             "below 0",
		"dlq list --tenant a.b":           "tenant",
		"dlq show":                        "one sequence",
		"dlq show 1 2":                    "one sequence",
		"dlq show x":                      `"x" is not the sequence`,
		"dlq show 1 --raw --json":         "one sequence",
		"dlq replay":                      "--all",
		"dlq replay 1 --all":              "either sequences or a selection",
		"dlq replay 0":                    `"0" is not the sequence`,
		"dlq purge --yes":                 "--all",
		"dlq purge --all":                 "say --yes",
		"dlq purge 1 --tenant acme --yes": "either sequences or a selection",
	} {
		if code, out, errs := asked(t, environ, "", strings.Fields(args)...); code != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d %s%s", args, code, out, errs)
		}
	}
	if code, out, errs := asked(t, environ, "", "dlq", "list"); code != 1 || out != "" || !strings.Contains(errs, "no gateway answers") {
		t.Errorf("exit %d %s%s", code, out, errs)
	}
	if code, out, _ := asked(t, environ, "", "dlq", "--help"); code != 0 || strings.Count(out, "dlq ") != 4 {
		t.Errorf("exit %d %s", code, out)
	}
}

// The command goes on until the gateway says that nothing is left, and tells what it
// waits for and what stopped it.
func TestReplayGoesOn(t *testing.T) {
	var bodies []string
	answers := []string{
		`{"count":5,"waiting":false,"next":{"tenant":"acme","from":6,"to":20}}`,
		`{"count":0,"waiting":true,"next":{"tenant":"acme","from":6,"to":20}}`,
		`{"count":1,"skipped":2,"why":"dead letter 7 was not written by flowgate","waiting":true,"next":{"tenant":"acme","from":8,"to":20}}`,
		`{"count":4,"next":null}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body app.DeadLetterChange
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		bodies = append(bodies, fmt.Sprintf("%s %s %d-%d by %s", r.URL.Path, body.Tenant, body.From, body.To, body.Author))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answers[len(bodies)-1])
	}))
	defer s.Close()
	code, out, errs := asked(t, []string{"USER=ann"}, "", "dlq", "replay", "--tenant=acme", "--addr", s.URL)
	if code != 1 || out != "10 replayed\n" || strings.Count(errs, "waiting for it to drain") != 1 || !strings.Contains(errs, "2 cannot be replayed and stay; the first: dead letter 7") {
		t.Errorf("exit %d %s%s", code, out, errs)
	}
	const path = "/api/v1/dead-letters/replay acme "
	if got, want := strings.Join(bodies, "\n"), path+"0-0 by ann\n"+path+"6-20 by ann\n"+path+"6-20 by ann\n"+path+"8-20 by ann"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	bodies, answers = nil, []string{`{"count":3,"stopped":"the backlog is full","next":{"from":4}}`}
	code, out, errs = asked(t, nil, "", "dlq", "replay", "--all", "--addr", s.URL)
	if code != 1 || out != "" || !strings.Contains(errs, "3 replayed, the rest stays: the backlog is full") {
		t.Errorf("exit %d %s%s", code, out, errs)
	}
}
