// Compares withCitationTags with the function of seed 002, and checks the size of the component and the npm package.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { withCitationTags } from './lib/component.mjs';
import { web } from './lib/paths.mjs';
import { PAYLOADS } from './lib/texts.mjs';

// The function of the seed, which does not define `encodeHTML`.
const CITATION_REGEX = /(?<!\])\[(\d{1,2})\](?!\()/g;
function reference(content, citations, encodeHTML) {
  if (!content || citations.length === 0) return content;
  return content.replace(CITATION_REGEX, (match, num) => {
    const citationNum = parseInt(num, 10);
    const citation = citations[citationNum - 1];
    if (!citation) return match;
    const supData = { id: citationNum, url: citation.url, title: citation.title || '', content: citation.content?.substring(0, 200) || '' };
    const citationJson = encodeHTML(JSON.stringify(supData));
    const isValidUrl = citation.url?.startsWith('http');
    return `[<sup data-citation='${citationJson}'>${citationNum}</sup>]` + (isValidUrl ? `(${citation.url})` : '()');
  });
}

/** Decodes the text of an HTML attribute. */
const decoded = (text) =>
  text.replace(/&(?:#(\d+)|#x([\da-f]+)|(amp|lt|gt|quot|apos));/gi, (_, decimal, hex, name) =>
    decimal ? String.fromCodePoint(decimal) : hex ? String.fromCodePoint(parseInt(hex, 16)) : { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" }[name.toLowerCase()]);

/** Compares with the reference after decoding the attribute, and checks that nothing can end the attribute. */
function matchesReference(text, citations) {
  const got = withCitationTags(text, citations);
  const plain = (made) => made.replace(/data-citation='([^']*)'/g, (_, attribute) => `data-citation='${decoded(attribute)}'`);
  assert.equal(plain(got), reference(text, citations, (json) => json), JSON.stringify(text));
  for (const [, attribute] of got.matchAll(/data-citation='([^']*)'/g)) {
    assert.doesNotMatch(attribute, /[<>"]/, 'it is escaped');
    assert.equal(typeof JSON.parse(decoded(attribute)).id, 'number');
  }
  return got;
}

const list = Array.from({ length: 12 }, (_, at) => ({ number: at + 1, url: `https://example.com/${at + 1}`, title: `Title ${at + 1}`, content: `Content ${at + 1}` }));

test("the seed's own example", () => {
  assert.equal(
    withCitationTags('香港宏福苑发生严重火灾[2]', [{ url: 'https://a.example/' }, { url: 'https://b.example/', title: '最新', content: '摘要' }]).replaceAll(/&#34;|&quot;/g, '"'),
    `香港宏福苑发生严重火灾[<sup data-citation='{"id":2,"url":"https://b.example/","title":"最新","content":"摘要"}'>2</sup>](https://b.example/)`);
});

const TEXTS = [
  '', 'no marker', '[1]', '[1] ', ' [1]', 'a[1]b', '[01]', '[00]', '[0]', '[9]', '[10]', '[12]', '[13]', '[99]', '[100]', '[123]', '[1234]',
  '[1][2]', '[1] [2]', '[1][2][3]', '[text][1]', '[1](url)', '[1](', '[1] (url)', '[1]()', '![1]', '[[1]]', '[[1]](url)', '[1]]', '[1', '1]', '[]',
  '[ 1 ]', '[1,2]', '[1, 2]', '[1-3]', '[^1]', '^[1]^', '【1】', '【1†source】', '[citation:1]', '[１]', '[a1]', '[1a]', '[-1]', '[+1]', '[1.0]',
  'arr[1]', 'arr[1][2]', '`[1]`', '```\n[1]\n```', '$[1]$', '<a href="[1]">[1]</a>', '\\[1\\]', '\\[1]', '[1]\n[2]', '[1]\r\n(2)', '[1]\n(2)',
  '[1]: https://example.com', '> [1]', '- [1]', '| [1] | [2] |', '[x] [1]', ']', '][1]', '] [1]', '[1][1]', '火灾[2]。', '火灾[2]（注）', '火灾[2](注)',
  '[1]'.repeat(30), 'x[3]y[4]z[5]', '$&[1]$1', '[1]$`',
];
test(`${TEXTS.length} texts match the seed's function`, () => {
  for (const text of TEXTS) matchesReference(text, list);
});

const SOURCES = [
  {}, { url: '' }, { url: null }, { url: undefined, title: 'x' }, { url: 'http' }, { url: 'http://a' }, { url: 'https://a' }, { url: 'HTTP://a' },
  { url: 'ftp://a' }, { url: 'javascript:alert(1)' }, { url: '/relative' }, { url: 'https://a/(b)' }, { url: 'https://a/ b' }, { url: "https://a/'b" },
  { url: 'https://a', title: null, content: null }, { url: 'https://a', title: '', content: '' }, { url: 'https://a', content: 'x'.repeat(199) },
  { url: 'https://a', content: 'x'.repeat(200) }, { url: 'https://a', content: 'x'.repeat(201) }, { url: 'https://a', content: '字'.repeat(300) },
  { url: 'https://a', content: `${'x'.repeat(199)}😀` }, { url: 'https://a', title: `'"<>&` }, { url: 'https://a', title: '&#39;&amp;quot;' },
  { url: 'https://a', title: '$& $1 $` $$' }, { url: 'https://a', title: '\u2028\u0000\n' }, ...PAYLOADS.map((payload) => ({ url: 'https://a', title: payload, content: payload })),
];
test(`${SOURCES.length} sources match the seed's function`, () => {
  for (const source of SOURCES) matchesReference('before [1] after [2]', [source]);
});

test('text is unchanged without citations', () => {
  for (const text of TEXTS) assert.equal(withCitationTags(text, []), text);
});

test('markers refer to the index, not the number, as in the seed', () => {
  assert.match(withCitationTags('[1]', [{ number: 7, url: 'https://seventh.example/' }]), /seventh/);
});

test('the component is under 12.5 KiB, gzipped', () => {
  const size = execFileSync('gzip', ['-9'], { input: fs.readFileSync(path.join(web, 'component.js')) }).length;
  console.log(`component.js: ${size} bytes gzipped`);
  assert.ok(size <= 12_800, `${size} bytes`);
});

test('the npm package has the expected files', () => {
  const [pack] = JSON.parse(execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts', '--loglevel=error'], { cwd: web, encoding: 'utf8' }));
  const names = pack.files.map(({ path }) => path).sort();
  assert.ok(['README.md', 'component.js', 'package.json'].every((name) => names.includes(name)), names.join());
  assert.deepEqual(names.filter((name) => /^(console|examples|pictures)|index\.html|tsconfig|node_modules/.test(name)), []);
  const { type, exports, version, license } = JSON.parse(fs.readFileSync(path.join(web, 'package.json'), 'utf8'));
  assert.equal(type, 'module');
  assert.match(JSON.stringify(exports), /component\.js/);
  assert.match(version, /^\d+\.\d+\.\d+/);
  assert.match(license, /MIT/);
});
