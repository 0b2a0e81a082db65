#!/usr/bin/env python3
"""Computes a capacity plan: replicas, connections, PostgreSQL partitions, Redis memory.

Inputs are measured figures (figures.json in this folder) and the load that you expect. The arithmetic is simple: read it
before you rely on it.
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
    parser.add_argument("--streams", type=count, default=1_000_000, help="concurrent streams at the peak (default: 1M)")
    parser.add_argument("--events", type=float, default=20, help="events per second of a stream (default: 20)")
    parser.add_argument("--length", type=float, default=30, help="seconds that a stream lasts (default: 30)")
    parser.add_argument("--records", type=count, default=1_000_000_000, help="stored records (default: 1G)")
    parser.add_argument("--peak", type=float, default=4, help="ratio of the peak to the daily average (default: 4)")
    parser.add_argument("--cores", type=int, default=8, help="cores of a replica (default: 8)")
    parser.add_argument("--busy", type=float, default=0.6, help="CPU utilization of a replica (default: 0.6)")
    parser.add_argument("--spare", type=float, default=0.2, help="share of spare replicas, for rolling updates (default: 0.2)")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    return parser.parse_args()


def count(text):
    scale = {"k": 10**3, "m": 10**6, "g": 10**9}
    number = text.lower().rstrip("kmg")
    return int(float(number) * scale.get(text.lower()[-1:], 1))


def plan(args, figures):
    stream, stores = figures["stream"], figures["stores"]
    events = args.streams * args.events
    cores = events * stream["cpu_us_per_event"] / 1e6
    needed = max(1, math.ceil(cores / (args.cores * args.busy)))
    replicas = needed + (math.ceil(needed * args.spare) if needed > 1 else 0)
    per_replica = math.ceil(args.streams / needed)
    peak = args.streams / args.length
    average = peak / args.peak
    history = args.records / average
    kept = {}
    for name, engine in stores.items():
        size = args.records * engine["bytes_per_record"]
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


def show(args, result, figures):
    stores = result["stores"]
    lines = [
        f"{args.streams:,} streams of {args.events:g} events a second, {args.length:g} s each, and {args.records:,} records",
        "",
        f"Relaying    {result['events_per_second']:,.0f} events/s take {result['cores']:,.0f} cores",
        f"            {result['replicas']:,} replicas of {args.cores} cores, {args.busy:.0%} busy, {args.spare:.0%} of them to spare",
        f"            each {result['streams_per_replica']:,} streams, {result['memory_per_replica_mib']:,.0f} MiB, "
        f"{result['files_per_replica']:,} open files, limits.streams = {round_up(result['streams_per_replica'] * 1.25):,}",
        f"Finishing   {result['finished_per_second_at_the_peak']:,.0f} records/s at the peak, {result['finished_per_second_on_average']:,.0f}/s on average",
        f"            {args.records:,} records are {result['history_days']:,.1f} days of history (records.ttl)",
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
    """Rounds up to two significant digits."""
    step = 10 ** max(0, len(str(math.ceil(number))) - 2)
    return math.ceil(number / step) * step


def main():
    args = options()
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    result = plan(args, figures)
    print(json.dumps(result, indent=2) if args.json else show(args, result, figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
