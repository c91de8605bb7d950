"use strict";
// Shows the rows (data-row) whose outcome and section are chosen and whose text has the words
// searched for, and counts them. The choice is kept in the address, so that it can be shared.
const form = document.querySelector(".filters");
const rows = [...document.querySelectorAll("[data-row]")];
const buttons = [...form.querySelectorAll("button[data-outcome]")];
const section = form.querySelector("select");
const words = form.querySelector("input");
const shown = form.querySelector(".shown");

function chosen() {
  return buttons.filter((one) => one.getAttribute("aria-pressed") === "true").map((one) => one.dataset.outcome);
}

function apply() {
  const outcomes = chosen();
  const searched = words.value.trim().toLowerCase();
  let count = 0;
  for (const row of rows) {
    const visible = (outcomes.length === 0 || outcomes.includes(row.dataset.outcome))
      && (section.value === "" || row.dataset.section === section.value)
      && (searched === "" || row.textContent.toLowerCase().includes(searched));
    row.hidden = !visible;
    count += visible ? 1 : 0;
  }
  for (const group of document.querySelectorAll("[data-group]")) {
    group.hidden = !rows.some((row) => row.dataset.section === group.dataset.group && !row.hidden);
  }
  shown.textContent = `${count} of ${rows.length}`;
  const state = new URLSearchParams();
  outcomes.forEach((one) => state.append("outcome", one));
  if (section.value) state.set("section", section.value);
  if (searched) state.set("words", searched);
  const hash = state.toString();
  if (hash || location.hash.includes("=")) history.replaceState(null, "", hash ? `#${hash}` : " ");
}

function restore() {
  if (!location.hash.includes("=")) return;
  const state = new URLSearchParams(location.hash.slice(1));
  for (const one of buttons) one.setAttribute("aria-pressed", String(state.getAll("outcome").includes(one.dataset.outcome)));
  const wanted = state.get("section") || "";
  section.value = [...section.options].some((one) => one.value === wanted) ? wanted : "";
  words.value = state.get("words") || "";
}

function openNamed() {
  const named = location.hash.includes("=") ? null : document.getElementById(location.hash.slice(1));
  if (!named || !rows.includes(named)) return;
  for (const one of buttons) one.setAttribute("aria-pressed", "false");
  section.value = "";
  words.value = "";
  apply();
  named.open = true;
  named.scrollIntoView();
}

for (const one of buttons) {
  one.addEventListener("click", () => {
    one.setAttribute("aria-pressed", String(one.getAttribute("aria-pressed") !== "true"));
    apply();
  });
}
section.addEventListener("change", apply);
words.addEventListener("input", apply);
window.addEventListener("hashchange", openNamed);
form.hidden = false;
restore();
apply();
openNamed();
window.addEventListener("beforeprint", () => {
  for (const row of document.querySelectorAll("[data-broken]")) row.open = true;
});
