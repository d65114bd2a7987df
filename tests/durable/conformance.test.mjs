// The Durable Streams protocol's own suite, unmodified, against the worker at URL. tests/it/durable/conformance.rs runs it.
import { runConformanceTests } from "@durable-streams/server-conformance-tests";

runConformanceTests({
    baseUrl: process.env.URL,
    longPollTimeoutMs: Number(process.env.LONG_POLL_MS),
});
