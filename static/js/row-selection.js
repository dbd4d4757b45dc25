// Counts the ticked rows, also after swaps; one box ticks all of them.

const boxes = () => [...document.querySelectorAll('td.pick input[type="checkbox"]')];

function countTicked() {
  const bar = document.querySelector(".picks");
  if (!bar) return;
  const all = boxes();
  const ticked = all.filter((box) => box.checked);
  const everything = bar.querySelector('[name="everything"]');
  const sum = ticked.reduce((total, box) => total + Number(box.closest("td").dataset.count), 0);
  const count = everything?.checked ? Number(everything.dataset.count) : sum;
  const noun = bar.dataset.noun ?? "result";
  const text = `${count.toLocaleString("en").replaceAll(",", "\u202f")} ${noun}${count === 1 ? "" : "s"}`;
  bar.toggleAttribute("data-some", count > 0);
  document.getElementById("picks-count").textContent = count ? `${text} selected` : `No ${noun} selected`;
  for (const button of bar.querySelectorAll('[type="submit"], [popovertarget]')) button.disabled = !count;
  const retry = document.querySelector("#picks-retry span");
  if (retry) retry.textContent = count ? `Rerun ${text}` : "Rerun";
  const page = document.getElementById("pick-page");
  page.checked = all.length > 0 && ticked.length === all.length;
  page.indeterminate = ticked.length > 0 && !page.checked;
}

document.addEventListener("change", ({ target }) => {
  if (target.id === "pick-page") for (const box of boxes()) box.checked = target.checked;
  if (target.closest(".pick, .picks")) countTicked();
});

document.addEventListener("click", ({ target }) => {
  if (!target.closest("#picks-clear")) return;
  for (const box of [...boxes(), ...document.querySelectorAll('.picks [name="everything"]')]) box.checked = false;
  countTicked();
});

document.addEventListener("htmx:afterSwap", countTicked);
countTicked();
