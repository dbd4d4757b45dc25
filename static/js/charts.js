// Draws the charts of a page with Plotly; loaded on pages with charts alone. Every figure stands in
// the page as JSON, in a wide and a narrow drawing, with colours by the names of CSS variables.
// Plotly is larger than all else together: it is requested once the page with its tables is there.

const NARROW = 560;
// Nothing is requested from other sites, and no button uploads a figure.
const CONFIG = { displayModeBar: false, showSendToCloud: false, plotlyServerURL: "", showTips: false, doubleClick: false };

const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);

// The colour of a CSS variable in the theme in force.
function colour(name) {
  probe.style.color = name;
  return getComputedStyle(probe).color;
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

const watched = new ResizeObserver((entries) => { for (const { target } of entries) draw(target); });

function draw(chart) {
  const width = Math.floor(chart.clientWidth);
  if (!width || !chart.isConnected) return;
  const both = JSON.parse(document.getElementById(chart.dataset.figure).textContent);
  const { data, layout } = coloured(width <= NARROW ? both.narrow : both.wide);
  layout.width = width;
  layout.font.family = layout.hoverlabel.font.family = getComputedStyle(document.body).fontFamily;
  Plotly.react(chart, data, layout, CONFIG);
  if (chart.dataset.opens) return;
  chart.dataset.opens = "points";
  // A click on a point opens its run; the table has the same links for keys.
  chart.on("plotly_click", ({ points }) => { const url = points.find(({ customdata }) => customdata)?.customdata; if (url) location.assign(url); });
}

function drawAll(charts = document.querySelectorAll("[data-figure]")) {
  if (!window.Plotly) return;
  for (const chart of charts) { draw(chart); watched.observe(chart); }
  for (const button of document.querySelectorAll("[data-png]")) button.hidden = false;
}

// The image of a chart: its wide drawing with title and legend, in the colours of the theme, at twice the size.
const PNG = { width: 1040, margin: 80, scale: 2 };
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

async function drawn(button) {
  const { data, layout } = coloured(JSON.parse(document.getElementById(button.dataset.png).textContent).wide);
  const { width, margin, scale } = PNG;
  const height = layout.height + margin - layout.margin.t;
  Object.assign(layout, { width, height, paper_bgcolor: colour("var(--paper)"), margin: { ...layout.margin, t: margin } });
  layout.title = {
    text: escaped(button.dataset.title),
    font: { size: 18, color: colour("var(--ink)") },
    subtitle: { text: escaped(button.dataset.legend), font: { size: 12, color: colour("var(--ink-3)") } },
    x: layout.margin.l / width, xanchor: "left", y: 1 - 24 / height,
  };
  layout.font.family = getComputedStyle(document.body).fontFamily;
  const image = new Image();
  image.src = await Plotly.toImage({ data, layout, config: CONFIG }, { format: "svg", width, height });
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: width * scale, height: height * scale });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

document.addEventListener("click", async ({ target }) => {
  const button = target.closest("[data-png]");
  if (!button) return;
  const canvas = await drawn(button);
  canvas.toBlob((blob) => {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: `${button.dataset.name}-score-cost.png` });
    link.click();
    URL.revokeObjectURL(link.href);
  });
});

// When a swap removes charts, stop observing them; then draw the new ones.
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (!detail.shouldSwap) return;
  for (const chart of detail.target.querySelectorAll("[data-figure]")) { watched.unobserve(chart); window.Plotly?.purge(chart); }
});
document.addEventListener("htmx:afterSettle", () => drawAll(document.querySelectorAll("[data-figure]:not(.js-plotly-plot)")));
document.addEventListener("change", ({ target }) => { if (target.name === "theme") drawAll(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());

function loadPlotly() {
  const { plotly: src } = document.getElementById("charts-script").dataset;
  document.head.append(Object.assign(document.createElement("script"), { src, onload: () => drawAll() }));
}

if (document.readyState === "complete") loadPlotly();
else addEventListener("load", loadPlotly);
