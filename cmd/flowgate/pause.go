package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"time"

	"github.com/flowgate/flowgate/cmd/flowgate/app"
)

func pauseCommands() []command {
	return []command{
		{
			name: "pause", args: "[options]", run: cli.pause,
			meaning: "start no more deliveries; producers are served until the backlog is full",
			more: `Deliveries in flight end. The pause holds when the command returns, over restarts, and until
"flowgate resume" or the time that is given. Once more, it changes that time and the reason.

  flowgate pause --for=30m --reason='index build'

  --for=<duration>  end by itself after that
  --until=<time>    end by itself then: 2026-03-01T06:00:00Z
  --reason=<text>   why, for those who read the status
  --author=<name>   who; $USER otherwise
` + addrHelp,
		},
		{
			name: "resume", args: "[options]", run: cli.resume,
			meaning: "end a pause; deliveries go on at their rate, without a burst",
			more: `  --reason=<text>   why, for the log
  --author=<name>   who; $USER otherwise
` + addrHelp,
		},
	}
}

// paused is how the gateway answers both; Paused is missing in another's answer.
type paused struct {
	Paused *bool `json:"paused"`
	app.PauseAnswer
}

func (c cli) pause(ctx context.Context, f *flag.FlagSet, args []string) error {
	var body app.PauseBody
	f.StringVar(&body.For, "for", "", "end by itself after that")
	f.StringVar(&body.Until, "until", "", "end by itself then")
	f.StringVar(&body.Reason, "reason", "", "why, for those who read the status")
	f.StringVar(&body.Author, "author", c.author(), "who")
	client := c.addrFlag(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if _, err := body.Pause(time.Time{}); err != nil {
		return usageError{err}
	}
	answer, err := changePause(ctx, client, "/api/v1/pause", body, true)
	if err != nil {
		return err
	}
	end := "`flowgate resume`"
	if until := answer.Pause.Until; !until.IsZero() {
		end = until.UTC().Format(time.RFC3339)
	}
	again := ""
	if answer.Was != nil {
		again = fmt.Sprintf("; they were already, since %s", answer.Was.Since.UTC().Format(time.RFC3339))
	}
	_, err = fmt.Fprintf(c.stdout, "deliveries are paused until %s%s\n", end, again)
	return err
}

func (c cli) resume(ctx context.Context, f *flag.FlagSet, args []string) error {
	var body app.ResumeBody
	f.StringVar(&body.Reason, "reason", "", "why, for the log")
	f.StringVar(&body.Author, "author", c.author(), "who")
	client := c.addrFlag(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if err := body.Validate(); err != nil {
		return usageError{err}
	}
	answer, err := changePause(ctx, client, "/api/v1/resume", body, false)
	if err != nil {
		return err
	}
	said := "deliveries were not paused"
	if was := answer.Was; was != nil {
		said = fmt.Sprintf("deliveries go on; they were paused since %s", was.Since.UTC().Format(time.RFC3339))
		if was.Author != "" {
			said += " by " + plain(was.Author)
		}
		if was.Reason != "" {
			said += ": " + plain(was.Reason)
		}
	}
	_, err = fmt.Fprintln(c.stdout, said)
	return err
}

// changePause sends a change and reads what holds then.
func changePause(ctx context.Context, client func() (*adminClient, error), path string, body any, want bool) (app.PauseAnswer, error) {
	gateway, err := client()
	if err != nil {
		return app.PauseAnswer{}, err
	}
	gateway.again = "doing it again is safe"
	var answer paused
	if err := gateway.do(ctx, http.MethodPost, path, body, &answer); err != nil {
		return app.PauseAnswer{}, err
	}
	if answer.Paused == nil || *answer.Paused != want || (answer.Pause != nil) != want {
		return app.PauseAnswer{}, gateway.other(`it tells no "paused"`)
	}
	return answer.PauseAnswer, nil
}
