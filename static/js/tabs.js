// Where a row of tabs is wider than the window, the current one is in view.

for (const tab of document.querySelectorAll(".tabs [aria-current]")) {
  tab.scrollIntoView({ block: "nearest", inline: "center" });
}
