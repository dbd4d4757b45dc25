// A folder is sent with the path of each file, without the files that an import ignores.

const IGNORED = /^(\..*|node_modules|__pycache__|__MACOSX|venv|Thumbs\.db|desktop\.ini|.*\.py[co])$/;
const MAX_FILES = 2000;

const isIgnored = (file) => file.webkitRelativePath.split("/").slice(1).some((part) => IGNORED.test(part));

function summary(kept, left) {
  if (!kept && !left) return "";
  const others = left ? `, ${left} hidden or cached ${left === 1 ? "one" : "ones"} will not` : "";
  return `${kept} file${kept === 1 ? "" : "s"} will be sent${others}.`;
}

document.addEventListener("change", ({ target }) => {
  if (!target.matches?.("[data-paths]")) return;
  const kept = [...target.files].filter((file) => !isIgnored(file));
  const left = target.files.length - kept.length;
  const transfer = new DataTransfer();
  for (const file of kept) transfer.items.add(file);
  target.files = transfer.files;
  target.form.elements[target.dataset.paths].value = JSON.stringify(kept.map((file) => file.webkitRelativePath));
  const advice = `an import takes up to ${MAX_FILES}. Choose the folder of the suites in it.`;
  target.setCustomValidity(kept.length > MAX_FILES ? `These are ${kept.length} files; ${advice}` : "");
  target.reportValidity();
  document.getElementById("folder-summary").textContent = summary(kept.length, left);
});
