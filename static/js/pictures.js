// Pictures drawn by the server: the text of a part under the pointer or the focus, arrow keys from part to part,
// and what the legend hides. Without it every part is still a link, and the table has the same figures.

import { isHidden } from "./legend.js";

const tip = Object.assign(document.createElement("p"), { className: "picture-tip", hidden: true });
// Screen readers have the same text as the name of the link.
tip.setAttribute("aria-hidden", "true");
const UNSCORED = { "!": "could not be scored", "–": "skipped" };

// The headings of a cell say what it is.
function words(part) {
  const cell = part.closest(".heat td");
  if (!cell) return part.getAttribute("aria-label");
  const table = cell.closest("table");
  let place = cell.cellIndex;
  const column = [...table.tHead.rows[0].cells].find(({ colSpan }) => (place -= colSpan) < 0);
  // Of two runs each evaluator has a column for either.
  const run = table.dataset.pairs?.split(" ")[place + column.colSpan];
  const name = [column.textContent.trim(), run].filter(Boolean).join(" in ");
  const row = cell.parentElement.cells[0].textContent.trim();
  return `${row}\n${name}: ${UNSCORED[part.textContent] ?? part.textContent}`;
}

function showTip(part) {
  if (!tip.isConnected) document.body.append(tip);
  tip.textContent = words(part);
  tip.hidden = false;
  const at = part.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = tip;
  const left = Math.min(Math.max(at.left + at.width / 2 - width / 2, 8), innerWidth - width - 8);
  const top = at.top - height - 6;
  tip.style.translate = `${left}px ${top < 8 ? at.bottom + 6 : top}px`;
}

const hideTip = () => { tip.hidden = true; };
const part = ({ target }) => target.closest?.("[data-tip], .heat td a");

for (const name of ["pointerover", "focusin"]) {
  document.addEventListener(name, (event) => { const found = part(event); if (found) showTip(found); else hideTip(); });
}
for (const name of ["focusout", "scroll", "htmx:beforeSwap"]) {
  document.addEventListener(name, hideTip, { passive: true, capture: true });
}

// Arrow keys: in a drawing to the neighbour, in a grid also up and down.
const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 };
const STOPS = "a, [role=link]";

// From left to right, and what is above each other from the top; what the legend hides has no size.
function stops(drawing) {
  return [...drawing.querySelectorAll(STOPS)]
    .map((stop) => [stop, stop.getBoundingClientRect()])
    .filter(([, { width }]) => width)
    .sort(([, one], [, other]) => one.left - other.left || one.top - other.top)
    .map(([stop]) => stop);
}

function neighbour(link, key) {
  const cell = link.closest(".heat td, .heat th");
  if (!cell) {
    const all = stops(link.closest("[data-picture] > svg, [data-figure]"));
    return key === "Home" ? all[0] : key === "End" ? all.at(-1) : all[all.indexOf(link) + STEPS[key]];
  }
  const row = cell.parentElement;
  if (key === "ArrowUp") return row.previousElementSibling?.cells[cell.cellIndex]?.querySelector("a");
  if (key === "ArrowDown") return row.nextElementSibling?.cells[cell.cellIndex]?.querySelector("a");
  const links = [...row.querySelectorAll("a")];
  return key === "Home" ? links[0] : key === "End" ? links.at(-1) : links[links.indexOf(link) + STEPS[key]];
}

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (key === "Escape") hideTip();
  if (event.altKey || event.ctrlKey || event.metaKey || !(key in STEPS || key === "Home" || key === "End")) return;
  const link = target.closest?.(".picture a, [data-figure] [role=link], .heat tbody a");
  if (!link) return;
  event.preventDefault();
  const next = neighbour(link, key);
  if (!next) return;
  link.setAttribute("tabindex", -1);
  next.setAttribute("tabindex", 0);
  next.focus();
});

// A series that the legend hides: its marks, and the parts that nothing is left of. A column stands on its base.
document.addEventListener("series", ({ target: panel }) => {
  const drawing = panel.querySelector("[data-picture] > svg");
  if (!drawing) return;
  for (const { dataset: { series } } of panel.querySelectorAll("[data-series]")) {
    const marks = drawing.querySelectorAll(`.${series.split(" ").join(".")}, [data-verdict="${series}"]`);
    for (const mark of marks) mark.toggleAttribute("hidden", isHidden(panel, series));
  }
  for (const part of drawing.querySelectorAll("[data-tip]")) {
    const marks = [...part.querySelectorAll("rect, path, line")].filter((mark) => !mark.matches(".hit"));
    part.toggleAttribute("hidden", marks.every((mark) => mark.hasAttribute("hidden")));
    stack(marks.filter((mark) => mark.matches("rect[data-verdict]")));
  }
  const all = stops(drawing);
  if (all.length && !all.some((stop) => stop.getAttribute("tabindex") === "0")) all[0].setAttribute("tabindex", 0);
});

function stack(marks) {
  const size = (mark) => Number(mark.getAttribute("height"));
  for (const mark of marks) mark.dataset.y ??= mark.getAttribute("y");
  let base = Math.max(...marks.map((mark) => Number(mark.dataset.y) + size(mark)));
  for (const mark of marks) if (!mark.hasAttribute("hidden")) mark.setAttribute("y", base -= size(mark));
}
