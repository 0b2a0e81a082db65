"""Parses exports with independent libraries: titles and URLs must be those of the record.

Inputs are the captures, and generated messages whose titles are made of special characters (fixed seed).

Usage: check.py CITETAP CAPTURE...
"""

import csv
import html.parser
import io
import json
import pathlib
import random
import re
import subprocess
import sys
import urllib.parse

import bibtexparser
import bibtexparser.middlewares
import citeproc
import citeproc.source.json
import pybtex.database
import rispy
from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin
from pylatexenc import latex2text

STYLE = pathlib.Path(__file__).with_name("title-and-url.csl")
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")

# LaTeX kernel commands that pylatexenc does not know, or decodes to other characters.
KERNEL = {
    "textbraceleft": "{",
    "textbraceright": "}",
    "textless": "<",
    "textgreater": ">",
    "textbar": "|",
    "textasciicircum": "^",
    "textasciigrave": "`",
}


def one_line(text):
    """Collapses runs of blanks, as exports do."""
    return " ".join(word for word in re.split(r"[ \t\n\r\f\v\u2028\u2029]+", text or "") if word).strip()


def decoded_url(url):
    """Decodes percent-encoding, so that URLs that differ only in it compare equal."""
    return url and urllib.parse.unquote(url)


class Capture:
    def __init__(self, binary, path, stdin=b""):
        self.binary, self.path, self.stdin = binary, path, stdin
        record = json.loads(self.export("json"))
        self.sources = sorted(record["citations"], key=lambda one: one["number"])
        for one in self.sources:
            # A document can have neither a title nor a site.
            name = one_line(one["title"]) or one_line(one["siteName"]) or one["hostname"] or f"[{one['number']}]"
            one["label"] = name
        self.labels = [one["label"] for one in self.sources]
        self.urls = [decoded_url(one["url"]) for one in self.sources]

    def export(self, output, *more):
        command = [self.binary, "replay", self.path, "--link-base", "https://lexiangla.com/", "--output", output, *more]
        return subprocess.run(command, check=True, input=self.stdin, stdout=subprocess.PIPE).stdout.decode("utf-8")

    def expect(self, what, labels, urls):
        for name, expected, found in [("titles", self.labels, list(labels)), ("URLs", self.urls, list(urls))]:
            for a, b in zip(expected, found):
                assert a == b, f"{what}: {name} differ\n  {a!r}\n  {b!r}"
            assert len(expected) == len(found), f"{what}: {len(found)} {name} of {len(expected)}"


def latex_decoder():
    macros = latex2text.get_default_latex_context_db()
    texts = [latex2text.MacroTextSpec(name, simplify_repl=text) for name, text in KERNEL.items()]
    macros.add_context_category("kernel", macros=texts, prepend=True)
    return latex2text.LatexNodes2Text(latex_context=macros, strict_latex_spaces=True)


def check_bibtex(capture):
    text = capture.export("bibtex")
    entries = list(pybtex.database.parse_string(text, "bibtex").entries.items())
    library = bibtexparser.parse_string(text)
    assert not library.failed_blocks, library.failed_blocks
    assert [key for key, _ in entries] == [entry.key for entry in library.entries]
    # Both parsers read the same fields, except that pybtex collapses blanks.
    blank = lambda text: " ".join(text.split())
    fields = [{field.key: field.value for field in entry.fields} for entry in library.entries]
    for (_, one), other in zip(entries, fields):
        assert dict(one.fields) == {name: blank(value) for name, value in other.items()}, (dict(one.fields), other)
    decode = latex_decoder().latex_to_text
    titles = [decode(one["title"]) for one in fields]
    capture.expect("bibtex", titles, [decoded_url(one.get("url")) for one in fields])


def check_ris(capture):
    entries = rispy.loads(capture.export("ris"))
    title = lambda one: one.get("title") or one.get("primary_title")
    url = lambda one: decoded_url(one["urls"][0]) if one.get("urls") else None
    capture.expect("ris", map(title, entries), map(url, entries))


def check_csl(capture):
    items = json.loads(capture.export("csl"))
    capture.expect("csl", [one["title"] for one in items], [decoded_url(one.get("URL")) for one in items])
    if not items:
        return
    source = citeproc.source.json.CiteProcJSON(items)
    style = citeproc.CitationStylesStyle(str(STYLE), validate=False)
    bibliography = citeproc.CitationStylesBibliography(style, source, citeproc.formatter.plain)
    for one in items:
        bibliography.register(citeproc.Citation([citeproc.CitationItem(one["id"])]))
    found = [str(line).split(" ↵ ") for line in bibliography.bibliography()]
    urls = [next((decoded_url(part) for part in parts[1:] if "://" in part), None) for parts in found]
    capture.expect("citeproc", [parts[0] for parts in found], urls)


def check_csv(capture):
    text = capture.export("csv")
    rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    assert text.count("\r\n") == len(rows) + 1
    for row in rows:
        assert None not in row and None not in row.values(), row
        assert not any(cell.startswith(FORMULA) for cell in row.values()), row
    titles = []
    for row, one in zip(rows, capture.sources):
        guarded = one_line(one["title"]).startswith(FORMULA)
        assert row["title"].startswith("'") or not guarded, row
        titles.append(row["title"][guarded:] or one["label"])
    capture.expect("csv", titles, [decoded_url(row["url"]) or None for row in rows])


class Page(html.parser.HTMLParser):
    """Collects the titles, links and tags of a page."""

    def __init__(self):
        super().__init__()
        self.found, self.tags, self.item, self.name = {}, set(), None, None

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        attributes = dict(attributes)
        assert not any(name.startswith("on") for name in attributes), attributes
        if tag == "li":
            self.item = self.found[int(attributes["value"])] = {"label": None, "url": None}
        elif tag == "a":
            assert attributes["href"].startswith(("http://", "https://")), attributes
            assert attributes["rel"] == "noopener noreferrer nofollow"
            self.item["url"] = decoded_url(attributes["href"])
        elif tag == "bdi" and self.item["label"] is None:
            self.name = ""

    def handle_data(self, data):
        if self.name is not None:
            self.name += data

    def handle_endtag(self, tag):
        if tag == "bdi" and self.name is not None:
            self.item["label"], self.name = self.name, None


def check_html(capture):
    page = Page()
    page.feed(capture.export("html"))
    page.close()
    ours = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "ol", "li", "a", "bdi", "time"}
    assert page.tags <= ours, page.tags - ours
    found = [page.found[number] for number in sorted(page.found)]
    capture.expect("html", [one["label"] for one in found], [one["url"] for one in found])


def read_markdown(tokens):
    """Yields the first text and link of each item or footnote."""
    for token in tokens:
        if token.type != "inline":
            continue
        text, url, done = "", None, False
        for child in token.children:
            assert child.type in {"text", "text_special", "link_open", "link_close", "footnote_anchor"}, child
            if child.type == "link_open" and not text:
                url = child.attrs["href"]
            elif child.type == "link_close":
                done = True
            elif child.type.startswith("text") and not done:
                text += child.content
        # Text without a link is followed by site, date and other numbers.
        yield (text if url else text.split(" · ")[0].split(" (= [")[0]), decoded_url(url)


def check_markdown(capture):
    tokens = MarkdownIt("commonmark").parse(capture.export("markdown"))
    kinds = {token.type.removesuffix("_open").removesuffix("_close") for token in tokens}
    assert kinds <= {"ordered_list", "list_item", "paragraph", "inline"}, kinds
    found = list(read_markdown(tokens))
    capture.expect("markdown", [text for text, _ in found], [url for _, url in found])
    # The rendered numbers are those of the record.
    numbers, next_number = [], 1
    for token in tokens:
        if token.type == "ordered_list_open":
            next_number = token.attrs.get("start", 1)
        elif token.type == "list_item_open":
            numbers.append(next_number)
            next_number += 1
    assert numbers == [one["number"] for one in capture.sources], numbers


def check_footnotes(capture):
    numbers = [number for one in capture.sources for number in [one["number"], *one["aliases"]]]
    answer = " ".join(f"[^{number}]" for number in numbers)
    tokens = MarkdownIt("commonmark").use(footnote_plugin).parse(answer + "\n\n" + capture.export("footnotes"))
    begin = next((at for at, token in enumerate(tokens) if token.type == "footnote_block_open"), len(tokens))
    found = list(read_markdown(tokens[begin:]))
    expected = [one for one in capture.sources for _ in [one["number"], *one["aliases"]]]
    assert [text for text, _ in found] == [one["label"] for one in expected], found
    assert [url for _, url in found] == [decoded_url(one["url"]) for one in expected], found


def check_prompt(capture):
    for lang, head in [("zh", f"搜索完成，找到 {len(capture.sources)} 个结果"), ("en", "Search finished, ")]:
        lines = capture.export("prompt", "--lang", lang).splitlines()
        assert lines[0].startswith(head), lines[0]
        listed = capture.sources[:10]
        assert len(lines) == (len(listed) + 3 if listed else 1), lines
        for line, one in zip(lines[1:], listed):
            assert line.startswith(f"[{one['number']}] {one['label']}:"), line


PIECES = [
    *"\\{}[]()<>\"'`*_~^|#$%&@=+-,;:.!?/ \n\t0aZé中，’\u3000\u00a0\u202e\u2028\u200d😀א",
    "](", "![", "&lt;", "&#60;", "&amp", "```", "---", "''", "``", "\\n", "\\textbf{", "{\\", "<!--", "-->", "</", "<b>",
    "]]>", "javascript:", "http://x", "[^1]:", "ER  - ", "@misc{", "1. ", "%7B", "$$", "a_b", "word", "标题",
]


def generated(seed, count=150):
    """A Doubao stream of sources whose titles and URLs consist of random `PIECES`."""
    rng = random.Random(seed)
    text = lambda most, pieces=PIECES: "".join(rng.choice(pieces) for _ in range(rng.randint(1, most)))
    # URL parsers turn `\\` into `/` and resolve `.` segments; these URLs are compared as text.
    plain = [piece for piece in PIECES if "\\" not in piece and "." not in piece]
    cards = []
    for number in range(1, count + 1):
        url = f"https://{rng.choice(['a', 'b', 'www.c'])}.example.com/{number}/{text(6, plain)}"
        card = {"title": text(12), "summary": text(30), "sitename": text(5), "url": url, "doc_id": f"d{number}"}
        if rng.random() < 0.2:
            del card["url"]
        cards.append({"text_card": card | {"index": number * 2 if number > count // 2 else number}})
    block = {"queries": ["q"], "results": cards}
    value = {"content_block": [{"block_type": 10025, "block_id": "1", "content": {"search_query_result_block": block}}]}
    patch = [{"patch_object": 1, "patch_type": 1, "patch_value": value}]
    meta = {"message_id": "9", "conversation_id": "8", "user_type": 2}
    frames = [
        ("STREAM_MSG_NOTIFY", {"content": {"content_type": 9999, "content_block": []}, "meta": meta}),
        ("STREAM_CHUNK", {"message_id": "9", "patch_op": patch}),
        ("SSE_REPLY_END", {"end_type": 3}),
    ]
    return "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in frames).encode("utf-8")


def main():
    binary, *paths = sys.argv[1:]
    checks = [value for name, value in sorted(globals().items()) if name.startswith("check_")]
    count = 0
    captures = [(path, b"") for path in paths] + [("-", generated(seed)) for seed in range(10)]
    for index, (path, stdin) in enumerate(captures):
        capture = Capture(binary, path, stdin)
        assert capture.sources or not stdin, "a generated message without sources"
        for check in checks:
            try:
                check(capture)
            except Exception:
                print(f"{path} ({index}): {check.__name__}", file=sys.stderr)
                raise
            count += 1
    print(f"{count} checked")


if __name__ == "__main__":
    main()
