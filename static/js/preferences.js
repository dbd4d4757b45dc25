// Choices kept on this browser: the theme and whether single keys press things. CSS (:has) switches the
// theme at once; the server renders the kept choice, so nothing flashes.

document.addEventListener("change", ({ target }) => {
  const value = { theme: target.value, "single-keys": target.checked ? "on" : "off" }[target.name];
  if (value) document.cookie = `${target.name}=${value};path=/;max-age=31536000;samesite=lax`;
});
