// The migration of a fleet: what /api/fleet answers, read anew every ten seconds.
//
// Names and owners come from a file that people edit; they reach the document only through textContent.

import { byId, cell, printable, UNKNOWN } from "./cells.js";

const INTERVAL_MS = 10_000;
const KINDS = {
  "gone wrong": "bad",
  refused: "warning",
  unknown: "warning",
  done: "good",
  consumed: "good",
  mirrored: "good",
};

function badge(state) {
  const made = document.createElement("span");
  made.className = `status ${KINDS[state] ?? ""}`;
  made.textContent = state;
  return made;
}

function show(found) {
  byId("totals").textContent = Object.entries(found.totals).map(([state, count]) => `${count} ${state}`).join(", ");
  const rows = found.groups.map((one) => {
    const row = document.createElement("tr");
    row.append(
      cell(printable(one.group)),
      cell(badge(one.state)),
      cell(printable(one.reason), "text"),
      cell(String(one.wave), "number"),
      cell(printable(one.owner) || UNKNOWN),
      cell(one.members === null ? UNKNOWN : String(one.members), "number"),
      cell(one.partitions === null ? UNKNOWN : String(one.partitions), "number"),
      cell(printable(one.target)),
      cell(printable(one.cluster)),
    );
    return row;
  });
  document.querySelector("#fleet tbody").replaceChildren(...rows);
}

async function refresh() {
  try {
    const answer = await fetch("/api/fleet");
    const found = await answer.json();
    byId("failure").hidden = answer.ok;
    if (answer.ok) show(found);
    else byId("failure").textContent = found.error;
  } catch (error) {
    byId("failure").hidden = false;
    byId("failure").textContent = `The server does not answer: ${error.message}`;
  }
  setTimeout(refresh, INTERVAL_MS);
}

refresh();
