"""Clients that all connect at one instant: time to their first bytes, and the CPU cost of whole exchanges."""

import json
import os
import resource
import sqlite3
import time

from measure import PATIENCE, S, machine
from targets import Broken

# Warm-up answers before each measurement, which page in code and fill connection pools.
WARM = 6
EVERY_US = 50_000
# Milliseconds between a stream's first frame and its references, as from an upstream that searches first. Without it the
# upstream would be busy with references while clients wait for first bytes.
REST_MS = 300
# Seconds from the last event until the common finish.
SLACK_S = 0.3
# Seconds to wait after the last stream's end. Work that is deferred further is counted too: CPU is read at the exit.
REST_S = 0.5
# Client threads: with one, sending the requests could take longer than the proxy needs to answer them.
THREADS = max(2, min(4, os.cpu_count()))


def crowd(meter, target, streams, events):
    """Requests all streams at one instant; each gets `events`, and all finish at one instant."""
    start = time.monotonic_ns() + int(0.3 * S)
    finish = start + (events + 1) * EVERY_US * 1000 + int((REST_MS / 1000 + SLACK_S) * S)
    before, busy = meter.cpu(target), machine()
    began, clients = time.monotonic(), children_s()
    load = meter.spawn(target, "crowd", streams, from_ns=start, finish_ns=finish, events=events, every_us=EVERY_US,
                       rest_ms=REST_MS, dialect="doubao", threads=THREADS)
    try:
        out, _ = load.communicate(timeout=(finish - time.monotonic_ns()) / S + PATIENCE)
    finally:
        if load.poll() is None:
            load.kill()
            load.wait()
    if load.returncode:
        raise Broken(f"{target.name}: the load failed")
    busy, took = machine() - busy, time.monotonic() - began
    ours = sum(meter.cpu(target) - before) + children_s() - clients
    meter.others.append(max(0.0, busy - ours) / took / os.cpu_count())
    result = json.loads(out)
    meter.check(target, result)
    if result["events"] != streams * events:
        raise Broken(f"{target.name}: {result['events']} events, not {streams * events}")
    return result


def children_s():
    """CPU seconds of child processes that have exited, such as the load generator."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def arrivals(meter, target, streams):
    target.start()
    meter.load(target, "ttfb", WARM)
    result = crowd(meter, target, streams, 5)
    target.stop()
    return {"arrive_p50": result["first_us"]["p50"] / 1000, "arrive_p99": result["first_us"]["p99"] / 1000,
            "arrive_all": result["last_first_us"] / 1000, "arrive_sent": result["last_sent_us"] / 1000}


def whole(meter, target, streams, events):
    """CPU time from before the first connection until the process has exited, and its peak memory."""
    target.start()
    meter.load(target, "ttfb", WARM)
    time.sleep(0.2)
    target.process.forget_peak()
    idle, before = target.process.memory_kib("VmRSS"), target.process.cpu_s()
    crowd(meter, target, streams, events)
    time.sleep(REST_S)
    peak, rested = target.process.memory_kib("VmHWM"), target.process.cpu_s()
    # stop() includes the exit, so that no work can be deferred beyond the measurement.
    cpu = max(rested, target.stop()) - before
    if target.cites:
        check_stored(target, streams + WARM)
    return {f"exchange_{events}": cpu * 1e6 / (streams * events), f"peak_{events}": (peak - idle) / streams}


def check_stored(target, expected):
    """Checks that every answer is on disk, so that the commits were within the measured time."""
    database = sqlite3.connect(f"file:{target.folder / 'citetap.db'}?mode=ro", uri=True)
    try:
        records = database.execute("SELECT count(*) FROM record").fetchone()[0]
    finally:
        database.close()
    if records != expected:
        raise Broken(f"{target.name}: {records} of {expected} answers are in the store")
