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
    cell(rank.per_s === null ? "" : rank.per_s), cell(rank.behind ? `${rank.behind} behind` : "", rank.behind ? "open" : ""),
    cell(rank.step === null ? "" : rank.step), cell(rank.quiet_s === null ? "" : `${rank.quiet_s} s`), cell(rank.where.split("/").slice(-2).join("/")));
  return line;
}
const events = new EventSource("/live/events");
events.addEventListener("look", (event) => {
  const jobs = JSON.parse(event.data);
  byId("jobs").replaceChildren(...jobs.map((job) => {
    const part = document.createElement("section"), table = document.createElement("table"), head = document.createElement("h2"), top = document.createElement("tr");
    head.textContent = `job ${job.job || "without a name"} on ${job.host}: ${job.ranks.length} of ${job.world_size} ranks here`;
    for (const name of ["rank", "pid", "", "calls finished", "per second", "", "step", "quiet for", "last call"]) {
      const column = document.createElement("th");
      column.scope = "col";
      column.textContent = name;
      top.append(column);
    }
    table.className = "calls";
    table.append(top, ...job.ranks.map(row));
    part.append(head, table);
    return part;
  }));
  byId("none").hidden = jobs.length > 0;
});
events.addEventListener("verdict", (event) => {
  const told = JSON.parse(event.data), link = document.createElement("a"), line = document.createElement("p");
  link.href = `/case/${told.key}/`;
  link.textContent = told.summary;
  line.append(`${told.status.toUpperCase()}: `, link);
  byId("verdicts").prepend(line);
});
events.onopen = () => { byId("line").textContent = "live"; };
events.onerror = () => { byId("line").textContent = "no connection"; };
byId("dump").addEventListener("click", async () => {
  byId("dump").disabled = true;
  byId("said").textContent = "asking the ranks…";
  const answer = await fetch("/live/dump", {method: "POST"});
  byId("said").textContent = await answer.text();
  byId("dump").disabled = false;
});
