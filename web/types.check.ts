// What types.d.ts tells is what component.js has.
import * as component from './component.js';
import type * as told from './types';

component satisfies typeof told;
