// A client made with the `@a2a-js/sdk` of npm: it carries out the steps of ./a2a_client.py.
//
//   TOOLS=folder-with-node_modules node a2a_client.mjs URL TOKEN < steps.json

import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { join } from "node:path"

const require = createRequire(join(process.env.TOOLS, "package.json"))
const { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } = require("@a2a-js/sdk/client")
const { SendMessageRequest, StreamResponse, Task } = require("@a2a-js/sdk")

const [url, token] = process.argv.slice(2)
const fetchImpl = (to, init = {}) => {
  const headers = new Headers(init.headers)
  headers.set("Authorization", `Bearer ${token}`)
  return fetch(to, { ...init, headers })
}
const factory = new ClientFactory({
  ...ClientFactoryOptions.default,
  transports: [new JsonRpcTransportFactory({ fetchImpl })],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
})
const client = await factory.createFromUrl(`${url}/.well-known/agent-card.json`, "")

const request = ({ id, text, context = "", immediately = false }) => SendMessageRequest.fromJSON({
  message: { messageId: id, contextId: context, role: "ROLE_USER", parts: [{ text }] },
  configuration: { returnImmediately: immediately },
})
const all = async (stream) => {
  const events = []
  for await (const event of stream) events.push(StreamResponse.toJSON(event))
  return events
}
const steps = {
  send: async (step) => Task.toJSON(await client.sendMessage(request(step))),
  stream: (step) => all(client.sendMessageStream(request(step))),
  subscribe: ({ id }) => all(client.resubscribeTask({ id, tenant: "" })),
  get: async ({ id }) => Task.toJSON(await client.getTask({ id, tenant: "" })),
  cancel: async ({ id }) => Task.toJSON(await client.cancelTask({ id, tenant: "" })),
}
const results = []
for (const step of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    results.push(await steps[step.do](step))
  } catch (error) {
    // Their names are those of the other SDK, behind that of the binding.
    results.push({ error: error.constructor.name.replace("JsonRpc", "") })
  }
}
console.log(JSON.stringify(results))
