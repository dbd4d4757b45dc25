// Dialogs open and close in browsers without invoker commands too, and when htmx brings one.

if (!("commandForElement" in HTMLButtonElement.prototype)) {
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[commandfor]");
    const dialog = button && document.getElementById(button.getAttribute("commandfor"));
    if (!dialog) return;
    if (button.getAttribute("command") === "close") dialog.close();
    else dialog.showModal();
  });
}

document.addEventListener("htmx:load", ({ target }) => {
  if (!target.matches?.("dialog[data-open]")) return;
  // A menu closes before it, so that the focus comes back to the menu's button.
  document.querySelector(".actions-menu:popover-open")?.hidePopover();
  target.showModal();
});

document.addEventListener("click", (event) => {
  const dialog = event.target.closest("[data-close]")?.closest("dialog");
  if (!dialog) return;
  event.preventDefault();
  dialog.close();
});
