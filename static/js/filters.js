// Suggestions while a filter is typed: a combobox whose list comes from the address in data-suggestions.

const DELAY_MS = 120;
let box = null;
let list = null;
let timer = 0;
let asked = 0;

const options = () => [...(list?.children ?? [])];
const chosen = () => options().findIndex((option) => option.getAttribute("aria-selected") === "true");

function close() {
  clearTimeout(timer);
  asked += 1;
  list?.remove();
  list = null;
  if (box?.matches("[role=combobox]")) box.setAttribute("aria-expanded", "false");
  box?.removeAttribute("aria-activedescendant");
}

function choose(place) {
  const all = options();
  all.forEach((option, at) => option.setAttribute("aria-selected", String(at === place)));
  if (all[place]) {
    box.setAttribute("aria-activedescendant", all[place].id);
    all[place].scrollIntoView({ block: "nearest" });
  } else {
    box.removeAttribute("aria-activedescendant");
  }
}

function take(option) {
  const { text, start } = option.dataset;
  const caret = box.selectionStart;
  box.setRangeText(`${text} `, Number(start), caret, "end");
  close();
  box.dispatchEvent(new Event("input", { bubbles: true }));
}

function show(suggestions) {
  const kept = options()[chosen()]?.dataset.text;
  list?.remove();
  list = null;
  if (box.matches("[role=combobox]")) box.setAttribute("aria-expanded", String(suggestions.length > 0));
  if (!suggestions.length) return;
  list = document.createElement("ul");
  list.id = "filter-suggestions";
  list.className = "suggestions";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  list.append(
    ...suggestions.map(({ text, help, start }, at) => {
      const option = document.createElement("li");
      const code = document.createElement("code");
      const note = document.createElement("small");
      code.textContent = text;
      note.textContent = help;
      option.id = `filter-suggestion-${at}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      Object.assign(option.dataset, { text, start });
      option.append(code, note);
      return option;
    }),
  );
  box.after(list);
  // What was chosen stays chosen if the answer to the last letter comes after the arrow key.
  choose(suggestions.findIndex(({ text }) => text === kept));
}

// In a text of several lines only the word at the caret is looked at, and only one that mentions somebody.
function begun() {
  const typed = box.value.slice(0, box.selectionStart);
  return box.matches("textarea") ? typed.search(/\S*$/) : 0;
}

async function ask() {
  const turn = (asked += 1);
  const from = begun();
  const address = new URL(box.dataset.suggestions, location);
  if (box.matches("textarea") && box.value[from] !== "@") return close();
  address.searchParams.set("q", box.matches("textarea") ? box.value.slice(from, box.selectionStart) : box.value);
  address.searchParams.set("caret", box.selectionStart - from);
  try {
    const answer = await fetch(address);
    if (!answer.ok || turn !== asked) return;
    const { suggestions } = await answer.json();
    if (turn === asked) show(suggestions.map((one) => ({ ...one, start: from + one.start })));
  } catch {
    // Offline, a filter is typed without suggestions; the page says that it is offline.
  }
}

document.addEventListener("input", ({ target }) => {
  if (!target.matches("[data-suggestions]")) return;
  box = target;
  clearTimeout(timer);
  timer = setTimeout(ask, DELAY_MS);
});

document.addEventListener("focusin", ({ target }) => {
  if (!target.matches("[data-suggestions]")) return;
  box = target;
  if (!box.value && !box.matches("textarea")) ask();
});

document.addEventListener("focusout", ({ target }) => {
  if (target === box) close();
});

document.addEventListener("keydown", (event) => {
  if (event.target !== box || !list) return;
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  if (event.key in steps) {
    const count = options().length;
    choose((chosen() + steps[event.key] + count + (chosen() < 0 && event.key === "ArrowUp" ? 1 : 0)) % count);
  } else if ((event.key === "Enter" || event.key === "Tab") && chosen() >= 0) {
    take(options()[chosen()]);
  } else if (event.key === "Escape") {
    close();
    event.stopImmediatePropagation();
  } else {
    return;
  }
  event.preventDefault();
});

document.addEventListener("mousedown", (event) => {
  const option = event.target.closest(".suggestions > [role=option]");
  if (!option) return;
  event.preventDefault();
  take(option);
});
