// Command flowgate is a message-queue backpressure gateway on NATS JetStream.
// `flowgate help` lists what it does.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(errors.New("interrupted"))
		<-signals
		fmt.Fprintln(os.Stderr, "flowgate: second signal, exiting at once")
		os.Exit(exitFailed)
	}()
	c := cli{environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(c.run(ctx, os.Args[1:]))
}
