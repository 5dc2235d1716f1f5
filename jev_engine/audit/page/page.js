"use strict";
// Everything of a session is set as text; nothing of it is ever read as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const shown = { limit: 300 };
// Of ids so many signs: commands take the beginning of one.
const SHOWN = 8;
const PICKS = ["pass", "tool", "action", "theme"];
const by = (id) => document.getElementById(id);

function make(tag, text, kind) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = String(text);
  if (kind) node.className = kind;
  return node;
}

function number(value, digits) {
  return value === null ? "" : value.toLocaleString("en", { maximumFractionDigits: digits ?? 0 });
}

function share(value) {
  return value === null ? "" : value.toFixed(4);
}

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(PICKS.map((name) => [name, given.get(name) ?? ""]));
}

function pick(name, value) {
  const given = new URLSearchParams(location.hash.slice(1));
  if (value) given.set(name, value); else given.delete(name);
  history.replaceState(null, "", "#" + given.toString());
  shown.limit = 300;
  draw();
}

function row(cells) {
  const line = make("tr");
  for (const [name, text, kind] of cells) {
    const cell = make("td");
    cell.dataset.name = name;
    cell.append(make("span", text, kind === "number" ? "" : kind));
    if (kind === "number") cell.className = "number";
    line.append(cell);
  }
  return line;
}

function drawPasses(picked) {
  const most = Math.max(1, ...data.passes.map((each) => each.freed));
  by("passes").replaceChildren(...data.passes.map((each) => {
    const item = make("li");
    const button = make("button", null, "pass");
    button.type = "button";
    button.dataset.pass = each.id;
    button.setAttribute("aria-pressed", String(picked.pass === each.id));
    const track = make("span", null, "track");
    const bar = make("span", null, "bar");
    bar.style.width = `${each.freed ? Math.max(1, Math.round(100 * each.freed / most)) : 0}%`;
    track.append(bar);
    button.append(make("span", each.at, "when"), make("span", each.id.slice(0, SHOWN)),
      make("span", `session ${each.session.slice(0, SHOWN)}`), make("span", each.outcome), make("span", each.judge),
      make("span", `${number(each.calls)} calls`, "number"), make("span", `${number(each.out)} out`, "number"),
      make("span", `${number(each.freed)} tokens`, "number"), track);
    button.addEventListener("click", () => pick("pass", picked.pass === each.id ? "" : each.id));
    item.append(button);
    return item;
  }));
}

function drawUnits(picked) {
  const fits = data.units.filter((unit) =>
    (!picked.pass || data.passes[unit.pass].id === picked.pass) && (!picked.tool || unit.tool === picked.tool) &&
    (!picked.action || unit.action === picked.action));
  by("units").replaceChildren(...fits.slice(0, shown.limit).map((unit) => row([
    ["Pass", data.passes[unit.pass].id.slice(0, SHOWN), "id"], ["Call", unit.label], ["Tool", unit.tool],
    ["Action", data.words[unit.action], unit.action], ["Who", unit.who, "reason"],
    ["Raw", share(unit.raw), "number"], ["P(needed)", share(unit.p), "number"],
    ["Price", unit.price === null ? "" : unit.price.toFixed(3), "number"],
    ["Characters", number(unit.chars), "number"], ["Left", number(unit.after), "number"],
    ["Missed", unit.back ? "looked back" : "", "reason"], ["Reason", unit.reason, "reason"],
  ])));
  const some = Math.min(shown.limit, fits.length);
  by("count").textContent = `${number(fits.length)} units` + (some < fits.length ? `, ${number(some)} shown` : "");
  by("more").hidden = some >= fits.length;
}

function fill(id, names, picked) {
  const list = by(id);
  if (!list.options.length) {
    for (const [value, text] of names) {
      const option = make("option", text);
      option.value = value;
      list.append(option);
    }
    list.addEventListener("change", () => pick(id, list.value));
  }
  list.value = picked;
}

function draw() {
  const picked = read();
  if (picked.theme) document.documentElement.dataset.theme = picked.theme;
  else delete document.documentElement.dataset.theme;
  fill("tool", [["", "all"], ...data.tools.map((tool) => [tool, tool])], picked.tool);
  fill("action", [["", "all"], ...Object.entries(data.words)], picked.action);
  fill("theme", [["", "as the system"], ["light", "light"], ["dark", "dark"]], picked.theme);
  drawPasses(picked);
  drawUnits(picked);
}

if (data.doubt) {
  by("doubt").textContent = `Do not rely on this page: ${data.doubt}.`;
  by("doubt").hidden = false;
}
by("facts").append(...data.facts.map(([name, text]) => {
  const box = make("div");
  box.append(make("dt", name), make("dd", text));
  return box;
}));
by("regrets").append(...data.regrets.map((each) => row([
  ["Tool", each.tool], ["Out", number(each.out), "number"], ["Looked back at", number(each.backs), "number"],
  ["Control calls", number(each.stayed), "number"], ["Made again", number(each.again), "number"],
  ["Regret", `${number(100 * each.rate, 1)} %`, "number"],
])));
by("more").addEventListener("click", () => { shown.limit += 300; draw(); });
addEventListener("hashchange", draw);
draw();
