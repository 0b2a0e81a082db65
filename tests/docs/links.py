"""Checks that links, images and anchors of the built book have a target."""

import pathlib
import re
import sys
import urllib.parse

BOOK = pathlib.Path(sys.argv[1]).resolve()
# mdBook makes this page from all others, with their links.
SKIPPED = {"print.html", "toc.html", "404.html"}


def ids(page, known={}):
    if page not in known:
        known[page] = set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8")))
    return known[page]


def broken(page):
    """Returns the broken links of a page, and the number of its relative links."""
    text = page.read_text(encoding="utf-8")
    content = text[text.index("<main>"):text.index("</main>")]
    links = re.findall(r'\b(?:href|src|srcset)="([^"]*)"', content)
    relative = [link for link in links if not re.match(r"[a-z][a-z0-9+.-]*:|//", link, re.I)]
    bad = []
    for link in relative:
        path, _, anchor = urllib.parse.unquote(link.replace("&amp;", "&")).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".html" and BOOK in target.parents and anchor not in ids(target)):
            bad.append(link)
    return bad, len(relative)


def main():
    pages = [page for page in sorted(BOOK.rglob("*.html")) if page.name not in SKIPPED]
    count = failed = 0
    for page in pages:
        bad, links = broken(page)
        count += links
        failed += len(bad)
        for link in bad:
            print(f"{page.relative_to(BOOK)}: {link} has no target")
    print(f"{len(pages)} pages, {count} links")
    sys.exit(failed > 0)


main()
