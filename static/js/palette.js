// The command palette: a combobox over what the page offers, the pages of the sidebar, and what the server finds.
// It clicks the page's own links and buttons, so it offers exactly what the reader may do.

const DELAY_MS = 80;
const MAX_EACH = 8;
const palette = document.getElementById("palette");
const box = palette?.querySelector("[role=combobox]");
const list = palette?.querySelector("[role=listbox]");
const opener = document.querySelector('[commandfor="palette"][aria-keyshortcuts]');

let here = [];
let pages = [];
let found = [];
let isMoved = false;
let isAsking = false;
let opensFirst = false;
let timer = 0;
let turn = 0;

const words = (text) => text.toLowerCase().split(/[\s\-_/,.:()·]+/).filter(Boolean);

function matches(wanted, text) {
  const known = words(text);
  const raw = text.toLowerCase().split(/\s+/);
  return wanted.every((word) => [...known, ...raw].some((one) => one.startsWith(word)));
}

function label(control) {
  const named = control.getAttribute("aria-label");
  if (named) return named;
  const copy = control.cloneNode(true);
  for (const part of copy.querySelectorAll("kbd, svg, .count")) part.remove();
  return copy.textContent.replace(/\s+/g, " ").trim();
}

function entries(group, selector) {
  const seen = new Set();
  return [...document.querySelectorAll(selector)]
    .filter((control) => !control.matches("[popovertarget], [aria-current], :disabled, [hidden]"))
    .map((control) => ({
      group,
      label: label(control),
      detail: control.href && new URL(control.href).origin !== location.origin ? "opens another site" : "",
      keys: control.dataset.key ?? control.getAttribute("aria-keyshortcuts") ?? "",
      control,
    }))
    .filter((entry) => entry.label && !seen.has(entry.label) && seen.add(entry.label));
}

function open() {
  if (palette.open) return palette.close();
  if (document.querySelector("dialog[open]")) return;
  palette.showModal();
}

function start() {
  const menus = ".head :is(menu, .actions-menu) :is(a[href], button), .head .tabs a, #case-sources a";
  here = entries("On this page", `${menus}, .stepper a[href]`);
  const sidebar = ".sidebar nav a[href], .sidebar [popover] > :is(a[href], button), .sidebar form > button";
  pages = entries("Pages", `#palette [hidden] a, ${sidebar}`);
  found = [];
  box.value = "";
  change();
}

function change() {
  isMoved = false;
  opensFirst = false;
  show();
  clearTimeout(timer);
  turn += 1;
  if (!palette.dataset.source) return;
  isAsking = true;
  timer = setTimeout(ask, box.value ? DELAY_MS : 0);
}

async function ask() {
  const mine = turn;
  const address = new URL(palette.dataset.source, location);
  address.searchParams.set("q", box.value);
  let places = [];
  try {
    const answer = await fetch(address);
    if (answer.ok) ({ places } = await answer.json());
  } catch {
    // Offline, the palette still knows the page and the sidebar.
  }
  if (mine !== turn || !palette.open) return;
  isAsking = false;
  found = places.map(({ kind, ...place }) => ({ group: kind, keys: "", ...place }));
  show();
  if (opensFirst) take(options()[0]);
}

function choices() {
  const wanted = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fit = ({ label: text, detail }) => matches(wanted, `${text} ${detail}`);
  // Until the server has answered, what it found before is narrowed here.
  const places = isAsking ? found.filter(fit) : found;
  const best = places.filter(({ group }) => group === "Best match");
  const others = places.filter(({ group }) => group !== "Best match");
  const local = [here.filter(fit).slice(0, MAX_EACH), pages.filter(fit).slice(0, wanted.length ? MAX_EACH : 40)];
  if (!wanted.length) return [...local[0], ...others, ...local[1]];
  const search = palette.dataset.search;
  const all = search && [{ group: "Search", label: `Search for “${box.value.trim()}”`, detail: "", keys: "",
    url: `${search}?q=${encodeURIComponent(box.value.trim())}` }];
  return [...best, ...local.flat(), ...others, ...(all || [])];
}

const options = () => [...list.querySelectorAll("[role=option]")];
const chosen = () => options().findIndex((option) => option.getAttribute("aria-selected") === "true");
let shown = [];

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function draw(entry, at) {
  const option = element("div", "", { id: `palette-${at}`, role: "option", "aria-selected": "false", "data-at": at });
  option.append(element("span", entry.label));
  if (entry.detail) option.append(element("small", entry.detail));
  for (const key of entry.keys.split(" ").filter((one) => one && !one.includes("+"))) {
    option.append(element("kbd", key.length === 1 ? key.toUpperCase() : key, { "aria-hidden": "true" }));
  }
  return option;
}

function show() {
  const kept = isMoved ? shown[chosen()]?.label : undefined;
  shown = choices();
  const groups = new Map();
  shown.forEach((entry, at) => {
    if (!groups.has(entry.group)) {
      const id = `palette-group-${groups.size}`;
      const group = element("div", "", { role: "group", "aria-labelledby": id });
      group.append(element("div", entry.group, { id, role: "presentation" }));
      groups.set(entry.group, group);
    }
    groups.get(entry.group).append(draw(entry, at));
  });
  list.replaceChildren(...groups.values());
  list.hidden = !shown.length;
  box.setAttribute("aria-expanded", String(shown.length > 0));
  palette.querySelector(".empty-palette").hidden = shown.length > 0 || isAsking;
  choose(Math.max(0, shown.findIndex((entry) => entry.label === kept)));
  if (!isAsking) {
    palette.querySelector("[role=status]").textContent = `${shown.length} result${shown.length === 1 ? "" : "s"}`;
  }
}

function choose(place) {
  const all = options();
  all.forEach((option, at) => option.setAttribute("aria-selected", String(at === place)));
  if (!all[place]) return box.removeAttribute("aria-activedescendant");
  box.setAttribute("aria-activedescendant", all[place].id);
  if (place) all[place].scrollIntoView({ block: "nearest" });
  else list.scrollTop = 0;
}

function take(option) {
  const entry = option && shown[Number(option.dataset.at)];
  if (!entry) return;
  palette.close();
  if (entry.url) location.assign(entry.url);
  else entry.control.click();
}

if (palette) {
  document.addEventListener(
    "keydown",
    (event) => {
      const isMac = opener?.getAttribute("aria-keyshortcuts").startsWith("Meta");
      const isPressed = isMac ? event.metaKey && !event.ctrlKey : event.ctrlKey && !event.metaKey;
      if (!isPressed || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
      event.preventDefault();
      open();
    },
    true,
  );
  // A button opens it too; what the page offers is read each time.
  new MutationObserver(() => palette.open && start()).observe(palette, { attributeFilter: ["open"] });
  box.addEventListener("input", change);
  box.addEventListener("keydown", (event) => {
    const last = options().length - 1;
    const at = chosen();
    const next = { ArrowDown: at < last ? at + 1 : 0, ArrowUp: at > 0 ? at - 1 : last, PageDown: last, PageUp: 0 };
    if (event.isComposing) return;
    if (event.key in next) {
      isMoved = true;
      choose(next[event.key]);
    } else if (event.key === "Enter") {
      if (isAsking && !isMoved) opensFirst = true;
      else take(options()[at]);
    } else {
      return;
    }
    event.preventDefault();
  });
  list.addEventListener("click", ({ target }) => take(target.closest("[role=option]")));
  // The caret stays in the field.
  list.addEventListener("mousedown", (event) => event.preventDefault());
  palette.addEventListener("click", ({ target }) => target === palette && palette.close());
}
