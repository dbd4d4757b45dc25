// Says when the server does not answer, or refuses. A part that polls shows one banner for the page; any other part
// says that what it shows answers an earlier request, and offers to ask again. An ended session leads to the login, and
// a page that shows what was deleted meanwhile to the page that says so.

const lost = document.getElementById("lost-contact");
const FAILURES = ["htmx:sendError", "htmx:timeout", "htmx:responseError"];
// Of a dialog that has not opened it is the page.
const enclosingPart = (target) => target.closest("section, form, div, main");
const REFUSED = [403, 404];
// The page asks for a part of what it shows, at its own address or below it.
const isOwn = ({ verb, path }) => verb === "get" && path.startsWith(location.pathname);

for (const name of FAILURES) {
  document.addEventListener(name, ({ detail }) => {
    const polls = /\bevery |from:body/.test(detail.elt.getAttribute("hx-trigger") ?? "");
    if (!polls) {
      showNoAnswer(detail);
    } else if (REFUSED.includes(detail.xhr.status) && isOwn(detail.requestConfig)) {
      location.reload();
    } else if (lost) {
      if (lost.hidden) document.getElementById("lost-contact-at").textContent = new Date().toLocaleTimeString();
      lost.hidden = false;
    }
  });
}

function showNoAnswer({ elt, target, xhr, requestConfig: { verb, path } }) {
  const part = enclosingPart(target);
  const isRefused = REFUSED.includes(xhr.status);
  const message = document.getElementById(isRefused ? "refused" : "no-answer")?.content.firstElementChild.cloneNode(true);
  if (!part || !message) return;
  const late = part.querySelector(".late");
  if (late) message.querySelector("p > span")?.remove();
  late?.remove();
  const previous = part.querySelector(":scope > .no-answer");
  const hasFocus = previous?.contains(document.activeElement);
  previous?.remove();
  const again = message.querySelector("button");
  again.addEventListener("click", () => {
    if (elt.isConnected && !isRefused) htmx.ajax(verb, path, { source: elt, target });
    else location.reload();
  });
  const head = part.querySelector(":scope > header");
  if (head) head.after(message);
  else part.prepend(message);
  if (hasFocus) again.focus({ preventScroll: true });
}

document.addEventListener("htmx:afterRequest", ({ detail }) => {
  const part = detail.successful && detail.target.isConnected && enclosingPart(detail.target);
  const message = part && part.querySelector(":scope > .no-answer");
  if (!message) return;
  if (message.contains(document.activeElement)) {
    part.tabIndex = -1;
    part.focus({ preventScroll: true });
  }
  message.remove();
});

document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (lost && detail.xhr.status < 400) lost.hidden = true;
  const requested = new URL(detail.pathInfo.requestPath, location.href).pathname;
  const answered = new URL(detail.xhr.responseURL || requested, location.href).pathname;
  if (answered !== requested && /<html/i.test(detail.xhr.response)) {
    detail.shouldSwap = false;
    location.reload();
  }
});
