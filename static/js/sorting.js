// The table beside a picture is sorted by a click on a heading: numbers downwards first, texts upwards. Cells without
// a figure come last. Longer lists sort on the server.

function upgrade() {
  for (const head of document.querySelectorAll("table[data-sortable] thead th:not(:has(button))")) {
    const button = Object.assign(document.createElement("button"), { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
  }
}

function value(row, column) {
  const cell = row.cells[column];
  const written = cell.dataset.sort ?? cell.textContent.trim();
  return written !== "" && Number.isFinite(Number(written)) ? Number(written) : written;
}

function compare(one, other) {
  if (typeof one === typeof other) return typeof one === "number" ? one - other : one.localeCompare(other);
  return typeof one === "number" ? -1 : 1;
}

function sort(head) {
  const { cellIndex: column } = head;
  const table = head.closest("table");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [value(row, column), row]);
  const isNumber = rows.some(([found]) => typeof found === "number");
  const before = head.getAttribute("aria-sort");
  const ascends = before ? before !== "ascending" : !isNumber;
  const sign = ascends ? 1 : -1;
  rows.sort(([one], [other]) => {
    if (one === "" || other === "") return (one === "") - (other === "");
    return sign * compare(one, other);
  });
  for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", ascends ? "ascending" : "descending");
  body.append(...rows.map(([, row]) => row));
}

document.addEventListener("click", ({ target }) => {
  const head = target.closest?.("table[data-sortable] thead th");
  if (head?.contains(target.closest("button"))) sort(head);
});

document.addEventListener("htmx:afterSettle", upgrade);
upgrade();
