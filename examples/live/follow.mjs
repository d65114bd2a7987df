// Follows sessions live, in a browser or in Node 18 or later, and resumes where it was.
//
//   const stop = follow(url, { token, onEvent: (event) => …, onNotice: (notice) => … });
//
// Events come in order, each once. After a disconnect it comes back with the id of the last message. `onNotice` gets
// resync_required (events are gone: read your state anew), end and disconnect, and problem where the worker refuses.
export function follow(url, { token, cursor = "", onEvent, onNotice = () => {}, retryMs = 1000 }) {
  const stopping = new AbortController();
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));

  async function connect() {
    const headers = { accept: "text/event-stream" };
    if (token) headers.authorization = `Bearer ${token}`;
    if (cursor) headers["last-event-id"] = cursor;
    const answer = await fetch(url, { headers, signal: stopping.signal });
    if (answer.status === 204) return stopping.abort();
    if (!answer.ok) {
      onNotice({ type: "problem", ...(await answer.json()) });
      return answer.status === 429 || answer.status >= 500 ? undefined : stopping.abort();
    }
    let rest = "";
    for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {
      const blocks = (rest + chunk).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s)));
        const data = fields.data && JSON.parse(fields.data);
        if (data) await (fields.event ? onNotice(data) : onEvent(data));
        if (fields.id) cursor = fields.id;
      }
    }
  }

  (async () => {
    while (!stopping.signal.aborted) {
      await connect().catch(() => {});
      if (!stopping.signal.aborted) await wait(retryMs);
    }
  })();
  return () => stopping.abort();
}
