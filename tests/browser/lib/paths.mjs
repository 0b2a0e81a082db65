// Paths. npm packages are installed under target/ and resolved from there.

import { createRequire } from 'node:module';
import fs from 'node:fs';
import path from 'node:path';

export const root = path.resolve(import.meta.dirname, '../../..');
export const web = path.join(root, 'web');
export const buildFolder = path.join(root, 'target/browser');
export const citetap = process.env.CITETAP ?? path.join(root, 'target/debug/citetap');
export const chromiumProgram = process.env.CHROMIUM ?? '/usr/bin/chromium';

const require = createRequire(path.join(buildFolder, 'package.json'));
export const { chromium } = require('playwright-core');
export const axeSource = () => fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

/** Paths of the demo's captures and of the test fixtures. */
export function captures() {
  const folders = ['src/replay/captures', ...fs.readdirSync(path.join(root, 'tests/fixtures')).map((name) => `tests/fixtures/${name}`)];
  return folders
    .map((folder) => path.join(root, folder))
    .filter((folder) => fs.statSync(folder).isDirectory())
    .flatMap((folder) => fs.readdirSync(folder).map((name) => path.join(folder, name)));
}
