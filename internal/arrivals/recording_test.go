package arrivals

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestReadRecording(t *testing.T) {
	const text = "# recorded by flowgate\nat_us,tenant,topic,bytes,again\n2000,globex,bills.paid,1024,1\n\n0,acme,orders,,\n# 12 tries are missing\n# 3 tries are missing\n5,acme,\"a,\"\"b\",0,0\n"
	want := []Try{
		{Arrival{0, "acme", "orders", 256}, false, false},
		{Arrival{5 * time.Microsecond, "acme", `a,"b`, 0}, false, true},
		{Arrival{2 * time.Millisecond, "globex", "bills.paid", 1024}, true, true},
	}
	for name, in := range map[string]string{"plain": text, "Windows": strings.ReplaceAll(text, "\n", "\r\n"), "a byte order mark": "\ufeff" + text, "no last newline": strings.TrimSuffix(text, "\n"), "gzip": zipped(text)} {
		got, err := ReadRecording(strings.NewReader(in))
		if err != nil || !slices.Equal(got.Tries, want) || got.Missing != 15 || got.Cut != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if !IsRecording([]byte(in)) {
			t.Errorf("%s is not taken for a recording", name)
		}
	}
	if got, err := ReadRecording(strings.NewReader("tenant,at_us\nacme,7\n")); err != nil || !slices.Equal(got.Tries, []Try{{Arrival{7 * time.Microsecond, "acme", "orders", 256}, false, false}}) || got.NoIDs {
		t.Errorf("two columns in another order: %+v, %v", got, err)
	}
	for text, want := range map[string]bool{"at_us,tenant,again\n1,a,\n2,a,\n": true, "at_us,tenant,again\n1,a,\n2,a,0\n": false, "at_us,tenant,again\n": false} {
		if got, err := ReadRecording(strings.NewReader(text)); err != nil || got.NoIDs != want {
			t.Errorf("%q: no ids: %t, %v", text, got.NoIDs, err)
		}
	}
	if IsRecording([]byte("seed: 7\ngroups: []\n")) {
		t.Error("a pattern is taken for a recording")
	}
}

func zipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.String()
}

func TestRecordingRefuses(t *testing.T) {
	const head = "at_us,tenant,topic,bytes,again\n"
	for text, says := range map[string]string{
		"":                                       "it is empty; the first line names the columns",
		"at_us,tenant,size\n":                    `line 1: "size" is no column; the columns are at_us,tenant,topic,bytes,again`,
		"at_us,at_us,tenant\n":                   "line 1: the column at_us is there twice",
		"at_us,topic\n":                          "line 1: the column tenant is missing",
		head + "1,a,b,2,\n1,a,b,2\n":             "line 3: 4 fields in place of 5",
		head + "-1,a,b,2,\n":                     `line 2: at_us: "-1"`,
		head + "1.5,a,b,2,\n":                    `line 2: at_us: "1.5"`,
		head + "99999999999999999999,a,b,2,\n":   "line 2: at_us",
		head + "1764720000000000,a,b,2,\n":       "they count from the recording's beginning, not from 1970",
		head + "1,a.b,b,2,\n":                    `line 2: tenant: "a.b" is none`,
		head + "1,a,b.c,2,\n1,b.c,a,2,\n":        `line 3: tenant: "b.c" is none`,
		head + "1,a,b..c,2,\n":                   `line 2: topic: "b..c" is none`,
		head + "1,a,b,99999999,\n":               `line 2: bytes: "99999999" is not a whole number up to 67108864`,
		head + "1,,b,2,\n":                       `line 2: tenant: "" is none`,
		head + "1,a b,b,2,\n":                    `line 2: tenant: "a b" is none`,
		head + "1,a,b,-2,\n":                     `line 2: bytes: "-2"`,
		head + "1,a,b,2,yes\n":                   `line 2: again: "yes"`,
		head + "1,a,\"b,2,\n":                    "line 2: a quoted field",
		head + "# -3 tries are missing\n":        "line 2:",
		strings.Repeat("x", 100_000):             "line 1 is over 65536 bytes",
		"\x1f\x8bxx":                             "it begins as gzip does and is none",
		zipped(head) + "rubbish, and more of it": "line 2: gzip",
	} {
		if _, err := ReadRecording(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %v, want %q", text, err, says)
		}
	}
}

// Whatever is cut off at the end, what stands before is read.
func TestACutRecording(t *testing.T) {
	const n = 100
	whole := AppendHead(nil)
	head := len(whole)
	for i := range n {
		whole = AppendTry(whole, Try{Arrival{time.Duration(i) * time.Millisecond, "acme", "orders", 256}, false, false})
	}
	for cut := head; cut < len(whole); cut++ {
		part := string(whole[:cut])
		got, err := ReadRecording(strings.NewReader(part))
		lines := strings.Count(part, "\n") - 1
		if err != nil || len(got.Tries) < lines || len(got.Tries) > lines+1 {
			t.Fatalf("cut at %d: %d tries, %d are whole; %v", cut, len(got.Tries), lines, err)
		}
		if last := part[strings.LastIndex(part, "\n")+1:]; last != "" && len(got.Tries) == lines && got.Cut == "" {
			t.Fatalf("cut at %d: it is not said", cut)
		}
	}
	pack := zipped(string(whole))
	if got, err := ReadRecording(strings.NewReader(pack[:len(pack)-6])); err != nil || len(got.Tries) != n || got.Cut == "" {
		t.Errorf("gzip without its end: %v", err)
	}
}

// What is written is read again.
func TestRecordingIsReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []Try
		at, missing := time.Duration(0), uint64(0)
		text := AppendHead(nil)
		for range rapid.IntRange(0, 50).Draw(t, "n") {
			at += time.Duration(rapid.IntRange(0, 1e6).Draw(t, "gap")) * time.Microsecond
			try := Try{Arrival{
				at, rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "tenant"),
				rapid.StringMatching(`[^\s\x00.*>]{1,20}(\.[^\s\x00.*>]{1,20})?`).Filter(func(s string) bool { return !strings.Contains(s, "\ufeff") }).Draw(t, "topic"),
				rapid.IntRange(0, 1<<25).Draw(t, "bytes"),
			}, rapid.Bool().Draw(t, "again"), true}
			try.ID = try.Again || rapid.Bool().Draw(t, "id")
			want, text = append(want, try), AppendTry(text, try)
			if rapid.IntRange(0, 9).Draw(t, "full") == 0 {
				missing, text = missing+5, AppendMissing(text, 5)
			}
		}
		until := at + time.Second
		got, err := ReadRecording(bytes.NewReader(AppendUntil(text, until)))
		if err != nil || !slices.Equal(got.Tries, want) || got.Missing != missing || got.Cut != "" || got.Until != until {
			t.Fatalf("%v\n%+v\n%+v", err, got, want)
		}
	})
}

func FuzzReadRecording(f *testing.F) {
	for _, s := range []string{"at_us,tenant,topic,bytes,again\n0,acme,orders,256,1\n", "tenant,at_us\n# 3 tries are missing\na,1", zipped("at_us,tenant\n1,a\n"), "\x1f\x8b", "at_us,tenant\n\"1\",\"a\"\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := ReadRecording(bytes.NewReader(in))
		if err != nil {
			if !strings.Contains(err.Error(), "line ") && !strings.Contains(err.Error(), "empty") && !strings.Contains(err.Error(), "gzip") {
				t.Errorf("the error names no line: %v", err)
			}
			return
		}
		for i, try := range r.Tries {
			if try.Tenant == "" || try.Topic == "" || try.At < 0 || try.Bytes < 0 || i > 0 && try.At < r.Tries[i-1].At {
				t.Errorf("%d: %+v", i, try)
			}
		}
	})
}

func ExampleReadRecording() {
	r, _ := ReadRecording(strings.NewReader("at_us,tenant,bytes\n1500,acme,300\n"))
	fmt.Println(r.Tries[0].At, r.Tries[0].Tenant, r.Tries[0].Bytes)
	// Output: 1.5ms acme 300
}
