// Measures live followers: CLIENTS clients over RUNS sessions of the stream `runs`, and how long events take from their
// append (created_at) to the client. Appends nothing itself.
//
//   node examples/live/load.mjs http://127.0.0.1:8080 --clients 1000 --runs 100 --seconds 30
//
// Sessions are named load-0, load-1, …; they must exist. Both clocks are taken to be the same: run it on one machine.
import http from "node:http";
import { parseArgs } from "node:util";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    clients: { type: "string", default: "1000" },
    runs: { type: "string", default: "100" },
    seconds: { type: "string", default: "30" },
    token: { type: "string" },
  },
});
const [clients, runs, seconds] = [values.clients, values.runs, values.seconds].map(Number);
const headers = values.token ? { authorization: `Bearer ${values.token}` } : {};
const agent = new http.Agent({ maxSockets: Infinity });
const latencies = [];
let [open, refused, events, gaps, ended] = [0, 0, 0, 0, 0];

function follow(n) {
  const url = `${positionals[0]}/v1/streams/runs/sessions/load-${n % runs}/events/live?from=end`;
  const request = http.get(url, { agent, headers }, (answer) => {
    if (answer.statusCode !== 200) {
      refused++;
      answer.resume();
      setTimeout(() => follow(n), 1000);
      return;
    }
    open++;
    let [rest, last] = ["", 0];
    answer.setEncoding("utf8");
    answer.on("end", () => ended++);
    answer.on("data", (chunk) => {
      const now = Date.now();
      const blocks = (rest + chunk).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const at = block.indexOf("data: ");
        if (at < 0 || block.includes("\nevent: ")) continue;
        const event = JSON.parse(block.slice(at + 6));
        if (last && event.seq !== last + 1) gaps++;
        last = event.seq;
        events++;
        latencies.push(now - Date.parse(event.created_at));
      }
    });
  });
  request.on("error", () => ended++);
}

for (let n = 0; n < clients; n++) {
  follow(n);
  if (n % 50 === 49) await new Promise((done) => setTimeout(done, 20));
}
await new Promise((done) => setTimeout(done, seconds * 1000));
latencies.sort((a, b) => a - b);
const at = (part) => latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * part))] ?? null;
console.log(JSON.stringify({ clients: open, refused, ended, events, gaps, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) }));
process.exit(0);
