// The legend of a picture: each entry shows or hides its series, by click, Enter and Space. Without it the entries
// are words beside colours. What is hidden stays hidden when the picture is read again.

const hidden = new Map();

const names = (picture) => hidden.get(picture.getAttribute("aria-labelledby")) ?? new Set();

export const isHidden = (picture, name) => names(picture).has(name);

function apply(picture) {
  for (const entry of picture.querySelectorAll("[data-series]")) {
    entry.setAttribute("aria-pressed", !isHidden(picture, entry.dataset.series));
  }
  picture.dispatchEvent(new CustomEvent("series", { bubbles: true }));
}

export function upgradeLegends() {
  for (const entry of document.querySelectorAll("[data-series]:not([role])")) {
    entry.setAttribute("role", "button");
    entry.tabIndex = 0;
    entry.setAttribute("aria-pressed", "true");
    const picture = entry.closest("section");
    if (names(picture).size) apply(picture);
  }
}

function toggle(entry) {
  const picture = entry.closest("section");
  const changed = new Set(names(picture));
  if (!changed.delete(entry.dataset.series)) changed.add(entry.dataset.series);
  hidden.set(picture.getAttribute("aria-labelledby"), changed);
  apply(picture);
}

document.addEventListener("click", ({ target }) => {
  const entry = target.closest?.("[data-series][role]");
  if (entry) toggle(entry);
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" && event.key !== " ") return;
  const entry = event.target.closest?.("[data-series][role]");
  if (!entry) return;
  event.preventDefault();
  toggle(entry);
});

document.addEventListener("htmx:afterSettle", upgradeLegends);
upgradeLegends();
