// A picture as an image: the drawing, the heat map or a table with its title and legend, in the colours of the theme,
// at twice its size.

// The shorthand of fonts is empty where figures have one width.
const FONT = ["font-family", "font-size", "font-weight", "font-variant-numeric"];
const STROKE = ["stroke", "stroke-width", "stroke-opacity", "stroke-dasharray"];
const LOOK = [...FONT, ...STROKE, "fill", "fill-opacity", "paint-order", "display"];
const EDGE = { top: 52, right: 24, bottom: 20, left: 56 };
const SVG = "http://www.w3.org/2000/svg";
const SCALE = 2;
// The parts of a mark, as the style sheet of the page draws them.
const MARKS =
  ".solid { fill: currentColor; stroke: none } .mark { fill: none; stroke: var(--paper); stroke-width: 1.7 }";

function element(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

// A text in the look of an element; `more` are further attributes.
function words(text, x, y, look, more = {}) {
  const line = element("text", { x, y, fill: look.color, ...more }, text.replace(/\s+/g, " ").trim());
  for (const name of FONT) line.style.setProperty(name, look.getPropertyValue(name));
  return line;
}

// A drawing with the looks that style sheets give it.
function styled(drawn) {
  const copy = drawn.cloneNode(true);
  const originals = drawn.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((one, place) => {
    const look = getComputedStyle(originals[place]);
    for (const name of LOOK) one.style.setProperty(name, look.getPropertyValue(name));
    if (one.localName === "svg") one.style.overflow = "visible";
  });
  copy.style.overflow = "visible";
  return copy;
}

function placed(drawn, { left, top, width, height }) {
  const copy = styled(drawn);
  for (const [key, value] of Object.entries({ x: left, y: top, width, height })) copy.setAttribute(key, value);
  return copy;
}

function drawing(figure) {
  const drawn = [...figure.querySelectorAll(":scope > svg")].find((svg) => svg.checkVisibility());
  const frame = drawn.getBoundingClientRect();
  const at = ({ left, top, width, height }) => (
    { left: left - frame.left + EDGE.left, top: top - frame.top + EDGE.top, width, height }
  );
  const parts = [placed(drawn, at(frame))];
  for (const entry of figure.querySelectorAll("[data-series]:not([aria-pressed=false])")) {
    const { left, top, width, height } = at(entry.getBoundingClientRect());
    const swatch = entry.querySelector("svg");
    const box = at(swatch.getBoundingClientRect());
    const label = words(entry.textContent, left + box.width + 5, top + height - 4, getComputedStyle(entry));
    parts.push(placed(swatch, box), label);
  }
  // Labels at the ends of lines stand in the padding.
  const right = parseFloat(getComputedStyle(figure).paddingRight);
  const height = figure.getBoundingClientRect().bottom - frame.top;
  return { parts, width: frame.width + right, height, label: drawn.getAttribute("aria-label") };
}

// The rows of the heat map that were read so far.
function heatMap(table) {
  const frame = table.getBoundingClientRect();
  const parts = [];
  for (const cell of table.querySelectorAll("th, td:not([colspan])")) {
    const look = getComputedStyle(cell);
    const { left, top, width, height, bottom } = cell.getBoundingClientRect();
    const [x, y] = [left - frame.left + EDGE.left, top - frame.top + EDGE.top];
    if (cell.matches("td")) parts.push(element("rect", { x, y, width, height, fill: look.backgroundColor }));
    const isUpright = cell.matches("thead th") && cell.querySelector("a");
    const isHead = cell.matches("tbody th");
    const middle = [x + width / 2, y + (bottom - top) / 2 + 4];
    const text = isHead ? cell.querySelector("code").textContent : cell.textContent;
    if (isUpright) {
      const [left, bottom] = [middle[0] + 4, y + height - 6];
      parts.push(words(text, left, bottom, look, { transform: `rotate(-90 ${left} ${bottom})` }));
    } else if (isHead) parts.push(words(text, x + 16, middle[1], look));
    else parts.push(words(text, middle[0], middle[1], look, { "text-anchor": "middle" }));
  }
  return { parts, width: frame.width, height: frame.height, label: table.caption.textContent };
}

// A mark of the sprite, whose shapes an image has to bring along.
function mark(icon, { left: x, top: y, width, height }) {
  const symbol = document.querySelector(icon.firstElementChild.getAttribute("href"));
  const look = getComputedStyle(icon);
  const copy = element("svg", { x, y, width, height, viewBox: symbol.getAttribute("viewBox") });
  for (const name of [...LOOK, "color"]) copy.style.setProperty(name, look.getPropertyValue(name));
  copy.style.setProperty("--paper", look.getPropertyValue("--paper"));
  copy.append(...symbol.cloneNode(true).childNodes);
  return copy;
}

// Any other table: its words where they stand, its bars and marks, and the lines between its rows.
function table(drawn) {
  const frame = drawn.getBoundingClientRect();
  const at = ({ left, top, width, height }) => (
    { left: left - frame.left + EDGE.left, top: top - frame.top + EDGE.top, width, height }
  );
  const parts = [];
  for (const cell of drawn.querySelectorAll("th, td")) {
    const { left: x, top: y, width, height } = at(cell.getBoundingClientRect());
    const look = getComputedStyle(cell);
    const edge = parseFloat(look.borderBlockEndWidth);
    parts.push(
      element("rect", { x, y, width, height, fill: look.backgroundColor }),
      element("rect", { x, y: y + height - edge, width, height: edge, fill: look.borderBlockEndColor }),
    );
  }
  const texts = document.createTreeWalker(drawn, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (texts.nextNode()) {
    const { data, parentElement } = texts.currentNode;
    if (parentElement.closest("caption, .unseen")) continue;
    // Word by word, for a text may have several lines.
    for (const { 0: word, index } of data.matchAll(/\S+/g)) {
      range.setStart(texts.currentNode, index);
      range.setEnd(texts.currentNode, index + word.length);
      const { left, top, height } = at(range.getBoundingClientRect());
      const look = getComputedStyle(parentElement);
      if (height) parts.push(words(word, left, top + height / 2, look, { "dominant-baseline": "central" }));
    }
  }
  for (const bar of drawn.querySelectorAll("svg.bar")) parts.push(placed(bar, at(bar.getBoundingClientRect())));
  for (const icon of drawn.querySelectorAll("svg.icon")) parts.push(mark(icon, at(icon.getBoundingClientRect())));
  return { parts, width: frame.width, height: frame.height, label: drawn.caption.textContent };
}

function drawn(panel) {
  const figure = panel.querySelector("[data-picture], figure.chart:has(> svg)");
  if (figure) return drawing(figure);
  const heat = panel.querySelector("table.heat");
  return heat ? heatMap(heat) : table(panel.querySelector("table[data-image]"));
}

async function image(panel) {
  const { parts, width, height, label } = drawn(panel);
  const heading = panel.querySelector("h2");
  const name = heading.textContent.replace(/\s+/g, " ").trim();
  // A picture that has a page of its own has given it its name.
  const title = document.title.startsWith(name) ? document.title : `${name} · ${document.title}`;
  const widest = Math.max(width, length(title, heading));
  const size = { width: widest + EDGE.left + EDGE.right, height: height + EDGE.top + EDGE.bottom };
  const whole = element("svg", { xmlns: SVG, ...size });
  const { backgroundColor } = getComputedStyle(panel);
  whole.append(
    element("rect", { ...size, fill: backgroundColor }),
    words(title, EDGE.left, 22, getComputedStyle(heading)),
    words(label, EDGE.left, 40, getComputedStyle(panel.querySelector("header p, caption, figcaption"))),
    ...parts,
  );
  return rastered(new XMLSerializer().serializeToString(whole), size);
}

// The width of a text in the font of an element.
function length(text, part) {
  const context = document.createElement("canvas").getContext("2d");
  const { fontWeight, fontSize, fontFamily } = getComputedStyle(part);
  context.font = `${fontWeight} ${fontSize} ${fontFamily}`;
  return context.measureText(text).width;
}

const rules = ({ cssRules = [], styleSheet }) =>
  [...(styleSheet ?? { cssRules }).cssRules].flatMap((rule) => [rule, ...rules(rule)]);

// The first font of the page as a rule of a style sheet that needs no other file.
async function fontFace() {
  const face = [...document.styleSheets].flatMap(rules).find((rule) => rule instanceof CSSFontFaceRule);
  const [, path] = face.cssText.match(/url\("(.+?)"\)/);
  const blob = await (await fetch(new URL(path, face.parentStyleSheet.href))).blob();
  const data = await new Promise((onload) => {
    const reader = new FileReader();
    reader.onload = () => onload(reader.result);
    reader.readAsDataURL(blob);
  });
  return `@font-face { font-family: Inter; font-weight: 100 900; src: url("${data}") }`;
}

// An SVG as a canvas. Images know no fonts of the page, so it brings its own.
export async function rastered(svg, { width, height }) {
  const picture = new Image();
  const whole = svg.replace(">", `><style>${await fontFace()}${MARKS}</style>`);
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(whole)}`;
  await picture.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: width * SCALE, height: height * SCALE });
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return canvas;
}

export function save(canvas, name) {
  canvas.toBlob((blob) => {
    const href = URL.createObjectURL(blob);
    const link = Object.assign(document.createElement("a"), { href, download: `${name}.png` });
    link.click();
    URL.revokeObjectURL(link.href);
  });
}

document.addEventListener("click", async ({ target }) => {
  const button = target.closest?.("[data-picture-png]");
  if (button) save(await image(button.closest("section")), button.dataset.picturePng);
});

const offer = () => { for (const button of document.querySelectorAll("[data-picture-png]")) button.hidden = false; };
document.addEventListener("htmx:afterSettle", offer);
offer();
