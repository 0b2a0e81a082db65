// Readers of the upstreams' own dialects, as in frontends: fetch with eventsource-parser, and EventSource.

import { createParser } from "eventsource-parser";
import { main, Outcome } from "./drive.mjs";

// Parsers of a frontend, which does not know citetap except for the name of its event.
class Tencent extends Outcome {
  static names = ["finish"];

  take(name, data) {
    const frame = JSON.parse(data);
    // Naive on purpose: a frame without the field would add "undefined" to the text.
    this.text += frame.delta_content;
    this.pieces += 1;
    if (name === "finish") {
      this.end = frame.finish_reason;
      this.id = frame.completion_id;
    }
  }
}

class Doubao extends Outcome {
  static names = ["STREAM_MSG_NOTIFY", "STREAM_CHUNK", "CHUNK_DELTA", "SSE_REPLY_END"];
  blocks = new Map();
  last = null;

  take(name, data) {
    const frame = JSON.parse(data);
    if (name === "STREAM_MSG_NOTIFY") this.patch(frame.content.content_block);
    for (const op of frame.patch_op ?? []) if (op.patch_object === 1) this.patch(op.patch_value.content_block);
    if (name === "CHUNK_DELTA") {
      this.last.text += frame.text;
      this.pieces += 1;
    }
    if (name === "SSE_REPLY_END") {
      this.id ??= frame.msg_finish_attr?.msgid;
      if (frame.end_type === 3) this.end = "stop";
    }
    this.text = [...this.blocks.values()].filter(({ parent }) => !parent).map(({ text }) => text).join("");
  }

  patch(blocks) {
    for (const block of blocks) {
      const text = block.content.text_block?.text;
      if (text === undefined) continue;
      this.last = { parent: block.parent_id, text };
      this.blocks.set(block.block_id, this.last);
    }
  }
}

const cite = (outcome, data) => {
  if (outcome.end) throw new Error("the sources came after the end");
  outcome.sources = JSON.parse(data).citations.citations.map(({ url }) => url);
};

const frontends = { tencent: Tencent, doubao: Doubao };

// Passes every event to the frontend, including citetap's, as a frontend that dispatches by content.
const parser = async (cell) => {
  const outcome = new frontends[cell.dialect]();
  const response = await fetch(cell.base, { method: "POST", headers: cell.headers, body: "{}" });
  const events = createParser({
    onEvent({ event, data }) {
      if (event === "citations") cite(outcome, data);
      outcome.take(event, data);
    },
    onError(error) {
      throw error;
    },
  });
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) events.feed(text);
  return outcome;
};

// EventSource only sends GET, dispatches events by name, and reconnects when a stream ends.
const source = (cell) =>
  new Promise((resolve, reject) => {
    const Frontend = frontends[cell.dialect];
    const outcome = new Frontend();
    const events = new EventSource(cell.base);
    const listen = (name, take) =>
      events.addEventListener(name, ({ data }) => {
        try {
          take(data);
        } catch (error) {
          events.close();
          reject(error);
        }
      });
    for (const name of ["message", ...Frontend.names]) listen(name, (data) => outcome.take(name, data));
    listen("citations", (data) => cite(outcome, data));
    events.onerror = () => {
      events.close();
      resolve(outcome);
    };
  });

await main({ parser, source }, { parser: ["eventsource-parser"] });
