package app

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/app/page/browsertest"
	"github.com/flowgate/flowgate/internal/consumers"
)

var screenshots = flag.String("screenshots", "", "the directory for TestScreenshots' pictures of the page; empty: none are taken")

// Pictures of the page for the README: usual traffic, a surge, and its drain.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("takes three minutes; make screenshots does it")
	}
	b := browsertest.Start(t)
	r := start(t, "FLOWGATE_ADMIN_LISTEN=127.0.0.1:0", "FLOWGATE_BACKPRESSURE_HIGH=4000", "FLOWGATE_SHAPER_RATE=200/s", "FLOWGATE_SHAPER_ADAPTIVE=on",
		"FLOWGATE_SHAPER_RATE_MIN=20/s", "FLOWGATE_LIMIT_TENANT=token-bucket:150/s,burst=300", "FLOWGATE_LIMIT_TENANT_OVERRIDES=free-*=token-bucket:20/s", "FLOWGATE_SHAPER_WEIGHTS=acme=5,globex=2")
	// A database whose commits take some milliseconds, sometimes more.
	r.sink.answers(func(ctx context.Context, d consumers.Delivery) error {
		time.Sleep(time.Duration((3 + 3*rand.ExpFloat64()) * float64(time.Millisecond)))
		switch n := rand.IntN(2000); {
		case n < 1:
			return consumers.Permanent(errors.New("no such column: totl"))
		case n < 12:
			return errors.New("deadlock detected")
		}
		return nil
	})
	_, js := r.client()
	_, admin := r.Addr()
	usual := flood(t, js, 150, "acme", "globex", "initech", "hooli", "umbrella", "free-ann")
	defer usual()
	save := func(name string, v browsertest.View) {
		tab := b.Open(t, "http://"+admin+"/", v)
		tab.Says("#chart-depth .legend", "HIGH")
		time.Sleep(3 * time.Second) // a few of its seconds
		// A name that says nothing of the machine, also after the next event.
		tab.Until(`(() => {
			const facts = document.querySelector('#facts')
			const name = () => {
				const text = facts.textContent.replace(/replica \S+/, 'replica gateway-1')
				if (text !== facts.textContent) facts.textContent = text
			}
			name()
			new MutationObserver(name).observe(facts, {childList: true, characterData: true, subtree: true})
			return true
		})()`)
		if err := os.WriteFile(filepath.Join(*screenshots, name), tab.Shot(false), 0o644); err != nil {
			t.Fatal(err)
		}
		tab.Clean(admin)
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	surge := flood(t, js, 600, "acme", "globex", "initech", "hooli", "free-bob", "free-ann")
	time.Sleep(45 * time.Second)
	save("page-light.png", browsertest.View{Width: 1360, Height: 1090})
	save("page-dark.png", browsertest.View{Width: 1360, Height: 1090, Dark: true})
	surge()
	time.Sleep(15 * time.Second)
	save("page-phone.png", browsertest.View{Width: 390, Height: 844, Phone: true})
}
