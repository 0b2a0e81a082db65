// Runs the cells of one process: reads a job from standard input, writes one line of JSON per cell to the file named by the
// first argument. A client is a function of a cell that returns an outcome; an exception is the cell's error.

import { appendFileSync, readFileSync, writeFileSync } from "node:fs";

export const question = [{ role: "user", content: "Where do the answers come from?" }];

// `sources: null`: this client has no field for them.
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
  // An exception that a library throws outside of the call fails the running cell.
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
      // A broken stream often raises several errors: wait for them, so that the next cell does not get them.
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
  // Exit although clients may hold connections open.
  process.exit(0);
}
