"use strict";
// Folded parts open for whoever follows a link into them; without JavaScript each opens by its own headline.
(() => {
  const parts = [...document.querySelectorAll("details")];
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1)); // every id here is plain
    if (!target) return;
    const inner = target.querySelector(":scope > details.part");
    if (inner) inner.open = true;
    for (let above = target; above; above = above.parentElement) if (above.tagName === "DETAILS") above.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  const buttons = document.querySelector(".unfold");
  buttons.hidden = false;
  document.getElementById("unfold").addEventListener("click", () => parts.forEach((part) => (part.open = true)));
  document.getElementById("fold").addEventListener("click", () => parts.forEach((part) => (part.open = false)));
  // A table whose heads sort it: numbers the largest first, text from A on, a second click the other way round; empty cells last.
  for (const table of document.querySelectorAll("table.sortable")) {
    const rows = [...table.tBodies[0].rows];
    const columns = [...table.tHead.rows].flatMap((row) => [...row.cells]).filter((cell) => cell.dataset.sort);
    // Where a head stands among a row's cells: heads of the first row may span two rows or several columns.
    const taken = [];
    for (const [depth, row] of [...table.tHead.rows].entries()) {
      let at = 0;
      for (const cell of row.cells) {
        while (taken[depth]?.[at]) at += 1;
        for (let down = 0; down < cell.rowSpan; down += 1) for (let right = 0; right < cell.colSpan; right += 1) (taken[depth + down] ??= [])[at + right] = true;
        cell.dataset.column = String(at);
        at += cell.colSpan;
      }
    }
    for (const head of columns) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const numbers = head.dataset.sort === "number";
        const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : numbers;
        for (const other of columns) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const text = (row) => row.cells[Number(head.dataset.column)].textContent.trim().replace("\u2212", "-");
        const order = (a, b) => {
          if (!a || !b) return a ? -1 : b ? 1 : 0;
          const found = numbers ? parseFloat(a) - parseFloat(b) : a.localeCompare(b, "en", { numeric: true });
          return down ? -found : found;
        };
        const texts = new Map(rows.map((row) => [row, text(row)]));
        table.tBodies[0].append(...[...rows].sort((a, b) => order(texts.get(a), texts.get(b))));
      });
    }
  }
  reveal();
})();
