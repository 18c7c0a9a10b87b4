"use strict";
const queries = JSON.parse(document.getElementById("data").textContent);
const select = document.getElementById("query");
const body = document.querySelector("#anchors tbody");
const headings = [...document.querySelectorAll("#anchors thead th")].map((cell) => cell.textContent);

function format(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 15 : 4, maximumFractionDigits: size >= 1000 ? 0 : 20 });
}

function cell(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  if (tag === "th") element.scope = "row";
  return element;
}

function show(query) {
  document.getElementById("prediction").textContent =
    `Prediction for ${query.name}: ${format(query.predicted)} (90 % interval ${format(query.lower)} to ${format(query.upper)}); known value: ${format(query.truth)}.`;
  body.replaceChildren(...query.anchors.map((anchor) => {
    const row = document.createElement("tr");
    const sign = anchor.difference < 0 ? "−" : "+";
    const differs = anchor.features.map((f) => `${f.name} ${f.anchor} (here ${f.query})`).join(", ");
    row.append(
      cell("th", anchor.name), cell("td", format(anchor.known)),
      cell("td", sign + format(Math.abs(anchor.difference))), cell("td", format(anchor.estimate)),
      cell("td", differs || "nothing"),
    );
    // narrow screens show each row as a list with the headings
    [...row.cells].forEach((own, i) => { own.dataset.heading = headings[i]; });
    return row;
  }));
}

select.addEventListener("change", () => show(queries[Number(select.value)]));
if (queries.length) show(queries[0]);
