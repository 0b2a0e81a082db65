// The AI SDK, two major versions: as a server that calls an OpenAI-like API (`streamText`, `generateText`), and as a browser
// that reads a UI message stream (the parts of `useChat`).

import * as openai from "@ai-sdk/openai";
import * as compatible from "@ai-sdk/openai-compatible";
import * as ai from "ai";
import * as ai6 from "ai-6";
import * as openai6 from "ai-6-openai";
import * as compatible6 from "ai-6-openai-compatible";
import { main, Outcome } from "./drive.mjs";

const viaOpenai = (sdk) => (cell) =>
  sdk.createOpenAI({ baseURL: cell.base, apiKey: "none", headers: cell.headers }).chat(cell.model);

const viaCompatible = (sdk) => (cell) =>
  sdk.createOpenAICompatible({ name: "any", baseURL: cell.base, apiKey: "none", headers: cell.headers }).chatModel(cell.model);

// `null` without sources: the client may have no field for them, which the matrix knows.
const found = (sources) => (sources.length ? sources.map((source) => source.url) : null);

const text = ({ streamText, generateText }, model) => async (cell) => {
  const outcome = new Outcome();
  const call = { model: model(cell), prompt: "Where do the answers come from?", maxRetries: 0 };
  if (cell.whole) {
    const result = await generateText(call);
    outcome.add(result.text);
    return Object.assign(outcome, { end: result.finishReason, sources: found(result.sources), id: result.response.id });
  }
  let failure;
  const result = streamText({ ...call, onError: ({ error }) => (failure = error) });
  for await (const delta of result.textStream) outcome.add(delta);
  if (failure) throw failure;
  outcome.end = await result.finishReason;
  outcome.sources = found(await result.sources);
  outcome.id = (await result.response).id;
  return outcome;
};

const ofMessage = (outcome, message) => {
  const parts = (type) => message.parts.filter((part) => part.type === type);
  outcome.text = parts("text").map((part) => part.text).join("");
  outcome.sources = parts("source-url").map((part) => part.url);
  outcome.id = message.id;
  const [record] = parts("data-citations");
  const listed = record?.data.citations.flatMap(({ url }) => url ?? []);
  if (`${listed}` !== `${outcome.sources}`) throw new Error("the source parts and the data-citations part differ");
  return outcome;
};

// `useChat` is a React wrapper of this class.
const useChat = ({ AbstractChat, DefaultChatTransport }) => {
  class State {
    status = "ready";
    error = undefined;
    messages = [];
    pushMessage = (message) => (this.messages = [...this.messages, message]);
    popMessage = () => (this.messages = this.messages.slice(0, -1));
    replaceMessage = (at, message) => {
      this.seen?.();
      this.messages = this.messages.with(at, structuredClone(message));
    };
    snapshot = (value) => structuredClone(value);
  }
  class Chat extends AbstractChat {}
  return async (cell) => {
    const outcome = new Outcome();
    const state = new State();
    state.seen = () => (outcome.pieces += 1);
    const transport = new DefaultChatTransport({ api: cell.base, headers: cell.headers });
    const chat = new Chat({
      state,
      transport,
      onFinish: ({ finishReason, isAbort, isDisconnect, isError }) => {
        outcome.end = isAbort || isDisconnect || isError ? "broken" : finishReason;
      },
    });
    await chat.sendMessage({ text: "Where do the answers come from?" });
    if (state.error) throw state.error;
    if (state.status !== "ready") throw new Error(`the chat is ${state.status}`);
    return ofMessage(outcome, state.messages.at(-1));
  };
};

// The same stream without `AbstractChat`: checks every chunk against the SDK's schema.
const reader = ({ parseJsonEventStream, readUIMessageStream, uiMessageChunkSchema }) => async (cell) => {
  const outcome = new Outcome();
  const response = await fetch(cell.base, { method: "POST", headers: cell.headers, body: '{"stream":true}' });
  const checked = parseJsonEventStream({ stream: response.body, schema: uiMessageChunkSchema }).pipeThrough(
    new TransformStream({
      transform(result, controller) {
        if (!result.success) throw result.error;
        if (result.value.type === "finish") outcome.end = result.value.finishReason;
        if (result.value.type === "text-delta") outcome.pieces += 1;
        controller.enqueue(result.value);
      },
    }),
  );
  let last;
  const fail = (error) => {
    throw error;
  };
  for await (const message of readUIMessageStream({ stream: checked, onError: fail, terminateOnError: true })) last = message;
  return ofMessage(outcome, last);
};

await main(
  {
    openai: text(ai, viaOpenai(openai)),
    compatible: text(ai, viaCompatible(compatible)),
    chat: useChat(ai),
    reader: reader(ai),
    "openai-6": text(ai6, viaOpenai(openai6)),
    "compatible-6": text(ai6, viaCompatible(compatible6)),
    "chat-6": useChat(ai6),
    "reader-6": reader(ai6),
  },
  {
    openai: ["@ai-sdk/openai", "ai"],
    compatible: ["@ai-sdk/openai-compatible", "ai"],
    chat: ["ai"],
    reader: ["ai"],
    "openai-6": ["ai-6-openai", "ai-6"],
    "compatible-6": ["ai-6-openai-compatible", "ai-6"],
    "chat-6": ["ai-6"],
    "reader-6": ["ai-6"],
  },
);
