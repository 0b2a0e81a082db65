"""The measurements. Each returns one round's values of one target: {figure: value}."""

import json
import os
import subprocess
import time

from targets import Broken, cpu_s

MS, S = 1_000_000, 1_000_000_000
# Seconds that the load may run after its window.
PATIENCE = 45
# Client addresses, alternating by rounds: shows a proxy that treats one address better.
CLIENTS = ("127.0.0.1", "127.0.0.2")


class Meter:
    def __init__(self, tool, upstream):
        self.tool, self.upstream = tool, upstream
        # The address that clients bind to.
        self.client = CLIENTS[0]
        # Share of the machine that other processes used, one per measurement.
        self.others = []

    def spawn(self, target, mode, streams, **options):
        command = [self.tool, "load", "--mode", mode, "--target", f"127.0.0.1:{target.port}", "--client", self.client,
                   "--streams", str(streams)]
        for name, value in options.items():
            command += ["--" + name.replace("_", "-"), str(value)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def load(self, target, mode, streams, begin_s=0.0, seconds=0.0, sample=None, **options):
        """Runs the load; measures the target's CPU time, and calls `sample`, within its window."""
        start = time.monotonic_ns() + int(begin_s * S)
        end = start + int(seconds * S)
        window = {"from_ns": start, "to_ns": end} if seconds else {}
        load = self.spawn(target, mode, streams, **window, **options)
        try:
            until(start)
            before, busy = self.cpu(target, load), machine()
            until(end, sample)
            cpu, busy = self.cpu(target, load) - before, machine() - busy
            out, _ = load.communicate(timeout=PATIENCE)
        finally:
            if load.poll() is None:
                load.kill()
                load.wait()
        if load.returncode:
            raise Broken(f"{target.name}: the load failed")
        result = json.loads(out)
        result["cpu_s"] = cpu[0]
        if seconds:
            self.others.append(max(0.0, busy - sum(cpu)) / seconds / os.cpu_count())
        self.check(target, result)
        return result

    def quiet(self, share, seconds):
        """Waits, at most `seconds`, until other processes use less than `share` of the machine."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            before = machine()
            time.sleep(0.5)
            if (machine() - before) / 0.5 / os.cpu_count() < share:
                break

    def cpu(self, target, load=None):
        """CPU time of the target, and of upstream plus load generator."""
        return Times(target.process.cpu_s() if target.process else 0.0,
                     self.upstream.cpu_s() + (cpu_s(load.pid) if load else 0.0))

    def check(self, target, result):
        """Raises on missing events and missing citations."""
        if result["failed"] or result["finished"] != result["started"]:
            raise Broken(f"{target.name}: {result['failed']} of {result['started']} streams failed: {result['error']}")
        expected = result["finished"] if target.cites else 0
        if result["cited"] != expected:
            raise Broken(f"{target.name}: {result['cited']} streams with citations, not {expected}")

    def hold(self, target, streams, seconds, ramp_s, **options):
        """Runs streams that are all open during the window; retries with a slower ramp if they were not."""
        for longer in (1, 2, 4):
            result = self.load(target, "hold", streams, ramp_s * longer + 0.4, seconds,
                             ramp_ms=int(ramp_s * longer * 1000), **options)
            if result["open"] == streams or not ramp_s:
                return result
        raise Broken(f"{target.name}: only {result['open']} of {streams} streams were open when the window began")

    def paced(self, target, streams, seconds):
        result = self.hold(target, streams, seconds, max(0.5, streams / 1000), every_us=50_000, lags="true")
        lag = result["lag_us"]
        return {"paced_cpu": per(target, result, "window_events"),
                "lag_p50": lag["p50"], "lag_p99": lag["p99"], "lag_p999": lag["p999"]}

    def ttfb(self, target, count=24):
        return {"ttfb": self.load(target, "ttfb", count)["first_us"]["p50"]}

    def memory(self, target, streams):
        """Peak memory per stream of a fresh process, less its memory after a few warm-up answers."""
        target.start()
        self.load(target, "ttfb", 6)
        idle = target.process.memory_kib("VmRSS")
        peak = []

        def sample():
            peak.append(target.process.memory_kib("VmHWM"))
            return 0.2
        self.hold(target, streams, 1.5, max(0.5, streams / 1200), every_us=500_000, sample=sample)
        target.stop()
        return {f"memory_{streams}": (max(peak) - idle) / streams, "memory_idle": idle / 1024}

    def firehose(self, target, seconds, kind):
        result = self.hold(target, 8, seconds, 0, batch=32768 if kind == "batched" else 0)
        return {f"{kind}_rate": result["window_events"] / seconds / 1000,
                f"{kind}_cpu": per(target, result, "window_events")}

    def finishes(self, target, seconds, clients=128):
        result = self.load(target, "finishes", clients, 0.4, seconds)
        return {"finishes": result["window_finishes"] / seconds,
                "stored": 100 * result["window_stored"] / max(result["window_finishes"], 1),
                "finish_cpu": per(target, result, "window_finishes")}


class Times(tuple):
    def __new__(cls, *times):
        return super().__new__(cls, times)

    def __sub__(self, other):
        return Times(*(now - then for now, then in zip(self, other)))


def per(target, result, what):
    """CPU microseconds per `what`; None for a target without a process."""
    if not target.process:
        return None
    if not result[what]:
        raise Broken(f"{target.name}: nothing came within the window")
    return result["cpu_s"] * 1e6 / result[what]


def until(when_ns, sample=None):
    while (left := (when_ns - time.monotonic_ns()) / S) > 0:
        time.sleep(min(left, sample() if sample else left))
    if sample:
        sample()


def machine():
    """Busy seconds of all cores since boot."""
    with open("/proc/stat") as stat:
        ticks = [int(value) for value in stat.readline().split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
