const { queries, pictures } = JSON.parse(byId("data").textContent);
const select = byId("query"), grid = byId("anchors");
const WHERE = { inside: "", edge: " The row is at the edge of the others.",
  outside: " The row is outside of the others: the prediction is an extrapolation." };

function line(tag, scope, [first, ...others], span = 1) {
  const row = createElement("tr", "");
  row.append(createElement(first ? "th" : "td", first, { scope }),
    ...others.map((text, i) => createElement(tag, text, { colSpan: i ? span : 1 })));
  return row;
}

function show({ name, predicted, lower, upper, truth, applicability, comparables, grid: { headings, lines, summary } }) {
  byId("prediction").textContent =
    `Prediction for ${name}: ${format(predicted)} (90 % interval ${format(lower)} to ${format(upper)}); known value: ${format(truth)}.${WHERE[applicability] || ""}`;
  byId("alone").textContent = summary;
  grid.tHead.replaceChildren(line("th", "col", ["", "this row", ...headings], 2));
  [name, ...comparables.map((one) => one.label)].forEach((label, i) =>
    grid.rows[0].cells[i + 1].insertAdjacentHTML("beforeend", pictures[label] ?? ""));
  grid.tBodies[0].replaceChildren(...lines.map(([title, own, cells]) => line("td", "row", [title, own, ...cells.flat()])));
}

select.addEventListener("change", () => show(queries[Number(select.value)]));
if (queries.length) show(queries[0]);
