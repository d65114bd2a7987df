// An operator at night, in a real Chromium: signs in, finds the session that is stuck, reads why, skips its head, sees it go
// on without a reload, and requeues ten dead letters. Keeps screenshots, and refuses pages that axe-core finds fault with or
// that ask another origin for anything.
//
//   URL=… TOKEN=… TOOLS=folder-with-node_modules CHROMIUM=… OUT=folder node run.mjs

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const { URL: base, TOKEN, TOOLS, CHROMIUM, OUT } = process.env;
const require = createRequire(join(TOOLS, "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
mkdirSync(OUT, { recursive: true });

const DESKTOP = { width: 1280, height: 860 };
const PHONE = { width: 390, height: 844 };
const elsewhere = [];
const complaints = [];
const findings = [];

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
const context = await browser.newContext({ viewport: DESKTOP, colorScheme: "light", deviceScaleFactor: 1 });
context.on("request", (request) => {
  if (new URL(request.url()).origin !== new URL(base).origin) elsewhere.push(request.url());
});
const page = await context.newPage();
page.setDefaultTimeout(20_000);
page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
page.on("pageerror", (error) => complaints.push(String(error)));

async function shot(name) {
  await page.screenshot({ path: join(OUT, `${name}.png`), fullPage: true });
}

// In the page's own world, past its policy: nothing of it is part of a page.
async function check(where) {
  const client = await context.newCDPSession(page);
  await client.send("Runtime.evaluate", { expression: axe });
  const { result } = await client.send("Runtime.evaluate", {
    expression: `axe.run(document).then((found) => JSON.stringify(found.violations.map(({ id, impact, nodes }) =>
      ({ id, impact, nodes: nodes.slice(0, 3).map((node) => node.html.slice(0, 200)) }))))`,
    awaitPromise: true,
    returnByValue: true,
  });
  await client.detach();
  for (const found of JSON.parse(result.value)) {
    if (["serious", "critical"].includes(found.impact)) findings.push({ where, ...found });
  }
}

// Every look of a page, and back to a desk by day.
async function looks(name) {
  await check(name);
  await shot(`${name}-light`);
  await page.emulateMedia({ colorScheme: "dark" });
  await check(`${name}, dark`);
  await shot(`${name}-dark`);
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize(PHONE);
  await check(`${name}, phone`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
  assert.ok(!wide, `${name} is wider than a phone`);
  await shot(`${name}-phone`);
  await page.setViewportSize(DESKTOP);
}

const step = (text) => console.log(text);

step("signs in");
await page.goto(base + "/");
await looks("sign-in");
await page.getByLabel("Access token").fill("lk_1_wrong");
await page.getByRole("button", { name: "Sign in" }).click();
await page.getByText("not valid here").waitFor();
complaints.length = 0; // The browser notes the 401.
await page.getByLabel("Access token").fill(TOKEN);
await page.keyboard.press("Enter");
await page.getByRole("heading", { level: 1 }).filter({ hasText: /need|look at/ }).waitFor();
await looks("overview");

step("finds the session that is stuck, and reads why");
await page.keyboard.press("/");
await page.keyboard.type("checkout-42");
await page.keyboard.press("Enter");
await page.getByRole("heading", { level: 1, name: "checkout-42" }).waitFor();
await page.locator("#state .error").filter({ hasText: "500" }).waitFor();
await page.locator("#seq-1 .mark").filter({ hasText: "retrying" }).waitFor();
await looks("session");
await page.locator("#seq-1 a[data-load]").click();
await page.locator(".loaded .payload").filter({ hasText: "order" }).waitFor();
await shot("payload");
await page.locator("#seq-1 a[data-load]").click();

step("skips its head");
await page.getByLabel(/^Skip head/).click();
await page.locator("details[open] code").filter({ hasText: "lanekeeper lane skip" }).waitFor();
await check("skip");
await shot("skip-light");
await page.keyboard.press("Escape");
assert.equal(await page.locator("details.act[open]").count(), 0, "Escape closes it");
await page.keyboard.press("Enter");
await page.getByLabel("Reason, for the record").locator("visible=true").fill("known bad payload");
await page.getByRole("button", { name: "Skip seq 1" }).click();
await page.getByText("Seq 1 was skipped").waitFor();
await page.locator("#seq-1 .mark").filter({ hasText: "skipped" }).waitFor();

step("sees it go on");
await page.evaluate(() => (window.stayed = true));
for (const seq of [2, 3]) await page.locator(`#seq-${seq} .mark`).filter({ hasText: "delivered" }).waitFor({ timeout: 60_000 });
assert.ok(await page.evaluate(() => window.stayed), "without a reload");
await shot("session-went-on");

step("requeues ten dead letters");
await page.keyboard.press("g");
await page.keyboard.press("d");
await page.getByRole("heading", { level: 1, name: "Dead letters" }).waitFor();
await looks("dead");
await page.getByLabel("All on this page").check();
await page.getByText("10 chosen").waitFor();
await page.getByRole("button", { name: "Requeue the chosen" }).click();
await page.getByRole("heading", { name: "Requeue 10 dead letters?" }).waitFor();
await looks("dead-review");
await page.getByRole("button", { name: "Requeue 10 dead letters" }).click();
await page.getByText("10 dead letters were requeued.").waitFor();

step("looks at the rest");
for (const [path, name] of [
  ["/lanes", "lanes"],
  ["/subscription?name=out", "subscription"],
  ["/sessions", "sessions"],
  ["/agents", "agents"],
  ["/workers", "workers"],
  ["/find?q=nothing-of-the-sort", "find"],
]) {
  await page.goto(base + path);
  await looks(name);
}

step("works without a script");
const plain = await browser.newContext({ javaScriptEnabled: false, storageState: await context.storageState() });
const quiet = await plain.newPage();
await quiet.goto(base + "/subscription?name=out");
await quiet.getByLabel(/^Pause/).click();
await quiet.getByRole("button", { name: "Pause", exact: true }).click();
await quiet.getByText("out is paused.").waitFor();

step("signs out");
await page.getByRole("button", { name: "Sign out" }).click();
await page.getByLabel("Access token").waitFor();
await browser.close();

assert.deepEqual(findings, [], "axe-core");
assert.deepEqual(elsewhere, [], "requests to other origins");
assert.deepEqual(complaints, [], "errors in the console");
