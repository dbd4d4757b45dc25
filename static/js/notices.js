// Notices that a run has ended. The sidebar asks for the member's own runs and brings the message
// (home/_recent_suites.html), the page of a run for that run (results/_run_live.html). Every open tab shows it once; a
// hidden tab marks its title, and tells the desktop if the member allowed it.

const MARK = "● ";
const otherTabs = new BroadcastChannel("run-notices");
const announced = new Set();

const isAllowed = () => /(^|; )desktop-notices=on/.test(document.cookie) && self.Notification?.permission === "granted";

function announce(toast) {
  announced.add(toast.dataset.ended);
  if (!document.hidden) return;
  // After the title that the answer brings.
  queueMicrotask(() => { if (!document.title.startsWith(MARK)) document.title = MARK + document.title; });
  if (!isAllowed()) return;
  const { href } = toast.querySelector("a");
  const text = toast.querySelector("span").textContent.replace(/\s+/g, " ").trim();
  // Of several tabs only the last one's stays.
  const notification = new Notification("Evalsite", { body: text, tag: `run-${toast.dataset.ended}` });
  notification.addEventListener("click", () => {
    focus();
    location.assign(href);
  });
}

document.addEventListener("htmx:oobAfterSwap", ({ detail }) => {
  for (const toast of detail.target.querySelectorAll("[data-ended]:not([data-announced])")) {
    if (announced.has(toast.dataset.ended)) {
      toast.remove();
      continue;
    }
    toast.dataset.announced = "";
    announce(toast);
    otherTabs.postMessage(toast.outerHTML);
  }
});

otherTabs.addEventListener("message", ({ data }) => {
  const toast = new DOMParser().parseFromString(data, "text/html").querySelector(".toast");
  if (announced.has(toast.dataset.ended)) return;
  document.getElementById("toasts")?.append(toast);
  announce(toast);
});

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && document.title.startsWith(MARK)) document.title = document.title.slice(MARK.length);
});

// The switch on the account page is what the browser asks after; refused there, it goes back.
document.addEventListener("change", async ({ target }) => {
  if (target.name !== "desktop-notices" || !target.checked) return;
  const answer = (await self.Notification?.requestPermission()) ?? "denied";
  if (answer === "granted") return;
  target.click();
  document.getElementById("desktop-notices-message").textContent =
    "This browser does not allow it. Allow notifications for this site in the browser's settings.";
});
