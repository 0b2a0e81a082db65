// Checks that types.d.ts describes the exports of component.js.
import * as component from './component.js';
import type * as declared from './types';

component satisfies typeof declared;
