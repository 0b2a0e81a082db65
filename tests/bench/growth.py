"""Whether cost stays flat: the same measurement at sizes that are far apart."""

import shutil
import sqlite3
import time
from statistics import median

from measure import CLIENTS, per
from stores import Stores, lookups
from targets import Broken, Nginx

# Figure: title, what the sizes count, unit, digits.
FIGURES = {
    "by_length": ("CPU per event, later in the answer", "events", "µs", 2),
    "by_references": ("CPU per event, after references", "references", "µs", 2),
    "by_streams": ("CPU per event, with open streams", "streams", "µs", 2),
    "get_p50": ("GET /citations/{id}, median", "records", "µs", 0),
    "get_cpu": ("GET /citations/{id}, CPU", "records", "µs", 0),
    "get_p99": ("GET /citations/{id}, 99 %", "records", "µs", 0),
}
LENGTHS, REFERENCES, STREAMS = (200, 2_000, 20_000), (10, 100, 1_000), (100, 1_000, 5_000)
RECORDS = (1_000, 10_000, 100_000, 1_000_000)
# Events per second of all streams together, for any number of streams.
RATE = 10_000
# Free disk space needed for the largest store, which takes 6 GiB.
NEEDED_GIB = 15


class Growth:
    def __init__(self, meter, out, seconds):
        self.meter, self.out, self.seconds = meter, out, seconds

    def run(self, targets, rounds, patience, progress):
        """Returns {figure: {target: {size: [one value per round]}}}."""
        citing = [target for target in targets if target.cites]
        beside = [target for target in targets if target.cites or isinstance(target, Nginx)]
        tasks = [(self.by_length, LENGTHS, citing), (self.by_references, REFERENCES, citing), (self.by_streams, STREAMS, beside)]
        results = {}

        def measure(turn, task, size, target):
            self.meter.client = CLIENTS[turn % 2]
            progress(f"growth, round {turn + 1} of {rounds}: {task.__name__.replace('_', ' ')}, {size}, {target.name}")
            self.meter.quiet(0.15, patience)
            for figure, value in task(target, size).items():
                sizes = results.setdefault(figure, {}).setdefault(target.name, {})
                sizes.setdefault(size, [None] * rounds)[turn] = value
        for target in beside:
            target.start()
        for turn in range(rounds):
            for task, sizes, selected in tasks:
                # Alternate the order, so that a machine that gets slower does not look like growth.
                for size in sizes[::-1 if turn % 2 else 1]:
                    for target in selected:
                        measure(turn, task, size, target)
        for target in beside:
            target.stop()
        records = self.stores(citing, progress)
        for turn in range(rounds):
            for size in records[::-1 if turn % 2 else 1]:
                for target in citing:
                    measure(turn, self.by_records, size, target)
        return {figure: {name: dict(sorted(sizes.items())) for name, sizes in results[figure].items()}
                for figure in FIGURES if figure in results}

    def by_length(self, target, events, streams=100):
        """Paced events after `events` that were sent as fast as they were read."""
        ramp = 0.5 + streams * events * 1.5e-6
        return {"by_length": self.paced(target, streams, ramp, lead=events, past_lead="true")}

    def by_references(self, target, references, streams=50):
        ramp = 0.5 + streams * references * 2e-5
        cpu = self.paced(target, streams, ramp, references=references, past_lead="true")
        # References that are not parsed would cost nothing.
        await_citations(target.folder / "citetap.db", streams, references)
        return {"by_references": cpu}

    def by_streams(self, target, streams):
        return {"by_streams": self.paced(target, streams, max(0.5, streams / 1000))}

    def paced(self, target, streams, ramp, **options):
        for longer in (1, 2, 3):
            result = self.meter.hold(
                target, streams, self.seconds, ramp * longer, every_us=streams * 1_000_000 // RATE, **options)
            # With a different rate the proxy fell behind or caught up (several events per read): not the intended load.
            if abs(result["window_events"] / (RATE * self.seconds) - 1) < 0.02:
                break
        return per(target, result, "window_events")

    def stores(self, targets, progress):
        """Fills the stores; returns their sizes."""
        self.filled = {}
        stores = Stores(self.out / "stores", self.meter)
        sizes = RECORDS
        if targets and shutil.disk_usage(self.out).free < NEEDED_GIB << 30 and not stores.has(RECORDS[-1]):
            sizes = RECORDS[:-1]
        for target in targets:
            for size in sizes:
                progress(f"growth: a store of {size} records for {target.name}")
                self.filled[target.name, size] = stores.get(target, size)
        return sizes

    def by_records(self, target, records):
        path, prefixes = self.filled[target.name, records]
        target.start(store=path)
        took, cpu = lookups(target.port, self.meter.client, prefixes, records, target.process.cpu_s)
        target.stop()
        return {"get_p50": took[len(took) // 2], "get_cpu": cpu, "get_p99": took[len(took) * 99 // 100]}


def await_citations(path, streams, references):
    """Waits until the newest records have as many citations as the answers had references."""
    deadline = time.monotonic() + 15
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        while True:
            newest = database.execute("SELECT json_array_length(body, '$.record.citations') FROM record ORDER BY n DESC LIMIT ?",
                                      (streams,)).fetchall()
            if newest == [(references,)] * streams:
                return
            if time.monotonic() > deadline:
                raise Broken(f"records of answers with {references} references have {sorted(set(newest))}")
            time.sleep(0.1)
    finally:
        database.close()


def summary(results):
    """Returns {figure: {target: {sizes: {size: {median, min, max, rounds}}, ratio: largest to smallest size}}}. Ratios are
    taken within each round."""
    out = {}
    for figure, by_target in results.items():
        for target, sizes in by_target.items():
            first, *_, last = sizes.values()
            ratios = [large / small for small, large in zip(first, last)]
            cells = {size: spread(rounds) for size, rounds in sizes.items()}
            out.setdefault(figure, {})[target] = {"of": FIGURES[figure][1], "sizes": cells, "ratio": spread(ratios)}
    return out


def spread(values):
    return {"median": median(values), "min": min(values), "max": max(values), "rounds": values}


def table(cells):
    rows = []
    for figure, by_target in cells.items():
        title, what, unit, digits = FIGURES[figure]
        for target, cell in by_target.items():
            values = [f"{size:,}: {at['median']:.{digits}f}" for size, at in cell["sizes"].items()]
            values = [""] * (len(RECORDS) - len(values)) + values
            ratio = cell["ratio"]
            span = f"{ratio['min']:.2f}..{ratio['max']:.2f}" if len(ratio["rounds"]) > 1 else ""
            rows.append([f"{title}, {unit}", target, what, *values, f"×{ratio['median']:.2f}", span])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "Growth\n" + "\n".join("  ".join(text.ljust(width) if i < 3 else text.rjust(width)
                               for i, (text, width) in enumerate(zip(row, widths))).rstrip() for row in rows)
