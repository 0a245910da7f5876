// Package browsertest opens pages in a Chromium that ends with its test, and notes what
// they ask for and complain of. Where there is none, the test is skipped; or fails, if
// FLOWGATE_TEST_REQUIRE lists chromium.
package browsertest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds how long anything may take to be seen, on a slow machine.
const patience = 40 * time.Second

// Browser is one process.
type Browser struct{ ctx context.Context }

// Start starts it.
func Start(t testing.TB) *Browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("FLOWGATE_TEST_REQUIRE"), ","), "chromium") {
			t.Fatalf("FLOWGATE_TEST_REQUIRE lists chromium: %v", err)
		}
		t.Skipf("needs chromium: %v", err)
	}
	ctx, cancel := chromedp.NewContext(context.Background(), chromedp.WithAllocatorOptions(chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU))
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("browsertest: %v", err)
	}
	return &Browser{ctx}
}

// View is what a tab looks like.
type View struct {
	Width, Height int64 // 0: 1280 x 900
	Dark, Phone   bool
}

// Tab is a page in a profile of its own.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu        sync.Mutex
	requests  []string
	complains []string
}

// Open opens an address.
func (b *Browser) Open(t testing.TB, address string, v View) *Tab {
	t.Helper()
	tab := &Tab{t: t}
	var cancel context.CancelFunc
	tab.ctx, cancel = chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(tab.note))
	t.Cleanup(cancel)
	if v.Width == 0 {
		v.Width, v.Height = 1280, 900
	}
	scheme := "light"
	if v.Dark {
		scheme = "dark"
	}
	if err := chromedp.Do(tab.ctx); err != nil { // its bound would be the tab's
		t.Fatalf("browsertest: %v", err)
	}
	tab.Do(call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}), call(runtime.Enable, cdp.Empty{}),
		call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: v.Width, Height: v.Height, DeviceScaleFactor: 1, Mobile: v.Phone}),
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
		chromedp.Navigate(address))
	return tab
}

// call is a command of the protocol as an action.
func call[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func (tab *Tab) note(event any) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		tab.requests = append(tab.requests, e.Request.Method+" "+e.Request.URL)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			tab.complains = append(tab.complains, e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		tab.complains = append(tab.complains, exception(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			tab.complains = append(tab.complains, fmt.Sprintf("console.%s %s", e.Type, e.Args[0].Value))
		}
	}
}

func exception(d *runtime.ExceptionDetails) string {
	if d.Exception != nil {
		return d.Text + " " + d.Exception.Description
	}
	return d.Text
}

// Do runs actions, which must succeed.
func (tab *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	tab.t.Helper()
	result(tab, chromedp.Steps(actions...))
}

func result[T any](tab *Tab, a chromedp.Action[T]) T {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		tab.t.Fatalf("%v\n%s", err, strings.Join(tab.Complaints(), "\n"))
	}
	return v
}

// Eval is what an expression gives, promises awaited.
func Eval[T any](tab *Tab, expression string) T {
	tab.t.Helper()
	return result(tab, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Until waits until an expression is true.
func (tab *Tab) Until(expression string) {
	tab.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if Eval[bool](tab, "Boolean("+expression+")") {
			return
		}
		if time.Now().After(end) {
			tab.t.Fatalf("it does not come true: %s\nthe page says: %.2000s\n%s", expression,
				Eval[string](tab, "document.body.innerText"), strings.Join(tab.Complaints(), "\n"))
		}
	}
}

// Says waits until the element of a selector has a text in it.
func (tab *Tab) Says(selector, text string) {
	tab.t.Helper()
	tab.Until(fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q)", selector, text))
}

// Text is what the element of a selector shows.
func (tab *Tab) Text(selector string) string {
	tab.t.Helper()
	return Eval[string](tab, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// Click clicks with the mouse where the element of a selector is.
func (tab *Tab) Click(selector string) {
	tab.t.Helper()
	tab.Do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// Type puts a text in place of a field's, key by key.
func (tab *Tab) Type(selector, text string) {
	tab.t.Helper()
	Eval[any](tab, fmt.Sprintf("document.querySelector(%q).select()", selector))
	tab.Do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Press presses keys, wherever the focus is.
func (tab *Tab) Press(keys string) {
	tab.t.Helper()
	tab.Do(chromedp.KeyEvent(keys))
}

// Shot is a picture of what is in view, or of the whole page.
func (tab *Tab) Shot(whole bool) []byte {
	tab.t.Helper()
	if whole {
		return result(tab, chromedp.FullScreenshot(100))
	}
	return result(tab, chromedp.CaptureScreenshot())
}

// Requests are what was asked for, as method and URL.
func (tab *Tab) Requests() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return slices.Clone(tab.requests)
}

// Complaints are the errors and warnings of the console, what the content policy refused
// among them.
func (tab *Tab) Complaints() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return slices.Clone(tab.complains)
}

// Clean fails the test for each request to another host, and each complaint that has
// none of the parts of expected in it.
func (tab *Tab) Clean(host string, expected ...string) {
	tab.t.Helper()
	for _, r := range tab.Requests() {
		_, address, _ := strings.Cut(r, " ")
		if u, err := url.Parse(address); err != nil || u.Host != host {
			tab.t.Errorf("the page asked for %s, which is not at %s", r, host)
		}
	}
	for _, c := range tab.Complaints() {
		if !slices.ContainsFunc(expected, func(part string) bool { return strings.Contains(c, part) }) {
			tab.t.Errorf("the console says: %s", c)
		}
	}
}
