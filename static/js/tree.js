// The evaluator tree: rows are dragged, or moved with Alt and an arrow key. Every move is sent as the
// buttons of the row menus would send it, with what was entered besides; the server draws the rest.
const tree = () => document.getElementById("evaluators");
const ways = { ArrowUp: "up", ArrowDown: "down", ArrowRight: "into", ArrowLeft: "out" };
let busy = false, isLeaving = false, isSent = false, isEdited = false, dragged = null;

async function send(action, after) {
  if (busy) return;
  busy = true;
  hush();
  const body = new FormData(tree());
  body.set("do", action);
  let answer, text;
  try {
    answer = await fetch(tree().getAttribute("action"), { method: "POST", body });
    text = await answer.text();
  } catch {
    say("The server did not answer. Nothing was moved.");
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
  const told = page.querySelector("#toasts p")?.firstChild, refused = tree().querySelector('[role="alert"]');
  say((refused ?? told)?.textContent ?? "");
  after?.();
  tree().dispatchEvent(new Event("input", { bubbles: true }));
  isEdited = !answer.ok;
}
// While the form is sent, a question about it as it was comes too late: its answer is left aside. Cutting the
// question off instead would be told as an error.
const asked = new Set(), late = new WeakSet();
function hush() {
  for (const question of asked) late.add(question);
}
document.addEventListener("htmx:beforeRequest", (event) => { if (busy || isLeaving) event.preventDefault(); });
document.addEventListener("htmx:beforeSend", (event) => asked.add(event.detail.xhr));
document.addEventListener("htmx:afterRequest", (event) => asked.delete(event.detail.xhr));
document.addEventListener("htmx:beforeSwap", (event) => { if (late.has(event.detail.xhr)) event.detail.shouldSwap = false; });
document.addEventListener("submit", (event) => {
  if (event.target === tree() || event.target.id === "discard-form") isSent = true;
});
document.addEventListener("submit", (event) => setTimeout(() => {
  if (event.defaultPrevented) {
    isSent = false;
    return;
  }
  isLeaving = true;
  hush();
}));
addEventListener("pageshow", () => { isLeaving = isSent = false; tell(); });
function say(words) {
  document.getElementById("tree-said").textContent = words.replace(/\s+/g, " ").trim();
}
const row = (id) => document.querySelector(`#${id} > .node`);
const toRow = (id) => () => row(id)?.querySelector("a")?.focus();

document.addEventListener("input", ({ target }) => {
  if (!target.closest("#evaluators")) return;
  isEdited = true;
  tell();
});

// What stands in the form otherwise than the server drew it, or as it refused it, is in no draft yet.
function differs(field) {
  if (!field.name || field.name === "note" || field.type === "hidden") return false;
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.matches("select")) {
    const first = field.multiple || field.querySelector("option[selected]") ? null : field.options[0];
    return [...field.options].some((one) => one.selected !== (one.defaultSelected || one === first));
  }
  return "defaultValue" in field && field.value !== field.defaultValue;
}
const isUnkept = () => Boolean(tree()?.querySelector('[role="alert"]')) || [...(tree()?.elements ?? [])].some(differs);
function tell() {
  const told = document.getElementById("not-kept"), unchanged = document.querySelector("#draft [data-unchanged]");
  const unkept = isUnkept();
  if (told && told.hidden === unkept) told.hidden = !unkept;
  if (unchanged) unchanged.hidden = unkept;
}
addEventListener("beforeunload", (event) => {
  if (isSent || !isUnkept()) return;
  isLeaving = false;
  event.preventDefault();
});

document.addEventListener("keydown", (event) => {
  const node = event.altKey && event.target.closest?.("#evaluators .node[data-node]");
  if (!node || !ways[event.key] || event.target.matches("select")) return;
  event.preventDefault();
  const way = ways[event.key], name = node.querySelector(".name code").textContent;
  if (node.dataset.ways.split(" ").includes(way)) send(`${node.dataset.node} ${way}`, toRow(node.dataset.node));
  else say(`${name} cannot move ${way === "into" ? "into anything beside it" : way} from here.`);
});

// Enter in the note saves, as its button does.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !event.target.matches?.('[name="note"][form="evaluators"]')) return;
  event.preventDefault();
  tree().requestSubmit(document.querySelector('[form="evaluators"][value="save"]'));
});

// A link to another page takes along what was entered here.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("#evaluators a[data-do]");
  if (!link || !isEdited || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  send(link.dataset.do);
});

// What a menu asks for is done without leaving the page.
document.addEventListener("submit", (event) => {
  if (event.target !== tree() || event.submitter?.name !== "do" || event.submitter.value === "save") return;
  event.preventDefault();
  const action = event.submitter.value;
  send(action, toRow(action.split(" ")[0]));
});

function goal(node, y) {
  const { top, height } = node.getBoundingClientRect();
  const part = (y - top) / height;
  if ("root" in node.dataset) return "inside";
  if ("holds" in node.dataset) return part < 0.3 ? "before" : "inside";
  return part < 0.5 ? "before" : "after";
}
function clear() {
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
  clear();
  if (!node || dragged.contains(node)) return;
  event.preventDefault();
  node.dataset.drop = goal(node, event.clientY);
});
document.addEventListener("drop", (event) => {
  const node = dragged && event.target.closest?.("#evaluators .node[data-node]");
  if (!node || dragged.contains(node)) return;
  event.preventDefault();
  const where = goal(node, event.clientY), item = node.parentElement, id = dragged.id;
  const holder = where === "inside" ? item : item.parentElement.closest("li");
  const others = [...holder.querySelectorAll(":scope > ul > li[id]")].filter((one) => one !== dragged);
  const position = where === "inside" ? 0 : others.indexOf(item) + (where === "after" ? 1 : 0);
  send(`${id} move ${holder.id} ${position}`, toRow(id));
});
document.addEventListener("dragend", () => { clear(); dragged = null; });
