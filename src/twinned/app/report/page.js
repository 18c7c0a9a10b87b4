"use strict";
const queries = JSON.parse(document.getElementById("data").textContent);
const select = document.getElementById("query");
const body = document.querySelector("#anchors tbody");
const headings = [...document.querySelectorAll("#anchors thead th")].map((cell) => cell.textContent);

function format(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2);
  return value.toLocaleString("en", size >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 });
}

function signed(value) {
  return (value < 0 ? "−" : "+") + format(Math.abs(value));
}

function describe(anchor) {
  const sizes = anchor.features.map((f) => Math.abs(f.adjustment || 0));
  const least = 1e-3 * Math.max(0, ...sizes);  // smaller adjustments are not shown
  const shown = anchor.features.filter((f) => f.adjustment === undefined || Math.abs(f.adjustment) >= least);
  const parts = shown.map((f) => `${f.name} ${f.anchor} → ${f.query}` +
    (f.adjustment === undefined ? "" : `: ${signed(f.adjustment)}`));
  if (Math.abs(anchor.others || 0) > least) parts.push(`other features: ${signed(anchor.others)}`);
  return parts.join("; ") || "nothing";
}

const WHERE = { inside: "", edge: " The row is at the edge of the others.",
  outside: " The row is outside of the others: the prediction is an extrapolation." };

function cell(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  if (tag === "th") element.scope = "row";
  return element;
}

function show(query) {
  document.getElementById("prediction").textContent =
    `Prediction for ${query.name}: ${format(query.predicted)} (90 % interval ${format(query.lower)} to ${format(query.upper)}); known value: ${format(query.truth)}.${WHERE[query.applicability] || ""}`;
  body.replaceChildren(...query.anchors.map((anchor) => {
    const row = document.createElement("tr");
    row.append(
      cell("th", anchor.name), cell("td", format(anchor.known)),
      cell("td", describe(anchor)),
      cell("td", signed(anchor.difference)), cell("td", format(anchor.estimate)),
    );
    // narrow screens show each row as a list with the headings
    [...row.cells].forEach((own, i) => { own.dataset.heading = headings[i]; });
    return row;
  }));
}

select.addEventListener("change", () => show(queries[Number(select.value)]));
if (queries.length) show(queries[0]);
