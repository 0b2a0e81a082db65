"""Runs all checks of deploy/, and then tests them with broken files."""

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
from common import Repo

# Each check yields complaints. The chart has several checks, because each run of Helm takes time.
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
        repo = Repo(args.root, args.binary.resolve(), Path(scratch), args.root / "target/tools")
        failed = sum(checked(repo, name) for name in names)
        os.environ.pop("UPDATE_GOLDEN", None)
        failed = failed or check_broken_files(repo, names)
    sys.exit(failed > 0)


def checked(repo, name):
    began = time.monotonic()
    complaints = list(CHECKS[name](repo))
    for complaint in complaints:
        print(f"{name}: {complaint}")
    print(f"{name}: {len(complaints) or 'no'} complaints, {time.monotonic() - began:.1f} s", flush=True)
    return len(complaints)


def check_broken_files(repo, names):
    """Returns how many of the broken files pass, or fail for another reason than expected."""
    began = time.monotonic()
    edits = [edit for edit in broken.EDITS if edit[0] in names]
    # The checks mostly wait for child processes.
    with ThreadPoolExecutor(4) as pool:
        wrong = [problem for problem in pool.map(lambda edit: try_one(repo, *edit), edits) if problem]
    for problem in wrong:
        print(f"broken: {problem}")
    print(f"broken: {len(edits) - len(wrong)} of {len(edits)} noticed, {time.monotonic() - began:.1f} s")
    print(f"{len(edits)} checked")
    return len(wrong)


def try_one(repo, name, file, old, new, words):
    copy = repo.copy()
    path = copy.root / file
    text = path.read_text()
    if old not in text:
        return f"{file} has no {old!r}: fix tests/deploy/broken.py"
    path.write_text(text.replace(old, new, 1))
    others = []
    for complaint in CHECKS[name](copy):
        if words in complaint:
            shutil.rmtree(copy.root)
            return None
        others.append(complaint)
    return f"{file} with {new!r} for {old!r}: expected {words!r}, got {others}"


main()
