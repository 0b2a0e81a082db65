"""Looks for words of words.txt, which says what to write instead."""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
# A line that must have such a word says so.
ALLOWED = "word-ok"
SKIPPED = ("tests/docs/words.txt", "tests/fixtures/", "src/replay/captures/", "package-lock.json")


def rules():
    """[(pattern, word, what to use instead)]"""
    for line in (HERE / "words.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            word, _, instead = line.partition("\t")
            if not instead:
                sys.exit(f"words.txt: {line!r} needs a tab and what to use instead")
            yield re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.I), word, instead


def files(places):
    listed = subprocess.run(
        ["git", "-c", "core.quotepath=off", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "--", *places],
        capture_output=True, text=True)
    names = listed.stdout.splitlines() if listed.returncode == 0 else [
        str(path) for place in places for path in ([pathlib.Path(place)] + list(pathlib.Path(place).rglob("*")))]
    return [pathlib.Path(name) for name in names if not name.startswith(SKIPPED) and not name.endswith(SKIPPED)]


def main():
    checks = list(rules())
    found = count = 0
    for path in files(sys.argv[1:]):
        if not path.is_file() or b"\0" in (data := path.read_bytes())[:8192]:
            continue
        count += 1
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            for pattern, word, instead in checks:
                if ALLOWED not in line and pattern.search(line):
                    found += 1
                    print(f"{path}:{number}: {word!r}: use {instead}")
    print(f"{count} files")
    sys.exit(found > 0)


main()
