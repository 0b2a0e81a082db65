"""Shared by all themes: the registry of attacks, and citetap as a child process on loopback."""

import asyncio
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "bench"))
from targets import die_with_parent  # noqa: E402

PATIENCE = 20
MIB = 1 << 20


class Unexpected(Exception):
    """citetap did not do what is expected; the text says what it did."""


def require(condition, got):
    if not condition:
        raise Unexpected(got)


@dataclass
class Attack:
    """One case: its name is the function's, `why` its docstring."""

    theme: str
    name: str
    why: str
    expected: str
    run: object
    needs: str = ""


ATTACKS = []


def attack(expected, needs=""):
    """Registers a case, which returns what it got or raises `Unexpected`. `needs`: a program that has to be installed."""

    def register(function):
        theme = function.__module__.rsplit(".", 1)[-1]
        name = function.__name__.replace("_", " ")
        ATTACKS.append(Attack(theme, name, " ".join((function.__doc__ or "").split()), expected, function, needs))
        return function

    return register


@dataclass
class Kit:
    """The environment of a run, passed to each case."""

    binary: Path
    folder: Path
    short: bool
    started: list = field(default_factory=list)
    tables: list = field(default_factory=list)

    def few(self, short, long):
        """Returns the first count with `--short`, else the second."""
        return short if self.short else long

    def citetap(self, toml, **options):
        """A citetap with this configuration; use it with `async with`."""
        return Citetap(self, toml, **options)


def route(name, port, more="", prefix=None):
    """A route as a TOML table. `more`: further lines of the table."""
    return f"""
[[routes]]
name = "{name}"
prefix = "{prefix or '/' + name}"
upstream = "http://127.0.0.1:{port}"
provider = "tencent"
{more}
"""


class Tenant:
    """A tenant with a random key."""

    def __init__(self, name):
        self.name, self.key = name, f"{name}-{secrets.token_hex(12)}"

    @property
    def headers(self):
        return [("x-citetap-key", self.key)]

    @property
    def toml(self):
        return f'\n[[tenants]]\nname = "{self.name}"\nkey_sha256 = "{hashlib.sha256(self.key.encode()).hexdigest()}"\n'


class Citetap:
    """citetap as a child process with its own folder. Leaving the context stops it and checks its log for panics."""

    counter = 0

    def __init__(self, kit, toml, env=None, store="memory:", listen="127.0.0.1:0", level="info", files=(), drains=False):
        Citetap.counter += 1
        self.kit = kit
        self.folder = kit.folder / f"{Citetap.counter:03}"
        self.env, self.child = env or {}, None
        log = "" if "[log]" in toml else f'[log]\nlevel = "{level}"\n'
        # Top-level keys of `toml` come before its first table.
        self.toml = f'listen = "{listen}"\nstore = "{store}"\n{toml}\n{log}'
        self.listen, self.drains = listen, drains
        self.files = dict(files)
        self.host, self.port = "127.0.0.1", 0

    async def __aenter__(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name, text in self.files.items():
            (self.folder / name).write_text(text)
        config = self.folder / "citetap.toml"
        config.write_text(self.toml)
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("CITETAP", "OTEL", "TAVILY", "RUST_LOG", "PORT"))
        }
        with (self.folder / "log").open("wb") as log:
            self.child = subprocess.Popen(
                [self.kit.binary, "serve", "--config", config, "--log-format", "json"],
                cwd=self.folder,
                env=environment | self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )
        self.kit.started.append(self)
        try:
            await self.listening()
        except BaseException:
            self.stop()
            raise
        return self

    async def __aexit__(self, kind, *_):
        died = self.child.poll()
        self.stop()
        if kind is None:
            require(died is None, f"the process ended with {died}: {self.log()[-400:]}")
            panics = [line for line in self.log().splitlines() if '"panicked"' in line or "panicked at" in line]
            require(not panics, f"a panic: {panics[:1]}")

    async def listening(self):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.child.poll() is None:
            if found := re.search(r'"listen":"([^"]+)"', self.log()):
                self.port = int(found[1].rsplit(":", 1)[1]) if found[1].rsplit(":", 1)[-1].isdigit() else 0
                return
            await asyncio.sleep(0.02)
        raise Unexpected(f"citetap did not start: {self.log()[-500:].strip()}")

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def stop(self):
        if self in self.kit.started:
            self.kit.started.remove(self)
        if self.child is None or self.child.poll() is not None:
            return
        # Drain only in cases that check the shutdown, because a drain takes seconds.
        for sent in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL) if self.drains else (signal.SIGKILL,):
            self.child.send_signal(sent)
            try:
                self.child.wait(3)
                return
            except subprocess.TimeoutExpired:
                continue

    def rss(self):
        """Resident memory in bytes."""
        return self.status("VmRSS")

    def peak(self):
        """Peak resident memory in bytes since `forget_peak`."""
        return self.status("VmHWM")

    def forget_peak(self):
        Path(f"/proc/{self.child.pid}/clear_refs").write_text("5")

    def status(self, name):
        for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        return 0

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))


def body_of(document):
    return json.dumps(document).encode()


async def eventually(condition, seconds=5.0, every=0.02):
    """Polls the condition: True as soon as it holds, False if it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        await asyncio.sleep(every)
    return bool(condition())


def mib(size):
    return f"{size / MIB:.0f} MiB"
