// Imports web/component.js in Node: the exported functions need no page, only stubs of some browser globals.

import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { web } from './paths.mjs';

globalThis.HTMLElement ??= class {};
globalThis.CSSStyleSheet ??= class {
  replaceSync() {}
};
globalThis.customElements ??= { get: () => undefined, define() {} };

export const { readStream, withCitationTags } = await import(pathToFileURL(path.join(web, 'component.js')).href);
