// A result opens without another page being loaded: from the table of its run, on a wide window, in a panel beside
// it; and by a step from the result before, in its place. Each is asked for at that moment, so that none is older than
// its step, or is shown after the login ended. Its address is its own. Without this script the links open pages.

const WIDE = matchMedia("(width >= 1200px)");
const ROW_LINK = '#rows th[scope="row"] a';
const NOT_IN_PANEL = "dialog, .tabs, #lost-contact, aside.banner";
const STEP_KEYS = ["j", "k", "[", "]"];
const TYPING = "textarea, select, input:not([type='radio'], [type='checkbox'])";
const main = document.getElementById("main");
let panel = null;
let opener = null;
let list = null;
let listTitle = "";
let isLoading = false;
let heldKeys = [];

const isResultPage = () => Boolean(main?.querySelector(".stepper"));
const withoutPart = (address) => new URL(address, location).href.split("#")[0];
// The address of the result that is shown, in the panel or as the page.
let shown = isResultPage() ? withoutPart(location) : null;
markEntry();

// Back reloads the page for an entry of the history that is not marked as a result.
function markEntry() {
  if (shown && withoutPart(location) === shown) history.replaceState({ result: true }, "");
}

function makePanel() {
  const part = document.createElement("aside");
  part.id = "result-panel";
  part.tabIndex = -1;
  document.body.append(part);
  return part;
}

async function load(address) {
  isLoading = true;
  const place = isResultPage() ? main : panel;
  place?.setAttribute("aria-busy", "true");
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
  if (!shown) listTitle = document.title;
  document.title = page.title;
  shown = withoutPart(address);
  // Taking away what has the focus lays the page out as it was, and an attribute changed later lays it out again.
  if (place?.contains(document.activeElement)) document.activeElement.blur();
  place?.removeAttribute("aria-busy");
  if (place === main) showAsPage(page);
  else showInPanel(page);
  isLoading = false;
  // A step that leads on loads again, and the keys after it wait for that.
  while (heldKeys.length && !isLoading) {
    document.activeElement.dispatchEvent(
      new KeyboardEvent("keydown", { key: heldKeys.shift(), bubbles: true, cancelable: true }),
    );
  }
}

function showAsPage(page) {
  // The scripts know this part.
  page.getElementById("lost-contact").replaceWith(document.getElementById("lost-contact"));
  main.replaceChildren(...page.getElementById("main").children);
  window.htmx?.process(main);
  scrollTo(0, 0);
  // A screen reader reads the heading, which names the case and its verdict, as after loading a page.
  const heading = main.querySelector("h1");
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

function showInPanel(page) {
  const parts = [...page.getElementById("main").children].filter((part) => !part.matches(NOT_IN_PANEL));
  panel ??= makePanel();
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Close ";
  button.append(Object.assign(document.createElement("kbd"), { textContent: "Esc" }));
  button.addEventListener("click", leave);
  panel.replaceChildren(button, ...parts);
  panel.setAttribute("aria-label", panel.querySelector("h1").textContent.replace(/\s+/g, " ").trim());
  window.htmx?.process(panel);
  panel.scrollTop = 0;
  panel.focus({ preventScroll: true });
  mark(new URL(shown).pathname);
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
  shown = null;
  document.title = listTitle;
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
  const isStep = Boolean(link.closest(".stepper"));
  if (!isStep && !(WIDE.matches && link.matches(ROW_LINK))) return;
  event.preventDefault();
  if (!isStep) {
    if (!panel) list = location.href;
    opener ??= link;
  }
  // A link to a part may have been followed so shortly before that its event is still to come.
  markEntry();
  history.pushState({ result: true }, "", link.href);
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
  if (withoutPart(location) === shown) return;
  if (event.state?.result) load(location.href);
  else if (panel) close();
  // A result that was reloaded knows nothing of the list before it.
  else if (isResultPage()) location.reload();
});

// A link to a part of a result is a step of the history too, and Back can lead to it from another result.
window.addEventListener("hashchange", markEntry);

// A count of failures on another page leads to their list and opens the first.
const arrived = new URL(location);
if (arrived.searchParams.has("open")) {
  arrived.searchParams.delete("open");
  history.replaceState(null, "", arrived);
  if (WIDE.matches) document.querySelector(ROW_LINK)?.click();
}
