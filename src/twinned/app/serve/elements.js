"use strict";
const byId = (id) => document.getElementById(id);

function createElement(kind, text, properties = {}) {
  const element = Object.assign(document.createElement(kind), properties);
  element.textContent = text;
  return element;
}

