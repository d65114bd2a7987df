// What pages do beyond HTML: renew their parts, load payloads in place, choose many, copy, keys. Without it they work too.
"use strict";

const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

// A part that somebody is using stays as it is: an open form, a choice, a focus, marked text.
function inUse(part) {
  const selection = getSelection();
  return (
    $("details.act[open]", part) ||
    $(".loaded", part) ||
    $("input:checked", part) ||
    (part.contains(document.activeElement) && document.activeElement.matches("input, select, summary")) ||
    (selection && !selection.isCollapsed && part.contains(selection.anchorNode))
  );
}

function tellAway(text) {
  const away = $("#away");
  if (!away) return;
  away.hidden = !text;
  if (away.textContent !== text) away.textContent = text;
}

async function renew() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "manual" });
  if (answer.status === 401) return location.reload();
  if (!answer.ok) {
    return tellAway(
      answer.status === 503
        ? "Postgres does not answer. What you see is from before; this page comes back by itself."
        : "This page cannot be renewed at the moment. What you see is from before."
    );
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  tellAway("");
  for (const part of $$("[data-part][id]")) {
    const fresh = page.getElementById(part.id);
    if (fresh && !inUse(part) && fresh.innerHTML !== part.innerHTML) {
      const focused = part.contains(document.activeElement) && document.activeElement.getAttribute("href");
      const now = document.importNode(fresh, true);
      part.replaceWith(now);
      prepare(now);
      if (focused) $$("a[href]", now).find((link) => link.getAttribute("href") === focused)?.focus();
    }
  }
  const asked = page.getElementById("asked");
  if (asked) $("#asked").textContent = asked.textContent;
}

function renewEvery(seconds) {
  let running = false;
  setInterval(async () => {
    if (running || document.hidden) return;
    running = true;
    try {
      await renew();
    } catch {
      tellAway("The worker does not answer. What you see is from before; this page comes back by itself.");
    }
    running = false;
  }, seconds * 1000);
}

// A payload opens below its row.
async function load(link) {
  const row = link.closest("tr");
  const open = row.nextElementSibling;
  if (open?.classList.contains("loaded")) return open.remove();
  const answer = await fetch(link.dataset.load);
  if (!answer.ok) return location.assign(link.href);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const payload = page.getElementById("payload");
  if (!payload) return location.assign(link.href);
  payload.removeAttribute("id");
  const cell = document.createElement("td");
  cell.colSpan = row.cells.length;
  cell.append(document.importNode(payload, true));
  const shown = document.createElement("tr");
  shown.className = "loaded";
  shown.append(cell);
  row.after(shown);
  prepare(shown);
}

function count(name, within) {
  const chosen = $$(`input[name="${name}"]:checked`, within).length;
  const told = $(`[data-count="${name}"]`, within);
  if (told) told.textContent = chosen ? `${chosen} chosen` : "";
}

function prepare(within) {
  for (const button of $$("[data-copy]", within)) button.hidden = !navigator.clipboard;
}

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a[data-load]");
  if (link && !event.metaKey && !event.ctrlKey && !event.shiftKey && event.button === 0) {
    event.preventDefault();
    return load(link);
  }
  const button = event.target.closest?.("[data-copy]");
  if (button) {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }
});

document.addEventListener("change", (event) => {
  const { target } = event;
  if (target.matches("[data-submit]")) return target.form.requestSubmit();
  const form = target.closest("form");
  if (target.dataset.all) {
    for (const box of $$(`input[name="${target.dataset.all}"]`, form)) box.checked = target.checked;
    count(target.dataset.all, form);
  } else if (target.name === "id" && form) count("id", form);
});

// Once is enough.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (event.target.dataset.sent) return event.preventDefault();
  event.target.dataset.sent = "1";
});
addEventListener("pageshow", () => $$("form[data-sent]").forEach((form) => delete form.dataset.sent));

let went = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    const open = event.target.closest?.("details.act[open]") || $("details.act[open]");
    if (open) {
      open.open = false;
      $("summary", open).focus();
    }
    return;
  }
  if (event.target.matches("input, select, textarea")) return;
  if (event.key === "/") {
    event.preventDefault();
    $("#q")?.focus();
  } else if (event.key === "g") went = Date.now();
  else if (Date.now() - went < 1500) $(`nav a[data-key="${CSS.escape(event.key)}"]`)?.click();
});

prepare(document);
const seconds = Number($("main[data-renew]")?.dataset.renew);
if (seconds) renewEvery(seconds);
