// Draws score against cost with Plotly; loaded on pages with that chart alone. The figure stands in the page as JSON,
// in a wide and a narrow drawing, with colours by the names of CSS variables. Plotly is larger than all else together:
// it is requested once the page with its tables is there, and draws what is seen. It does not zoom: the filters
// above choose what is drawn, and the axes fit it.

import { isHidden } from "./legend.js";
import { rastered, save } from "./picture-image.js";

const NARROW = 560;
// Nothing is requested from other sites, and no button uploads a figure.
const CONFIG = {
  displayModeBar: false, showSendToCloud: false, plotlyServerURL: "", showTips: false, doubleClick: false,
};

const probe = document.createElement("span");
probe.className = "plot-colours";
probe.hidden = true;
document.body.append(probe);

// The colour of a CSS variable in the theme in force; Plotly does not read what mixing two gives.
function colour(name) {
  probe.style.color = name;
  const { color } = getComputedStyle(probe);
  const [, ...parts] = color.match(/^color\(srgb (\S+) (\S+) (\S+)\)$/) ?? [];
  return parts.length ? `rgb(${parts.map((part) => Math.round(part * 255))})` : color;
}

function coloured(value, seen = new Map()) {
  if (typeof value === "string" && value.startsWith("var(--")) {
    if (!seen.has(value)) seen.set(value, colour(value));
    return seen.get(value);
  }
  if (Array.isArray(value)) return value.map((one) => coloured(one, seen));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, coloured(one, seen)]));
  }
  return value;
}

// A figure in the colours of the theme, without what the legend hides.
function figure(name, panel, width) {
  const both = JSON.parse(document.getElementById(name).textContent);
  const { data, layout } = coloured(width <= NARROW ? both.narrow : both.wide);
  const isShown = ({ name: series }) => !isHidden(panel, series);
  for (const part of ["shapes", "annotations"]) layout[part] = layout[part].filter(isShown);
  for (const trace of data) trace.visible = isShown(trace);
  return { data, layout };
}

const open = ({ customdata }) => { if (customdata) location.assign(customdata); };

// Plotly reads tags and entities in its texts; those that are names are escaped.
const ENTITIES = { "<br>": "\n", "&lt;": "<", "&gt;": ">", "&amp;": "&" };
const plain = (text) => text.replace(/<br>|&lt;|&gt;|&amp;/g, (found) => ENTITIES[found]);

// Points are links of one stop of Tab; arrow keys lead from there to the others.
function link(chart) {
  let tabIndex = 0;
  for (const point of chart.querySelectorAll(".scatterlayer .point")) {
    const { trace } = point.closest(".trace").__data__[0];
    const { i } = point.__data__;
    const label = plain(trace.hovertext[i]);
    point.dataset.tip = "";
    const attributes = { role: "link", tabindex: tabIndex, "aria-label": label };
    for (const [name, value] of Object.entries(attributes)) point.setAttribute(name, value);
    point.onkeydown = ({ key }) => { if (key === "Enter") open({ customdata: trace.customdata[i] }); };
    tabIndex = -1;
  }
}

function draw(chart) {
  const width = Math.floor(chart.clientWidth);
  if (!width || !chart.isConnected) return;
  const { data, layout } = figure(chart.dataset.figure, chart.closest("section"), width);
  layout.width = width;
  layout.font.family = layout.hoverlabel.font.family = getComputedStyle(document.body).fontFamily;
  const isFirst = !chart.classList.contains("js-plotly-plot");
  chart.querySelector(":scope > .skeleton")?.remove();
  Plotly.react(chart, data, layout, CONFIG);
  if (isFirst) {
    // A click on a point opens its run.
    chart.on("plotly_click", ({ points }) => points.forEach(open));
    chart.on("plotly_afterplot", () => link(chart));
  }
  link(chart);
}

const sized = new ResizeObserver((entries) => { for (const { target } of entries) draw(target); });
const seen = new IntersectionObserver(async (entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    await plotly();
    sized.observe(target);
  }
}, { rootMargin: "200px" });

let loading;

function plotly() {
  loading ??= new Promise((onload) => {
    const { plotly: src } = document.getElementById("charts-script").dataset;
    document.head.append(Object.assign(document.createElement("script"), { src, onload }));
  });
  return loading;
}

function watch() {
  for (const chart of document.querySelectorAll("[data-figure]:not(.js-plotly-plot)")) seen.observe(chart);
  for (const button of document.querySelectorAll("[data-png]")) button.hidden = false;
}

function drawAgain(within = document) {
  for (const chart of within.querySelectorAll(".js-plotly-plot")) draw(chart);
}

// The image of a chart: its wide drawing with title and legend, at twice the size.
const PNG = { width: 1040, margin: 80 };
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

document.addEventListener("click", async ({ target }) => {
  const button = target.closest("[data-png]");
  if (!button) return;
  await plotly();
  const { width, margin } = PNG;
  const { data, layout } = figure(button.dataset.png, button.closest("section"), width);
  const height = layout.height + margin - layout.margin.t;
  const paper = colour("var(--paper)");
  Object.assign(layout, { width, height, paper_bgcolor: paper, margin: { ...layout.margin, t: margin } });
  layout.title = {
    text: escaped(button.dataset.title),
    font: { size: 18, color: colour("var(--ink)") },
    subtitle: { text: escaped(button.dataset.legend), font: { size: 12, color: colour("var(--ink-3)") } },
    x: layout.margin.l / width, xanchor: "left", y: 1 - 24 / height,
  };
  layout.font.family = getComputedStyle(document.body).fontFamily;
  const address = await Plotly.toImage({ data, layout, config: CONFIG }, { format: "svg", width, height });
  const svg = decodeURIComponent(address.slice(address.indexOf(",") + 1));
  save(await rastered(svg, { width, height }), `${button.dataset.name}-score-cost`);
});

// When a swap removes charts, stop observing them; then draw the new ones.
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (!detail.shouldSwap) return;
  for (const chart of detail.target.querySelectorAll("[data-figure]")) {
    seen.unobserve(chart);
    sized.unobserve(chart);
    window.Plotly?.purge(chart);
  }
});
document.addEventListener("htmx:afterSettle", watch);
document.addEventListener("series", ({ target }) => drawAgain(target));
document.addEventListener("change", ({ target }) => { if (target.name === "theme") drawAgain(); });
for (const medium of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
  matchMedia(medium).addEventListener("change", () => drawAgain());
}

if (document.readyState === "complete") watch();
else addEventListener("load", watch);
