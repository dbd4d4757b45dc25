// Columns of a table are dragged into an order, or moved by their buttons or Alt and an arrow key. On the page of
// the choices, which needs no script, the buttons submit the form.

let dragged = null;

const listed = (element) => element.closest?.(".columns-chosen > li");

function tell(item) {
  item.closest("form").dispatchEvent(new CustomEvent("moved"));
}

function move(item, isUp, focused) {
  const other = isUp ? item.previousElementSibling : item.nextElementSibling;
  if (!other) return;
  if (isUp) other.before(item);
  else other.after(item);
  focused.focus();
  tell(item);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.(".columns-chosen button[type='button']");
  if (button) {
    event.preventDefault();
    move(listed(button), button.name === "up", button);
  } else if (event.target.matches?.('.columns-chosen [aria-disabled="true"]')) event.preventDefault();
});

document.addEventListener("keydown", (event) => {
  const item = event.altKey && ["ArrowUp", "ArrowDown"].includes(event.key) && listed(event.target);
  if (!item) return;
  event.preventDefault();
  move(item, event.key === "ArrowUp", event.target);
});

document.addEventListener("dragstart", (event) => {
  dragged = listed(event.target) ?? null;
  if (dragged) event.dataTransfer.effectAllowed = "move";
});

document.addEventListener("dragover", (event) => {
  const over = dragged && listed(event.target);
  if (!over) return;
  event.preventDefault();
  if (over === dragged) return;
  const { top, height } = over.getBoundingClientRect();
  if (event.clientY < top + height / 2) over.before(dragged);
  else over.after(dragged);
});

document.addEventListener("dragend", () => {
  if (dragged) tell(dragged);
  dragged = null;
});
