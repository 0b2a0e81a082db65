// LangChain's ChatOpenAI. It keeps no annotations of a chat completion.

import { ChatOpenAI } from "@langchain/openai";
import { main, Outcome } from "./drive.mjs";

const chat = async (cell) => {
  const outcome = new Outcome();
  const configuration = { baseURL: cell.base, defaultHeaders: cell.headers };
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
  return Object.assign(outcome, { end: message.response_metadata.finish_reason, id: message.id });
};

await main({ chat }, { chat: ["@langchain/openai", "openai"] });
