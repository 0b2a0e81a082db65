// web/component.js in Node: its functions need no page, only the names of what a page has.

import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { web } from './paths.mjs';

globalThis.HTMLElement ??= class {};
globalThis.CSSStyleSheet ??= class {
  replaceSync() {}
};
globalThis.customElements ??= { get: () => undefined, define() {} };

export const { readStream, withCitationTags } = await import(pathToFileURL(path.join(web, 'component.js')).href);
