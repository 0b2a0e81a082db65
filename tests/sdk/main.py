"""Runs the matrix and prints what every client got.

Usage: main.py CITETAP ENVIRONMENTS [--write | --check] [--only TEXT]
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import table
from cells import control, direct, judge, planned
from matrix import CELL_TIMEOUT, DRIVER_TIMEOUT, NOT_YET
from servers import servers

HERE = pathlib.Path(__file__).resolve().parent
# A process spends most of its time on imports; more at once than cores only makes each slower.
PROCESSES = 3


def drive(env, script, cells, bases, envs):
    """Runs one process with all its cells: a library is loaded once."""
    job = json.dumps({"timeout": CELL_TIMEOUT, "cells": [cell.job(bases) for cell in cells]})
    stem = f"{env}-{pathlib.Path(script).stem}"
    out, log = envs / "run" / f"{stem}.jsonl", envs / "run" / f"{stem}.log"
    out.unlink(missing_ok=True)
    if env == "node":
        # Modules are looked up from where a script lies, and that is where they are installed.
        command = [envs / "node/bin/node", "--experimental-eventsource", "--no-warnings", envs / "npm/clients" / script]
    else:
        command = [envs / env / "bin/python", HERE / "clients" / script]
    with log.open("wb") as said:
        try:
            subprocess.run(
                [*command, out],
                input=job.encode(),
                stdout=said,
                stderr=said,
                cwd=envs / "run",
                timeout=DRIVER_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            said.write(b"\nended: it took too long\n")
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    for cell, line in zip(cells, lines):
        cell.outcome = json.loads(line)
        if cell.outcome["cell"] != cell.name:
            raise SystemExit(f"{stem}: outcome of {cell.outcome['cell']} where {cell.name} was asked")
    if len(lines) < len(cells):
        print(f"{stem} gave {len(lines)} of {len(cells)} outcomes; what it said is in {log}")


def environment():
    """No setting, proxy or key of the caller's, and nothing that phones home."""
    mine = ("CITETAP", "LANGCHAIN_", "LANGSMITH_", "LITELLM_", "OPENAI_", "NODE_")
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(mine) or name in ("PORT", "RUST_LOG"):
            del os.environ[name]
    os.environ.update(NO_PROXY="*", DO_NOT_TRACK="1", LANGSMITH_TRACING="false")


def run(binary, envs, only):
    cells = planned(only)
    controls, groups = control(only), {}
    for cell in cells + direct(cells) + controls:
        groups.setdefault((cell.client.env, cell.client.script), []).append(cell)
    with servers(binary, envs / "run") as bases:
        with concurrent.futures.ThreadPoolExecutor(PROCESSES) as pool:
            runs = [pool.submit(drive, *key, group, bases, envs) for key, group in groups.items()]
            for each in runs:
                each.result()
        for cell in cells:
            judge(cell, bases)
    return cells, controls


def verdict(cells, controls, loud):
    """Prints each cell, if `loud` also why one is not yet as it will be; gives the number of red ones."""
    bad = 0
    for cell in cells:
        red = bool(cell.problems) and not cell.later()
        bad += red
        got = cell.outcome or {"text": "", "end": None}
        mark = "RED" if red else "-- " if cell.problems else "own" if cell.own_fault else "ok "
        text, end = len(got["text"]), got["end"]
        print(f"{mark} {table.label(cell):<62} {cell.name:<38} text {text:>4}  end {end}  sources {cell.sources()}")
        if cell.problems and (red or loud):
            print("    " + "\n    ".join(cell.problems))
    for cell in controls:
        if not cell.outcome or not cell.outcome["error"]:
            print(f"RED {table.label(cell)} takes what it must fail at: this run would see nothing")
            bad += 1
    for entry in sorted(NOT_YET):
        mine = [cell for cell in cells if entry in (cell.later(), cell.client.at)]
        left = [cell for cell in mine if cell.problems or (cell.waiting and cell.client.at == entry)]
        if mine and not [cell for cell in left if cell.later() in (None, entry)]:
            print(f"RED {entry} works now: take it off NOT_YET in tests/sdk/matrix.py, and run tests/sdk/run --write")
            bad += 1
    later = sum(bool(cell.problems and cell.later()) for cell in cells)
    own = sum(cell.own_fault for cell in cells)
    print(f"{len(cells)} answers checked, {bad} red, {later} not yet, {own} as bad without citetap, {len(controls)} controls")
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("citetap", type=pathlib.Path)
    parser.add_argument("environments", type=pathlib.Path)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    if args.only and (args.write or args.check):
        parser.error("a part of the matrix is no table")
    envs = args.environments.resolve()
    (envs / "run").mkdir(exist_ok=True)
    environment()

    cells, controls = run(args.citetap.resolve(), envs, args.only)
    bad = verdict(cells, controls, args.only)
    made = table.made(cells)
    print(f"\n{made}")
    if not bad and args.write:
        table.write(made)
    if not bad and args.check:
        bad = int(table.differs(made))
    sys.exit(bad > 0)


main()
