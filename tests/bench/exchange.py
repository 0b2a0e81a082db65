"""A crowd of clients that arrive at one instant: their first bytes, and what their whole exchange costs."""

import json
import os
import resource
import sqlite3
import time

from measure import PATIENCE, S, machine
from targets import Broken

# Answers before each measurement, so that code and connections that the start needs are there.
WARM = 6
EVERY_US = 50_000
# A stream begins with one frame; its references come so much later, as from an upstream that searches first. So a crowd's
# first bytes are waited for because of the proxy, and not because the upstream is busy with references.
REST_MS = 300
# Beyond the events' own time, until the common finish.
SLACK_S = 0.3
# After the last stream's end. What is put off further is counted as well, as the process is measured until its exit.
REST_S = 0.5
# Threads of clients: one alone could take longer to ask than a proxy to answer.
THREADS = max(2, min(4, os.cpu_count()))


def crowd(meter, target, streams, events):
    """All streams are asked for at one instant, get `events` each, and finish at one instant."""
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
    told = json.loads(out)
    meter.check(target, told)
    if told["events"] != streams * events:
        raise Broken(f"{target.name}: {told['events']} events, not {streams * events}")
    return told


def children_s():
    """CPU time of the children that have ended: the load's, in the meantime."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def arrivals(meter, target, streams):
    target.start()
    meter.load(target, "ttfb", WARM)
    told = crowd(meter, target, streams, 5)
    target.stop()
    return {"arrive_p50": told["first_us"]["p50"] / 1000, "arrive_p99": told["first_us"]["p99"] / 1000,
            "arrive_all": told["last_first_us"] / 1000, "arrive_sent": told["last_sent_us"] / 1000}


def whole(meter, target, streams, events):
    """CPU time from before the first connection until the process is gone, and the most memory that it had by then."""
    target.start()
    meter.load(target, "ttfb", WARM)
    time.sleep(0.2)
    target.process.forget_peak()
    idle, before = target.process.memory_kib("VmRSS"), target.process.cpu_s()
    crowd(meter, target, streams, events)
    time.sleep(REST_S)
    peak, rested = target.process.memory_kib("VmHWM"), target.process.cpu_s()
    # Its exit is counted too: nothing can be put off beyond the measured time.
    cpu = max(rested, target.stop()) - before
    if target.cites:
        stored(target, streams + WARM)
    return {f"exchange_{events}": cpu * 1e6 / (streams * events), f"peak_{events}": (peak - idle) / streams}


def stored(target, expected):
    """Every answer is on disk: the commits were within the measured time."""
    database = sqlite3.connect(f"file:{target.folder / 'citetap.db'}?mode=ro", uri=True)
    try:
        records = database.execute("SELECT count(*) FROM record").fetchone()[0]
    finally:
        database.close()
    if records != expected:
        raise Broken(f"{target.name}: {records} of {expected} answers are in the store")
