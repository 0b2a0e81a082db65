#!/usr/bin/env python3
"""How much of everything it takes: replicas, connections, PostgreSQL partitions, Redis memory.

From figures that were measured (figures.json beside this file: what, how, on what) and from what you expect. The
arithmetic is simple on purpose: read it before you trust it.
"""

import argparse
import json
import math
import pathlib
import sys

FIGURES = pathlib.Path(__file__).with_name("figures.json")
DAY = 86_400
# Connections of one replica to PostgreSQL (one for writes, four for reads, one for LISTEN) and to Redis.
CONNECTIONS = {"postgres": 6, "redis": 2}
# Open files of a replica in addition to two per stream.
OTHER_FILES = 100


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=count, default=1_000_000, help="open at the same time, at the peak (default: 1M)")
    parser.add_argument("--events", type=float, default=20, help="events per second of a stream (default: 20)")
    parser.add_argument("--length", type=float, default=30, help="seconds that a stream lasts (default: 30)")
    parser.add_argument("--records", type=count, default=1_000_000_000, help="kept at the same time (default: 1G)")
    parser.add_argument("--peak", type=float, default=4, help="times the daily average at the peak (default: 4)")
    parser.add_argument("--cores", type=int, default=8, help="of one replica (default: 8)")
    parser.add_argument("--busy", type=float, default=0.6, help="share of its cores that a replica may use (default: 0.6)")
    parser.add_argument("--spare", type=float, default=0.2, help="replicas beyond what is needed, for rolling (default: 0.2)")
    parser.add_argument("--json", action="store_true", help="the plan as JSON")
    return parser.parse_args()


def count(text):
    scale = {"k": 10**3, "m": 10**6, "g": 10**9}
    number = text.lower().rstrip("kmg")
    return int(float(number) * scale.get(text.lower()[-1:], 1))


def plan(asked, figures):
    stream, stores = figures["stream"], figures["stores"]
    events = asked.streams * asked.events
    cores = events * stream["cpu_us_per_event"] / 1e6
    needed = max(1, math.ceil(cores / (asked.cores * asked.busy)))
    replicas = needed + (math.ceil(needed * asked.spare) if needed > 1 else 0)
    per_replica = math.ceil(asked.streams / needed)
    peak = asked.streams / asked.length
    average = peak / asked.peak
    history = asked.records / average
    kept = {}
    for name, engine in stores.items():
        size = asked.records * engine["bytes_per_record"]
        writers = peak / engine["writes_per_second"]
        kept[name] = {
            "gib": size / 2**30,
            "writes_per_second": peak,
            "share_of_the_measured_server": writers,
            "connections": replicas * CONNECTIONS[name],
        }
    days = max(1, math.ceil(history / DAY))
    kept["postgres"]["partitions"] = days + 2
    kept["postgres"]["gib_per_partition"] = kept["postgres"]["gib"] / max(1, history / DAY) if days > 1 else kept["postgres"]["gib"]
    return {
        "events_per_second": events,
        "cores": cores,
        "replicas": replicas,
        "streams_per_replica": per_replica,
        "memory_per_replica_mib": (stream["base_mib"] + per_replica * stream["kib_per_stream"] / 1024),
        "files_per_replica": per_replica * 2 + OTHER_FILES,
        "finished_per_second_at_the_peak": peak,
        "finished_per_second_on_average": average,
        "history_days": history / DAY,
        "stores": kept,
    }


def show(asked, made, figures):
    stores = made["stores"]
    lines = [
        f"{asked.streams:,} streams of {asked.events:g} events a second, {asked.length:g} s each, and {asked.records:,} records",
        "",
        f"Relaying    {made['events_per_second']:,.0f} events/s take {made['cores']:,.0f} cores",
        f"            {made['replicas']:,} replicas of {asked.cores} cores, {asked.busy:.0%} busy, {asked.spare:.0%} of them to spare",
        f"            each {made['streams_per_replica']:,} streams, {made['memory_per_replica_mib']:,.0f} MiB, "
        f"{made['files_per_replica']:,} open files, limits.streams = {round_up(made['streams_per_replica'] * 1.25):,}",
        f"Finishing   {made['finished_per_second_at_the_peak']:,.0f} records/s at the peak, {made['finished_per_second_on_average']:,.0f}/s on average",
        f"            {asked.records:,} records are {made['history_days']:,.1f} days of history (records.ttl)",
        f"PostgreSQL  {stores['postgres']['gib']:,.0f} GiB in {stores['postgres']['partitions']:,} daily partitions of {stores['postgres']['gib_per_partition']:,.0f} GiB",
        f"            {stores['postgres']['share_of_the_measured_server']:,.1f} times the writes of the server that was measured; "
        f"{stores['postgres']['connections']:,} connections",
        f"Redis       {stores['redis']['gib']:,.0f} GiB of memory before replicas of it; "
        f"{stores['redis']['share_of_the_measured_server']:,.1f} times the writes of the one that was measured; "
        f"{stores['redis']['connections']:,} connections",
        "",
        f"Measured on {figures['machine']}: {figures['stream']['cpu_us_per_event']:g} µs of CPU per event, "
        f"{figures['stream']['kib_per_stream']:g} KiB per open stream.",
    ]
    return "\n".join(lines)


def round_up(number):
    """To two digits."""
    step = 10 ** max(0, len(str(math.ceil(number))) - 2)
    return math.ceil(number / step) * step


def main():
    asked = options()
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    made = plan(asked, figures)
    print(json.dumps(made, indent=2) if asked.json else show(asked, made, figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
