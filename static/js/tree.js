// The evaluator tree: rows are dragged, or moved with Alt and an arrow key. A move is sent like the button of
// a row menu, together with all unsaved input; the server renders the result.
const tree = () => document.getElementById("evaluators");
const directions = { ArrowUp: "up", ArrowDown: "down", ArrowRight: "into", ArrowLeft: "out" };
let busy = false, isLeaving = false, isSent = false, isEdited = false, dragged = null;

async function send(action, after) {
  if (busy) return;
  busy = true;
  ignorePendingAnswers();
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
    isLeaving = isSent = true;
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
  tree().dispatchEvent(new Event("input", { bubbles: true }));
  isEdited = !answer.ok;
}
// While the form is sent, answers to earlier requests are out of date and are ignored. Aborting those requests
// instead would be reported as an error.
const pending = new Set(), outdated = new WeakSet();
function ignorePendingAnswers() {
  for (const request of pending) outdated.add(request);
}
document.addEventListener("htmx:beforeRequest", (event) => { if (busy || isLeaving) event.preventDefault(); });
document.addEventListener("htmx:beforeSend", (event) => pending.add(event.detail.xhr));
document.addEventListener("htmx:afterRequest", (event) => pending.delete(event.detail.xhr));
document.addEventListener("htmx:beforeSwap", (event) => { if (outdated.has(event.detail.xhr)) event.detail.shouldSwap = false; });
document.addEventListener("submit", (event) => {
  if (event.target === tree() || event.target.id === "discard-form") isSent = true;
});
document.addEventListener("submit", (event) => setTimeout(() => {
  if (event.defaultPrevented) {
    isSent = false;
    return;
  }
  isLeaving = true;
  ignorePendingAnswers();
}));
addEventListener("pageshow", () => { isLeaving = isSent = false; showUnsaved(); });
function announce(text) {
  document.getElementById("tree-message").textContent = text.replace(/\s+/g, " ").trim();
}
const row = (id) => document.querySelector(`#${id} > .node`);
const toRow = (id) => () => row(id)?.querySelector("a")?.focus();

document.addEventListener("input", ({ target }) => {
  if (!target.closest("#evaluators")) return;
  isEdited = true;
  showUnsaved();
});

// A field that differs from what the server rendered, or that it rejected, is in no draft yet.
function differs(field) {
  if (!field.name || field.name === "note" || field.type === "hidden") return false;
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.matches("select")) {
    const first = field.multiple || field.querySelector("option[selected]") ? null : field.options[0];
    return [...field.options].some((one) => one.selected !== (one.defaultSelected || one === first));
  }
  return "defaultValue" in field && field.value !== field.defaultValue;
}
const hasUnsaved = () => Boolean(tree()?.querySelector('[role="alert"]')) || [...(tree()?.elements ?? [])].some(differs);
function showUnsaved() {
  const banner = document.getElementById("unsaved-changes"), unchanged = document.querySelector("#draft [data-unchanged]");
  const unsaved = hasUnsaved();
  if (banner && banner.hidden === unsaved) banner.hidden = !unsaved;
  if (unchanged) unchanged.hidden = unsaved;
}
addEventListener("beforeunload", (event) => {
  if (isSent || !hasUnsaved()) return;
  isLeaving = false;
  event.preventDefault();
});

document.addEventListener("keydown", (event) => {
  const node = event.altKey && event.target.closest?.("#evaluators .node[data-node]");
  if (!node || !directions[event.key] || event.target.matches("select")) return;
  event.preventDefault();
  const direction = directions[event.key], name = node.querySelector(".name code").textContent;
  if (node.dataset.ways.split(" ").includes(direction)) send(`${node.dataset.node} ${direction}`, toRow(node.dataset.node));
  else announce(`${name} cannot move ${direction === "into" ? "into a neighbour" : direction} from here.`);
});

// Enter in the note saves.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !event.target.matches?.('[name="note"][form="evaluators"]')) return;
  event.preventDefault();
  tree().requestSubmit(document.querySelector('[form="evaluators"][value="save"]'));
});

// A link to another page sends the unsaved input first.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("#evaluators a[data-do]");
  if (!link || !isEdited || event.ctrlKey || event.metaKey || event.shiftKey) return;
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
