const MAX_FEATURES = 12, FRAGMENT = /fragment \d+\)?$/;  // of which a table of molecules has the largest
const CONFIDENCE = 0.9, NEW_CATEGORY = "new", MISSING = "missing", BATCH = "batch (offset)";
let columns = [], inputs = [], intervals = false, calibrated = false, target = "y";

function ticks(low, high) {
  let step = 10 ** Math.floor(Math.log10((high - low) / 4));
  step *= [1, 2, 5, 10].find((factor) => (high - low) / (step * factor) <= 6);
  const first = Math.ceil(low / step), last = Math.floor(high / step);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

function signed(value) {
  return (value < 0 ? "−" : "+") + format(Number(Math.abs(value).toPrecision(4)));
}

function describeApplicability({ label, score, error, coverage }) {
  const where = { inside: "Inside of the known cases", edge: "At the edge of the known cases",
    outside: "Outside of the known cases: the prediction is an extrapolation" }[label];
  const measured = error === undefined ? "" : `; such rows had a root mean square error of ${format(error)}`;
  const covered = coverage === undefined ? "" : `; ${Math.round(100 * coverage)} % of them were within their interval`;
  return `${where} (${score.toPrecision(2)} times the expected error of a typical one${measured}${covered}).`;
}

async function post(url, body) {
  const response = await fetch(url, { method: "POST", headers: { "Content-Type": "application/json" }, body });
  if (!response.ok) throw new Error((await response.json()).error);
  return response;
}

function readForm() {
  return Object.fromEntries(inputs.map((column, index) => {
    const value = byId(`column-${index}`).value;
    if (!column.choices) return [column.name, withDecimalPoint(value)];
    if (value === MISSING) return [column.name, null];
    if (value === NEW_CATEGORY) return [column.name, byId(`new-${index}`).value];
    return [column.name, column.choices[Number(value)]];
  }));
}

// 1,234 may be meant as 1234: it is left as it is, and refused
function withDecimalPoint(text) {
  return /^\s*[<>]?\s*[+-]?\d*,\d+\s*$/.test(text) && !/\d,\d{3}\s*$/.test(text) ? text.replace(",", ".") : text;
}

function drawComparables(comparables, prediction, ends) {
  const plot = byId("plot"), width = Math.max(plot.clientWidth, 300), right = width - 24;
  const letters = Math.min(Math.max(...comparables.map((one) => one.label.length)), Math.floor(width / 24)), left = 7 * letters + 8;
  const step = 26, bottom = step * comparables.length + 12;
  const values = comparables.flatMap((one) => [one.known, one.estimate]).concat(prediction, ends);
  const low = Math.min(...values), span = Math.max(...values) - low || 1;
  const x = (value) => left + 12 + (value - low) / span * (right - left - 12);
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  const draw = (kind, attributes, text = "") => {
    const shape = document.createElementNS(namespace, kind);
    shape.textContent = text;
    for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
    return svg.appendChild(shape);
  };
  svg.setAttribute("viewBox", `0 0 ${width} ${bottom + 44}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "Known value of each comparable case and its estimate for the input");
  if (ends.length) draw("rect", { class: "band", x: x(ends[0]), width: x(ends[1]) - x(ends[0]), y: 4, height: bottom - 4 });
  draw("line", { class: "line guide", x1: x(prediction), x2: x(prediction), y1: 4, y2: bottom });
  draw("line", { class: "grid", x1: left, x2: width, y1: bottom, y2: bottom });
  const marks = ticks(low, low + span), widest = 7 * Math.max(...marks.map((value) => format(value).length), 1) + 7;
  const skip = Math.ceil(widest * marks.length / (right - left));
  for (const [index, value] of marks.entries()) {
    draw("line", { class: "grid", x1: x(value), x2: x(value), y1: bottom, y2: bottom + 5 });
    if (index % skip === 0) draw("text", { x: x(value), y: bottom + 18, "text-anchor": "middle" }, format(value));
  }
  draw("text", { x: (left + width) / 2, y: bottom + 38, "text-anchor": "middle" }, target);
  comparables.forEach((one, index) => {
    const y = 18 + step * index, name = one.label.length > letters ? `${one.label.slice(0, letters - 1)}…` : one.label;
    draw("text", { x: left, y: y + 4, "text-anchor": "end" }, name);
    draw("line", { class: "reach", x1: x(one.known), x2: x(one.estimate), y1: y, y2: y });
    draw("circle", { class: "point", cx: x(one.estimate), cy: y, r: 5 });
    draw("circle", { class: "point", cx: x(one.known), cy: y, r: 2.5 });
  });
  const band = ends.length ? `, with its ${100 * CONFIDENCE} % interval` : "";
  plot.replaceChildren(svg, createElement("figcaption",
    `Small dots: known values. Large dots: estimates for the input. Dashed line: prediction${band}.`));
}

function formatFeature(name, value) {
  const isDay = inputs.some((own) => own.kind && name === `${own.name} (days)`);
  return isDay && value !== null ? new Date(value * 86400000).toISOString().slice(0, 10) : format(value);
}

function percent(share) {
  return `${Number((100 * share).toPrecision(3))} %`;
}

// all features, or those of molecules that add most
function shownFeatures(comparables) {
  const names = columns.map((column) => column.name).filter((name) => !FRAGMENT.test(name));
  if (names.length === columns.length) return names;
  const size = (name) => Math.max(...comparables.map((one) => Math.abs(one.adjustments[name])));
  return names.sort((a, b) => size(b) - size(a)).slice(0, MAX_FEATURES);
}

function fillTable(comparables, others, pictures) {
  const names = shownFeatures(comparables);
  if (comparables[0].columns[BATCH] !== undefined) names.push(BATCH);
  const head = createElement("tr", "");
  const headings = ["known case", "known value", "difference", "estimate", "weight", ...names];
  head.append(...headings.map((name) => createElement("th", name, { scope: "col" })));
  byId("cases").tHead.replaceChildren(head);
  byId("cases").tBodies[0].replaceChildren(...[...comparables, others].filter(Boolean).map((one) => {
    const line = createElement("tr", "");
    const features = names.map((name) => {
      if (one.anchor < 0) return "";
      const adjustment = one.adjustments[name];
      return formatFeature(name, one.columns[name]) + (adjustment === 0 ? "" : ` (${signed(adjustment)})`);
    });
    const difference = signed(one.difference) + (one.pair ? ` (${one.pair})` : "");
    const cells = [format(one.known), difference, format(one.estimate), percent(one.weight), ...features];
    const label = createElement("th", "", { scope: "row" });
    const rows = one.count > 1 ? ` (${one.count.toLocaleString("en")} rows)` : "";
    label.append(createElement("span", one.label + rows));
    label.insertAdjacentHTML("beforeend", pictures[one.label] ?? "");
    line.append(label, ...cells.map((cell) => createElement("td", cell)));
    return line;
  }));
}

// results are grey while they are those of another input
function setStale(isStale) {
  for (const id of ["prediction", "comparables"]) byId(id).classList.toggle("stale", isStale);
}

async function predict(event) {
  if (event) event.preventDefault();
  const rows = [readForm()], confidence = intervals ? CONFIDENCE : undefined;
  const output = byId("predicted-value");
  try {
    const { prediction: [value], std: [std], low, high, warnings = [] } =
      await (await post("/predict", JSON.stringify({ rows, confidence }))).json();
    const { comparables: [comparables], others: [others], share: [share], comparables_estimate: [alone],
      applicability: [applicability], pictures = {} } = await (await post("/explain", JSON.stringify({ rows }))).json();
    setStale(false);
    output.className = "";
    output.textContent = `${target}: ${format(value)}`;
    output.dataset.value = value;
    byId("interval").textContent = intervals
      ? `${100 * CONFIDENCE} % prediction interval: ${format(low[0])} to ${format(high[0])} · ${applicability.label}`
      : "";
    byId("std").textContent = `Standard deviation${calibrated ? "" : " (not calibrated)"}: ${format(std)}`;
    byId("warnings").textContent = warnings.join(" ");
    byId("applicability").textContent = describeApplicability(applicability);
    byId("applicability").className = applicability.label === "outside" ? "error" : "hint";
    byId("alone").textContent = `From the cases shown alone: ${format(alone)}. They carry ${percent(share)} ` +
      `of the weight of the prediction, ${format(value)}.`;
    byId("share").textContent = "In brackets: what a feature adds when it changes from the known case to the input; known " +
      `value and additions sum to the estimate. The weighted mean of all estimates is the prediction.` +
      (Object.keys(pictures).length ? " In brackets after a difference: the only group of a molecule that differs, of the " +
        "known case → of the input. Shown are the descriptors that add most." : "");
    byId("comparables").hidden = false;
    drawComparables(comparables, value, intervals ? [low[0], high[0]] : []);
    fillTable(comparables, others, pictures);
    byId("molecule").innerHTML = inputs.map((column) => pictures[rows[0][column.name]] ?? "").join("");
  } catch (error) {
    setStale(false);
    output.className = "error";
    output.textContent = error.message;
    for (const id of ["molecule", "std", "interval", "warnings", "applicability"]) byId(id).textContent = "";
    byId("comparables").hidden = true;  // they are those of another input
  }
}

function offerNewCategory(select, name, index) {
  const text = createElement("input", "", { id: `new-${index}`, ariaLabel: `new category of ${name}`, hidden: true });
  select.append(createElement("option", "new category…", { value: NEW_CATEGORY }));
  select.addEventListener("change", () => {
    text.hidden = select.value !== NEW_CATEGORY;
    text.required = !text.hidden;
    if (!text.hidden) text.focus();
  });
  return text;
}

async function start() {
  const about = await (await fetch("/about")).json();
  ({ columns, inputs, intervals, target, calibrated_std: calibrated } = about);
  byId("about").textContent = `${about.name}: ${columns.length} features, ${about.anchors} known cases`;
  const groups = inputs.map((column, index) => {
    const group = createElement("div", "");
    const id = `column-${index}`;
    const type = { date: "date", datetime: "datetime-local" }[column.kind] ?? "text";
    const field = column.choices ? createElement("select", "", { id })
      : createElement("input", "", { id, type, inputMode: column.kind ? "text" : "decimal" });
    if (column.choices) {
      field.append(...column.choices.map((choice, i) => createElement("option", choice, { value: i })));
      if (about.allow_missing || column.name === about.batch) field.append(createElement("option", "missing", { value: MISSING }));
      field.value = column.middle === null ? MISSING : column.choices.indexOf(column.middle);
    } else if (column.middle !== null) {
      field.value = column.kind ? column.middle : Number(column.middle.toPrecision(6));
    }
    group.append(createElement("label", column.name, { htmlFor: id }), field);
    if (column.choices && !column.ordered) group.append(offerNewCategory(field, column.name, index));
    return group;
  });
  byId("form").replaceChildren(...groups, createElement("button", "Predict", { type: "submit" }));
  byId("form").addEventListener("submit", predict);
  byId("form").addEventListener("input", () => setStale(true));
  if (inputs.every((column) => column.kind !== "smiles" || column.middle)) await predict();
}

start();
