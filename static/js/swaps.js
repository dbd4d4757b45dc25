// Opens folds that links lead to, and keeps open folds and the focus across htmx swaps.

const unfolded = new Set();

document.addEventListener(
  "toggle",
  ({ target }) => {
    if (target.id && target.matches("details")) unfolded[target.open ? "add" : "delete"](target.id);
  },
  true,
);

document.addEventListener("htmx:afterSwap", () => {
  for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
});

// A link to a part that is one fold unfolds it, also where the part is fetched when it is seen.
function unfold(id) {
  document.getElementById(id)?.querySelector(":scope > details")?.setAttribute("open", "");
}

document.addEventListener("click", ({ target }) => {
  const link = target.closest('a[href^="#"]');
  if (link) unfold(link.hash.slice(1));
});

// A fold that is there to be typed into leads straight to its field.
document.addEventListener("click", ({ target }) => {
  const fold = target.closest("summary")?.parentElement;
  const field = fold?.open ? null : fold?.querySelector("[data-focus]");
  if (field) fold.addEventListener("toggle", () => field.focus(), { once: true });
});

document.addEventListener("htmx:afterSwap", ({ detail }) => {
  const id = detail.target?.id;
  if (id && location.hash === `#${id}`) unfold(id);
});

// If a swap removes the focused element, the same link, button or region of the new content gets the focus, or else
// the whole part. htmx itself restores the focus of elements with an id.
let lostFocus = null;

function signature(part) {
  const name = part.getAttribute("href") ?? part.getAttribute("aria-label") ?? part.textContent.trim();
  return `${part.tagName} ${name}`;
}

// Of a part that is replaced, or of one that comes along with it.
function noteFocus({ target }) {
  const focused = document.activeElement;
  if (target.id && target.contains(focused)) lostFocus = { id: target.id, signature: signature(focused) };
}

document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  lostFocus = null;
  noteFocus(detail);
});
document.addEventListener("htmx:oobBeforeSwap", ({ detail }) => noteFocus(detail));

document.addEventListener("htmx:afterSwap", () => {
  const part = lostFocus && document.activeElement === document.body && document.getElementById(lostFocus.id);
  if (!part) return;
  const controls = [...part.querySelectorAll("a[href], button, summary, input, select, textarea, [tabindex='0']")];
  // Not a button that decides at once: Enter would decide on what comes next.
  const same = controls.find(
    (control) => !control.dataset.key && signature(control) === lostFocus.signature && control.checkVisibility(),
  );
  if (!same) part.tabIndex = -1;
  (same ?? part).focus({ preventScroll: true });
  lostFocus = null;
});
