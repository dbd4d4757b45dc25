// On a wide window a result opens beside the table of its run: the list stays where it is, the address is the
// result's own. Without this script, or on a narrow window, its link opens its page.

const WIDE = matchMedia("(width >= 1200px)");
const ROW_LINK = '#rows th[scope="row"] a';
const LEFT_OUT = "link, dialog, .tabs, #lost-contact, aside.banner";
const STEP_KEYS = ["j", "k", "[", "]"];
const TYPING = "textarea, select, input:not([type='radio'], [type='checkbox'])";
let panel = null;
let opener = null;
let list = null;
let isLoading = false;
let heldKeys = [];

function makePanel() {
  const part = document.createElement("aside");
  part.id = "result-panel";
  part.tabIndex = -1;
  part.setAttribute("aria-label", "Result");
  document.body.append(part);
  return part;
}

async function load(address) {
  isLoading = true;
  let page = null;
  try {
    const response = await fetch(address, { headers: { Accept: "text/html" } });
    if (response.ok && !response.redirected) page = new DOMParser().parseFromString(await response.text(), "text/html");
  } catch {
    page = null;
  }
  // What is not a result, such as the login after a session ended, is a page of its own.
  if (!page?.querySelector("main > .head")) return location.assign(address);
  // Meanwhile another key may have gone further.
  if (location.href !== new URL(address, location).href) return;
  const parts = [...page.querySelector("main").children].filter((part) => !part.matches(LEFT_OUT));
  panel ??= makePanel();
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Close ";
  close.append(Object.assign(document.createElement("kbd"), { textContent: "Esc" }));
  close.addEventListener("click", () => leave());
  panel.replaceChildren(close, ...parts);
  window.htmx?.process(panel);
  panel.scrollTop = 0;
  panel.focus({ preventScroll: true });
  mark(new URL(address, location).pathname);
  isLoading = false;
  // A step that leads on loads again, and the keys after it wait for that.
  while (heldKeys.length && !isLoading) {
    panel.dispatchEvent(new KeyboardEvent("keydown", { key: heldKeys.shift(), bubbles: true, cancelable: true }));
  }
}

function mark(path) {
  for (const link of document.querySelectorAll(ROW_LINK)) {
    const isShown = new URL(link.href).pathname === path;
    link.closest("tr").toggleAttribute("data-shown", isShown);
    if (isShown) opener = link;
  }
}

function close() {
  isLoading = false;
  heldKeys = [];
  if (!panel) return;
  panel.remove();
  panel = null;
  mark("");
  opener?.focus();
  opener = null;
}

function leave() {
  close();
  history.pushState(null, "", list);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const isStep = panel?.contains(link) && link.closest(".stepper");
  if (!isStep && !(WIDE.matches && link.matches(ROW_LINK))) return;
  event.preventDefault();
  if (!panel) list = location.href;
  opener ??= link;
  history.pushState({ panel: true }, "", link.href);
  load(link.href);
});

// While a result is on its way the links shown are those of the one before, so a step waits for it.
document.addEventListener(
  "keydown",
  (event) => {
    if (!isLoading || !STEP_KEYS.includes(event.key) || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target.closest(TYPING)) return;
    event.stopImmediatePropagation();
    heldKeys.push(event.key);
  },
  { capture: true },
);

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !panel || document.querySelector("dialog[open]")) return;
  if (event.target.closest(TYPING)) return;
  leave();
});

window.addEventListener("popstate", (event) => {
  if (event.state?.panel) load(location.href);
  // A link to a part of the panel moves inside the same address.
  else if (!location.hash) close();
});
