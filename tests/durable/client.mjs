// The protocol's own client, unmodified: what it writes it reads again, in every mode, and a producer's retries add nothing.
// Run by tests/it/durable/client.rs: node client.mjs URL TOKEN. Prints what it saw.
import assert from "node:assert/strict";
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client";

const [base, token] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${token}` };
const say = (what) => console.log(what);

const url = `${base}/v1/ds/runs/team/run-1`;
const handle = await DurableStream.create({ url, headers, contentType: "application/json" });
const tail = await stream({ url, headers, offset: "-1", live: "sse" });
const seen = [];
const followed = new Promise((resolve) => {
    tail.subscribeJson(async (batch) => {
        seen.push(...batch.items);
        if (seen.length === 103) resolve();
    });
});
await handle.append(JSON.stringify({ n: 1 }));
await handle.append(JSON.stringify({ n: 2 }));
const producer = new IdempotentProducer(handle, "p", { autoClaim: true, lingerMs: 1, onError: (error) => { throw error; } });
for (let n = 3; n <= 102; n++) producer.append(JSON.stringify({ n }));
await producer.flush();
await producer.detach?.();
// A second process of the same producer takes over with the next epoch.
const successor = new IdempotentProducer(handle, "p", { epoch: 1, onError: (error) => { throw error; } });
successor.append(JSON.stringify({ n: 103 }));
await successor.flush();
await followed;
assert.deepEqual(seen.map(({ n }) => n), Array.from({ length: 103 }, (_, n) => n + 1));
say("followed");

const whole = await (await stream({ url, headers, live: false })).json();
assert.deepEqual(whole, seen);
const polled = await stream({ url, headers, offset: "now", live: "long-poll" });
const next = new Promise((resolve) => polled.subscribeJson(async (batch) => batch.items.length && resolve(batch.items)));
await handle.append(JSON.stringify({ n: 104 }));
assert.deepEqual(await next, [{ n: 104 }]);
say("polled");
polled.cancel?.();
tail.cancel?.();

const bytes = Uint8Array.from({ length: 600_000 }, (_, n) => (n * 7) % 256);
const binary = `${base}/v1/ds/runs/team/image`;
const image = await DurableStream.create({ url: binary, headers, contentType: "image/png" });
await image.append(bytes);
await image.close?.();
const read = await (await stream({ url: binary, headers, live: false })).body();
assert.deepEqual(read, bytes);
say("bytes");

await image.delete();
await assert.rejects(async () => (await stream({ url: binary, headers, live: false })).body());
say("deleted");
process.exit(0);
