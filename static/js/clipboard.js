// Copies a text and dismisses a message.

document.addEventListener("click", async ({ target }) => {
  target.closest("[data-dismiss]")?.closest(".toast").remove();
  const button = target.closest("[data-copy]");
  if (!button) return;
  const source = document.querySelector(button.dataset.copy);
  const label = button.querySelector("span") ?? button;
  const before = label.textContent;
  try {
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    label.textContent = "Copied";
  } catch {
    // The clipboard is closed to pages without TLS: select the text, so that one key copies it.
    getSelection().selectAllChildren(source);
    label.textContent = "Selected, press Ctrl C";
  }
  setTimeout(() => {
    label.textContent = before;
  }, 3000);
});
