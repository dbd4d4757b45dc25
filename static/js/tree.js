// The evaluator tree: rows are dragged, or moved with Alt and an arrow key. A move is sent like the button of
// a row menu, together with all unsaved input; the server renders the result. Other edits are saved in the draft
// by the request that asks for their effect.
const tree = () => document.getElementById("evaluators");
const directions = { ArrowUp: "up", ArrowDown: "down", ArrowRight: "into", ArrowLeft: "out" };
let busy = false, isLeaving = false, dragged = null;

async function send(action, after) {
  if (busy) return;
  busy = true;
  await noRequests();
  const body = new FormData(tree());
  body.set("do", action);
  let answer, text;
  try {
    answer = await fetch(tree().getAttribute("action"), { method: "POST", body });
    text = await answer.text();
  } catch {
    announce("The server did not answer. Nothing was moved.");
    return;
  } finally { busy = false; }
  const page = new DOMParser().parseFromString(text, "text/html");
  const fresh = page.getElementById("evaluators");
  if (fresh?.tagName !== "FORM") {
    isLeaving = true;
    return void location.assign(answer.url);
  }
  for (const id of ["evaluators", "draft"]) {
    const part = page.getElementById(id);
    document.getElementById(id)?.replaceWith(part);
    window.htmx?.process(part);
  }
  const toast = page.querySelector("#toasts p")?.firstChild, error = tree().querySelector('[role="alert"]');
  announce((error ?? toast)?.textContent ?? "");
  after?.();
  if (answer.ok) savedEdits = edits;
  else showState("failed");
  tree().dispatchEvent(new Event("input", { bubbles: true }));
}

// The draft has a stamp, which every stored edit changes. So a form is only sent when no request is under way that
// may still change it.
let edits = 0, savedEdits = 0;
const underWay = new Map(), waiting = [];
const isOwn = ({ elt }) => elt === tree() || elt.closest?.("#what-if");
const noRequests = () => (underWay.size ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve());
function showState(state) {
  const count = document.getElementById("draft-count");
  if (count) count.textContent = { saving: "Saving …", failed: "Not saved" }[state];
}
document.addEventListener("htmx:beforeRequest", (event) => {
  if (isOwn(event.detail) && (busy || isLeaving)) event.preventDefault();
});
document.addEventListener("htmx:beforeSend", ({ detail }) => {
  if (isOwn(detail)) underWay.set(detail.xhr, detail.elt === tree() ? edits : null);
});
document.addEventListener("htmx:afterRequest", ({ detail }) => {
  const sent = underWay.get(detail.xhr);
  if (!underWay.delete(detail.xhr)) return;
  if (typeof sent === "number") {
    if (!detail.successful) showState("failed");
    else if (document.querySelector("#draft-count [data-state='saved']")) savedEdits = Math.max(savedEdits, sent);
  }
  if (!underWay.size) for (const resolve of waiting.splice(0)) resolve();
});
document.addEventListener("submit", (event) => {
  if (event.target !== tree() || isLeaving) return;
  const { submitter } = event;
  if (underWay.size) {
    event.preventDefault();
    event.stopImmediatePropagation();
    noRequests().then(() => tree().requestSubmit(document.getElementById(submitter?.id) ?? submitter));
  } else if (submitter?.matches(".unseen")) {
    // Enter in a field.
    event.preventDefault();
    event.stopImmediatePropagation();
    tree().dispatchEvent(new Event("input", { bubbles: true }));
  }
}, true);
// The answer to a request under way replaces the controls of the panel, and a request of theirs would be lost with
// them. So they send it once that answer has arrived.
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("#what-if button[hx-post]");
  if (!button || !underWay.size) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  noRequests().then(() => document.getElementById(button.id)?.click());
}, true);
document.addEventListener("change", (event) => {
  const { id, value } = event.target;
  if (!event.target.matches("#what-if select[hx-post]") || !underWay.size) return;
  event.stopImmediatePropagation();
  noRequests().then(() => {
    const choice = document.getElementById(id);
    if (!choice) return;
    choice.value = value;
    choice.dispatchEvent(new Event("change", { bubbles: true }));
  });
}, true);
document.addEventListener("submit", (event) => setTimeout(() => { if (!event.defaultPrevented) isLeaving = true; }));
addEventListener("pageshow", () => { isLeaving = false; });
addEventListener("beforeunload", (event) => {
  if (isLeaving || edits === savedEdits) return;
  event.preventDefault();
});
function announce(text) {
  document.getElementById("tree-message").textContent = text.replace(/\s+/g, " ").trim();
}
const row = (id) => document.querySelector(`#${id} > .node`);
const toRow = (id) => () => row(id)?.querySelector("a")?.focus();

document.addEventListener("input", ({ target }) => {
  if (!target.closest("#evaluators") || target.name === "note") return;
  edits += 1;
  showState("saving");
});

document.addEventListener("keydown", (event) => {
  const node = event.altKey && event.target.closest?.("#evaluators .node[data-node]");
  if (!node || !directions[event.key] || event.target.matches("select")) return;
  event.preventDefault();
  const direction = directions[event.key], name = node.querySelector(".name code").textContent;
  const { ways, node: id } = node.dataset;
  if (ways.split(" ").includes(direction)) send(`${id} ${direction}`, toRow(id));
  else announce(`${name} cannot move ${direction === "into" ? "into a neighbour" : direction} from here.`);
});

// Enter in the note saves.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !event.target.matches?.('[name="note"][form="evaluators"]')) return;
  event.preventDefault();
  tree().requestSubmit(document.querySelector('[form="evaluators"][value="save"]'));
});

// A link to another page sends input that is not saved yet first.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("#evaluators a[data-do]");
  if (!link || edits === savedEdits || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  send(link.dataset.do);
});

// The actions of a menu run without leaving the page.
document.addEventListener("submit", (event) => {
  if (event.target !== tree() || event.submitter?.name !== "do" || event.submitter.value === "save") return;
  event.preventDefault();
  const action = event.submitter.value;
  send(action, toRow(action.split(" ")[0]));
});

function dropPosition(node, y) {
  const { top, height } = node.getBoundingClientRect();
  const part = (y - top) / height;
  if ("root" in node.dataset) return "inside";
  if ("holds" in node.dataset) return part < 0.3 ? "before" : "inside";
  return part < 0.5 ? "before" : "after";
}
function clearDropMarks() {
  for (const node of document.querySelectorAll("[data-drop]")) delete node.dataset.drop;
}
document.addEventListener("dragstart", (event) => {
  const grip = event.target.closest?.(".grip");
  if (!grip) return;
  dragged = grip.closest("li");
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setData("text/plain", dragged.id);
  event.dataTransfer.setDragImage(grip.closest(".node"), 12, 12);
});
document.addEventListener("dragover", (event) => {
  const node = dragged && event.target.closest?.("#evaluators .node[data-node]");
  clearDropMarks();
  if (!node || dragged.contains(node)) return;
  event.preventDefault();
  node.dataset.drop = dropPosition(node, event.clientY);
});
document.addEventListener("drop", (event) => {
  const node = dragged && event.target.closest?.("#evaluators .node[data-node]");
  if (!node || dragged.contains(node)) return;
  event.preventDefault();
  const where = dropPosition(node, event.clientY), item = node.parentElement, id = dragged.id;
  const holder = where === "inside" ? item : item.parentElement.closest("li");
  const others = [...holder.querySelectorAll(":scope > ul > li[id]")].filter((one) => one !== dragged);
  const position = where === "inside" ? 0 : others.indexOf(item) + (where === "after" ? 1 : 0);
  send(`${id} move ${holder.id} ${position}`, toRow(id));
});
document.addEventListener("dragend", () => { clearDropMarks(); dragged = null; });

// The thresholds in the histogram are dragged, or moved with the arrow keys; they write the fields of the form.
let handle = "";
const STEPS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };
const drawing = () => [...document.querySelectorAll("#histogram svg")].find((svg) => svg.checkVisibility());
function setThreshold(name, score) {
  const field = document.getElementById(name), scale = Number(drawing().dataset.scale), step = scale / 100;
  const lowest = name === "pass_threshold" ? Number(document.getElementById("borderline_threshold").value) : 0;
  const highest = name === "pass_threshold" ? scale : Number(document.getElementById("pass_threshold").value);
  const bounded = Math.min(highest, Math.max(lowest, Math.round(score / step) * step));
  const text = String(Number(bounded.toFixed(4)));
  showThreshold(name, text);
  if (field.value === text) return;
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}
function showThreshold(name, text) {
  for (const svg of document.querySelectorAll("#histogram svg")) {
    const mark = svg.querySelector(`[data-field="${name}"]`);
    if (!mark) continue;
    const low = Number(svg.dataset.low), scale = Number(svg.dataset.scale), { width } = svg.viewBox.baseVal;
    const x = ((Number(text) - low) / (scale - low)) * width;
    mark.setAttribute("transform", `translate(${x - Number(mark.dataset.x)} 0)`);
    mark.setAttribute("aria-valuenow", text);
    const shown = scale === 1 ? Number(text).toFixed(2) : text;
    mark.setAttribute("aria-valuetext", shown);
    mark.querySelector("text").textContent = `${name.split("_")[0]} ${shown}`;
  }
}
document.addEventListener("pointerdown", (event) => {
  const mark = event.target.closest?.("#histogram .handle");
  if (!mark || event.button) return;
  event.preventDefault();
  handle = mark.dataset.field;
  mark.focus({ preventScroll: true });
});
document.addEventListener("pointermove", ({ clientX }) => {
  const svg = handle && drawing();
  if (!svg) return;
  const { left, width } = svg.getBoundingClientRect(), low = Number(svg.dataset.low), scale = Number(svg.dataset.scale);
  setThreshold(handle, low + ((clientX - left) / width) * (scale - low));
});
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => { handle = ""; });
document.addEventListener("keydown", (event) => {
  const name = event.target.closest?.("#histogram .handle")?.dataset.field;
  if (!name || event.altKey || event.ctrlKey || event.metaKey) return;
  const scale = Number(drawing().dataset.scale), now = Number(document.getElementById(name).value);
  const ends = { Home: 0, End: scale };
  const score = ends[event.key] ?? now + ((STEPS[event.key] ?? NaN) * scale) / 100;
  if (Number.isNaN(score)) return;
  event.preventDefault();
  setThreshold(name, score);
});
