const CONFIDENCE = 0.9, NEW_CATEGORY = "new", MISSING = "missing", BATCH = "batch (offset)";
let columns = [], inputs = [], batch = null, intervals = false, calibrated = false, target = "y", lowerBound = null, upperBound = null;

function withinBound(value) {
  return Math.min(Math.max(value, lowerBound ?? -Infinity), upperBound ?? Infinity);
}

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

async function post(url, body, type = "application/json") {
  const response = await fetch(url, { method: "POST", headers: { "Content-Type": type }, body });
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

function knownNames() {
  return [...inputs.slice(0, -1).map((column) => column.name), target];  // the batch is the last input
}

function addKnownRow() {
  const body = byId("known-rows").tBodies[0], line = createElement("tr", ""), number = body.rows.length + 1;
  line.append(...knownNames().map((name) => {
    const cell = createElement("td", "");
    cell.append(createElement("input", "", { ariaLabel: `${name} of known row ${number}` }));
    return cell;
  }));
  body.append(line);
}

// cells of a spreadsheet, or lines of a file, with or without the names of the columns
function pasteKnownRows(event) {
  const text = event.clipboardData.getData("text").trimEnd(), names = knownNames(), body = byId("known-rows").tBodies[0];
  const lines = text.split(/\r?\n/);
  const separator = ["\t", ";", ","].find((sign) => lines[0].split(sign).length >= names.length) ?? "\t";
  if (lines.length === 1 && !text.includes(separator)) return;
  event.preventDefault();
  let cells = lines.map((line) => line.split(separator).map((cell) => cell.trim()));
  const order = names.map((name) => cells[0].indexOf(name)), hasNames = !order.includes(-1);
  if (hasNames) cells = cells.slice(1).map((line) => order.map((index) => line[index] ?? ""));
  const cell = event.target.closest("td"), first = cell.parentElement.sectionRowIndex;
  while (body.rows.length < first + cells.length) addKnownRow();
  cells.forEach((line, i) => line.forEach((value, j) => {
    const field = body.rows[first + i].cells[(hasNames ? 0 : cell.cellIndex) + j]?.firstChild;
    if (field) field.value = value;
  }));
}

function readKnown() {
  if (!batch) return undefined;
  const lines = Array.from(byId("known-rows").tBodies[0].rows, (line) => Array.from(line.cells, (cell) => cell.firstChild.value));
  return lines.filter((cells) => cells.some((value) => value.trim())).map((cells) => ({
    ...Object.fromEntries(knownNames().map((name, i) => [name, withDecimalPoint(cells[i])])), [batch.name]: byId("known-batch").value }));
}

function useKnownRows() {
  const name = byId("known-batch").value.trim(), index = inputs.indexOf(batch), known = batch.choices.indexOf(name);
  byId(`column-${index}`).value = known < 0 ? NEW_CATEGORY : known;
  byId(`new-${index}`).hidden = known >= 0;
  byId(`new-${index}`).value = name;
  return predict();
}

function offerKnownRows(most) {
  byId("known").hidden = false;
  byId("known-hint").textContent = `A few rows whose ${target} is known, up to ${most}: type them, or paste them from a spreadsheet. ` +
    "The model is not trained again, and the rows are not stored.";
  byId("known-label").textContent = `new ${batch.name}`;
  const head = createElement("tr", ""), body = byId("known-rows").tBodies[0];
  head.append(...knownNames().map((name) => createElement("th", name, { scope: "col" })));
  byId("known-rows").tHead.append(head);
  for (let row = 0; row < 3; row++) addKnownRow();
  body.addEventListener("paste", pasteKnownRows);
  body.addEventListener("input", ({ target: { value, parentElement: { parentElement: line } } }) => {
    if (value && line === body.lastChild && body.rows.length < most) addKnownRow();
  });
  byId("use-known").addEventListener("click", useKnownRows);
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

function fillTable(comparables, others) {
  const names = columns.map((column) => column.name);
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
    const cells = [format(one.known), signed(one.difference), format(one.estimate), percent(one.weight), ...features];
    const label = createElement("th", "", { scope: "row" });
    const rows = one.count > 1 ? ` (${one.count.toLocaleString("en")} rows)` : "";
    label.append(createElement("span", one.label + rows));
    line.append(label, ...cells.map((cell) => createElement("td", cell)));
    return line;
  }));
}

// results are grey while they are those of another input
function setStale(isStale, ids = ["prediction", "comparables", "proposals"]) {
  for (const id of ids) byId(id).classList.toggle("stale", isStale);
}

async function predict(event) {
  if (event) event.preventDefault();
  const rows = [readForm()], known = readKnown(), confidence = intervals ? CONFIDENCE : undefined;
  const output = byId("predicted-value");
  setStale(false, ["prediction", "comparables"]);
  try {
    const { prediction: [value], std: [std], low, high, warnings = [] } =
      await (await post("/predict", JSON.stringify({ rows, confidence, known }))).json();
    const { comparables: [comparables], others: [others], share: [share], comparables_estimate: [alone],
      applicability: [applicability] } = await (await post("/explain", JSON.stringify({ rows, known }))).json();
    output.className = "";
    output.textContent = `${target}: ${format(withinBound(value))}`;
    output.dataset.value = value;
    const ends = intervals ? [low[0], high[0]] : [];
    const cuts = ends.filter((end) => withinBound(end) !== end).map(withinBound);
    const cut = cuts.length ? ` (cut at ${cuts.join(" and ")}, as no known value is beyond)` : "";
    byId("interval").textContent = intervals
      ? `${100 * CONFIDENCE} % prediction interval: ${format(withinBound(low[0]))} to ${format(withinBound(high[0]))}${cut} · ${applicability.label}`
      : "";
    byId("std").textContent = `Standard deviation${calibrated ? "" : " (not calibrated)"}: ${format(std)}`;
    byId("warnings").textContent = warnings.join(" ");
    byId("known-used").textContent = known?.length ? `Known rows of ${known[0][batch.name]} that the prediction is made with: ${known.length}.` : "";
    byId("applicability").textContent = describeApplicability(applicability);
    byId("applicability").className = applicability.label === "outside" ? "error" : "hint";
    byId("alone").textContent = `From the cases shown alone: ${format(alone)}. They carry ${percent(share)} ` +
      `of the weight of the prediction, ${format(value)}.`;
    byId("share").textContent = "In brackets: what a feature adds when it changes from the known case to the input; known " +
      `value and additions sum to the estimate. The weighted mean of all estimates is the prediction.`;
    byId("comparables").hidden = false;
    drawComparables(comparables, value, ends);
    fillTable(comparables, others);
  } catch (error) {
    output.className = "error";
    output.textContent = error.message;
    for (const id of ["std", "interval", "warnings", "applicability", "known-used"]) byId(id).textContent = "";
    byId("comparables").hidden = true;  // they are those of another input
  }
}

async function predictFile() {
  const [file] = byId("file").files;
  if (!file) return;
  const output = byId("batch-result");
  output.className = "";
  output.textContent = "The table is predicted…";
  try {
    const [decimal, thousands] = byId("notation").value, sheet = byId("sheet").value, known = readKnown(), missing = byId("missing").value.trim();
    const options = { ...(intervals && { confidence: CONFIDENCE }), ...(decimal && { decimal, thousands }), ...(sheet && { sheet }),
      ...(missing && { missing }), ...(known?.length && { known: JSON.stringify(known) }) };
    const response = await post(`/batch?${new URLSearchParams(options)}`, file, file.type || "text/csv");
    const warnings = JSON.parse(response.headers.get("X-Twinned-Warnings") || "[]");
    const text = await response.text();
    const link = createElement("a", "Download the predictions", { download: "predictions.csv" });
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    const count = text.trim().split("\n").length - 1;
    output.replaceChildren(`${count} rows were predicted. `, link,
      ...warnings.map((text) => createElement("p", text, { className: "hint" })));
  } catch (error) {
    output.className = "error";
    output.textContent = error.message;
  }
}

function offerChanges(cases) {
  byId("near").append(...cases.map(([label, value], index) => createElement("option", `${label}: ${format(value)}`, { value: index })));
  byId("sure-field").hidden = !intervals;
  const changeable = inputs.filter((column) => !column.kind && column !== batch);
  byId("columns").tBodies[0].replaceChildren(...changeable.map((column, index) => {
    const line = createElement("tr", ""), id = `change-${index}`, name = createElement("th", "", { scope: "row" });
    const label = createElement("label", column.name, { htmlFor: id });
    label.prepend(createElement("input", "", { type: "checkbox", id, value: column.name }));
    name.append(label);
    line.append(name, ...["lowest", "highest"].map((end, side) => {
      const cell = createElement("td", "");
      if (column.range) cell.append(createElement("input", "", { ariaLabel: `${end} ${column.name}`, inputMode: "decimal", placeholder: format(column.range[side]) }));
      return cell;
    }));
    return line;
  }));
  byId("goal").addEventListener("change", ({ target: { value } }) => {
    byId("wanted-value").hidden = value.startsWith("m");
    byId("value").required = !byId("wanted-value").hidden;
  });
  byId("wanted").addEventListener("submit", propose);
}

// those that may change, with their bounds, and the others
function readColumns() {
  const names = [], fixed = [], bounds = {};
  for (const line of byId("columns").tBodies[0].rows) {
    const [box, ...ends] = line.querySelectorAll("input");
    (box.checked ? names : fixed).push(box.value);
    if (box.checked && ends.some((end) => end.value.trim())) bounds[box.value] = ends.map((end) => withDecimalPoint(end.value).trim() || null);
  }
  return { names, fixed, bounds };
}

function describeChange(name, value, change) {
  if (typeof change === "string") return change || format(value);
  return formatFeature(name, value) + (change ? ` (${signed(change)})` : "");
}

function fillProposals(proposals, names) {
  const head = createElement("tr", ""), has = (field) => proposals.some((one) => one[field] !== undefined);
  const fields = [[target, ({ prediction }) => format(withinBound(prediction))]];
  if (has("low")) fields.push([`${100 * CONFIDENCE} % interval`, ({ low, high }) => `${format(withinBound(low))} to ${format(withinBound(high))}`]);
  if (has("probability")) fields.push(["probability", ({ probability }) => percent(probability)]);
  fields.push(["applicability", ({ applicability }) => applicability], ["nearest known case", ({ anchor }) => anchor]);
  head.append(...["proposal", ...names, ...fields.map(([name]) => name)].map((name) => createElement("th", name, { scope: "col" })));
  byId("proposals").tHead.replaceChildren(head);
  byId("proposals").tBodies[0].replaceChildren(...proposals.map((one, index) => {
    const line = createElement("tr", "");
    line.append(createElement("th", index + 1, { scope: "row" }),
      ...names.map((name) => createElement("td", describeChange(name, one.columns[name], one.changes[name]),
        { className: one.changes[name] ? "" : "unchanged" })),
      ...fields.map(([, read]) => createElement("td", read(one))));
    return line;
  }));
}

// the names of parameters, as the page has them
function inWordsOfThePage(message) {
  const words = { fixed: "may change", bounds: "lowest and highest", constraints: "conditions", near: "row to be changed", target: `wanted ${target}` };
  return message.replace(/^(fixed|bounds|constraints|near|target)\b/, (name) => words[name]);
}

async function propose(event) {
  event.preventDefault();
  const output = byId("proposed"), { names, fixed, bounds } = readColumns(), sign = byId("goal").value;
  const value = withDecimalPoint(byId("value").value), chosen = byId("near").value;
  output.className = "hint";
  output.textContent = "Proposals are computed…";
  byId("propose").disabled = true;
  byId("proposals").hidden = true;
  setStale(false, ["proposals"]);
  try {
    if (!names.length) throw new Error("Tick the columns that may change.");
    if (!sign.startsWith("m") && Number.isNaN(Number(value))) throw new Error(`The value ${value} is no number: write it as 1.5.`);
    const request = { target: sign.startsWith("m") ? sign : `${sign} ${value}`, near: chosen === "" ? readForm() : Number(chosen),
      fixed, bounds, constraints: byId("constraints").value.split(";").filter((text) => text.trim()), confidence: byId("sure").checked ? CONFIDENCE : undefined, known: readKnown() };
    const { proposals, warnings = [] } = await (await post("/solve", JSON.stringify(request))).json();
    fillProposals(proposals, names);
    output.textContent = [...warnings, "In brackets: changes of the row. Dates and fixed columns stay as they are."].join(" ");
    byId("proposals").hidden = false;
    output.scrollIntoView({ block: "center" });
  } catch (error) {
    output.className = "error";
    output.textContent = inWordsOfThePage(error.message);
  }
  byId("propose").disabled = false;
}

function selectTab(chosen) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.ariaSelected = tab === chosen;
    tab.tabIndex = tab === chosen ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
  }
}

function startTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener("click", () => selectTab(tab));
    tab.addEventListener("keydown", ({ key }) => {
      if (key !== "ArrowRight" && key !== "ArrowLeft") return;
      selectTab(tabs[1 - index]);
      tabs[1 - index].focus();
    });
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
  ({ columns, inputs, intervals, target, lower_bound: lowerBound, upper_bound: upperBound, calibrated_std: calibrated } = about);
  if (about.known_rows) batch = inputs.at(-1);
  byId("about").textContent = `${about.name}: ${columns.length} features, ${about.anchors} known cases`;
  const groups = inputs.map((column, index) => {
    const group = createElement("div", "");
    const id = `column-${index}`;
    const type = { date: "date", datetime: "datetime-local" }[column.kind] ?? "text";
    const field = column.choices ? createElement("select", "", { id })
      : createElement("input", "", { id, type, inputMode: "decimal" });
    if (column.choices) {
      field.append(...column.choices.map((choice, i) => createElement("option", choice, { value: i })));
      if (about.allow_missing || column === batch) field.append(createElement("option", "missing", { value: MISSING }));
      field.value = column.middle === null ? MISSING : column.choices.indexOf(column.middle);
    } else if (column.middle !== null) {
      field.value = column.kind ? column.middle : Number(column.middle.toPrecision(6));
    }
    group.append(createElement("label", column.name, { htmlFor: id }), field);
    if (column.choices && !column.ordered) group.append(offerNewCategory(field, column.name, index));
    return group;
  });
  byId("form").replaceChildren(...groups, createElement("button", "Predict", { type: "submit" }));
  if (batch) offerKnownRows(about.known_rows);
  offerChanges(about.cases);
  startTabs();
  byId("form").addEventListener("submit", predict);
  for (const id of ["form", "known-rows"]) byId(id).addEventListener("input", () => setStale(true));
  for (const id of ["file", "notation", "sheet", "missing"]) byId(id).addEventListener("change", predictFile);
  await predict();
}

start();
