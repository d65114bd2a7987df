import { spawn, spawnSync } from "node:child_process"
import { randomUUID } from "node:crypto"
import { closeSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const types = [
  "session.created", "session.idle", "session.status", "session.error", "session.deleted",
  "permission.asked", "permission.v2.asked", "question.asked", "question.v2.asked",
]
const program = ["lanekeeper", ["hook", "--cli", "opencode"]]
const most = 1000 // calls that wait
const flushMs = 2000 // for those that wait when OpenCode exits
const waiting = []
let child
let lost = 0

const report = (payload, isTool = false) => {
  if (waiting.length >= most) {
    waiting.splice(Math.max(0, waiting.findIndex((call) => call.isTool)), 1)
    lost += 1
  }
  waiting.push({ text: JSON.stringify(payload), isTool })
  next()
}

// A file and not a pipe: the call has all of its input even if OpenCode exits now.
const fileOf = (text) => {
  const path = join(tmpdir(), `lanekeeper-${randomUUID()}`)
  writeFileSync(path, text, { mode: 0o600, flag: "wx" })
  const file = openSync(path)
  rmSync(path)
  return file
}

// One call at a time, in order.
const next = () => {
  if (child || waiting.length === 0) return
  const { text } = waiting.shift()
  let input
  try {
    input = fileOf(text)
  } catch {
    // No room for files: then OpenCode waits for this call.
    spawnSync(...program, { input: text })
    return next()
  }
  const started = spawn(...program, { stdio: [input, "ignore", "ignore"], detached: true })
  closeSync(input)
  child = started
  const ended = () => {
    if (child !== started) return
    child = undefined
    next()
  }
  started.once("error", ended).once("exit", ended)
}

// A process that ended is a zombie until somebody waits for it, which nobody does in an exit handler.
const isRunning = (pid) => {
  try {
    if (process.platform === "linux") return !/\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, "utf8"))
    return /^[^Z]/.test(spawnSync("ps", ["-o", "stat=", "-p", String(pid)]).stdout.toString().trim())
  } catch {
    return false
  }
}

const flush = () => {
  const until = Date.now() + flushMs
  const clock = new Int32Array(new SharedArrayBuffer(4))
  while (child?.pid && isRunning(child.pid) && Date.now() < until) Atomics.wait(clock, 0, 0, 5)
  while (waiting.length > 0 && Date.now() < until) spawnSync(...program, { input: waiting.shift().text })
  lost += waiting.splice(0).length
  if (lost > 0) console.error(`lanekeeper: ${lost} calls were not recorded`)
  lost = 0
}

process.once("exit", flush)
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"])
  process.once(signal, () => {
    flush()
    // What OpenCode itself makes of the signal stands.
    if (process.listenerCount(signal) === 0) process.kill(process.pid, signal)
  })

export const Lanekeeper = async () => ({
  event: async ({ event }) => { if (types.includes(event.type)) report(event) },
  "chat.message": async (input, { parts }) => report({ hook_type: "chat.message", input, output: { parts } }),
  "tool.execute.before": async (input) => report({ hook_type: "tool.execute.before", input }, true),
  "tool.execute.after": async (input) => report({ hook_type: "tool.execute.after", input }, true),
})
