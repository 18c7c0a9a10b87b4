"use strict";
const queries = JSON.parse(document.getElementById("data").textContent);
const select = document.getElementById("query");
const grid = document.getElementById("anchors");

function format(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2);
  return value.toLocaleString("en", size >= 1000 ? { maximumFractionDigits: 0, useGrouping: "min2" } : { maximumSignificantDigits: 4 });
}

const WHERE = { inside: "", edge: " The row is at the edge of the others.",
  outside: " The row is outside of the others: the prediction is an extrapolation." };

function line(tag, scope, [first, ...others], span = 1) {
  const row = document.createElement("tr");
  const add = (kind, text) => row.appendChild(Object.assign(document.createElement(kind), { textContent: text }));
  add(first ? "th" : "td", first).scope = scope;
  others.forEach((text, i) => { add(tag, text).colSpan = i ? span : 1; });
  return row;
}

function show({ name, predicted, lower, upper, truth, applicability, grid: { headings, lines, summary } }) {
  document.getElementById("prediction").textContent =
    `Prediction for ${name}: ${format(predicted)} (90 % interval ${format(lower)} to ${format(upper)}); known value: ${format(truth)}.${WHERE[applicability] || ""}`;
  document.getElementById("alone").textContent = summary;
  grid.tHead.replaceChildren(line("th", "col", ["", "this row", ...headings], 2));
  grid.tBodies[0].replaceChildren(...lines.map(([title, own, cells]) => line("td", "row", [title, own, ...cells.flat()])));
}

select.addEventListener("change", () => show(queries[Number(select.value)]));
if (queries.length) show(queries[0]);
