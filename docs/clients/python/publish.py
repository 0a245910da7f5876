"""Publishes messages with nats-py and does what refusals ask:

    pip install nats-py
    python publish.py nats://127.0.0.1:4222 ingress.acme.orders order 3
"""

# readme:
import asyncio, re, sys
import nats
from nats.js.errors import APIError

async def publish(js, subject, id, body):
    while True:
        try:
            return await js.publish(subject, body, headers={"Nats-Msg-Id": id})
        except APIError as nak:
            hint = re.search(r"retry_after_ms=(\d+)$", nak.description or "")
            if not hint:
                raise  # waiting cannot help
            print(f"{id}: {nak.err_code}: {nak.description}", file=sys.stderr)
            await asyncio.sleep(max(int(hint[1]), 50) / 1000)  # then again, under the same id
# :readme


async def main(url, subject, ids, n):
    nc = await nats.connect(url)
    js = nc.jetstream()
    try:
        for i in range(int(n)):
            ack = await publish(js, subject, f"{ids}-{i}", str(i).encode())
            print(ack.stream, ack.seq)
    finally:
        await nc.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
