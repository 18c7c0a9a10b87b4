"use strict";
const byId = (id) => document.getElementById(id);

function createElement(kind, text, properties = {}) {
  const element = Object.assign(document.createElement(kind), properties);
  element.textContent = text;
  return element;
}

// four significant digits; separators of thousands from 10,000 on, so that years have none
function format(value) {
  if (typeof value !== "number") return value === null ? "—" : String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-4 || size >= 1e9) ? value.toExponential(3)
    : value.toLocaleString("en", size >= 1000 ? { maximumFractionDigits: 0, useGrouping: "min2" } : { maximumSignificantDigits: 4 });
}

