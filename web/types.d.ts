/** What `component.js` offers to pages and programs. */
export {};

export interface Citation {
  /** What a marker such as `[1]` means. */
  number: number;
  /** Further numbers of the same source. */
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

/** A record of citetap: its event, and what `/citations/{messageId}` answers. */
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

/** A frame of a stream, as it came. `ours`: citetap wrote it. */
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
  /** What the upstream is doing, in its own words; `progress` is from 0 to 100. */
  | { type: 'stage'; name: string; message?: string; detail?: string; queries?: string[]; count?: number; progress?: number }
  /** `verified`: the record repeats the response's nonce. It cannot be told where another origin does not expose that header. */
  | { type: 'citations'; record: CitationRecord; verified: boolean }
  | { type: 'error'; message: string; code?: string }
  | { type: 'end'; complete: boolean };

export interface StreamOptions {
  /** Gets every frame as it comes. */
  onFrame?: (frame: Frame) => void;
}

/**
 * Reads a response of citetap in whichever dialect it is: the upstream's own (Doubao, Lexiang, OpenAI-like) or that of a
 * profile (`openai`, `ai-sdk`, `open-webui`), streamed or whole. Ends with one `end`. A stream that breaks off gives an
 * `error` before it, and does not throw. A record with another nonce than the response's is not citetap's, and left out.
 */
export function readStream(response: Response, options?: StreamOptions): AsyncGenerator<StreamEvent, void, void>;

/**
 * `[N]` becomes `[<sup data-citation='{json}'>N</sup>](url)`, where N counts the places in the list from 1. For pages that
 * render Markdown by themselves; `upgrade` then makes hover cards of the result.
 */
export function withCitationTags(text: string, citations: Citation[]): string;

/**
 * Turns every `sup[data-citation]` below `root`, alone or in a link, into a chip with a hover card. Neighbours become one.
 * `icons`: sources may show their icons, which are loaded from where the sources say.
 */
export function upgrade(root?: Document | Element | ShadowRoot, options?: { icons?: boolean }): void;

declare class Cited extends HTMLElement {
  /** Sent with every call to citetap, such as `{"x-citetap-key": "…"}`. */
  headers: Record<string, string>;
  record: CitationRecord | null;
}

/**
 * `<cite-list message="ID">`: the sources of a message that citetap keeps, or of the `record` that it is given.
 * Attributes: `message`, `provider`, `base` (where citetap is; default: where this file came from), `icons`, `lang`.
 */
export class CiteList extends Cited {
  /** Asks for the message again. */
  load(): Promise<void>;
  /** Marks the rows of these sources. */
  mark(citations: Citation[]): void;
}

/**
 * `<cite-answer>`: an answer as it streams, with chips in its text and its sources below.
 * Attributes: `src` and `request` (asked once it is in the page), `base`, `icons`, `lang`, `chips="publisher"`, `nolist`,
 * `plain` (no Markdown: `/render` is not asked).
 * Events: `cite-event` (each event of `readStream`), `cite-end` (all is shown).
 */
export class CiteAnswer extends Cited {
  /** What `src` is asked with: a `RequestInit`, or an object that is posted as JSON. */
  request: unknown;
  /** Setting it shows a whole text, which is then complete. */
  text: string;
  append(delta: string): void;
  /** No more text comes. */
  finish(): Promise<void>;
  /** Asks `src`, and shows its answer. */
  start(): Promise<void>;
  stop(): void;
  /** Shows an answer that was asked for elsewhere, to its end. */
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
