// Choices kept on this browser: the theme, whether single keys press things, and what was hidden. CSS (:has) switches the
// theme at once; the server renders the kept choice, so nothing flashes.

function keep(name, value) {
  document.cookie = `${name}=${value};path=/;max-age=31536000;samesite=lax`;
}

document.addEventListener("change", ({ target }) => {
  const value = { theme: target.value, "single-keys": target.checked ? "on" : "off" }[target.name];
  if (value) keep(target.name, value);
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
