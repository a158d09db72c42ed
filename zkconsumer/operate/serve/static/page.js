// The page of `zkconsumer serve`. It shows what /api/groups answers, and asks again at every sample.
//
// The address says what is shown, so that a link leads to the same after a restart: the query has what is searched and
// how the list is sorted, and the fragment the name of a group.
//
// Names of groups, topics and members come from znodes that any client may write. They reach the document only through
// textContent, and plotly only through `text()`, since plotly reads some HTML tags in labels.

import { byId, cell, printable, UNKNOWN } from "./cells.js";

const MOST_TRACES = 200;
const GROUPS_OF_PAGE = 100;
const ANSWERING_SERVERS = 20;
const STATES = ["RANGE", "REWIND", "STOP", "STALL", "WARN", "NO MEMBERS", "MIGRATED", "UNKNOWN", "OK"];

/** The same for plotly, whose labels are a subset of HTML. */
function text(name) {
  return printable(name).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function number(value, digits = 0) {
  return value === null ? UNKNOWN : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function duration(seconds) {
  if (seconds === null) return UNKNOWN;
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const first = Math.max(0, units.findIndex(([, size]) => seconds >= size));
  const parts = [];
  let left = seconds < 1 ? 0 : Math.floor(seconds);
  for (const [unit, size] of seconds < 1 ? [["s", 1]] : units.slice(first, first + 2)) {
    parts.push(`${Math.floor(left / size)}${unit}`);
    left %= size;
  }
  return parts.join(" ");
}

function time(ms) {
  return new Date(ms).toLocaleString("sv");
}

function statusBadge(status, reason, target = document.createElement("span")) {
  target.textContent = status;
  target.title = printable(reason);
  target.className = `status status-${status.replaceAll(" ", "-")}`;
  return target;
}

function groupLink(name) {
  const link = document.createElement("a");
  link.href = `#${encodeURIComponent(name)}`;
  link.textContent = printable(name);
  return link;
}

function fill(table, rows) {
  byId(table).tBodies[0].replaceChildren(
    ...rows.map((cells) => {
      const row = document.createElement("tr");
      row.append(...cells);
      return row;
    }),
  );
}

async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(found.error), { answer: found });
  return found;
}

/** What the query of the address asks for. */
function query() {
  const asked = new URLSearchParams(location.search);
  return {
    search: asked.get("search") ?? "",
    status: asked.get("status") ?? "",
    sort: asked.get("sort") ?? "worst",
    first: Math.max(0, Number.parseInt(asked.get("first") ?? "0", 10) || 0),
  };
}

/** Change the query, and show what it asks for; the address has only what differs from the default. */
function change(changed) {
  const asked = { ...query(), first: 0, ...changed };
  const kept = Object.entries(asked).filter(([name, value]) => value && !(name === "sort" && value === "worst"));
  const text = new URLSearchParams(kept).toString();
  history.replaceState(null, "", `${location.pathname}${text ? `?${text}` : ""}${location.hash}`);
  refresh();
}

/** A line of the lag over time, from 0 at the bottom; it has gaps where the lag was unknown. */
function sparkline(trend) {
  const drawing = byId("sparkline").content.firstElementChild.cloneNode(true);
  const anyLine = drawing.firstElementChild;
  anyLine.remove();
  drawing.setAttribute("viewBox", `0 0 ${Math.max(1, trend.length - 1)} 20`);
  const known = trend.filter((lag) => lag !== null);
  const top = Math.max(1, ...known);
  drawing.setAttribute("aria-label", known.length ? `lag ${known[0]} to ${known.at(-1)}, at most ${top}` : "unknown");
  const lines = [[]];
  trend.forEach((lag, index) => {
    if (lag === null) lines.push([]);
    else lines.at(-1).push(`${index},${19 - (18 * lag) / top}`);
  });
  for (const points of lines.filter((line) => line.length > 0)) {
    const line = anyLine.cloneNode();
    line.setAttribute("points", points.join(" "));
    drawing.append(line);
  }
  return drawing;
}

function showCounts(counts) {
  const { status } = query();
  byId("counts").replaceChildren(
    ...STATES.filter((state) => counts[state] || state === status).map((state) => {
      const button = statusBadge(state, "", document.createElement("button"));
      button.type = "button";
      button.textContent = `${counts[state] ?? 0} ${state}`;
      button.setAttribute("aria-pressed", String(state === status));
      button.addEventListener("click", () => change({ status: state === query().status ? "" : state }));
      return button;
    }),
  );
}

function showOrder() {
  const { sort } = query();
  for (const heading of document.querySelectorAll("#groups th[data-sort]")) {
    const field = heading.dataset.sort.replace("-", "");
    const isShown = sort.replace("-", "") === field;
    // "worst" begins with the worst status: as numbers of severity it descends.
    const isDescending = (field === "worst") !== sort.startsWith("-");
    if (isShown) heading.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
    else heading.removeAttribute("aria-sort");
  }
}

/** The status of a group in the list; if the last sample could not read it, also of when its other values are. */
function listedStatus(one) {
  const status = document.createElement("span");
  status.append(statusBadge(one.status, one.reason), one.was === null ? "" : `, was ${one.was}`);
  status.append(one.stale ? `${one.was === null ? "" : ";"} values of ${time(one.sampled_ms)}` : "");
  return status;
}

function showGroups(found) {
  const { first } = query();
  showCounts(found.counts);
  byId("fleet-link").hidden = !found.has_fleet;
  showOrder();
  fill(
    "groups",
    found.groups.map((one) => [
      cell(groupLink(one.group)),
      cell(listedStatus(one), "listed"),
      cell(number(one.lag), "number"),
      cell(duration(one.lag_s), "number"),
      cell(sparkline(one.trend), "trend"),
      cell(number(one.unknown), "number"),
      cell(number(one.members), "number"),
      cell(`${one.owned}/${one.partitions}`, "number"),
      cell(number(one.consumed_per_s, 1), "number"),
      cell(number(one.produced_per_s, 1), "number"),
      cell(number(one.rebalances), "number"),
    ]),
  );
  found.groups.forEach((one, index) => byId("groups").tBodies[0].rows[index].classList.toggle("stale", one.stale));
  const last = first + found.groups.length;
  byId("shown").textContent = found.total ? `${first + 1} to ${last} of ${found.total}` : "no groups";
  byId("former").hidden = first === 0;
  byId("following").hidden = last >= found.total;
}

function ownerText(one) {
  if (one.owner === null) return UNKNOWN;
  return printable(one.owner) + (one.owner_live ? "" : " (not a live member)");
}

/** The threads of a member by topic; of a member that does not tell them, its topics. */
function threadsOf(member) {
  const threads = Object.entries(member.threads ?? {}).map(([topic, count]) => `${printable(topic)}: ${count}`);
  return threads.join(", ") || member.topics.map((topic) => printable(topic)).join(", ") || UNKNOWN;
}

function showGroup(found, history) {
  byId("group-name").textContent = printable(found.group);
  statusBadge(found.status, found.reason, byId("group-status"));
  byId("group-reason").textContent = printable(found.reason);
  for (const table of ["partitions", "members"]) byId(table).classList.toggle("stale", found.stale);
  fill(
    "partitions",
    found.partitions.map((one) => [
      cell(printable(one.topic)),
      cell(String(one.partition), "number"),
      cell(statusBadge(one.status, one.reason)),
      cell(number(one.committed), "number"),
      cell(number(one.log_end), "number"),
      cell(number(one.lag), "number"),
      cell(duration(one.lag_s), "number"),
      cell(number(one.consumed_per_s, 1), "number"),
      cell(number(one.produced_per_s, 1), "number"),
      cell(ownerText(one)),
      cell(printable(one.reason), "text"),
    ]),
  );
  fill(
    "members",
    found.members.map((one) => [
      cell(printable(one.id)),
      cell(one.client ?? UNKNOWN),
      cell(one.host === null ? UNKNOWN : printable(one.host.replace(/^\//, ""))),
      cell(one.pattern ?? UNKNOWN),
      cell(String(one.partitions), "number"),
      cell(threadsOf(one)),
    ]),
  );
  fill(
    "rebalances",
    history.rebalances.toReversed().map((one) => [
      cell(time(one.at_ms)),
      cell(number(one.partitions), "number"),
      cell(one.joined.map((name) => printable(name)).join(", ") || UNKNOWN, "text"),
      cell(one.left.map((name) => printable(name)).join(", ") || UNKNOWN, "text"),
    ]),
  );
  drawLag(history);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function drawLag(history) {
  // Between samples that are further apart than a sample lasts nothing is known, so no line is drawn.
  const longest = 3000 * Math.max(history.interval_s, history.took_s);
  const broken = (index) => index > 0 && history.at_ms[index] - history.at_ms[index - 1] > longest;
  const spaced = (values, between) =>
    values.flatMap((value, index) => (broken(index) ? [between(value), value] : [value]));
  const at = spaced(history.at_ms, (ms) => ms - 1).map((ms) => new Date(ms));
  const drawn = history.partitions;
  const note = byId("chart-note");
  note.hidden = drawn.length === history.partition_count;
  note.textContent = `The ${drawn.length} partitions with the largest lag of ${history.partition_count} are drawn.`;
  const traces = drawn.map((one) => ({
    x: at,
    y: spaced(one.lag, () => null),
    type: "scatter",
    mode: "lines+markers",
    marker: { size: 4 },
    name: text(`${one.topic}-${one.partition}`),
    hovertemplate: "%{y} at %{x|%H:%M:%S}",
    connectgaps: false,
  }));
  const marks = history.rebalances.map((one) => ({
    type: "line",
    x0: new Date(one.at_ms),
    x1: new Date(one.at_ms),
    yref: "paper",
    y0: 0,
    y1: 1,
    line: { color: "#b45309", width: 1, dash: "dot" },
  }));
  const names = history.rebalances.map((one) => ({
    x: new Date(one.at_ms),
    yref: "paper",
    y: 1,
    yanchor: "bottom",
    showarrow: false,
    text: "rebalance",
    font: { size: 9, color: "#b45309" },
  }));
  const layout = {
    margin: { t: 20, r: 10, b: 40, l: 70 },
    xaxis: { type: "date", gridcolor: colour("--border") },
    yaxis: { title: { text: "lag, records" }, rangemode: "tozero", gridcolor: colour("--border") },
    shapes: marks,
    annotations: names,
    showlegend: true,
    uirevision: history.group,
    // The colours of the page, in both schemes.
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--text") },
  };
  window.Plotly.react(byId("chart"), traces, layout, { displayModeBar: false, responsive: true });
}

/** Ask what keeps the group from consuming; that takes seconds where servers are silent. */
async function explain() {
  const group = chosenGroup();
  const button = byId("explain");
  button.disabled = true;
  let lines = [];
  try {
    const { findings } = await ask(`/api/groups/${encodeURIComponent(group)}/findings`);
    lines = findings.map((one) => [
      `${one.kind}: ${one.subject}`,
      one.evidence,
      ...(one.to_do ? [`to do: ${one.to_do}`] : []),
      ...(one.next_command ? [`next: ${one.next_command}`] : []),
    ]);
    if (lines.length === 0) lines = [["Nothing was found that keeps it from consuming."]];
  } catch (error) {
    lines = [[`No answer: ${error.message}`]];
  }
  button.disabled = false;
  if (chosenGroup() === group) showFindings(lines);
}

function showFindings(lines) {
  byId("findings").replaceChildren(
    ...lines.map((texts) => {
      const item = document.createElement("li");
      item.textContent = texts.map((text) => printable(text, 2000)).join("\n");
      return item;
    }),
  );
}

/** One server; what is not green has the reason beside it, too. */
function serverBadge(one) {
  const name = one.kind === "zookeeper" ? "ZooKeeper" : one.id === null ? `broker ${one.address}` : `broker ${one.id}`;
  const item = document.createElement("li");
  const badge = document.createElement("span");
  item.append(badge);
  badge.textContent = name;
  badge.title = `${printable(one.address)} answers`;
  badge.className = "status good";
  if (one.answers !== true) {
    badge.className = one.answers === false ? "status bad" : "status warning";
    const isAsked = one.answers === false ? "" : " It was not asked since.";
    badge.textContent = `${name} silent since ${time(one.silent_since_ms)}`;
    badge.title = printable(`${one.address}: ${one.reason}${isAsked}`, 2000);
    item.append(` ${printable(one.reason)}${isAsked}`);
  }
  return item;
}

/** Silent servers first; of very many that answer only the number is shown. */
function showServers(servers, isOld) {
  const silent = servers.filter((one) => one.answers !== true);
  const answering = servers.filter((one) => one.answers === true);
  const shown = answering.slice(0, ANSWERING_SERVERS);
  const items = [...silent, ...shown].map(serverBadge);
  if (answering.length > shown.length) {
    const others = document.createElement("li");
    others.textContent = `and ${answering.length - shown.length} more that answer`;
    items.push(others);
  }
  byId("servers").replaceChildren(...items);
  byId("servers").classList.toggle("stale", isOld);
}

function showProblems(problems) {
  byId("problems-view").hidden = problems.length === 0;
  byId("problems").replaceChildren(
    ...problems.map((problem) => {
      const item = document.createElement("li");
      item.textContent = printable(problem);
      return item;
    }),
  );
}

function chosenGroup() {
  return location.hash.length > 1 ? decodeURIComponent(location.hash.slice(1)) : null;
}

async function show() {
  const group = chosenGroup();
  byId("groups-view").hidden = group !== null;
  byId("group-view").hidden = group === null;
  if (group === null) {
    const asked = query();
    const wanted = new URLSearchParams({ ...asked, count: GROUPS_OF_PAGE });
    const found = await ask(`/api/groups?${wanted}`);
    const isWanted = chosenGroup() === null && JSON.stringify(query()) === JSON.stringify(asked);
    if (isWanted) showGroups(found);
    return found;
  }
  const path = `/api/groups/${encodeURIComponent(group)}`;
  const [found, history] = await Promise.all([ask(path), ask(`${path}/history?most=${MOST_TRACES}`)]);
  if (chosenGroup() === group) showGroup(found, history);
  return found;
}

const timer = { id: 0 };

async function refresh() {
  clearTimeout(timer.id);
  let waitMs = 2000;
  const failure = byId("failure");
  try {
    const found = await show();
    // A sample that has failed has asked servers, too; one that takes too long has not asked all.
    showServers(found.servers, found.stale && found.failure === null);
    showProblems(found.problems);
    failure.hidden = !found.stale && found.failure === null;
    failure.textContent = found.failure
      ? `The last sample has failed, these values are older: ${printable(found.failure)}`
      : "These values are old: a sample takes too long. Check the log of zkconsumer serve.";
    byId("sampled").textContent =
      `Sampled ${time(found.sampled_ms)}, every ${found.interval_s} s, took ${number(found.took_s, 1)} s`;
    waitMs = Math.max(200, Math.min(found.interval_s * 1000, 10_000));
  } catch (error) {
    failure.hidden = false;
    failure.textContent = `No answer: ${error.message}`;
    // Without a sample the answer has the servers that are silent; without a group those of before stay.
    if (error.answer === undefined || error.answer.servers) showServers(error.answer?.servers ?? [], false);
  }
  clearTimeout(timer.id);
  timer.id = setTimeout(refresh, waitMs);
}

addEventListener("hashchange", () => {
  showFindings([]);
  refresh();
});
byId("explain").addEventListener("click", explain);
byId("search").value = query().search;
byId("search").addEventListener("input", () => change({ search: byId("search").value }));
byId("former").addEventListener("click", () => change({ first: Math.max(0, query().first - GROUPS_OF_PAGE) }));
byId("following").addEventListener("click", () => change({ first: query().first + GROUPS_OF_PAGE }));
byId("groups").tHead.addEventListener("click", ({ target }) => {
  const wanted = target.dataset.sort;
  if (!wanted) return;
  const first = wanted === "-worst" ? "worst" : wanted;
  const other = first.startsWith("-") ? first.slice(1) : `-${first}`;
  change({ sort: query().sort === first ? other : first });
});
refresh();
