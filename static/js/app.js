// The only script besides htmx. Small jobs, no inline code, no eval.

// What only a script can do is shown from here on.
document.documentElement.dataset.scripts = "on";

// 1. Choices kept on this browser: the theme and whether single keys press things. CSS (:has)
//    switches the theme at once; the server renders the kept choice, so nothing flashes.
document.addEventListener("change", ({ target }) => {
  const value = { theme: target.value, "single-keys": target.checked ? "on" : "off" }[target.name];
  if (value) document.cookie = `${target.name}=${value};path=/;max-age=31536000;samesite=lax`;
});

// 2. A slider and the number beside it always show the same value.
document.addEventListener("input", ({ target }) => {
  const pair = target.closest(".weight");
  if (pair) for (const other of pair.querySelectorAll("input")) if (other !== target) other.value = target.value;
});

// 3. Keys press what is on the page: aria-keyshortcuts="p", or data-key="g s" for a sequence.
let lead = "";
const typing = 'textarea, select, input:not([type="radio"], [type="checkbox"], [type="range"])';
document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey) {
    if (event.key === "Enter") (event.target.form ?? event.target.closest("form"))?.requestSubmit();
    return;
  }
  if (event.altKey || event.isComposing) return;
  if (event.target.closest(typing)) { if (event.key === "Escape") event.target.blur(); return; }
  if (document.querySelector("dialog[open]") || document.querySelector('[name="single-keys"]')?.checked === false) return;
  if (event.key === "x" && !lead) return void document.activeElement.closest("tr")?.querySelector(".pick input")?.click();
  const key = lead + event.key;
  lead = event.key === "g" && !lead ? "g " : "";
  const hit = [...document.querySelectorAll("[data-key], [aria-keyshortcuts]")]
    .find((e) => (e.dataset.key ?? e.getAttribute("aria-keyshortcuts")) === key && e.checkVisibility());
  if (hit) { event.preventDefault(); hit.focus(); if (!hit.matches(typing)) hit.click(); }
  else if (key === "j" || key === "k") step(key === "j" ? 1 : -1);
  else if (key === "o") document.activeElement.closest("tr")?.querySelector('th[scope="row"] a')?.click();
});
function step(by) {
  const rows = [...document.querySelectorAll('tbody th[scope="row"] a, .flips a')];
  const here = document.activeElement.closest("tr")?.querySelector('th[scope="row"] a') ?? document.activeElement;
  rows[Math.max(0, rows.indexOf(here) + by)]?.focus();
}

// 4. Browsers without invoker commands still open and close dialogs.
if (!("commandForElement" in HTMLButtonElement.prototype)) document.addEventListener("click", ({ target }) => {
  const button = target.closest("[commandfor]");
  const dialog = button && document.getElementById(button.getAttribute("commandfor"));
  if (dialog) button.getAttribute("command") === "close" ? dialog.close() : dialog.showModal();
});

// 5. Copy a text, dismiss a message.
document.addEventListener("click", async ({ target }) => {
  target.closest("[data-dismiss]")?.closest(".toast").remove();
  const button = target.closest("[data-copy]");
  if (!button) return;
  const source = document.querySelector(button.dataset.copy);
  const word = button.querySelector("span") ?? button;
  const before = word.textContent;
  try {
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    word.textContent = "Copied";
  } catch {
    // The clipboard is closed to pages without TLS: select the text, so that one key copies it.
    getSelection().selectAllChildren(source);
    word.textContent = "Selected, press Ctrl C";
  }
  setTimeout(() => { word.textContent = before; }, 3000);
});

// 6. A live part that gets no answer says so; one whose session ended leads to the login page. Any other part
//    says that what it shows answers an earlier question, and offers to ask again.
const lost = document.getElementById("lost-contact");
for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) document.addEventListener(name, ({ detail }) => {
  if (!/\bevery |from:body/.test(detail.elt.getAttribute("hx-trigger") ?? "")) return void tellSilence(detail);
  if (!lost) return;
  if (lost.hidden) document.getElementById("lost-contact-at").textContent = new Date().toLocaleTimeString();
  lost.hidden = false;
});
const around = (target) => target.closest("section, form, div");
function tellSilence({ elt, target, requestConfig: { verb, path } }) {
  const part = around(target), copy = document.getElementById("no-answer")?.content.firstElementChild.cloneNode(true);
  if (!part || !copy) return;
  const waiting = part.querySelector(".late");
  if (waiting) copy.querySelector("p > span").remove();
  waiting?.remove();
  const told = part.querySelector(":scope > .no-answer"), hasFocus = told?.contains(document.activeElement);
  told?.remove();
  copy.querySelector("button").addEventListener("click", () => {
    if (elt.isConnected) htmx.ajax(verb, path, { source: elt, target });
    else location.reload();
  });
  const head = part.querySelector(":scope > header");
  head ? head.after(copy) : part.prepend(copy);
  if (hasFocus) copy.querySelector("button").focus({ preventScroll: true });
}
document.addEventListener("htmx:afterRequest", ({ detail }) => {
  const part = detail.successful && detail.target.isConnected && around(detail.target);
  const told = part && part.querySelector(":scope > .no-answer");
  if (!told) return;
  if (told.contains(document.activeElement)) { part.tabIndex = -1; part.focus({ preventScroll: true }); }
  told.remove();
});
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (lost && detail.xhr.status < 400) lost.hidden = true;
  const asked = new URL(detail.pathInfo.requestPath, location.href).pathname;
  const answered = new URL(detail.xhr.responseURL || asked, location.href).pathname;
  if (answered !== asked && /<html/i.test(detail.xhr.response)) { detail.shouldSwap = false; location.reload(); }
});

// 7. Rows that are ticked are counted, whichever way they came onto the page; one box ticks them all.
const picks = () => [...document.querySelectorAll('.pick input[name="case"]')];
function countPicks() {
  const bar = document.querySelector(".picks");
  if (!bar) return;
  const boxes = picks(), ticked = boxes.filter((box) => box.checked);
  const all = bar.querySelector('[name="everything"]');
  const sum = ticked.reduce((total, box) => total + Number(box.closest("td").dataset.count), 0);
  const count = all.checked ? Number(all.dataset.count) : sum;
  const noun = bar.dataset.noun ?? "result";
  const named = `${count.toLocaleString("en").replaceAll(",", "\u202f")} ${noun}${count === 1 ? "" : "s"}`;
  bar.toggleAttribute("data-some", count > 0);
  document.getElementById("picks-count").textContent = count ? `${named} chosen` : `No ${noun} chosen`;
  const button = document.getElementById("picks-retry");
  if (button) {
    button.disabled = !count;
    button.querySelector("span").textContent = count ? `Retry ${named}` : "Retry";
  }
  const page = document.getElementById("pick-page");
  page.checked = boxes.length > 0 && ticked.length === boxes.length;
  page.indeterminate = ticked.length > 0 && !page.checked;
}
document.addEventListener("change", ({ target }) => {
  if (target.id === "pick-page") for (const box of picks()) box.checked = target.checked;
  if (target.closest(".pick, .picks")) countPicks();
});
document.addEventListener("click", ({ target }) => {
  if (!target.closest("#picks-clear")) return;
  for (const box of [...picks(), ...document.querySelectorAll('.picks [name="everything"]')]) box.checked = false;
  countPicks();
});

// 8. What htmx brings: a dialog opens, a fold that was open stays open, and ticked rows are counted.
const unfolded = new Set();
document.addEventListener("toggle", ({ target }) => {
  if (target.id && target.matches("details")) unfolded[target.open ? "add" : "delete"](target.id);
}, true);
document.addEventListener("htmx:load", ({ target }) => {
  if (!target.matches?.("dialog[data-open]")) return;
  // A menu closes before it, so that the focus comes back to the menu's button.
  document.querySelector(".deeds:popover-open")?.hidePopover();
  target.showModal();
});
document.addEventListener("htmx:afterSwap", () => {
  for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
  countPicks();
});
// Focus on what a swap takes away goes to the same link or button of what comes, else to the whole of it.
// (What has an id htmx finds itself.)
let taken = null;
const named = (part) => `${part.tagName} ${part.getAttribute("href") ?? part.getAttribute("aria-label") ?? part.textContent.trim()}`;
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const here = document.activeElement;
  taken = detail.target.id && detail.target.contains(here) ? { id: detail.target.id, name: named(here) } : null;
});
document.addEventListener("htmx:afterSwap", () => {
  const part = taken && document.activeElement === document.body && document.getElementById(taken.id);
  if (!part) return;
  const parts = [...part.querySelectorAll("a[href], button, summary, input, select, textarea")];
  const same = parts.find((one) => named(one) === taken.name && one.checkVisibility());
  if (!same) part.tabIndex = -1;
  (same ?? part).focus({ preventScroll: true });
  taken = null;
});
document.addEventListener("click", (event) => {
  const dialog = event.target.closest("[data-close]")?.closest("dialog");
  if (dialog) { event.preventDefault(); dialog.close(); }
});
countPicks();

// 9. A folder is sent with the path of each of its files, without what an import passes over; a form
//    that takes its time says so.
const passedOver = /^(\..*|node_modules|__pycache__|__MACOSX|venv|Thumbs\.db|desktop\.ini|.*\.py[co])$/;
document.addEventListener("change", ({ target }) => {
  if (!target.matches?.("[data-paths]")) return;
  const kept = [...target.files].filter((file) => !file.webkitRelativePath.split("/").slice(1).some((part) => passedOver.test(part)));
  const left = target.files.length - kept.length;
  const sent = new DataTransfer();
  for (const file of kept) sent.items.add(file);
  target.files = sent.files;
  target.form.elements[target.dataset.paths].value = JSON.stringify(kept.map((file) => file.webkitRelativePath));
  target.setCustomValidity(kept.length > 2000 ? `These are ${kept.length} files; an import takes up to 2000. Choose the folder of the suites in it.` : "");
  target.reportValidity();
  document.getElementById("folder-said").textContent = !kept.length && !left ? ""
    : `${kept.length} file${kept.length === 1 ? "" : "s"} will be sent${left ? `, ${left} hidden or cached ${left === 1 ? "one" : "ones"} will not` : ""}.`;
});
document.addEventListener("submit", ({ target, defaultPrevented }) => {
  const button = target.dataset.busy && !defaultPrevented && target.querySelector('[type="submit"]');
  if (!button) return;
  button.disabled = true;
  button.dataset.word = button.textContent;
  button.textContent = target.dataset.busy;
});
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("[data-word]")) {
    button.disabled = false;
    button.textContent = button.dataset.word;
  }
});

// 10. Rows of a form are added, removed and moved in place: by their buttons, by Alt with an arrow, and
//     Alt Enter adds one below. Without a script the same buttons send the form.
function numberRows(list) {
  [...list.children].forEach((row, n, rows) => {
    for (const part of row.querySelectorAll("[data-number]"))
      part.setAttribute("aria-label", part.getAttribute("aria-label").replace(/\d+/, n + 1));
    row.querySelector('[data-row="up"]').disabled = n === 0;
    row.querySelector('[data-row="down"]').disabled = n === rows.length - 1;
  });
}
function changeRows(list, row, deed) {
  const beside = { up: row?.previousElementSibling, down: row?.nextElementSibling }[deed];
  let here = row;
  if (deed === "add") {
    here = document.querySelector(`template[data-blank="${list.dataset.rows}"]`).content.firstElementChild.cloneNode(true);
    row ? row.after(here) : list.append(here);
  } else if (deed === "remove") {
    here = row.nextElementSibling ?? row.previousElementSibling;
    if (here) row.remove(); else { here = row; for (const part of row.querySelectorAll("textarea, [type=hidden]")) part.value = ""; }
  } else if (beside) beside[deed === "up" ? "before" : "after"](row);
  numberRows(list);
  return here;
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-row]");
  if (!button) return;
  event.preventDefault();
  const { row: deed, of: name } = button.dataset;
  const list = name ? document.querySelector(`[data-rows="${name}"]`) : button.closest("[data-rows]");
  const here = changeRows(list, button.closest("li"), deed);
  const next = ["up", "down"].includes(deed) && !button.disabled ? button : here.querySelector("textarea");
  next.focus();
});
document.addEventListener("keydown", (event) => {
  const row = event.altKey && event.target.closest?.("[data-rows] > li");
  const deed = { ArrowUp: "up", ArrowDown: "down", Enter: "add" }[event.key];
  if (!row || !deed || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const here = changeRows(row.parentElement, row, deed);
  (deed === "add" ? here.querySelector("textarea") : event.target).focus();
});

// 11. A page of a review left open keeps its item for an hour after the last key or click, then others get it.
let acted = Date.now();
for (const sign of ["keydown", "pointerdown"]) document.addEventListener(sign, () => { acted = Date.now(); }, true);
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.elt.id === "hold" && Date.now() - acted > 3_600_000) event.preventDefault();
});
