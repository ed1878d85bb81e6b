"""Send numbers to the stream NUMBERS of a NATS, made if it is not there:
`python send_numbers.py ADDRESS FIRST HOW_MANY`. Sent again, they are known to it."""

import asyncio
import json
import sys

import nats


async def send(address, first, many):
    client = await nats.connect(address)
    stream = client.jetstream()
    await stream.add_stream(name="NUMBERS", subjects=["numbers"])
    for n in range(first, first + many):
        known = {"Nats-Msg-Id": str(n)}
        await stream.publish("numbers", json.dumps({"n": n}).encode(), headers=known)
    await client.close()


asyncio.run(send(sys.argv[1], *map(int, sys.argv[2:])))
