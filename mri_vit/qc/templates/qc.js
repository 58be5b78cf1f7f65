"use strict";
const cards = [...document.querySelectorAll("article")];
const large = document.getElementById("large"), who = document.getElementById("who"), save = document.getElementById("save");
const decided = new Map();
let enlarged = null; // the card whose picture is large: nothing behind a modal dialog has the focus

const shown = () => cards.filter((card) => !card.hidden);
const current = () => (large.open ? enlarged : document.activeElement.closest("article"));

function filter() {
  const states = new Set([...document.querySelectorAll("[data-filter=state]:checked")].map((box) => box.value));
  const reason = document.getElementById("reason").value, name = document.getElementById("search").value.toLowerCase();
  for (const card of cards) {
    const fits = states.has(card.dataset.state) && (!reason || card.dataset.reasons.split(";").includes(reason));
    card.hidden = !fits || !card.id.toLowerCase().includes(name);
  }
  document.getElementById("count").textContent = `${shown().length} of ${cards.length} shown`;
}

function step(by) {
  const list = shown();
  if (!list.length) return;
  const at = list.indexOf(current());
  const next = list[at < 0 ? 0 : Math.min(Math.max(at + by, 0), list.length - 1)];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "start" });
  if (large.open) enlarge(next);
}

function enlarge(card) {
  enlarged = card;
  large.querySelector("img").src = card.querySelector(".picture").href;
  large.querySelector("img").alt = card.querySelector(".picture img").alt;
  large.querySelector("p").textContent = [card.id, ...[...card.querySelectorAll("li")].map((one) => one.textContent)].join(" · ");
  if (!large.open) large.showModal();
}

function decide(card, decision) {
  if (!card) return;
  if (decision && !who.value.trim()) { large.close(); who.focus(); return; }
  const why = decision && prompt(`${card.id}: why ${decision}?`);
  if (decision && !why) return;
  decision ? decided.set(card.id, [card.id, decision, who.value.trim(), why]) : decided.delete(card.id);
  const mine = card.querySelector(".mine");
  mine.hidden = !decision;
  mine.textContent = decision ? `To be saved: ${decision}, ${why}` : "";
  save.disabled = !decided.size;
}

function download() {
  const before = [...document.querySelectorAll("script[type='application/json']")].flatMap((one) => JSON.parse(one.textContent));
  const rows = new Map([...before.map((row) => [row[0], row]), ...decided]);
  const cell = (text) => `"${text.replaceAll('"', '""')}"`;
  const table = ["{{ header }}", ...[...rows.values()].map((row) => row.map(cell).join(","))].join("\n") + "\n";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([table], { type: "text/csv" }));
  link.download = "{{ decisions }}";
  link.click();
  URL.revokeObjectURL(link.href);
}

document.querySelector(".tools").addEventListener("input", filter);
save.addEventListener("click", download);
for (const card of cards) card.querySelector(".picture").addEventListener("click", (event) => { event.preventDefault(); card.focus(); enlarge(card); });
large.addEventListener("click", () => large.close());
large.addEventListener("close", () => enlarged.focus());
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input:not([type=checkbox]), select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const card = current();
  const act = { j: () => step(1), k: () => step(-1), y: () => decide(card, "keep"), n: () => decide(card, "drop"), u: () => decide(card, "") };
  if (act[event.key]) { event.preventDefault(); act[event.key](); }
  if (event.key === "Enter" && event.target === card) enlarge(card);
});
filter();
