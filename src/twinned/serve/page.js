"use strict";
const at = (id) => document.getElementById(id);
const CONFIDENCE = 0.9;
let columns = [], intervals = false;

function shown(value) {
  if (typeof value !== "number") return value === null ? "—" : String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e9) ? value.toExponential(3)
    : value.toLocaleString("en", { maximumSignificantDigits: 6 });
}

function made(kind, text, options = {}) {
  const element = Object.assign(document.createElement(kind), options);
  element.textContent = text;
  return element;
}

async function ask(where, body, type = "application/json") {
  const response = await fetch(where, { method: "POST", headers: { "Content-Type": type }, body });
  if (!response.ok) throw new Error((await response.json()).error);
  return response;
}

function row() {
  return Object.fromEntries(columns.map((column, place) => {
    const value = at(`column-${place}`).value;
    return [column.name, column.choices ? column.choices[Number(value)] : value];
  }));
}

function picture(comparables, prediction) {
  const width = 520, step = 26, height = step * comparables.length + 40;
  const values = comparables.flatMap((one) => [one.known, one.estimate]).concat(prediction);
  const low = Math.min(...values), span = Math.max(...values) - low || 1;
  const x = (value) => 20 + (value - low) / span * (width - 40);
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const put = (kind, attributes) => {
    const mark = document.createElementNS(space, kind);
    for (const [name, value] of Object.entries(attributes)) mark.setAttribute(name, value);
    svg.append(mark);
  };
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "From the value of each known case to what it says of this one");
  put("line", { class: "line guide", x1: x(prediction), x2: x(prediction), y1: 4, y2: height - 8 });
  comparables.forEach((one, place) => {
    const y = 18 + step * place;
    put("line", { class: "reach", x1: x(one.known), x2: x(one.estimate), y1: y, y2: y });
    put("circle", { class: "point", cx: x(one.estimate), cy: y, r: 5 });
    put("circle", { class: "point", cx: x(one.known), cy: y, r: 2.5 });
  });
  at("picture").replaceChildren(svg, made("figcaption",
    "Small dots: known values. Large dots: what each says of this one. Dashed: the prediction."));
}

async function answer(event) {
  if (event) event.preventDefault();
  const rows = [row()], confidence = intervals ? CONFIDENCE : undefined;
  try {
    const told = await (await ask("/predict", JSON.stringify({ rows, confidence }))).json();
    const { comparables: [near] } = await (await ask("/explain", JSON.stringify({ rows }))).json();
    at("answer").className = "";
    at("answer").textContent = shown(told.prediction[0]);
    at("answer").dataset.value = told.prediction[0];
    at("interval").textContent = intervals
      ? `${100 * CONFIDENCE} % interval: ${shown(told.low[0])} to ${shown(told.high[0])}`
      : "";
    at("spread").textContent = `The anchors differ by ± ${shown(told.std[0])} (standard deviation).`;
    picture(near, told.prediction[0]);
    const names = columns.map((column) => column.name);
    const head = made("tr", "");
    head.append(...["known value", "difference", "says", ...names].map((name) => made("th", name, { scope: "col" })));
    at("anchors").tHead.replaceChildren(head);
    at("anchors").tBodies[0].replaceChildren(...near.map((one) => {
      const line = made("tr", "");
      const cells = [one.known, one.difference, one.estimate, ...names.map((name) => one.columns[name])];
      line.append(...cells.map((cell) => made("td", shown(cell))));
      return line;
    }));
  } catch (error) {
    at("answer").className = "wrong";
    at("answer").textContent = error.message;
    at("spread").textContent = at("interval").textContent = "";
  }
}

async function batch() {
  const [file] = at("file").files;
  if (!file) return;
  try {
    const text = await (await ask(intervals ? `/batch?confidence=${CONFIDENCE}` : "/batch", await file.text(), "text/csv")).text();
    const link = made("a", "Download the predictions", { download: "predictions.csv" });
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    const count = text.trim().split("\n").length - 1;
    at("batch-answer").replaceChildren(`${count} rows were predicted. `, link);
    at("batch-answer").className = "";
  } catch (error) {
    at("batch-answer").className = "wrong";
    at("batch-answer").textContent = error.message;
  }
}

async function start() {
  const about = await (await fetch("/about")).json();
  ({ columns, intervals } = about);
  at("about").textContent = `${about.anchors} anchors, ${columns.length} columns`;
  const parts = columns.map((column, place) => {
    const part = made("div", "");
    const id = `column-${place}`;
    const field = column.choices ? made("select", "", { id }) : made("input", "", { id, inputMode: "decimal" });
    if (column.choices) field.append(...column.choices.map((choice, i) => made("option", choice, { value: i })));
    else field.value = Number(column.middle.toPrecision(6));
    part.append(made("label", column.name, { htmlFor: id }), field);
    return part;
  });
  at("form").replaceChildren(...parts, made("button", "Predict", { type: "submit" }));
  at("form").addEventListener("submit", answer);
  at("file").addEventListener("change", batch);
  await answer();
}

start();
