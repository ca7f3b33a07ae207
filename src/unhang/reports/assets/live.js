"use strict";
const byId = (id) => document.getElementById(id);
function cell(text, name) {
  const node = document.createElement("td");
  node.textContent = text;
  if (name) node.className = name;
  return node;
}
function row(rank) {
  const line = document.createElement("tr");
  const state = !rank.alive ? "ended" : rank.waiting ? "in a call" : rank.waiting === null ? "" : "away";
  line.append(cell(rank.rank), cell(rank.pid), cell(state, rank.alive ? "" : "failed"), cell(rank.finished.toLocaleString()),
    cell(rank.per_s === null ? "" : rank.per_s), cell(rank.behind ? `${rank.behind} behind` : ""),
    cell(rank.late === null ? "" : `${rank.late} %`, rank.late >= 50 ? "open" : ""), cell(rank.step === null ? "" : rank.step), cell(rank.quiet_s !== null ? `${rank.quiet_s} s` : rank.still_s >= 1 ? `over ${rank.still_s} s` : ""), cell(rank.where.split("/").slice(-2).join("/")));
  return line;
}
function group(each) {
  const line = document.createElement("tr"), name = each.description && each.description !== "undefined" ? `${each.description} (${each.name})` : each.name;
  line.append(cell(name), cell(each.backend), cell(each.ranks.join(", ")), cell(each.finished.toLocaleString()),
    cell(each.per_s === null ? "" : each.per_s), cell(each.behind.length ? `rank ${each.behind.join(", ")}` : "", each.behind.length ? "open" : ""));
  return line;
}
function table(names, lines) {
  const made = document.createElement("table"), top = document.createElement("tr");
  for (const name of names) {
    const column = document.createElement("th");
    column.scope = "col";
    column.textContent = name;
    top.append(column);
  }
  made.className = "calls";
  made.append(top, ...lines);
  return made;
}
// Title and icon say what a tab that lies behind others has to say: how the job stands.
const COLOUR = {live: "1a6b33", lost: "57606a", problem: "b4232a", slow: "7a5200", insufficient: "7a5200", healthy: "1a6b33"};
const GLYPH = {live: "▶", lost: "?", problem: "!", slow: "~", insufficient: "?", healthy: "✓"};
let latest = null, shown = "";
function face(kind, words) {
  if (shown !== kind) byId("icon").href = `data:image/svg+xml,${encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="8" fill="#${COLOUR[kind] || COLOUR.lost}"/><text x="8" y="12" font-size="11" font-family="sans-serif" font-weight="700" text-anchor="middle" fill="#fff">${GLYPH[kind] || "?"}</text></svg>`)}`;
  shown = kind;
  document.title = words;
}
function faceOf(jobs) {
  if (latest) return face(latest.status, `${GLYPH[latest.status] || ""} ${latest.status}: ${latest.summary}`);
  const names = jobs.map((job) => job.job || "without a name").join(", ");
  face(jobs.length ? "live" : "lost", jobs.length ? `▶ ${names}: live, unhang` : "unhang: live");
}
const events = new EventSource("/live/events");
events.addEventListener("look", (event) => {
  const jobs = JSON.parse(event.data);
  byId("jobs").replaceChildren(...jobs.map((job) => {
    const part = document.createElement("section"), head = document.createElement("h2");
    head.textContent = `job ${job.job || "without a name"} on ${job.host}: ${job.ranks.length} of ${job.world_size} ranks here`;
    part.append(head, table(["rank", "pid", "state", "calls finished", "per second", "fewer than most", "others waited", "step", "quiet for", "last call"], job.ranks.map(row)));
    if (job.groups.length) part.append(table(["group", "backend", "ranks here", "collectives finished", "per second", "waits for"], job.groups.map(group)));
    return part;
  }));
  byId("none").hidden = jobs.length > 0;
  faceOf(jobs);
});
events.addEventListener("verdict", (event) => {
  const told = JSON.parse(event.data), link = document.createElement("a"), line = document.createElement("h2"), status = document.createElement("span");
  link.href = `/case/${told.key}/`;
  link.textContent = told.summary;
  status.className = `status ${told.status}`;
  status.textContent = told.status;
  line.append(status, " ", link);
  line.id = `verdict-${told.key}`;
  byId(line.id)?.remove();
  byId("verdicts").prepend(line);
  byId("promise").hidden = true;
  latest = told;
  faceOf([]);
});
events.onopen = () => { byId("line").textContent = "connected: a look every second"; };
events.onerror = () => {
  byId("line").textContent = "no connection";
  if (!latest) face("lost", "unhang: no connection");
};
for (const what of ["dump", "stacks"]) {
  const button = byId(what), said = byId(what === "dump" ? "said" : "stacks-said");
  button.addEventListener("click", async () => {
    button.disabled = true;
    said.hidden = false;
    said.textContent = "asking the ranks…";
    const answer = await fetch(`/live/${what}`, {method: "POST"});
    said.textContent = await answer.text();
    button.disabled = false;
  });
}
