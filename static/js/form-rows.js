// Rows of a form are added, removed and moved in place: by their buttons, by Alt with an arrow, and Alt Enter
// adds one below. Without a script the same buttons send the form.

const ACTIONS = { ArrowUp: "up", ArrowDown: "down", Enter: "add" };

function numberRows(list) {
  [...list.children].forEach((row, index, rows) => {
    for (const part of row.querySelectorAll("[data-number]")) {
      part.setAttribute("aria-label", part.getAttribute("aria-label").replace(/\d+/, index + 1));
    }
    row.querySelector('[data-row="up"]').disabled = index === 0;
    row.querySelector('[data-row="down"]').disabled = index === rows.length - 1;
  });
}

// Each returns the row that has the focus then.
const change = {
  add(list, row) {
    const blank = document.querySelector(`template[data-blank="${list.dataset.rows}"]`);
    const added = blank.content.firstElementChild.cloneNode(true);
    if (row) row.after(added);
    else list.append(added);
    return added;
  },
  remove(list, row) {
    const neighbour = row.nextElementSibling ?? row.previousElementSibling;
    if (neighbour) {
      row.remove();
      return neighbour;
    }
    // The last one stays, empty.
    for (const part of row.querySelectorAll("textarea, [type=hidden]")) part.value = "";
    return row;
  },
  up(list, row) {
    row.previousElementSibling?.before(row);
    return row;
  },
  down(list, row) {
    row.nextElementSibling?.after(row);
    return row;
  },
};

function changeRows(list, row, action) {
  const current = change[action](list, row);
  numberRows(list);
  return current;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-row]");
  if (!button) return;
  event.preventDefault();
  const { row: action, of: name } = button.dataset;
  const list = name ? document.querySelector(`[data-rows="${name}"]`) : button.closest("[data-rows]");
  const current = changeRows(list, button.closest("li"), action);
  const isMove = action === "up" || action === "down";
  const next = isMove && !button.disabled ? button : current.querySelector("textarea");
  next.focus();
});

document.addEventListener("keydown", (event) => {
  const row = event.altKey && event.target.closest?.("[data-rows] > li");
  const action = ACTIONS[event.key];
  if (!row || !action || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const current = changeRows(row.parentElement, row, action);
  (action === "add" ? current.querySelector("textarea") : event.target).focus();
});
