// A slider and its number field always show the same value; a slow form shows that it is busy.

document.addEventListener("input", ({ target }) => {
  const pair = target.closest(".weight");
  if (!pair) return;
  for (const other of pair.querySelectorAll("input")) if (other !== target) other.value = target.value;
});

document.addEventListener("submit", ({ target, submitter, defaultPrevented }) => {
  // A button with a name asks for something else than what the form is for.
  const isBusy = target.dataset.busy && !submitter?.name && !defaultPrevented;
  const button = isBusy && target.querySelector('[type="submit"]:not(.unseen)');
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
