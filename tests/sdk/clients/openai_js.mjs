// The OpenAI JS SDK, two major versions: the loop of most tutorials, and the `.stream()` helper.

import OpenAI from "openai";
import OpenAI6 from "openai-6";
import { main, Outcome, question, urls } from "./drive.mjs";

const connect = (Sdk, cell) =>
  new Sdk({ baseURL: cell.base, apiKey: "none", defaultHeaders: cell.headers, maxRetries: 0 });

const loop = (Sdk) => async (cell) => {
  const request = { model: cell.model, messages: question };
  const outcome = new Outcome();
  const client = connect(Sdk, cell);
  const { completions } = client.chat;
  if (cell.whole) {
    const { data: models } = await client.models.list();
    if (!models.some(({ id }) => id === cell.model)) throw new Error("the model is not listed");
    const answer = await completions.create(request);
    const [{ message, finish_reason }] = answer.choices;
    return { ...outcome, text: message.content, end: finish_reason, sources: urls(message.annotations), id: answer.id };
  }
  outcome.sources = [];
  for await (const chunk of await completions.create({ ...request, stream: true })) {
    // Naive on purpose: fails at an empty `choices`.
    const { delta, finish_reason } = chunk.choices[0];
    outcome.add(delta.content);
    outcome.sources.push(...urls(delta.annotations));
    outcome.end = finish_reason ?? outcome.end;
    outcome.id = chunk.id;
  }
  return outcome;
};

const helper = (Sdk) => async (cell) => {
  const outcome = new Outcome();
  const stream = connect(Sdk, cell).chat.completions.stream({ model: cell.model, messages: question });
  stream.on("content", (delta) => outcome.add(delta));
  const answer = await stream.finalChatCompletion();
  const [{ message, finish_reason }] = answer.choices;
  if (message.content !== outcome.text) throw new Error("the helper's events and its final message differ");
  return Object.assign(outcome, { end: finish_reason, sources: urls(message.annotations), id: answer.id });
};

await main(
  { loop: loop(OpenAI), helper: helper(OpenAI), "loop-6": loop(OpenAI6), "helper-6": helper(OpenAI6) },
  { loop: ["openai"], helper: ["openai"], "loop-6": ["openai-6"], "helper-6": ["openai-6"] },
);
