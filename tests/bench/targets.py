"""The compared targets: each proxy as a child process on loopback, with its memory and CPU time."""

import ctypes
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

DIALECTS = ("doubao", "tencent", "openai")


class Broken(Exception):
    """The run cannot go on: something failed, as opposed to being slow."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def die_with_parent(prctl=ctypes.CDLL(None).prctl):
    """PR_SET_PDEATHSIG: the child ends even if its parent is killed."""
    prctl(1, signal.SIGTERM)


def cpu_s(pid):
    """User and system seconds of a process. clock_getcpuclockid has nanoseconds where /proc has ticks."""
    return time.clock_gettime((~pid << 3) | 2)


class Process:
    """A child process with its log and all its descendants."""

    running = []

    def __init__(self, name, command, folder, port):
        self.name, self.port = name, port
        self.log = folder / "log"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CITETAP")}
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_parent)
        Process.running.append(self)
        self.await_port()

    def await_port(self):
        deadline = time.monotonic() + 20
        while self.child.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        output = self.log.read_text(errors="replace")[-800:]
        self.stop()
        raise Broken(f"{self.name} did not start: {output}")

    def pids(self):
        found, parents = [self.child.pid], [self.child.pid]
        while parents:
            parent = parents.pop()
            try:
                children = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
            except OSError:
                children = []
            found += children
            parents += children
        return found

    def cpu_s(self):
        return sum(cpu_s(pid) for pid in self.pids())

    def memory_kib(self, field):
        total = 0
        for pid in self.pids():
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith(field + ":"):
                    total += int(line.split()[1])
        return total

    def forget_peak(self):
        """Resets `VmHWM`."""
        for pid in self.pids():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def stop(self):
        """Ends the process; returns the CPU seconds of it and its children, including their exit."""
        if self not in Process.running:
            return 0.0
        Process.running.remove(self)
        if self.child.poll() is not None:
            return 0.0
        usage = None
        for sent in (signal.SIGTERM, signal.SIGKILL):
            # The child has its own session, so the group is the child and its descendants.
            os.killpg(self.child.pid, sent)
            if usage := self.exited(5):
                break
        return usage.ru_utime + usage.ru_stime if usage else 0.0

    def exited(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pid, status, usage = os.wait4(self.child.pid, os.WNOHANG)
            if pid:
                self.child.returncode = os.waitstatus_to_exitcode(status)
                return usage
            time.sleep(0.005)
        return None

    @classmethod
    def stop_all(cls):
        for process in list(cls.running):
            process.stop()


class Target:
    """A column of the table. `process` is the running process, or None."""

    cites = False
    process = store = None

    def __init__(self, name, out, upstream_port):
        self.name, self.folder, self.upstream_port = name, out / "run" / name, upstream_port
        self.port = upstream_port

    def start(self, store=None):
        """Starts a fresh process. `store`: a SQLite file for citetap outside of its folder."""
        self.stop()
        self.store = store
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.port = free_port()
        self.process = Process(self.name, self.command(), self.folder, self.port)

    def stop(self):
        """Stops the process; returns its total CPU seconds."""
        spent = self.process.stop() if self.process else 0.0
        self.process = None
        return spent

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)


class Direct(Target):
    """No proxy: the cost of upstream and load generator alone."""

    def start(self):
        pass


class Nginx(Target):
    def command(self):
        temporary = "\n".join(f"    {kind}_temp_path {self.folder}/{kind};"
                              for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;" if os.geteuid() == 0 else ""
        config = self.write("nginx.conf", f"""
daemon off; {user}
pid {self.folder}/pid;
error_log stderr error;
worker_processes 2;
events {{ worker_connections {connections()}; }}
http {{
    access_log off;
    tcp_nodelay on;
{temporary}
    upstream scripted {{ server 127.0.0.1:{self.upstream_port}; keepalive 256; }}
    server {{
        listen 127.0.0.1:{self.port} backlog=4096;
        location / {{
            proxy_pass http://scripted;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
""")
        return [program("nginx"), "-e", "stderr", "-p", str(self.folder), "-c", config]


class Haproxy(Target):
    def command(self):
        config = self.write("haproxy.cfg", f"""
global
    nbthread 2
    maxconn {connections() // 2}
defaults
    mode http
    option http-no-delay
    timeout connect 5s
    timeout client 600s
    timeout server 600s
    timeout http-keep-alive 60s
frontend clients
    bind 127.0.0.1:{self.port} backlog 4096
    default_backend scripted
backend scripted
    server one 127.0.0.1:{self.upstream_port}
""")
        return [program("haproxy"), "-db", "-f", config]


class Citetap(Target):
    """citetap with `extra` as one more line in each route. Runs a copy, because a build may replace the binary meanwhile."""

    def __init__(self, name, out, upstream_port, binary, extra="", cites=True):
        super().__init__(name, out, upstream_port)
        self.extra, self.cites = extra, cites
        self.binary = out / "bin" / name
        self.binary.parent.mkdir(parents=True, exist_ok=True)
        self.binary.unlink(missing_ok=True)
        try:
            shutil.copy2(binary, self.binary)
        except OSError as error:
            raise Broken(f"{name}: {error}") from error

    def command(self):
        routes = "".join(f"""
[[routes]]
name = "{name}"
prefix = "/{name}"
upstream = "http://127.0.0.1:{self.upstream_port}"
provider = "{name}"
inject = "final"
{'link_base = "https://lexiangla.com"' if name == "tencent" else ""}
{self.extra}
""" for name in DIALECTS)
        config = self.write("citetap.toml", f"""
listen = "127.0.0.1:{self.port}"
store = "sqlite:{self.store or self.folder / 'citetap.db'}"
[log]
level = "warn"
[records]
ttl = "off"
{routes}""")
        return [str(self.binary), "serve", "--config", config]

    def refused(self):
        """Returns the error of `citetap check` for the configuration, or ''."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        checked = subprocess.run([self.binary, "check", "--config", self.command()[-1]], capture_output=True, text=True)
        return checked.stderr.strip() if checked.returncode else ""


def connections():
    """Connection limit for a proxy, below its limit of open files."""
    return min(20000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)


def program(name):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not found:
        raise Broken(f"{name} is not installed")
    return found
