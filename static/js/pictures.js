// Pictures drawn by the server: the text of a part under the pointer or the focus, arrow keys from part to part,
// and the picture as an image. Without it every part is still a link, and the table has the same figures.

const tip = Object.assign(document.createElement("p"), { className: "picture-tip", hidden: true });
// Screen readers have the same text as the name of the link.
tip.setAttribute("aria-hidden", "true");
const UNSCORED = { "!": "could not be scored", "–": "skipped" };

// The headings of a cell say what it is.
function words(part) {
  const cell = part.closest(".heat td");
  if (!cell) return part.getAttribute("aria-label");
  const [column, row] = [cell.closest("table").tHead.rows[0].cells[cell.cellIndex], cell.parentElement.cells[0]];
  return `${row.textContent.trim()}\n${column.textContent.trim()}: ${UNSCORED[part.textContent] ?? part.textContent}`;
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
for (const name of ["focusout", "scroll", "htmx:beforeSwap"]) document.addEventListener(name, hideTip, { passive: true, capture: true });

// Arrow keys: in a drawing to the neighbour, in a grid also up and down.
const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 };

function neighbour(link, key) {
  const cell = link.closest(".heat td, .heat th");
  if (!cell) {
    const all = [...link.closest("svg[role]").querySelectorAll("a")];
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
  const link = target.closest?.(".picture a, .heat tbody a");
  if (!link) return;
  event.preventDefault();
  const next = neighbour(link, key);
  if (!next) return;
  link.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});

// The image: the drawing with its title and legend, in the colours of the theme, at twice its size.
const LOOK = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font", "font-variant-numeric", "paint-order", "opacity"];
const EDGE = { top: 52, right: 24, bottom: 20, left: 56 };
const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function styled(drawn) {
  const copy = drawn.cloneNode(true);
  const originals = drawn.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((one, place) => {
    const look = getComputedStyle(originals[place]);
    for (const name of LOOK) one.style.setProperty(name, look.getPropertyValue(name));
    if (one.localName === "svg") one.style.overflow = "visible";
  });
  return copy;
}

async function image(figure) {
  const panel = figure.closest("section");
  const drawn = figure.querySelector(":scope > svg");
  const { width, height } = drawn.getBoundingClientRect();
  const size = { width: width + EDGE.left + EDGE.right, height: height + EDGE.top + EDGE.bottom };
  const whole = element("svg", { xmlns: SVG, ...size });
  const paper = getComputedStyle(panel), ink = getComputedStyle(document.body);
  whole.append(element("rect", { ...size, fill: paper.backgroundColor }));
  const say = (y, font, text) => {
    const line = element("text", { x: EDGE.left, y, fill: ink.color }, text.replace(/\s+/g, " ").trim());
    line.style.font = `${font} ${ink.fontFamily}`;
    whole.append(line);
  };
  say(22, "600 15px", `${panel.querySelector("h2").textContent} · ${document.querySelector("h1").textContent}`);
  say(40, "12px", drawn.getAttribute("aria-label"));
  const copy = styled(drawn);
  for (const [key, value] of Object.entries({ x: EDGE.left, y: EDGE.top, width, height })) copy.setAttribute(key, value);
  copy.style.overflow = "visible";
  whole.append(copy);
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(whole))}`;
  await picture.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: size.width * 2, height: size.height * 2 });
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return canvas;
}

document.addEventListener("click", async ({ target }) => {
  const button = target.closest?.("[data-picture-png]");
  if (!button) return;
  const canvas = await image(button.closest("section").querySelector("[data-picture]"));
  canvas.toBlob((blob) => {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: `${button.dataset.picturePng}.png` });
    link.click();
    URL.revokeObjectURL(link.href);
  });
});

const offer = () => { for (const button of document.querySelectorAll("[data-picture-png]")) button.hidden = false; };
document.addEventListener("htmx:afterSettle", offer);
offer();
