// Choices kept in this browser: the theme, whether single keys work, which notices are shown, and what was hidden. CSS
// (:has) switches the theme at once; the server renders the kept choice, so nothing flashes.

const SWITCHES = ["single-keys", "run-notices", "desktop-notices"];

function keep(name, value) {
  document.cookie = `${name}=${value};path=/;max-age=31536000;samesite=lax`;
}

document.addEventListener("change", ({ target }) => {
  if (target.name === "theme") keep(target.name, target.value);
  if (SWITCHES.includes(target.name)) keep(target.name, target.checked ? "on" : "off");
});

document.addEventListener("click", ({ target }) => {
  const name = target.closest("[data-hide]")?.dataset.hide;
  if (!name) return;
  keep(name, "off");
  document.getElementById(name).remove();
  const main = document.getElementById("main");
  main.tabIndex = -1;
  main.focus({ preventScroll: true });
});
