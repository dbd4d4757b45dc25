// A slider and its number field always show the same value; a slow form shows that it is busy.

document.addEventListener("input", ({ target }) => {
  const pair = target.closest(".weight");
  if (!pair) return;
  for (const other of pair.querySelectorAll("input")) if (other !== target) other.value = target.value;
});

document.addEventListener("submit", ({ target, defaultPrevented }) => {
  const button = target.dataset.busy && !defaultPrevented && target.querySelector('[type="submit"]');
  if (!button) return;
  button.disabled = true;
  button.dataset.label = button.textContent;
  button.textContent = target.dataset.busy;
});

// Going back can show a page from the browser's cache, with its button still disabled.
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("[data-busy] [data-label]")) {
    button.disabled = false;
    button.textContent = button.dataset.label;
  }
});
