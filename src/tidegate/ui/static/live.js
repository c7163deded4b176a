// Patches the page when something has changed, ticks ages, copies ids. Without it everything can be read, and every form works.
const root = document.body.dataset.root;
const live = document.querySelector("main[data-live]");
const connection = document.getElementById("connection");

function span(seconds) {
  const whole = Math.floor(seconds);
  if (whole < 1) return "now";
  for (const [unit, length, below, belowUnit] of [[" d", 86400, 3600, " h"], [" h", 3600, 60, " min"], [" min", 60, 1, " s"]]) {
    if (whole >= length) {
      const rest = Math.floor((whole % length) / below);
      return `${Math.floor(whole / length)}${unit}` + (rest ? ` ${rest}${belowUnit}` : "");
    }
  }
  return `${whole} s`;
}

function tick() {
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const age = (Date.now() - Date.parse(time.dateTime)) / 1000;
    const text = age < 1 ? "now" : `${span(age)} ago`;
    if (time.textContent !== text) time.textContent = text;
  }
}
setInterval(tick, 1000);

// The clipboard of scripts exists on https and loopback only; elsewhere an older way is tried. True only where it was copied.
async function put(text) {
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return true;
    }
  } catch { /* refused: the older way */ }
  const field = document.createElement("textarea");
  field.value = text;
  field.setAttribute("readonly", "");
  field.className = "hidden";
  document.body.append(field);
  field.select();
  let done = false;
  try { done = document.execCommand("copy"); } catch { /* neither */ }
  field.remove();
  return done;
}

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    const done = await put(copy.dataset.copy);
    connection.textContent = done ? `copied ${copy.dataset.copy}` : `not copied: the browser does not allow it here. Select it: ${copy.dataset.copy}`;
  }
  const line = event.target.closest("[data-line]");
  if (line) {
    event.preventDefault();
    const text = document.getElementById("text");
    const lines = text.value.split("\n");
    const number = Number(line.dataset.line);
    const start = lines.slice(0, number - 1).join("\n").length + (number > 1 ? 1 : 0);
    text.focus();
    text.setSelectionRange(start, start + lines[number - 1].length);
  }
});

// Replace only what is different, so that focus, scroll and open details stay where they are.
function patch(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  const same = old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName;
  if (!same) return old.replaceWith(fresh.cloneNode(true));
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name, value } of fresh.attributes ?? []) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...(old.attributes ?? [])]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  if (old.matches?.("input, select, textarea") || old.contains(document.activeElement) && document.activeElement?.matches("input, select, textarea")) return;
  const before = [...old.childNodes], after = [...fresh.childNodes];
  after.forEach((node, index) => (before[index] ? patch(before[index], node) : old.append(node.cloneNode(true))));
  before.slice(after.length).forEach((node) => node.remove());
}

let running = false, again = false;
async function refresh() {
  if (!live) return;
  if (running) return void (again = true);
  running = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Live": "1" } });
    if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      patch(live, page.querySelector("main"));
      tick();
      const log = document.querySelector("pre[data-follow]");
      if (log && document.getElementById("follow")?.checked) log.scrollTop = log.scrollHeight;
    }
  } finally {
    running = false;
    if (again) { again = false; later(); }
  }
}

let timer = 0;
function later() {
  clearTimeout(timer);
  timer = setTimeout(() => refresh().catch(() => {}), 150);
}

// The stream ends with its server. It comes back by itself when the server does; meanwhile another server that is known may take the page over.
let others = [];
async function learn() {
  const answer = await fetch(`${root}/api/v1/coordinators`);
  if (answer.ok) others = (await answer.json()).filter((each) => !each.answers && each.address).map((each) => each.address);
}

let lost = 0;
async function takeOver() {
  for (const address of others) {
    try {
      await fetch(`${address}${root}/health`, { mode: "no-cors", signal: AbortSignal.timeout(2000) });
      return void (location.href = address + location.pathname.replace(/^/, "") + location.search);
    } catch { /* the next one */ }
  }
}

function listen() {
  const stream = new EventSource(`${root}/api/v1/events`);
  stream.addEventListener("hello", () => { lost = 0; connection.textContent = ""; learn().catch(() => {}); later(); });
  stream.addEventListener("jobs", later);
  stream.addEventListener("alive", (event) => { const { reason } = JSON.parse(event.data); connection.textContent = reason; });
  stream.addEventListener("error", () => {
    lost += 1;
    connection.textContent = "this server does not answer; trying again …";
    if (lost > 3) takeOver();
    if (stream.readyState === EventSource.CLOSED) { stream.close(); setTimeout(listen, 1000); }
  });
}
if (live) {
  listen();
  if (document.querySelector("pre[data-follow]")) setInterval(() => document.getElementById("follow")?.checked && later(), 1500);
}
tick();
