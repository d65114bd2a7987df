// What the `cloudevents` SDK of npm reads of HTTP messages: those that ./cloudevents_sdk.py reads, batches too.
//
//   TOOLS=folder-with-node_modules node cloudevents_sdk.mjs < messages.json

import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { join } from "node:path"

const { HTTP } = createRequire(join(process.env.TOOLS, "package.json"))("cloudevents")
const events = JSON.parse(readFileSync(0, "utf8")).flatMap(({ headers, body }) =>
  HTTP.toEvent({ headers, body: Buffer.from(body, "base64").toString() }))
for (const event of events) event.validate()
console.log(JSON.stringify(events))
