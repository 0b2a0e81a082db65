"""Finds words of words.txt, which has a replacement for each."""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
# Exempts a line.
ALLOWED = "word-ok"
SKIPPED = ("tests/docs/words.txt", "tests/fixtures/", "src/replay/captures/", "package-lock.json")


def rules():
    """Yields (pattern, word, replacement)."""
    for line in (HERE / "words.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            word, _, instead = line.partition("\t")
            if not instead:
                sys.exit(f"words.txt: {line!r} needs a tab and what to use instead")
            yield re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.I), word, instead


def files(paths):
    listed = subprocess.run(
        ["git", "-c", "core.quotepath=off", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "--", *paths],
        capture_output=True, text=True)
    names = listed.stdout.splitlines() if listed.returncode == 0 else [
        str(path) for name in paths for path in ([pathlib.Path(name)] + list(pathlib.Path(name).rglob("*")))]
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
