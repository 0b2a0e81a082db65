// LangChain's ChatOpenAI. It drops the annotations of a streamed chat completion, and for some upstreams the id.

import { ChatOpenAI } from "@langchain/openai";
import { main, Outcome } from "./drive.mjs";

const chat = async (cell) => {
  const outcome = new Outcome();
  const configuration = { baseURL: cell.base, defaultHeaders: { ...cell.headers, "x-task-id": cell.task } };
  const model = new ChatOpenAI({ model: cell.model, apiKey: "none", maxRetries: 0, useResponsesApi: false, configuration });
  let message;
  if (cell.whole) {
    message = await model.invoke("hello");
    outcome.add(message.text);
  } else {
    for await (const chunk of await model.stream("hello")) {
      outcome.add(chunk.text);
      message = message ? message.concat(chunk) : chunk;
    }
  }
  return Object.assign(outcome, { end: message.response_metadata.finish_reason });
};

await main({ chat }, { chat: ["@langchain/openai", "openai"] });
