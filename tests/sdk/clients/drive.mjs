// Runs the cells of one process: a job on standard input, one line of JSON per cell into the file named by the first
// argument. A client is a function of a cell that returns an outcome, or throws; what it throws is the cell's error.

import { appendFileSync, readFileSync, writeFileSync } from "node:fs";

export const question = [{ role: "user", content: "Where do the answers come from?" }];

// `sources: null`: this client has no place for them.
export class Outcome {
  text = "";
  end = null;
  sources = null;
  id = null;
  pieces = 0;

  add(text) {
    if (text) {
      this.text += text;
      this.pieces += 1;
    }
  }
}

export const urls = (annotations) => (annotations ?? []).flatMap((each) => each.url_citation?.url ?? []);

const version = (name) => JSON.parse(readFileSync(new URL(`../node_modules/${name}/package.json`, import.meta.url))).version;

export async function main(clients, packages = {}) {
  const out = process.argv[2];
  const job = JSON.parse(readFileSync(0, "utf8"));
  writeFileSync(out, "");
  // What a library throws where nobody can catch it is an error of the cell that runs.
  let fail;
  process.on("unhandledRejection", (error) => fail(error));
  process.on("uncaughtException", (error) => fail(error));
  for (const cell of job.cells) {
    const late = new Promise((_, reject) => (fail = reject));
    const timer = setTimeout(() => fail(new Error("the client did not end in time")), job.timeout * 1000);
    let outcome;
    try {
      outcome = await Promise.race([clients[cell.client](cell), late]);
    } catch (error) {
      outcome = { ...new Outcome(), error: `${error?.name}: ${error?.message ?? error}`.slice(0, 500) };
      // A stream that broke often breaks in several places; the next cell is not to answer for this one's.
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    clearTimeout(timer);
    const names = packages[cell.client] ?? [];
    const versions = Object.fromEntries(names.map((name) => [name, version(name)]));
    versions.node = process.versions.node;
    const { text, end = null, sources = null, id = null, pieces, error = null } = outcome;
    const line = { cell: cell.name, text, end, sources, id, pieces, error, versions };
    appendFileSync(out, JSON.stringify(line) + "\n");
  }
  // A connection that a client keeps, or one that hangs, must not keep the process.
  process.exit(0);
}
