/** Types of `component.js`. */
export {};

export interface Citation {
  /** The number in a marker such as `[1]`. */
  number: number;
  /** Other numbers of the same source. */
  aliases?: number[];
  url?: string | null;
  title?: string | null;
  content?: string | null;
  hostname?: string | null;
  siteName?: string | null;
  iconUrl?: string | null;
  publishedAt?: string | null;
  cited?: boolean;
  /** Only `ok` ones are shown. */
  status?: string;
  origin?: string;
  scores?: { relevance: number; freshness: number; authority: number; final: number } | null;
  [more: string]: unknown;
}

/** The record of a message, as in the citation event and in the response of `/citations/{messageId}`. */
export interface CitationRecord {
  citations: Citation[];
  messageId?: string;
  provider?: string;
  queries?: string[];
  complete?: boolean;
  stored?: boolean;
  nonce?: string;
  [more: string]: unknown;
}

/** One SSE frame as received. `ours`: citetap added it. */
export interface Frame {
  raw: string;
  event: string;
  id?: string;
  data?: string;
  ours: boolean;
}

export type StreamEvent =
  | { type: 'text'; text: string }
  | { type: 'thinking'; text: string }
  /** A step that the upstream reports, in its own words. `progress` is 0 to 100. */
  | { type: 'stage'; name: string; message?: string; detail?: string; queries?: string[]; count?: number; progress?: number }
  /** `verified`: the record has the response's nonce. False if a cross-origin response does not expose that header. */
  | { type: 'citations'; record: CitationRecord; verified: boolean }
  | { type: 'error'; message: string; code?: string }
  | { type: 'end'; complete: boolean };

export interface StreamOptions {
  /** Called with every frame as it arrives. */
  onFrame?: (frame: Frame) => void;
}

/**
 * Reads a response of citetap in any dialect: the upstream's own (Doubao, Lexiang, OpenAI-like, Responses, Anthropic, Gemini) or that of a profile
 * (`openai`, `ai-sdk`, `open-webui`), streamed or not.
 *
 * The last event is always `end`. A stream that is cut off yields an `error` before it and does not throw. A record whose
 * nonce differs from the response's is forged and therefore skipped.
 */
export function readStream(response: Response, options?: StreamOptions): AsyncGenerator<StreamEvent, void, void>;

/**
 * Replaces `[N]` by `[<sup data-citation='{json}'>N</sup>](url)`, where N is the position in the list, starting at 1.
 *
 * For pages that render Markdown themselves. `upgrade` turns the rendered tags into chips with hover cards.
 */
export function withCitationTags(text: string, citations: Citation[]): string;

/**
 * Turns every `sup[data-citation]` below `root`, alone or in a link, into a chip with a hover card. Adjacent ones become
 * one chip. `icons`: load the icons of sources from the URLs in their records.
 */
export function upgrade(root?: Document | Element | ShadowRoot, options?: { icons?: boolean }): void;

declare class Cited extends HTMLElement {
  /** Sent with every call to citetap, such as `{"x-citetap-key": "…"}`. */
  headers: Record<string, string>;
  record: CitationRecord | null;
}

/**
 * `<cite-list message="ID">`: the sources of a stored message, or of its `record` property.
 * Attributes: `message`, `provider`, `base` (URL of citetap; default: the URL of this file), `icons`, `lang`.
 */
export class CiteList extends Cited {
  /** Fetches the record again. */
  load(): Promise<void>;
  /** Highlights the rows of these sources. */
  mark(citations: Citation[]): void;
}

/**
 * `<cite-answer>`: a streaming answer with chips in its text and its sources below.
 * Attributes: `src` and `request` (sent when the element is connected), `base`, `icons`, `lang`, `chips="publisher"`,
 * `nolist`, `plain` (no Markdown: `/render` is not called).
 * Events: `cite-event` (each event of `readStream`), `cite-end` (rendering is complete).
 */
export class CiteAnswer extends Cited {
  /** The request to `src`: a `RequestInit`, or an object that is posted as JSON. */
  request: unknown;
  /** The text so far. Setting it shows a complete text. */
  text: string;
  append(delta: string): void;
  /** Marks the text as complete. */
  finish(): Promise<void>;
  /** Sends the request to `src` and shows its response. */
  start(): Promise<void>;
  stop(): void;
  /** Shows a response that the page has fetched itself. Resolves at its end. */
  stream(response: Response, options?: StreamOptions): Promise<void>;
}

declare global {
  interface HTMLElementTagNameMap {
    'cite-answer': CiteAnswer;
    'cite-list': CiteList;
  }
  interface HTMLElementEventMap {
    'cite-event': CustomEvent<StreamEvent>;
    'cite-end': CustomEvent<StreamEvent>;
  }
}
