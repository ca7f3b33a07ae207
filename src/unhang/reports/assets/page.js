"use strict";
const F = JSON.parse(document.getElementById("facts").textContent);
const byId = (id) => document.getElementById(id);
const GLYPH = {culprit: "!", silent: "∅", unreadable: "?", ahead: "›", behind: "‹", waiting: "•", unknown: "?", idle: "–", ok: "✓"};
const STATE = {finished: "✓", open: "… waits", failed: "✗ failed", missing: "✗ not called", unknown: "? not known", pending: "… pending"};
const chosen = new Set();

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]/g;
const plain = (text) => String(text).replace(/[\ud800-\udbff][\udc00-\udfff]|[\s\S]/g, (char) => (char.length === 1 ? char.replace(UNSEEN, (odd) => "\\u" + odd.charCodeAt(0).toString(16).padStart(4, "0")) : char));

function el(tag, attributes, ...kids) {
  const svg = ["svg", "g", "rect", "text", "path", "title", "line", "defs", "marker"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, plain(value));
  }
  node.append(...kids.filter((kid) => kid !== null && kid !== undefined).map((kid) => (typeof kid === "string" ? plain(kid) : kid)));
  return node;
}

function unfold(text) {
  const ranks = [];
  for (const part of text ? text.split(",") : []) {
    const [span, step] = part.split(":");
    const [first, last] = span.split("-").map(Number);
    for (let rank = first; rank <= (last === undefined ? first : last); rank += Number(step || 1)) ranks.push(rank);
  }
  return ranks;
}

const short = (path) => path.split("/").slice(-2).join("/");
const cut = (text, most) => (text.length > most ? text.slice(0, most - 1).replace(/[,… ]+$/, "") + "…" : text);
const nth = (step) => step + ({2: "nd", 3: "rd"}[step] || "th");
const strides = (text) => text.replace(/(\d+-\d+):(\d+)/g, (_, span, step) => `${span} (every ${nth(step)})`);
const ranksText = (text, most) => cut((/^\d+$/.test(text) ? "rank " : "ranks ") + strides(text), most || 60);

// ------------------------------------------------------------------ copying

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch (refused) {
    const area = el("textarea", {class: "sr"});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const before = button.textContent;
  button.textContent = "copied";
  setTimeout(() => { button.textContent = before; }, 1500);
}
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", () => copy(button.dataset.copy === "ticket" ? F.ticket : button.dataset.copy, button));
}

// ------------------------------------------------------------------ choosing ranks: one choice for the whole page

const members = new Map();  // element -> ranks; it is dimmed where none of them is chosen
function belongs(node, ranks) { members.set(node, ranks); return node; }
function choose(ranks) {
  const all = ranks.every((rank) => chosen.has(rank));
  for (const rank of ranks) all ? chosen.delete(rank) : chosen.add(rank);
  show();
}
function show() {
  for (const [node, ranks] of members) {
    if (!node.isConnected) { members.delete(node); continue; }
    node.classList.toggle("off", chosen.size > 0 && !ranks.some((rank) => chosen.has(rank)));
    if (node.getAttribute("role") === "option") node.setAttribute("aria-selected", String(chosen.has(ranks[0])));
    if (node.hasAttribute("aria-pressed")) node.setAttribute("aria-pressed", String(chosen.size > 0 && ranks.every((rank) => chosen.has(rank))));
  }
  if (!byId("map")) return;
  byId("chosen").textContent = chosen.size ? `Chosen: ${cut([...chosen].sort((a, b) => a - b).join(", "), 80)}` : "";
  byId("clear").disabled = !chosen.size;
}

// ------------------------------------------------------------------ rank map

const lineOf = new Map();
for (const node of F.nodes) if (node.kind === "call") for (const rank of unfold(node.ranks)) lineOf.set(rank, node.place);
for (const finding of F.report.findings) for (const site of finding.sites) for (const rank of site.ranks) {
  lineOf.set(rank, (site.after ? `last seen leaving ${site.after} at ` : "") + `${site.file}:${site.line}`);
}
function words(entry) {
  return [`rank ${entry.rank}`, entry.status, entry.head || entry.detail, short(lineOf.get(entry.rank) || ""), entry.host]
    .filter(Boolean).join(", ");
}
const FEW_RANKS = 16;  // so many have a line each, with what they do
const said = (entry) => words(entry).replace(/^rank \d+, /, "");
function teamsBy(axis) {
  const entries = F.report.ranks;
  if (axis.startsWith("team:")) {
    const team = F.teams[Number(axis.slice(5))];
    const seen = new Set();
    const rows = team.members.map((text) => {
      const ranks = unfold(text);
      ranks.forEach((rank) => seen.add(rank));
      return [ranksText(text, 30), ranks];
    });
    const rest = entries.map((entry) => entry.rank).filter((rank) => !seen.has(rank));
    return rest.length ? [...rows, ["no such group", rest]] : rows;
  }
  const rows = new Map();
  for (const entry of entries) {
    const name = entry.host || "host not known";
    if (!rows.has(name)) rows.set(name, []);
    rows.get(name).push(entry.rank);
  }
  return [...rows];
}
function drawMap() {
  const map = byId("map"), entries = new Map(F.report.ranks.map((entry) => [entry.rank, entry]));
  map.replaceChildren();
  map.className = "wide " + (entries.size <= FEW_RANKS ? "few" : entries.size <= 128 ? "" : entries.size <= 2048 ? "mid" : "tiny");
  const blamed = F.report.findings.length ? F.report.findings[0].culprits : [];  // where Tab leads first
  const front = [...blamed.filter((rank) => entries.has(rank)), ...F.report.ranks.filter((entry) => entry.status === "culprit").map((entry) => entry.rank), F.report.ranks[0].rank][0];
  for (const [name, ranks] of teamsBy(byId("axis").value)) {
    const team = el("div", {class: "team", role: "group", "aria-label": name}, el("span", {class: "name", "aria-hidden": "true"}, name));
    for (const rank of ranks) {
      const entry = entries.get(rank) || {rank, status: "unknown"};
      const glyph = GLYPH[entry.status] || "?";
      const cell = el("div", {
        class: `cell s-${entry.status}`, role: "option", "aria-selected": "false", tabindex: rank === front ? "0" : "-1",
        "aria-label": words(entry), "data-rank": rank,
      }, entries.size <= 128 ? `${glyph} ${rank}` : glyph, entries.size <= FEW_RANKS ? el("span", {class: "says"}, said(entry)) : null);
      team.append(belongs(cell, [rank]));
    }
    map.append(team);
  }
  if (byId("moment")) drawMoment();
  const cell = map.querySelector("[tabindex='0']");
  if (cell) map.scrollTop = cell.offsetTop - map.offsetTop - map.clientHeight / 2;
  show();
}
function find(text) {
  const known = new Set(F.report.ranks.map((entry) => entry.rank));
  const ranks = /^[\d,:\s-]+$/.test(text) && text.length < 200 ? text.replace(/\s/g, "").split(",").flatMap((part) => {
    const [first, last] = part.split(":")[0].split("-").map(Number);
    return last - first > 1e6 ? [] : unfold(part);
  }).filter((rank) => known.has(rank)) : [];
  chosen.clear();
  ranks.forEach((rank) => chosen.add(rank));
  show();
  const cell = ranks.length ? byId("map").querySelector(`[data-rank="${ranks[0]}"]`) : null;
  byId("about").textContent = cell ? cell.getAttribute("aria-label") : text.trim() ? "There is no such rank here." : "";
  if (cell) cell.scrollIntoView({block: "nearest"});
}
function tell(event) {
  const cell = event.target.closest("[role=option]");
  if (cell) byId("about").textContent = cell.title = cell.getAttribute("aria-label");
}
function moveInMap(event) {
  const cells = [...byId("map").querySelectorAll("[role=option]")], at = cells.indexOf(document.activeElement);
  if (at < 0) return;
  const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
  const next = event.key === "Home" ? 0 : event.key === "End" ? cells.length - 1 : step ? at + step : -1;
  if (event.key === "Enter" || event.key === " ") { choose([Number(cells[at].dataset.rank)]); event.preventDefault(); }
  if (next < 0 || next >= cells.length) return;
  event.preventDefault();
  cells[at].tabIndex = -1;
  cells[next].tabIndex = 0;
  cells[next].focus();
}
function drawLegend(statuses, names) {
  const counts = new Map();
  for (const status of statuses) counts.set(status, (counts.get(status) || 0) + 1);
  byId("legend").replaceChildren(...[...counts].flatMap(([status, count]) => [
    el("span", {class: `cell s-${status}`, "aria-hidden": "true"}, GLYPH[status] || "?"), el("span", {}, `${names[status] || status} ${count.toLocaleString()}`)]));
}

// ------------------------------------------------------------------ replay: the map at earlier moments

const THEN = {".": "ok", c: "idle", w: "waiting", "?": "unknown"};
const THEN_WORDS = {ok: "in its own code", idle: "in a call", waiting: "in a call that never ends", unknown: "not known"};
const order = new Map(F.report.ranks.map((entry, at) => [entry.rank, at]));
function statusAt(entry, moment) {
  return moment >= F.replay.since.length ? entry.status : THEN[F.replay.states[moment][order.get(entry.rank)]] || "unknown";
}
function drawMoment() {
  const moment = Number(byId("moment").value), past = moment < F.replay.since.length;
  const statuses = F.report.ranks.map((entry) => statusAt(entry, moment)), names = past ? THEN_WORDS : {};
  for (const cell of byId("map").querySelectorAll("[role=option]")) {
    const entry = F.report.ranks[order.get(Number(cell.dataset.rank))];
    if (!entry) continue;
    const status = statuses[order.get(entry.rank)];
    cell.className = `cell s-${status}${past && entry.status === "culprit" ? " then" : ""}${cell.classList.contains("off") ? " off" : ""}`;
    cell.firstChild.textContent = `${GLYPH[status] || "?"}${cell.firstChild.textContent.slice(1)}`;
    cell.setAttribute("aria-label", past ? `rank ${entry.rank}, ${names[status]}` : words(entry));
    if (cell.children.length) cell.children[0].textContent = past ? names[status] : said(entry);
    cell.removeAttribute("title");
  }
  drawLegend(statuses, names);
  const since = past ? F.replay.since[moment] : 0, told = past ? (since ? `${span(-since)} before the last event` : "at the last event") : "now: the verdict";
  byId("when").textContent = told;
  byId("moment").setAttribute("aria-valuetext", `${told}: ${[...byId("legend").querySelectorAll("span:not(.cell)")].map((each) => each.textContent).join(", ")}`);
}
const span = (ms) => (ms >= 60000 ? `${(ms / 60000).toFixed(1)} min` : ms >= 1000 ? `${(ms / 1000).toFixed(1)} s` : `${ms.toPrecision(3)} ms`);
let playing = 0;
function play() {
  const slider = byId("moment");
  clearInterval(playing);
  slider.value = "0";
  drawMoment();
  playing = setInterval(() => {
    slider.value = String(Number(slider.value) + 1);
    drawMoment();
    if (slider.value === slider.max) clearInterval(playing);
  }, 400);
}
function beginReplay() {
  byId("moment").addEventListener("input", () => { clearInterval(playing); drawMoment(); });
  byId("play").addEventListener("click", play);
  addEventListener("beforeprint", () => { clearInterval(playing); byId("moment").value = byId("moment").max; drawMoment(); });
}

// ------------------------------------------------------------------ who waits for whom

const BOX = {w: 200, least: 200, h: 56, x: 24, y: 50, most: 340, margin: 14};
const pen = document.createElement("canvas").getContext("2d");
pen.font = "12px system-ui, sans-serif";  // as `svg text` in the style
const widthOf = (text) => pen.measureText(text).width;
function fitted(text, width) {
  // The end of a name in brackets is what tells groups apart.
  const tail = (/ \((?!every)[^()]*\)$/.exec(text) || [""])[0], head = text.slice(0, text.length - tail.length);
  let short = text;
  for (let most = head.length; most > 0 && widthOf(short) > width; most -= 1) short = cut(head, most) + tail;
  return short;
}
function roundOf(nodes, links) {
  // The first circle that the report tells, in its order: ranks and the calls they wait in.
  const waits = (F.report.findings[0] || {waits: []}).waits, around = [];
  const rankNode = (rank) => [...nodes.keys()].find((at) => nodes[at].ring && nodes[at].kind === "ranks" && unfold(nodes[at].ranks).includes(rank));
  for (const wait of waits) {
    const from = rankNode(wait.from), to = rankNode(wait.to);
    const call = links.filter((link) => link[0] === from).map((link) => link[1]).find((at) => links.some((link) => link[0] === at && link[1] === to));
    for (const at of [from, call]) if (at !== undefined && !around.includes(at)) around.push(at);
  }
  return around.length > 2 ? around : [...nodes.keys()].filter((at) => nodes[at].ring).slice(0, 12);
}
function layOut(nodes, links) {
  const places = Array(nodes.length), around = nodes.some((node) => node.ring) ? roundOf(nodes, links) : [];
  const rows = [];
  nodes.forEach((node, at) => { if (!around.includes(at)) (rows[node.level] = rows[node.level] || []).push(at); });
  const half = Math.ceil(around.length / 2), dx = BOX.w / 2 + 45, step = BOX.h + 36;  // a circle: down on the right, up on the left
  const widest = Math.max(0, ...rows.filter(Boolean).map((row) => Math.min(row.length, 6))) * (BOX.w + BOX.x);
  const width = Math.max(widest, around.length ? 2 * dx + BOX.w : 0, BOX.w) + 20;
  let y = 16;
  around.forEach((at, place) => {
    const right = place < half, line = right ? place : around.length - 1 - place;
    places[at] = [width / 2 + (right ? dx : -dx), y + BOX.h / 2 + line * step];
  });
  if (around.length) y += half * step;
  for (const row of rows) {
    for (let start = 0; row && start < row.length; start += 6) {
      const part = row.slice(start, start + 6), left = (width - part.length * (BOX.w + BOX.x)) / 2;
      part.forEach((at, place) => { places[at] = [left + place * (BOX.w + BOX.x) + (BOX.w + BOX.x) / 2, y + BOX.h / 2]; });
      y += BOX.h + BOX.y;
    }
  }
  return {places, width, height: y - BOX.y + 30};
}
function edgeOf([x, y], [toX, toY]) {
  const dx = toX - x, dy = toY - y, scale = Math.min(BOX.w / 2 / Math.abs(dx || 1e-9), BOX.h / 2 / Math.abs(dy || 1e-9));
  return [x + dx * scale, y + dy * scale];
}
const NEAR = 8, NEAR_LEVELS = 2;
function nearest() {
  // What the verdict is about: its circle, or the ends of waiting with who waits for these at once.
  const all = [...F.nodes.keys()];
  if (all.length <= NEAR) return all;
  const ring = F.nodes.some((node) => node.ring) ? roundOf(F.nodes, F.links) : [];
  const near = ring.length ? ring : all.filter((at) => F.nodes[at].level <= NEAR_LEVELS);
  return near.length > 2 && near.length < all.length ? near : all;
}
function beginWaits() {
  const near = nearest(), button = byId("all-waits"), rest = F.nodes.length - near.length;
  if (rest) {
    button.hidden = false;
    byId("waits-left").textContent = `${rest} more boxes of who waits behind these are not drawn.`;
    button.addEventListener("click", () => {
      button.hidden = true;
      byId("waits-left").textContent = "";
      const pair = document.querySelector(".pair");
      if (pair) pair.classList.add("whole");
      drawWaits([...F.nodes.keys()]);
      show();
    });
  }
  drawWaits(near);
}
function drawWaits(shown) {
  const NODES = shown.map((at) => F.nodes[at]), place = new Map(shown.map((at, number) => [at, number]));
  const LINKS = F.links.filter(([source, target]) => place.has(source) && place.has(target)).map(([source, target, why]) => [place.get(source), place.get(target), why]);
  const second = (node) => (node.kind === "call" ? `${unfold(node.ranks).length.toLocaleString()} inside${node.place ? ", " + node.place.split("/").pop() : ""}` : `${GLYPH[node.status] || ""} ${node.status}`);
  const lines = (node) => {
    const at = node.kind === "call" ? node.label.indexOf(" of ") : -1;
    return [...(at > 0 ? [node.label.slice(0, at), node.group || node.label.slice(at + 1)] : [node.label]), second(node)];
  };
  const texts = NODES.flatMap((node) => lines(node).map((text) => text.slice(0, 80)));
  BOX.w = Math.min(shown.length < F.nodes.length ? BOX.least : BOX.most, Math.max(BOX.least, ...texts.map((text) => widthOf(text) + BOX.margin)));
  const {places, width, height} = layOut(NODES, LINKS);
  const tip = el("marker", {id: "tip", viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "7", markerHeight: "7", orient: "auto"}, el("path", {d: "M0 0L8 4L0 8z", fill: "currentColor"}));
  const svg = el("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Who waits for whom"}, el("defs", {}, tip));
  for (const [source, target, why] of LINKS) {
    const [x1, y1] = edgeOf(places[source], places[target]), [x2, y2] = edgeOf(places[target], places[source]);
    svg.append(el("line", {class: "link", x1, y1, x2, y2, "marker-end": "url(#tip)", "stroke-dasharray": why === "not known" ? "4 4" : null}));
    const flat = y1 === y2;
    if (LINKS.length <= 24) svg.append(el("text", {class: "why", x: (x1 + x2) / 2 + (flat ? 0 : 6), y: (y1 + y2) / 2 + (flat ? -6 : 4), "text-anchor": flat ? "middle" : "start"}, why));
  }
  NODES.forEach((node, at) => {
    const [x, y] = places[at], ranks = unfold(node.ranks), call = node.kind === "call";
    const to = LINKS.filter((link) => link[0] === at).map((link) => `${link[2]}: ${NODES[link[1]].label}`);
    const name = [node.label, node.status, call ? `${ranks.length} inside` : "", node.place, ...to].filter(Boolean).join("; ");
    const group = el("g", {role: "button", tabindex: "0", "aria-label": name, "aria-pressed": "false", "data-node": shown[at],
      onclick: () => choose(ranks), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { choose(ranks); event.preventDefault(); } }},
      el("title", {}, name),
      el("rect", {class: call ? "call" : `box s-${node.status}`, x: x - BOX.w / 2, y: y - BOX.h / 2, width: BOX.w, height: BOX.h, rx: call ? 14 : 5}),
      ...lines(node).map((line, number, all) => el("text", {x, y: y + 4 + (number - (all.length - 1) / 2) * 16, "text-anchor": "middle"}, fitted(line.slice(0, 80), BOX.w - BOX.margin))));
    svg.append(belongs(group, ranks));
  });
  byId("waits").replaceChildren(svg);
}

// ------------------------------------------------------------------ calls side by side, or in time

const FEW = 14, ON_PAPER = 5;  // as the style has it
function drawCalls(everything) {
  const table = el("table", {class: "calls"}), head = el("tr", {}, el("th", {scope: "col"}, "call"));
  for (const lane of F.lanes) {
    const ranks = unfold(lane.ranks), text = ranksText(lane.ranks, 22);
    const button = el("button", {"aria-pressed": "false", title: `${ranksText(lane.ranks, 400)}, ${lane.status}`, onclick: () => choose(ranks)}, `${GLYPH[lane.status] || ""} ${text}`);
    head.append(el("th", {scope: "col"}, belongs(button, ranks)));
  }
  const body = el("tbody");
  const marked = F.columns.findIndex((column) => column[2]);
  const last = F.columns.length, around = marked >= 0 ? marked : last - 1;
  const from = everything ? 0 : Math.max(0, Math.min(around - FEW + 4, last - FEW)), to = everything ? last : Math.min(last, from + FEW);
  const cells = F.lanes.map((lane) => new Map(lane.cells.map((cell) => [cell[0], cell]))), own = F.lanes.map((lane) => unfold(lane.ranks));
  for (let at = from; at < to; at += 1) {
    const [label, number, mark, p2p] = F.columns[at];
    const row = el("tr", {class: mark ? "marked" : null}, el("th", {scope: "row", title: label.length > 34 ? label : null}, `${mark ? "▶ " : ""}${cut(label, 34)} ${p2p ? "P2P " : ""}#${number}`, mark ? el("span", {class: "sr"}, " the call of the verdict") : null));
    F.lanes.forEach((lane, place) => {
      const cell = cells[place].get(at), ranks = own[place];
      const text = cell ? `${cut(F.strings[cell[1]], 32)} ${cell[2] === "finished" ? "✓" : STATE[cell[2]]}`.trim() : "";
      const more = cell ? [F.strings[cell[1]], F.strings[cell[3]], F.strings[cell[4]], cell[5] ? "unlike the others" : ""].filter(Boolean).join(", ") : "before or beyond what its dump shows";
      row.append(belongs(el("td", {class: cell ? `${cell[2]}${cell[5] ? " odd" : ""}` : null, title: more}, cell && cell[5] ? `${text} ≠ ${F.strings[cell[3]]}` : text), ranks));
    });
    body.append(row);
  }
  table.append(el("thead", {}, head), body);
  if (F.lanes.length > ON_PAPER) table.append(el("caption", {class: "paper"}, `${F.lanes.length - ON_PAPER} more columns are on the page.`));
  byId("calls").replaceChildren(table);
  byId("all-calls").hidden = to - from >= last;
  show();
}
const BARS = ["finished", "open", "failed", "missing", "unknown", "pending"];
function drawTimes() {
  const bars = F.bars, ranks = [...new Set(bars.rank)].sort((a, b) => a - b);
  const span = Number(byId("span").value) || -Math.min(...bars.begin);
  const width = Math.max(byId("calls").clientWidth - 20, 330), left = 60, high = 16;
  const x = (ms) => left + (1 + Math.max(ms, -span) / span) * (width - left - 10);
  const svg = el("svg", {width, height: ranks.length * high + 40, viewBox: `0 0 ${width} ${ranks.length * high + 40}`, role: "img", "aria-label": `Calls of ${ranks.length} ranks in time; the same as a table: side by side`});
  ranks.forEach((rank, at) => svg.append(belongs(el("text", {x: 4, y: at * high + 13}, `rank ${rank}`), [rank])));
  const row = new Map(ranks.map((rank, at) => [rank, at])), lines = ranks.map((rank) => svg.appendChild(belongs(el("g"), [rank])));
  bars.rank.forEach((rank, at) => {
    const end = bars.end[at];
    if ((end === null ? bars.begin[at] : end) < -span) return;
    const y = row.get(rank) * high + 3, begin = x(bars.begin[at]), state = BARS[bars.state[at]];
    const fill = state === "open" ? "var(--wait)" : state === "failed" ? "var(--bad)" : "var(--link)";
    const long = end === null ? 2 : Math.max(x(end) - begin, 1.5);
    lines[row.get(rank)].append(el("rect", {x: begin, y, width: long, height: high - 5, fill, stroke: state === "open" ? "var(--wait-ink)" : null, "stroke-width": 0.5},
      el("title", {}, `rank ${rank}: ${F.strings[bars.label[at]].replace("#", "#" + bars.number[at])}, ${state}${end === null ? ", end not recorded" : `, ${(end - bars.begin[at]).toFixed(1)} ms`}`)));
  });
  const axis = ranks.length * high + 26;
  for (const part of [0, 0.25, 0.5, 0.75, 1]) svg.append(el("text", {x: left + part * (width - left - 10), y: axis, "text-anchor": part === 1 ? "end" : "start"}, `-${(((1 - part) * span) / 1000).toPrecision(3)} s`));
  byId("calls").replaceChildren(svg);
  show();
}
function drawChosenCalls() {
  const times = byId("how").value === "time";
  byId("span").hidden = !times;
  byId("all-calls").hidden = times;
  byId("clocks").hidden = !times;
  if (times) drawTimes(); else drawCalls(false);
}

// ------------------------------------------------------------------ stacks, lateness

function branch([name, place, text, below]) {
  const ranks = unfold(text), title = [name, place, ranksText(text, 300)].filter(Boolean).join(", ");
  const frame = el("button", {class: "frame", title, "aria-pressed": "false", onclick: () => choose(ranks)}, `${name}${place ? " at " + short(place) : ""} (${ranks.length.toLocaleString()})`);
  const node = el("div", {class: "branch"}, belongs(frame, ranks), el("div", {class: "kids"}, ...below.map(branch)));
  node.style.flexGrow = String(ranks.length);
  return node;
}
const HEAT = {high: 14, left: 60, shades: 8, least: 50};
function shadeOf(ms, most) { return Math.ceil(HEAT.shades * Math.sqrt(Math.max(ms, 0) / most)); }
function drawHeat() {
  const heat = F.heat, wide = Math.max(4, Math.min(24, Math.floor(900 / heat.numbers.length))), {high, left, shades} = HEAT;
  const latest = Math.max(...heat.late_ms.flat()), most = Math.max(HEAT.least, latest);
  const width = left + heat.numbers.length * wide + 8, height = heat.ranks.length * high + 4;
  const svg = el("svg", {width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Lateness in ms after the first. Medians: ${heat.ranks.map((rank, at) => `rank ${rank} ${[...heat.late_ms[at]].sort((a, b) => a - b)[Math.floor(heat.numbers.length / 2)]}`).join(", ")}`});
  heat.ranks.forEach((rank, at) => {
    svg.append(belongs(el("text", {x: 4, y: at * high + 11}, `rank ${rank}`), [rank]));
    const strokes = Array.from({length: shades + 1}, () => []), y = at * high + 1;
    heat.late_ms[at].forEach((ms, call) => strokes[shadeOf(ms, most)].push(`M${left + call * wide} ${y}h${wide - 0.5}v${high - 2}h${0.5 - wide}z`));
    svg.append(belongs(el("g", {}, ...strokes.map((d, shade) => (d.length ? el("path", {class: `shade-${shade}`, d: d.join("")}) : null))), [rank]));
  });
  const title = svg.appendChild(el("title"));
  svg.addEventListener("mousemove", (event) => {
    const box = svg.getBoundingClientRect(), at = Math.floor((event.clientY - box.y) / high), call = Math.floor((event.clientX - box.x - left) / wide);
    const ms = call >= 0 && heat.late_ms[at] ? heat.late_ms[at][call] : undefined;
    title.textContent = ms === undefined ? "" : `rank ${heat.ranks[at]}, #${heat.numbers[call]}: ${ms} ms after the first`;
  });
  const scale = el("svg", {width: shades * 14 + 14, height: 14, "aria-hidden": "true"}, ...Array.from({length: shades + 1}, (_, shade) => el("rect", {class: `shade-${shade}`, x: shade * 14, y: 1, width: 13, height: 12})));
  byId("heat").replaceChildren(svg, el("p", {class: "bar soft"}, `Calls #${heat.numbers[0]} to #${heat.numbers[heat.numbers.length - 1]}; late by 0`, scale, `${most} ms${latest < most ? `; ${latest} ms at most` : ""}`));
}

// ------------------------------------------------------------------ the order of drawing

function beginMap() {
  const skip = document.querySelector(".skip");
  if (skip) skip.addEventListener("click", () => { const cell = byId("map").querySelector("[tabindex='0']"); if (cell) cell.focus(); });
  const map = byId("map");
  map.addEventListener("click", (event) => { const cell = event.target.closest("[role=option]"); if (cell) choose([Number(cell.dataset.rank)]); });
  map.addEventListener("keydown", moveInMap);
  for (const kind of ["mouseover", "focusin"]) map.addEventListener(kind, tell);
  byId("axis").addEventListener("change", drawMap);
  byId("clear").addEventListener("click", () => { chosen.clear(); show(); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && chosen.size) { chosen.clear(); show(); } });
  byId("find").addEventListener("input", (event) => find(event.target.value));
  drawLegend(F.report.ranks.map((entry) => entry.status), {});
  if (byId("moment")) beginReplay();
  drawMap();
  byId("about").textContent = "Point at a rank, or move to it with the arrow keys, to read what it does. Choose ranks to see these alone.";
  const asked = /^#rank=([\d,:-]+)$/.exec(location.hash);
  if (asked) find(asked[1]);
  addEventListener("hashchange", () => { const now = /^#rank=([\d,:-]+)$/.exec(location.hash); if (now) find(now[1]); });
}
function beginCalls() {
  byId("how").addEventListener("change", drawChosenCalls);
  byId("span").addEventListener("change", drawTimes);
  byId("all-calls").addEventListener("click", () => drawCalls(true));
  drawChosenCalls();
}
function drawStacks() { byId("stacks").append(el("div", {class: "kids"}, ...F.stacks.map(branch))); }
// The verdict is markup and the map is drawn at once; everything else when the reader has these before them.
const LATER = [["waits", beginWaits], ["calls", beginCalls], ["stacks", drawStacks], ["heat", drawHeat]].filter(([id]) => byId(id));
function drawNext() {
  const next = LATER.shift();
  if (next) next[1]();
  if (LATER.length) return;
  show();
  document.body.dataset.drawn = "yes";
}
function drawOn() {
  if (document.body.dataset.drawn) return;
  drawNext();
  setTimeout(drawOn);
}
if (byId("map")) beginMap();
byId("raw").addEventListener("toggle", () => { byId("json").textContent = JSON.stringify(F.report, null, 1).split("\n").map(plain).join("\n"); }, {once: true});
performance.mark("first view");
requestAnimationFrame(() => setTimeout(drawOn));
addEventListener("beforeprint", () => { while (!document.body.dataset.drawn) drawNext(); });
