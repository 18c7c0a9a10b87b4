function describeType(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(describeType).join(" or ");
  if (schema.enum) return `one of ${schema.enum.map((value) => JSON.stringify(value)).join(", ")}`;
  if (schema.type === "array") return `list of ${describeType(schema.items)}`;
  return [schema.type ?? "any value"].flat().join(" or ");
}

function makeTable(headings, rows) {
  const table = createElement("table", "");
  const head = createElement("tr", "");
  head.append(...headings.map((text) => createElement("th", text, { scope: "col" })));
  table.createTHead().append(head);
  table.createTBody().append(...rows.map((cells) => {
    const line = createElement("tr", "");
    line.append(...cells.map((text) => createElement("td", text)));
    return line;
  }));
  return table;
}

function describeFields({ properties = {}, required = [] }) {
  return makeTable(["field", "type", "needed"], Object.entries(properties).map(
    ([name, schema]) => [name, describeType(schema), required.includes(name) ? "required" : ""]));
}

// a body that the model accepts, with the values that the form starts with
function makeExamples(about) {
  const row = Object.fromEntries(about.inputs.map(({ name, middle }) =>
    [name, typeof middle === "number" ? Number(middle.toPrecision(6)) : middle]));
  const quote = (value) => /[",\n;]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value;
  const lines = [Object.keys(row), Object.values(row)].map((cells) => cells.map(quote).join(","));
  const confidence = about.intervals ? { confidence: 0.9 } : {};
  return { "application/json": JSON.stringify({ rows: [row], ...confidence }, null, 2), "text/csv": `${lines.join("\n")}\n`,
    "/solve": JSON.stringify({ target: "max", near: row }, null, 2) };
}

async function showResponse(output, path, method, body, type) {
  const response = await fetch(path, { method, body, headers: body ? { "Content-Type": type } : {} });
  const text = await response.text();
  const isJson = response.headers.get("Content-Type").startsWith("application/json");
  output.textContent = `${response.status}\n${isJson ? JSON.stringify(JSON.parse(text), null, 2) : text}`;
}

function describeOperation(path, method, operation, examples) {
  const section = createElement("section", "");
  section.append(createElement("h2", `${method.toUpperCase()} ${path}`), createElement("p", operation.summary));
  if (operation.parameters) {
    section.append(createElement("h3", "Parameters of the address"), makeTable(["parameter", "type", "meaning"],
      operation.parameters.map(({ name, schema, description = "" }) => [name, describeType(schema), description])));
  }
  const [type] = Object.keys(operation.requestBody?.content ?? {});
  const example = examples[path] ?? examples[type];
  const body = createElement("textarea", example ?? "", { rows: Math.min(16, example?.split("\n").length), ariaLabel: `body of ${path}`, spellcheck: false });
  const address = createElement("input", "", { value: path, ariaLabel: `address of ${path}` });
  if (type) {
    const sent = { "text/csv": "--data-binary @table.csv" }[type] ?? `-d '${JSON.stringify(JSON.parse(body.value)).replaceAll("'", "'\\''")}'`;
    section.append(createElement("h3", `Body: ${Object.keys(operation.requestBody.content).join(" or ")}`), body,
      createElement("pre", `curl -s ${location.origin}${path} ${sent}`, { tabIndex: 0 }));
  }
  const output = createElement("pre", "", { hidden: true, tabIndex: 0 });
  const send = createElement("button", "Send", { type: "button" });
  send.addEventListener("click", async () => {
    await showResponse(output, address.value, method.toUpperCase(), type && body.value, type);
    output.hidden = false;
  });
  section.append(address, send, output);
  const statuses = Object.entries(operation.responses).map(([status, { description, content }]) =>
    [status, description, Object.entries(content).map(([kind, { schema }]) => schema?.$ref ? describeType(schema) : kind).join(", ")]);
  section.append(makeTable(["status", "meaning", "content"], statuses));
  return section;
}

async function start() {
  const [api, about] = await Promise.all(["/openapi.json", "/about"].map(async (url) => (await fetch(url)).json()));
  const examples = makeExamples(about);
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) byId("operations").append(describeOperation(path, method, operation, examples));
  }
  for (const [name, schema] of Object.entries(api.components.schemas)) {
    const section = createElement("section", "", { tabIndex: 0 });
    section.append(createElement("h2", name), createElement("p", schema.description ?? ""), describeFields(schema));
    byId("operations").append(section);
  }
}

start();
