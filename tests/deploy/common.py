"""Paths and helpers that several checks use."""

import functools
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

import yaml
from yamllint import config as yamllint_config
from yamllint import linter

YAML_RULES = yamllint_config.YamlLintConfig(
    "{extends: default, rules: {line-length: {max: 120}, document-start: disable}}")
# The faster loader in C, if it is available.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# The image sets these; see the Dockerfile.
IMAGE_ENV = {"CITETAP_LISTEN": "0.0.0.0:8787", "CITETAP_STORE": "sqlite:/data/citetap.db"}
# Seconds that citetap may take to flush its store after drain_delay and drain.
FLUSH_S = 5


class Repo:
    """Paths of the repository, or of a copy of the checked parts."""

    def __init__(self, root, binary, scratch, tools):
        self.root, self.binary, self.scratch, self.tools = root, binary, scratch, tools

    @property
    def deploy(self):
        return self.root / "deploy"

    def folder(self):
        return Path(tempfile.mkdtemp(dir=self.scratch))

    def copy(self):
        root = self.folder()
        shutil.copytree(self.deploy, root / "deploy", symlinks=True, ignore=shutil.ignore_patterns("secrets"))
        for name in ("config/citetap.toml", "Cargo.toml", "Dockerfile", ".gitignore", "tests/deploy"):
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            source = self.root / name
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        return Repo(root, self.binary, self.scratch, self.tools)

    def defaults(self):
        return tomllib.loads((self.root / "config/citetap.toml").read_text())


def documents(text):
    return [document for document in yaml.load_all(text, LOADER) if document]


# Cached, because most files are the same in every copy.
@functools.cache
def problems(text):
    return [f"{problem.line}: {problem.desc}" for problem in linter.run(text, YAML_RULES)]


def lint(path):
    return [f"{path.name}:{problem}" for problem in problems(path.read_text())]


def run(*command, **options):
    """Runs a command; returns its exit code and output."""
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60, **options)
    return done.returncode, done.stdout


def seconds(text):
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m|h)", str(text)))


def drain_s(repo, config, env):
    """Seconds that citetap may take to stop with this configuration."""
    total = FLUSH_S
    for key in ("drain_delay", "drain"):
        value = repo.defaults()["timeouts"][key]
        value = config.get("timeouts", {}).get(key, value)
        total += seconds(env.get(f"CITETAP__TIMEOUTS__{key.upper()}") or value)
    return total


def citetap_check(repo, config_text, env):
    """Runs `citetap check` with a file and the variables of a container; returns its errors."""
    env = {**IMAGE_ENV, **env}
    if env.get("CITETAP_STORE") and env.get("CITETAP_STORE_FILE"):
        return ["CITETAP_STORE_FILE needs CITETAP_STORE empty: the image sets it"]
    # Neither a database server nor /data exists here.
    env.pop("CITETAP_STORE_FILE", None)
    env["CITETAP_STORE"] = "memory:"
    return check_errors(repo.binary, repo.scratch, config_text, tuple(sorted(env.items())))


@functools.cache
def check_errors(binary, scratch, config_text, env):
    folder = Path(tempfile.mkdtemp(dir=scratch))
    env = dict(env)
    for name in [name for name in env if name.endswith("_FILE")]:
        (folder / name).write_text("none")
        env[name] = name
    if config_text is not None:
        (folder / "citetap.toml").write_text(config_text)
    code, output = run(binary, "check", cwd=folder, env={"PATH": os.environ["PATH"], **env})
    return [] if code == 0 else [line for line in output.splitlines() if line.strip()]


def passwords(text, where):
    """Finds URLs with a password that is not a variable."""
    found = re.findall(r"://[^:/@\s\"']*:(?!\$\{)[^@/\s\"']+@", text)
    shown = [hit for hit in found if not re.search(r":(PASSWORD|%s)@$", hit)]
    return [f"{where}: a password in {hit}" for hit in shown]
