"""Runs the matrix of clients and answers, and prints every outcome.

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
from cells import control, direct, judge, plan
from matrix import CELL_TIMEOUT, DRIVER_TIMEOUT, NOT_YET
from servers import servers

HERE = pathlib.Path(__file__).resolve().parent
# Concurrent client processes. They spend most of their time on imports, which are CPU bound.
PROCESSES = 3


def drive(env, script, cells, bases, envs):
    """Runs one process with all its cells, so that a library is loaded once."""
    job = json.dumps({"timeout": CELL_TIMEOUT, "cells": [cell.job(bases) for cell in cells]})
    stem = f"{env}-{pathlib.Path(script).stem}"
    out, log = envs / "run" / f"{stem}.jsonl", envs / "run" / f"{stem}.log"
    out.unlink(missing_ok=True)
    if env == "node":
        # Node resolves modules from the folder of the script, so the copy beside node_modules is run.
        command = [envs / "node/bin/node", "--experimental-eventsource", "--no-warnings", envs / "npm/clients" / script]
    else:
        command = [envs / env / "bin/python", HERE / "clients" / script]
    with log.open("wb") as output:
        try:
            subprocess.run(
                [*command, out],
                input=job.encode(),
                stdout=output,
                stderr=output,
                cwd=envs / "run",
                timeout=DRIVER_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            output.write(b"\nended: it took too long\n")
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    for cell, line in zip(cells, lines):
        cell.outcome = json.loads(line)
        if cell.outcome["cell"] != cell.name:
            raise SystemExit(f"{stem}: outcome of {cell.outcome['cell']} where {cell.name} was expected")
    if len(lines) < len(cells):
        print(f"{stem} gave {len(lines)} of {len(cells)} outcomes; its output is in {log}")


def environment():
    """Removes the caller's settings, proxies and keys from the environment, and disables telemetry of libraries."""
    mine = ("CITETAP", "LANGCHAIN_", "LANGSMITH_", "LITELLM_", "OPENAI_", "NODE_")
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(mine) or name in ("PORT", "RUST_LOG"):
            del os.environ[name]
    os.environ.update(NO_PROXY="*", DO_NOT_TRACK="1", LANGSMITH_TRACING="false")


def run(binary, envs, only):
    cells = plan(only)
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
    """Prints each cell, with `loud` also the problems of expected failures; returns the number of red cells."""
    bad = 0
    for cell in cells:
        red = bool(cell.problems) and not cell.pending_entry()
        bad += red
        got = cell.outcome or {"text": "", "end": None}
        mark = "RED" if red else "-- " if cell.problems else "own" if cell.fails_directly else "ok "
        text, end = len(got["text"]), got["end"]
        print(f"{mark} {table.label(cell):<62} {cell.name:<38} text {text:>4}  end {end}  sources {cell.sources()}")
        if cell.problems and (red or loud):
            print("    " + "\n    ".join(cell.problems))
    for cell in controls:
        if not cell.outcome or not cell.outcome["error"]:
            print(f"RED {table.label(cell)} reads the control stream, at which it must fail")
            bad += 1
    for entry in sorted(NOT_YET):
        mine = [cell for cell in cells if entry in (cell.pending_entry(), cell.client.at)]
        left = [cell for cell in mine if cell.problems or (cell.expected_problems and cell.client.at == entry)]
        if mine and not [cell for cell in left if cell.pending_entry() in (None, entry)]:
            print(f"RED {entry} passes: remove it from NOT_YET in tests/sdk/matrix.py, and run tests/sdk/run --write")
            bad += 1
    pending = sum(bool(cell.problems and cell.pending_entry()) for cell in cells)
    own = sum(cell.fails_directly for cell in cells)
    print(f"{len(cells)} answers checked, {bad} red, {pending} not yet, {own} as bad without citetap, {len(controls)} controls")
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
    text = table.build_table(cells)
    print(f"\n{text}")
    if not bad and args.write:
        table.write(text)
    if not bad and args.check:
        bad = int(table.differs(text))
    sys.exit(bad > 0)


main()
