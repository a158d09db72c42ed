// What the pages have in common: visible text of any name, and cells of tables.

const SHOWN_CHARACTERS = 200;

export const UNKNOWN = "-";

export const byId = (id) => document.getElementById(id);

/** Visible text of any name: characters without a shape are escaped, and very long names are cut. */
export function printable(name, most = SHOWN_CHARACTERS) {
  const escaped = name.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
  return escaped.length <= most ? escaped : `${escaped.slice(0, most)}... (${name.length} characters)`;
}

export function cell(content, kind) {
  const made = document.createElement("td");
  if (content instanceof Node) made.append(content);
  else made.textContent = content;
  if (kind) made.className = kind;
  if (kind !== "text" && made.textContent.length > 30) made.title = made.textContent;
  return made;
}
