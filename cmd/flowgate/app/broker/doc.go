// Package broker is the NATS that the gateway stands on: the embedded server or
// another one, the streams and buckets in it, and the lease that makes one
// process the gateway of a name.
//
//	b, err := broker.Start(ctx, cfg, log)      // the server in this process, or none
//	nc, err := b.Connect("control")            // reconnects for ever
//	assets, err := broker.Ensure(ctx, js, t)   // streams, bucket, consumer
//	lease, err := broker.Acquire(ctx, assets.State, id, b.Embedded(), nil)
//	go lease.Run(ctx)                          // renews; Valid() before each delivery
//	defer b.Close(ctx)
//
// It moves no messages; ingress and shaper do that on the connections made here.
package broker
