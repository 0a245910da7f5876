// Publishes messages with nats.js and does what refusals ask:
//
//   npm ci
//   node publish.mjs nats://127.0.0.1:4222 ingress.acme.orders order 3

// readme:
import { connect } from "@nats-io/transport-node";
import { jetstream, JetStreamApiError } from "@nats-io/jetstream";

async function publish(js, subject, id, body) {
  for (;;) {
    try {
      return await js.publish(subject, body, { msgID: id });
    } catch (nak) {
      const hint = nak instanceof JetStreamApiError && /retry_after_ms=(\d+)$/.exec(nak.message);
      if (!hint) throw nak; // waiting cannot help, or there was no answer
      console.error(`${id}: ${nak.code}: ${nak.message}`);
      await new Promise((done) => setTimeout(done, Math.max(hint[1], 50))); // then again, under the same id
    }
  }
}
// :readme

const [url, subject, ids, n] = process.argv.slice(2);
const nc = await connect({ servers: url });
const js = jetstream(nc);
try {
  for (let i = 0; i < Number(n); i++) {
    const ack = await publish(js, subject, `${ids}-${i}`, String(i));
    console.log(ack.stream, ack.seq);
  }
} finally {
  await nc.close();
}
