// A slider and the number beside it always show the same value; a form that takes its time says so.

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

// A page that the browser kept is shown again as it was left.
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("[data-busy] [data-label]")) {
    button.disabled = false;
    button.textContent = button.dataset.label;
  }
});
