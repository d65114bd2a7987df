// A receiver of Lanekeeper's webhooks with Node's standard library: signature, dedupe, acknowledgement, batches.
// For Node 20 or newer, and as it stands for TypeScript.
//
// RECEIVER_SECRET=whsec_... node receiver.mjs [port] [journal]
import { createHmac, timingSafeEqual } from "node:crypto"
import {
  closeSync, existsSync, fstatSync, fsyncSync, ftruncateSync, openSync, readFileSync, truncateSync, writeSync,
} from "node:fs"
import { createServer } from "node:http"

const toleranceS = 300
const mostBytes = 16 * 1024 * 1024
const keys = process.env.RECEIVER_SECRET.trim().split(/\s+/).map((s) => Buffer.from(s.replace(/^whsec_/, ""), "base64"))
const [port = "3000", journal = "receiver.jsonl"] = process.argv.slice(2)

// The journal is memory and effect in one line, so that they are written together. A line that was cut off does not count.
const lines = existsSync(journal) ? readFileSync(journal, "utf8").split(/(?<=\n)/) : []
const whole = lines.filter((line) => line.endsWith("\n"))
if (whole.length < lines.length) truncateSync(journal, Buffer.byteLength(whole.join("")))
const seen = new Set(whole.map((line) => JSON.parse(line).key))

/** Your work: what it returns is written with the memory of the event, or not at all. */
function handle(event) {
  return { session: event.session, seq: event.seq, data: event.data }
}

/** Whether one of the signatures is ours and the request is not too old. Compares in constant time. */
function verified(headers, body) {
  const [id, timestamp] = [headers["webhook-id"] ?? "", headers["webhook-timestamp"] ?? ""]
  if (!/^\d+$/.test(timestamp) || Math.abs(Date.now() / 1000 - Number(timestamp)) > toleranceS) return false
  const ours = keys.map((key) => createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest())
  const given = (headers["webhook-signature"] ?? "").split(" ").filter((s) => s.startsWith("v1,"))
  const digests = given.map((s) => Buffer.from(s.slice(3), "base64")).filter((digest) => digest.length === 32)
  return ours.some((digest) => digests.some((other) => timingSafeEqual(digest, other)))
}

/** Handles an event once: a repeat does nothing. */
function once(event) {
  const key = JSON.stringify([event.session, event.id, event.replay_id]) // What is replayed is handled anew.
  if (seen.has(key)) return
  const line = JSON.stringify({ key, handled: handle(event) }) + "\n"
  const file = openSync(journal, "a")
  const { size } = fstatSync(file)
  try {
    if (writeSync(file, line) !== Buffer.byteLength(line)) throw new Error("the journal is full")
    fsyncSync(file)
  } catch (error) {
    ftruncateSync(file, size)
    throw error
  } finally {
    closeSync(file)
  }
  seen.add(key)
}

async function receive(request) {
  const chunks = []
  let bytes = 0
  for await (const chunk of request) {
    if ((bytes += chunk.length) > mostBytes) return [413, {}]
    chunks.push(chunk)
  }
  const body = Buffer.concat(chunks)
  if (request.method !== "POST" || !verified(request.headers, body)) return [401, {}]
  const content = JSON.parse(body.toString("utf8"))
  const events = content.batch ?? [content]
  const done = []
  try {
    for (const event of events) {
      once(event)
      done.push(event.id)
    }
  } catch (error) {
    console.error("not handled:", error) // What came before it is accepted; from here on it is sent again.
  }
  const ack = content.batch ? done : done.length === 1
  return [done.length === events.length ? 200 : 503, { accepted: done.length, ack }]
}

const server = createServer(async (request, response) => {
  const [status, content] = await receive(request).catch(() => [500, {}])
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(content))
})
server.listen(Number(port), "127.0.0.1", () => console.log("listening on", server.address().port))
