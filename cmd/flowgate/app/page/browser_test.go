package page_test

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/app/page/browsertest"
)

// The page in Chromium, against made-up data.
func TestInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	for _, c := range []struct {
		name string
		test func(t *testing.T, b *browsertest.Browser)
	}{
		{"verdicts", verdicts}, {"charts", charts}, {"tenants", tenants}, {"prefix, in the dark", prefixed}, {"phone", phone}, {"token", tokens},
		{"hidden", hidden}, {"lost", lost}, {"buffered", buffered}, {"dead letters", deadLetters}, {"keyboard", keyboard},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, b) })
	}
}

func lightness(tab *browsertest.Tab) int {
	return browsertest.Eval[int](tab, `getComputedStyle(document.body).backgroundColor.match(/\d+/g).reduce((s, v) => s + Number(v), 0)`)
}

func host(f *fake) string { return f.Listener.Addr().String() }

func verdicts(t *testing.T, b *browsertest.Browser) {
	f := serveFake(t, "")
	f.set(func() { f.beat = 50 * time.Millisecond })
	tab := b.Open(t, f.URL+"/", browsertest.View{})
	now := time.Now()
	for _, c := range []struct {
		status            object
		state, word, also string
		detail, outlook   string
	}{
		{object{}, "normal", "Normal", "", "Producers are admitted", "1 h 08 min"},
		{object{"level": "pressured", "pressured_since": now, "signals": []string{"depth", "age"}, "hint_seconds": 12.4, "slots": 1240, "time_to_high_seconds": nil, "drain_seconds": 47.7},
			"pressured", "Pressured since " + now.Format("15:04:05") + " by depth and age", "", "A first try is told to wait 12 s. 1,240 places are promised.", "48 s"},
		{object{"level": "pressured", "mode": "shadow", "time_to_high_seconds": nil}, "pressured", "Pressured", "", "would be refused, and are not", "Not draining"},
		{object{"paused": true, "pause": object{"since": now, "until": now.Add(time.Minute), "author": "ann", "reason": "the <b>index</b>"}, "level": "pressured"},
			"paused", "Paused until " + now.Add(time.Minute).Format("15:04:05") + " by ann", "Also: Pressured", "Reason: the <b>index</b>", ""},
		{object{"paused": true, "pause": object{"since": now}}, "paused", "Paused until resumed", "", "No delivery starts", ""},
		{object{"breaker": "open", "drain_seconds": nil, "time_to_high_seconds": nil}, "breaker", "Breaker open", "", "one at a time is tried", "Not draining"},
		{object{"breaker": "half_open"}, "breaker", "Breaker half open", "", "", ""},
		{object{"stale": true, "sampled_at": now.Add(-time.Minute), "breaker": "open"}, "stale", "Stale sample", "Also: Breaker open",
			"last read at " + now.Add(-time.Minute).Format("15:04:05"), ""},
		{object{"depth": object{"waiting": 0, "in_flight": 0, "delayed": 0, "total": 0}, "oldest_age_seconds": 0, "time_to_high_seconds": nil}, "normal", "Normal", "", "", "Empty"},
		{object{"replica": object{"id": "gate-1", "leader": false, "lost": true}, "sampled_at": now.Add(-time.Minute)}, "stale", "NATS does not answer", "",
			"What is shown was so at " + now.Add(-time.Minute).Format("15:04:05"), ""},
		{object{"replica": object{"id": "gate-2", "leader": false, "lost": true, "active": "gate-1"}}, "stale", "NATS does not answer", "", "cannot tell whether gate-1 still works", ""},
		{object{"level": "pressured", "signals": []string{"storage"}}, "pressured", "Pressured by storage", "", "All are refused until the disk has room.", ""},
		{object{"replica": object{"id": "gate-2", "leader": false, "active": "gate-1 on host-1"}}, "standby", "Standing by", "", "Active is gate-1 on host-1", ""},
	} {
		f.set(func() { f.status = c.status })
		tab.Says("#word", c.word)
		if c.also != "" {
			tab.Says("#also", c.also)
		} else if browsertest.Eval[bool](tab, `document.querySelector("#also").checkVisibility()`) {
			t.Errorf("%s: also says %s", c.word, tab.Text("#also"))
		}
		tab.Says("#detail", c.detail)
		if c.outlook != "" {
			tab.Says("#outlook", c.outlook)
		}
		if state := browsertest.Eval[string](tab, `document.querySelector("#verdict").dataset.state`); state != c.state {
			t.Errorf("%s: the state is %s, want %s", c.word, state, c.state)
		}
	}
	if n := lightness(tab); n < 600 {
		t.Errorf("the background's red, green and blue are %d together", n)
	}
	f.set(func() { f.status = object{} })
	tab.Says("#depth-of", "of 10,000 messages at HIGH, 1 %")
	if text := browsertest.Eval[string](tab, `document.querySelector("#meter").ariaValueText`); text != "60 messages: 56 waiting, 3 in flight, 1 delayed. LOW 8,000, HIGH 10,000, MAX 20,000" {
		t.Error(text)
	}
	numbers(t, tab)
	seconds(t, tab)
	tab.Clean(host(f))
}

// numbers checks how numbers are written.
func numbers(t *testing.T, tab *browsertest.Tab) {
	wants := map[string]string{
		"seconds(null)": "–", "seconds(0)": "0 s", "seconds(0.0000004)": "1 µs", "seconds(0.00042)": "420 µs", "seconds(0.0042)": "4.2 ms", "seconds(0.42)": "420 ms",
		"seconds(1)": "1.0 s", "seconds(9.94)": "9.9 s", "seconds(59.4)": "59 s", "seconds(59.6)": "1 min 00 s", "seconds(3599)": "59 min 59 s", "seconds(3600)": "1 h 00 min",
		"seconds(90000)": "1 d 1 h", "rate(0)": "0/s", "rate(0.3)": "0.3/s", "rate(9.96)": "10/s", "rate(12345.6)": "12,346/s", "rate(null)": "–",
		"count(1234567)": "1,234,567", "count(undefined)": "–", "short(1200)": "1,200", "short(20000)": "20 k", "short(2500000)": "2.5 M",
		"bytes(0)": "0 B", "bytes(1536)": "1.5 KiB", "bytes(5e12)": "4.5 TiB", "time(null)": "–", `time("0001-01-01T00:00:00Z")`: "–", `words("rate_limited")`: "rate limited",
	}
	calls := slices.Sorted(maps.Keys(wants))
	got := browsertest.Eval[[]string](tab, `import("./assets/format.js").then((m) => [m.`+strings.Join(calls, ", m.")+`])`)
	for i, call := range calls {
		if got[i] != wants[call] {
			t.Errorf("%s is %q, want %q", call, got[i], wants[call])
		}
	}
}

// seconds checks what the page keeps of the samples.
func seconds(t *testing.T, tab *browsertest.Tab) {
	got := browsertest.Eval[string](tab, `import("./assets/store.js").then(({ Store }) => {
		const s = new Store();
		const at = (...list) => list.map((n) => ({ at: n * 1000, level: n > 1800 && n < 1804 ? "pressured" : "normal" }));
		s.add(at(1001)); s.add(at(1002)); s.add(at(1002)); s.add(at(1010));
		s.history({ samples: at(1000, 1001, 1003) });
		const told = [s.samples.map((v) => v.at / 1000), s.rows().map((v) => v.hole ? "hole" : v.at / 1000), s.range()];
		s.add(at(1801)); s.add(at(1802)); s.add(at(1805)); s.add(at(1903));
		told.push(s.samples.map((v) => v.at / 1000), s.range(), s.pressured());
		return JSON.stringify(told);
	})`)
	want := `[[1000,1001,1002,1003,1010],[1000,1001,1002,1003,"hole",1010],[890,1010],[1003,1010,1801,1802,1805,1903],[1003,1903],[[1801,1805]]]`
	if got != want {
		t.Errorf("kept\n%s\nwant\n%s", got, want)
	}
}

func charts(t *testing.T, b *browsertest.Browser) {
	f := serveFake(t, "")
	tab := b.Open(t, f.URL+"/", browsertest.View{Width: 1440, Height: 2600})
	tab.Until(`document.querySelectorAll("figure canvas").length === 11`)
	for chart, text := range map[string]string{
		"depth": "HIGH\n10,000", "age": "age", "flow": "admitted", "refusals": "rate limited", "shaper": "effective\n200/s", "lateness": "p99",
		"in-flight": "cap\n4", "heat": "few to many", "latency": "target\n100 ms", "trouble": "dead letters",
	} {
		tab.Says("#chart-"+chart+" .legend", text)
		if !browsertest.Eval[bool](tab, `(() => { const c = document.querySelector("#chart-`+chart+` canvas"); return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v) => v) })()`) {
			t.Errorf("%s: nothing is drawn", chart)
		}
	}
	tab.Says("#transition-table", "pressured")
	tab.Says("#transition-table", "10,000")
	// What the cursor is over is told by every chart.
	before := tab.Text("#chart-flow .legend")
	browsertest.Eval[any](tab, `(() => { const o = document.querySelector("#chart-depth .u-over"); const r = o.getBoundingClientRect();
		o.dispatchEvent(new MouseEvent("mouseenter", {clientX: r.left, clientY: r.top}));
		o.dispatchEvent(new MouseEvent("mousemove", {clientX: r.left + r.width * .4, clientY: r.top + 20, movementX: 1, movementY: 1, bubbles: true})) })()`)
	tab.Until(fmt.Sprintf("document.querySelector('#chart-flow .legend').innerText !== %q", before))
	tab.Says("#chart-refusals .legend", "tenant backlog\n18/s")
	tab.Clean(host(f))
}

func tenants(t *testing.T, b *browsertest.Browser) {
	f := serveFake(t, "")
	f.set(func() { f.tenants = 10_000 })
	tab := b.Open(t, f.URL+"/#tenants", browsertest.View{})
	tab.Says("#tenants .where", "1–20 of 10,000")
	tab.Click("#tenants .pager button:last-child")
	tab.Says("#tenants .where", "21–40 of 10,000")
	tab.Click("#tenants thead th:first-child button")
	tab.Says("#tenants .where", "1–20 of 10,000")
	tab.Until(`document.querySelector("#tenants thead th").ariaSort === "ascending"`)
	tab.Type("#tenant-search", "acme")
	tab.Says("#tenants .where", "1–1 of 1")
	tab.Click("#tenants tbody button")
	tab.Says("#look", "Why was acme refused?")
	tab.Says("#look", "backpressure high 10000")
	tab.Says("#look", "order-4711")
	tab.Press("\x1b")
	tab.Until(`!document.querySelector("#look").open`)
	tab.Type("#tenant-search", "nobody")
	tab.Says("#tenants .empty", "No tenant’s name contains “nobody”.")
	tab.Clean(host(f))
}

func prefixed(t *testing.T, b *browsertest.Browser) {
	f := serveFake(t, "/ops/gate")
	tab := b.Open(t, f.URL+"/ops/gate/", browsertest.View{Dark: true})
	tab.Says("#word", "Normal")
	tab.Until(`document.querySelectorAll("figure canvas").length === 11`)
	tab.Click("#pause")
	tab.Click("#change .main")
	tab.Says("#told", "paused")
	if n := lightness(tab); n > 150 {
		t.Errorf("in the dark, the background's red, green and blue are %d together", n)
	}
	for _, r := range tab.Requests() {
		if !strings.Contains(r, " "+f.URL+"/ops/gate/") {
			t.Errorf("the page left its prefix: %s", r)
		}
	}
	tab.Clean(host(f))
}

func phone(t *testing.T, b *browsertest.Browser) {
	f := serveFake(t, "")
	f.set(func() {
		f.status = object{"name": "flowgate-of-the-billing-department", "paused": true, "level": "pressured", "pause": object{"since": time.Now(),
			"author": strings.Repeat("a-long-name-", 8), "reason": strings.Repeat("reason", 40)}}
	})
	tab := b.Open(t, f.URL+"/", browsertest.View{Width: 390, Height: 844, Phone: true})
	tab.Says("#word", "Paused")
	narrow := func(where string) {
		t.Helper()
		if width := browsertest.Eval[int](tab, "document.documentElement.scrollWidth"); width > 390 {
			t.Errorf("%s: the page is %d px wide", where, width)
		}
	}
	for _, section := range []string{"tenants", "limits", "dead-letters"} {
		browsertest.Eval[any](tab, fmt.Sprintf("document.getElementById(%q).scrollIntoView()", section))
		tab.Until(fmt.Sprintf("document.querySelector('#%s tbody tr')", section))
		narrow(section)
	}
	tab.Click("#tenants tbody button")
	tab.Says("#look", "backpressure high")
	narrow("why")
	tab.Press("\x1b")
	tab.Click("#pause")
	narrow("resume")
	tab.Clean(host(f))
}

func tokens(t *testing.T, b *browsertest.Browser) {
	f := serveFake(t, "")
	f.set(func() { f.token = "s3cret" })
	tab := b.Open(t, f.URL+"/", browsertest.View{})
	tab.Says("#word", "Normal")
	tab.Click("#pause")
	tab.Type("#field-reason", "index \"a\"")
	tab.Type("#field-author", "ann")
	tab.Click("#change .main")
	tab.Says("#change .error", "This gateway asks for its admin token.")
	tab.Type("#field-token", "wrong")
	tab.Click("#change .main")
	tab.Says("#change .error", "This is not the gateway’s admin token.")
	tab.Type("#field-token", "s3cret")
	browsertest.Eval[any](tab, `document.querySelector("#field-for").value = "4h"`)
	tab.Click("#change .main")
	tab.Says("#change .error", "For: 4h is too long for this test.")
	browsertest.Eval[any](tab, `document.querySelector("#field-for").value = "15m"`)
	tab.Click("#change .main")
	tab.Says("#told", "Deliveries are paused.")
	// Entered once.
	browsertest.Eval[any](tab, `document.getElementById("limits").scrollIntoView()`)
	tab.Click(`#limits tr[data-key="live/tenant/acme"] .danger`)
	tab.Type("#field-reason", "done & gone")
	tab.Click("#change .main")
	tab.Says("#told", "The limit of tenant acme is deleted.")
	tab.Click(`#limits tr[data-key="environment/user/a/b"] button`)
	tab.Type("#field-limit", "unlimited")
	tab.Click("#change .main")
	tab.Says("#told", "token-bucket:5/s")
	want := []string{
		`POST /api/v1/pause {"author":"ann","for":"4h","reason":"index \"a\""}`,
		`POST /api/v1/pause {"author":"ann","for":"15m","reason":"index \"a\""}`,
		`DELETE /api/v1/limits/tenant/acme?reason=done+%26+gone&author=ann null`,
		`PUT /api/v1/limits/user/a%2Fb {"author":"ann","limit":"unlimited","reason":""}`,
	}
	f.set(func() {
		if !slices.Equal(f.changes, want) {
			t.Errorf("changes\n%s\nwant\n%s", strings.Join(f.changes, "\n"), strings.Join(want, "\n"))
		}
	})
	if kept := browsertest.Eval[string](tab, `JSON.stringify([localStorage.length, document.cookie, location.href])`); kept != `[0,"","`+f.URL+`/"]` {
		t.Errorf("something is kept outside the tab: %s", kept)
	}
	tab.Clean(host(f), "status of 401", "status of 400")
}

// A page that nobody looks at asks nothing, and fills the gap once somebody does.
func hidden(t *testing.T, b *browsertest.Browser) {
	f := serveFake(t, "")
	tab := b.Open(t, f.URL+"/", browsertest.View{})
	tab.Says("#chart-depth .legend", "HIGH")
	see := func(hidden bool) {
		browsertest.Eval[any](tab, fmt.Sprintf(`Object.defineProperty(document, "hidden", {value: %t, configurable: true}); document.dispatchEvent(new Event("visibilitychange")); null`, hidden))
	}
	see(true)
	time.Sleep(500 * time.Millisecond)
	asked := len(tab.Requests())
	browsertest.Eval[any](tab, `window.drawn = 0; const draw = requestAnimationFrame; window.requestAnimationFrame = (f) => (drawn++, draw(f)); null`)
	time.Sleep(2500 * time.Millisecond)
	var events, history int
	f.set(func() { events, history = f.events, f.history })
	if n, drawn := len(tab.Requests())-asked, browsertest.Eval[int](tab, "drawn"); n > 0 || drawn > 0 || events > 0 {
		t.Errorf("hidden, the page asked %d times and drew %d frames; %d streams are open", n, drawn, events)
	}
	see(false)
	tab.Until("drawn > 0")
	if n := f.asked(history); n != 1 {
		t.Errorf("the history was asked for %d times after the page was hidden, want 1", n)
	}
	tab.Clean(host(f))
}

func lost(t *testing.T, b *browsertest.Browser) {
	f := serveFake(t, "")
	tab := b.Open(t, f.URL+"/", browsertest.View{})
	tab.Says("#word", "Normal")
	f.set(func() { f.gone = true })
	tab.Says("#word", "Connection to the gateway lost")
	tab.Says("#detail", "What is shown was so at")
	var before int
	f.set(func() { f.gone, before = false, f.history })
	tab.Says("#word", "Normal")
	if n := f.asked(before); n != 1 {
		t.Errorf("the history was asked for %d times after the gap, want 1", n)
	}
	// One that stands by has no events.
	f.set(func() {
		f.standby, f.status = true, object{"replica": object{"id": "gate-2", "leader": false, "active": "gate-1"}}
	})
	f.CloseClientConnections()
	tab.Says("#word", "Standing by")
	if !browsertest.Eval[bool](tab, `document.querySelector("#pause").disabled`) {
		t.Error("a gateway that stands by can be paused")
	}
	tab.Clean(host(f), "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE", "ERR_CONNECTION", "status of 503")
}

// A proxy that keeps events for itself takes the page's liveness and nothing else.
func buffered(t *testing.T, b *browsertest.Browser) {
	f := serveFake(t, "")
	f.set(func() { f.kept = true })
	tab := b.Open(t, f.URL+"/", browsertest.View{})
	tab.Says("#word", "Normal")
	tab.Says("#chart-depth .legend", "HIGH\n10,000")
	tab.Clean(host(f))
}

func deadLetters(t *testing.T, b *browsertest.Browser) {
	f := serveFake(t, "")
	f.set(func() { f.token = "s3cret" })
	tab := b.Open(t, f.URL+"/#dead-letters", browsertest.View{Width: 1440, Height: 900})
	tab.Says("#dead-table", "<script>alert(1)</script>")
	tab.Says("#dead-table", "<img src=x onerror=alert(1)>")
	tab.Click(`#dead-table tr[data-key="2"] button:first-child`)
	tab.Says("#change", "What producers sent is guarded")
	tab.Type("#field-token", "s3cret")
	tab.Click("#change .main")
	tab.Says("#look pre", `{"total": 5}`)
	tab.Click("#look .buttons button:first-child")
	tab.Says("#change", "Replay a dead letter")
	tab.Type("#field-reason", "mended")
	tab.Click("#change .main")
	tab.Says("#told", "Dead letter 2 is replayed.")
	tab.Type("#dead-tenant", "globex")
	tab.Says("#purge-all", "Purge this tenant’s…")
	tab.Click("#purge-all")
	tab.Says("#change", "Purge the dead letters of globex")
	tab.Click("#change .main")
	tab.Says("#told", "1 purged.")
	// Typed and clicked in one breath, it means what is in the field.
	tab.Until(`(() => {
		const field = document.querySelector("#dead-tenant")
		field.value = "acme"
		field.dispatchEvent(new Event("input", {bubbles: true}))
		document.querySelector("#purge-all").click()
		return true
	})()`)
	tab.Says("#change", "Purge the dead letters of acme")
	tab.Says("#change", "up to number 2")
	tab.Press("\x1b")
	f.set(func() {
		want := []string{"GET /api/v1/dead-letters/2 null", "POST /api/v1/dead-letters/2/replay?reason=mended null",
			`POST /api/v1/dead-letters/purge {"all":true,"author":"","reason":"","tenant":"globex","to":1}`}
		if !slices.Equal(f.changes, want) {
			t.Errorf("changes %q, want %q", f.changes, want)
		}
	})
	for _, r := range tab.Requests() {
		if u, err := url.Parse(strings.TrimPrefix(r, "GET ")); err == nil && strings.HasSuffix(u.Path, "/x") {
			t.Errorf("what a producer sent became markup: %s", r)
		}
	}
	tab.Clean(host(f), "status of 401")
}

func keyboard(t *testing.T, b *browsertest.Browser) {
	f := serveFake(t, "")
	tab := b.Open(t, f.URL+"/", browsertest.View{Width: 1280, Height: 4000})
	tab.Says("#word", "Normal")
	for _, section := range []string{"tenants", "limits", "dead-letters"} {
		tab.Until(fmt.Sprintf("document.querySelector('#%s tbody tr')", section))
	}
	tab.Press("\t")
	if at := browsertest.Eval[string](tab, "document.activeElement.innerText"); at != "Skip to the state" {
		t.Errorf("the first stop is %q", at)
	}
	for stop := 0; browsertest.Eval[string](tab, "document.activeElement.id") != "pause"; stop++ {
		if stop > 10 {
			t.Fatal("the keyboard does not reach the button")
		}
		tab.Press("\t")
	}
	if outline := browsertest.Eval[string](tab, "getComputedStyle(document.activeElement).outlineStyle"); outline != "solid" {
		t.Errorf("the focus is drawn as %s", outline)
	}
	tab.Press("\r")
	tab.Until(`document.querySelector("#change").open && document.querySelector("#change").contains(document.activeElement)`)
	nameless := `[...document.querySelectorAll("button, input, select, [role=img], [role=meter], [role=region]")].filter((e) => e.checkVisibility() &&
		!(e.ariaLabel || e.labels?.[0]?.innerText || e.innerText?.trim())).map((e) => e.outerHTML).join("\n")`
	if found := browsertest.Eval[string](tab, nameless); found != "" {
		t.Errorf("without a name:\n%s", found)
	}
	tab.Press("\x1b")
	tab.Until(`!document.querySelector("#change").open && document.activeElement.id === "pause"`)
	if found := browsertest.Eval[string](tab, nameless); found != "" {
		t.Errorf("without a name:\n%s", found)
	}
	if n := browsertest.Eval[int](tab, `document.querySelectorAll("th:not([scope])").length`); n > 0 {
		t.Errorf("%d headers do not say of what", n)
	}
	tab.Clean(host(f))
}
