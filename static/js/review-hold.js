// A review left open keeps its item for an hour after the last key or click, then others get it.

const HOUR_MS = 3_600_000;
let lastActive = Date.now();

for (const name of ["keydown", "pointerdown"]) {
  document.addEventListener(
    name,
    () => {
      lastActive = Date.now();
    },
    true,
  );
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.elt.id === "hold" && Date.now() - lastActive > HOUR_MS) event.preventDefault();
});
