// Keys press what is on the page: aria-keyshortcuts="p", or data-key="g s" for a sequence.

const TYPING = 'textarea, select, input:not([type="radio"], [type="checkbox"], [type="range"])';
let prefix = "";

const FAILED_ROW = 'tbody tr:has([data-verdict="fail"], [data-verdict="error"]) th[scope="row"] a';

const rowLink = (part) => part.closest("tr")?.querySelector('th[scope="row"] a');

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey) {
    if (event.key === "Enter") (event.target.form ?? event.target.closest("form"))?.requestSubmit();
    return;
  }
  if (event.altKey || event.isComposing) return;
  if (event.target.closest(TYPING)) {
    if (event.key === "Escape") {
      // Escape leaves a search field; the browser would also empty it, and the filter would be lost.
      if (event.target.type === "search") event.preventDefault();
      event.target.blur();
    }
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (document.querySelector('[name="single-keys"]')?.checked === false) return;
  if (event.key === "x" && !prefix) {
    document.activeElement.closest("tr")?.querySelector(".pick input")?.click();
    return;
  }
  const key = prefix + event.key;
  prefix = event.key === "g" && !prefix ? "g " : "";
  const control = [...document.querySelectorAll("[data-key], [aria-keyshortcuts]")].find(
    (part) => (part.dataset.key ?? part.getAttribute("aria-keyshortcuts")) === key && part.checkVisibility(),
  );
  if (control) {
    event.preventDefault();
    control.focus({ preventScroll: control.matches("a") });
    if (!control.matches(TYPING)) control.click();
  } else if (key === "j" || key === "k") {
    focusRow(key === "j" ? 1 : -1);
  } else if (key === "o") {
    rowLink(document.activeElement)?.click();
  } else if (key === "]") {
    document.querySelector(FAILED_ROW)?.click();
  }
});

function focusRow(step) {
  const links = [...document.querySelectorAll('tbody th[scope="row"] a, .flips a')];
  const current = rowLink(document.activeElement) ?? document.activeElement;
  links[Math.max(0, links.indexOf(current) + step)]?.focus();
}
