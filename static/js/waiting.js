// Shows that something was asked for: the control looks pressed at once, and after 300 ms the part that waits becomes a
// skeleton (base.css). Polls show nothing.

const polls = (part) => /\bevery |from:body|\bload\b|revealed|intersect/.test(part.getAttribute("hx-trigger") ?? "");

document.addEventListener("htmx:beforeRequest", ({ detail: { elt, target } }) => {
  if (!polls(elt)) target?.setAttribute("aria-busy", "true");
});

for (const name of ["htmx:afterRequest", "htmx:sendAbort"]) {
  document.addEventListener(name, ({ detail: { target } }) => target?.removeAttribute("aria-busy"));
}
