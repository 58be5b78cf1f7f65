"use strict";
// Folded parts open for whoever follows a link into them; without JavaScript each opens by its own headline.
(() => {
  const parts = [...document.querySelectorAll("details")];
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
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
  reveal();
})();
