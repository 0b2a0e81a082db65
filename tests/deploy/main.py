"""Checks deploy/, and then that each check refuses what is broken."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import broken
import chart
import compose
import fronts
import kubernetes
import systemd
from common import Place

# Each yields its complaints; the parts of the chart are apart, as Helm is asked so often.
CHECKS = {"compose": compose.check, "kubernetes": kubernetes.check, "chart names": chart.names,
          "chart rendered": chart.rendered, "chart carried": chart.carried, "chart refused": chart.refused,
          "systemd": systemd.check, "fronts": fronts.check}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--only", choices=sorted({name.split()[0] for name in CHECKS}))
    args = parser.parse_args()
    names = [name for name in CHECKS if args.only in (None, name.split()[0])]

    with tempfile.TemporaryDirectory(prefix="citetap-deploy-") as scratch:
        place = Place(args.root, args.binary.resolve(), Path(scratch), args.root / "target/tools")
        failed = sum(checked(place, name) for name in names)
        os.environ.pop("UPDATE_GOLDEN", None)
        failed = failed or unnoticed(place, names)
    sys.exit(failed > 0)


def checked(place, name):
    began = time.monotonic()
    complaints = list(CHECKS[name](place))
    for complaint in complaints:
        print(f"{name}: {complaint}")
    print(f"{name}: {len(complaints) or 'no'} complaints, {time.monotonic() - began:.1f} s", flush=True)
    return len(complaints)


def unnoticed(place, names):
    """How many of the files that are broken on purpose pass, or fail for another reason than the one they should."""
    began = time.monotonic()
    edits = [edit for edit in broken.EDITS if edit[0] in names]
    # They mostly wait for programs.
    with ThreadPoolExecutor(4) as pool:
        wrong = [said for said in pool.map(lambda edit: try_one(place, *edit), edits) if said]
    for said in wrong:
        print(f"broken: {said}")
    print(f"broken: {len(edits) - len(wrong)} of {len(edits)} noticed, {time.monotonic() - began:.1f} s")
    print(f"{len(edits)} checked")
    return len(wrong)


def try_one(place, name, file, old, new, words):
    copy = place.copy()
    path = copy.root / file
    text = path.read_text()
    if old not in text:
        return f"{file} has no {old!r}: mend tests/deploy/broken.py"
    path.write_text(text.replace(old, new, 1))
    others = []
    for complaint in CHECKS[name](copy):
        if words in complaint:
            shutil.rmtree(copy.root)
            return None
        others.append(complaint)
    return f"{file} with {new!r} for {old!r}: expected {words!r}, and there was {others}"


main()
