"use strict";
const queries = JSON.parse(document.getElementById("data").textContent);
const choice = document.getElementById("query");
const body = document.querySelector("#anchors tbody");

function shown(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? 15 : 4, maximumFractionDigits: size >= 1000 ? 0 : 20 });
}

function cell(kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  if (kind === "th") made.scope = "row";
  return made;
}

function show(query) {
  document.getElementById("told").textContent =
    `Prediction for ${query.name}: ${shown(query.predicted)}; known value: ${shown(query.truth)}.`;
  body.replaceChildren(...query.anchors.map((anchor) => {
    const line = document.createElement("tr");
    const sign = anchor.difference < 0 ? "−" : "+";
    const differs = anchor.features.map((f) => `${f.name} ${f.anchor} (here ${f.query})`).join(", ");
    line.append(
      cell("th", anchor.name), cell("td", shown(anchor.known)),
      cell("td", sign + shown(Math.abs(anchor.difference))), cell("td", shown(anchor.estimate)),
      cell("td", `${(100 * anchor.weight).toPrecision(2)} %`), cell("td", differs || "nothing"),
    );
    return line;
  }));
}

choice.addEventListener("change", () => show(queries[Number(choice.value)]));
if (queries.length) show(queries[0]);
