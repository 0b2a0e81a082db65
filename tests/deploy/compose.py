"""Checks the Compose files: schema, references, and the hardening of services."""

import json
import re
from importlib import resources

import jsonschema

from common import citetap_check, documents, drain_s, lint, passwords, run, seconds

SECRET_NAME = re.compile(r"(PASSWORD|PASSWD|SECRET|TOKEN|_KEY)(?!.*_FILE$)")


def check(repo):
    files = sorted(repo.deploy.glob("compose*.yaml"))
    package = resources.files("check_jsonschema")
    schema = json.loads(package.joinpath("builtin_schemas/vendor/compose-spec.json").read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    if len(files) != 2:
        yield f"{len(files)} files, not 2"
    for path in files:
        yield from lint(path)
        yield from passwords(path.read_text(), path.name)
        document = documents(path.read_text())[0]
        wrong = [f"{path.name}: {'/'.join(map(str, error.path))}: {error.message[:200]}"
                 for error in validator.iter_errors(document)]
        yield from wrong
        if not wrong:
            yield from (f"{path.name}: {complaint}" for complaint in one(repo, path, document))
    for path in [*repo.deploy.glob("prometheus/*.yml"), *repo.deploy.glob("grafana/provisioning/*/*.yml")]:
        yield from lint(path)
    yield from scraped(repo)
    yield from secrets(repo)


def one(repo, path, document):
    services = document["services"]
    used = {"volumes": set(), "networks": set(), "secrets": set()}
    for name, service in services.items():
        for complaint in [*hardened(service), *refers(path, services, service, used), *stops(repo, service)]:
            yield f"{name}: {complaint}"
    for kind, names in used.items():
        for name in sorted(set(document.get(kind, {})) ^ names):
            yield f"{kind}: {name} is {'not used' if name in document.get(kind, {}) else 'not defined'}"
    for name, secret in document.get("secrets", {}).items():
        if not secret.get("file", "").startswith("./secrets/"):
            yield f"secrets: {name} is not a file in deploy/secrets, which Git ignores"


def hardened(service):
    if service.get("read_only") is not True:
        yield "its root can be written to"
    if service.get("cap_drop") != ["ALL"] or service.get("cap_add"):
        yield "it keeps capabilities"
    if "no-new-privileges:true" not in service.get("security_opt", []):
        yield "it can gain privileges"
    if "healthcheck" not in service:
        yield "no health check"
    image = service.get("image", "")
    if not re.search(r":(?!latest)[\w.-]+$", image):
        yield f"image {image!r} has no version"
    limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
    if limits and "pids_limit" in service:
        yield "pids_limit beside deploy.resources.limits, which Compose refuses: use limits.pids"
    if limits and set(limits) != {"cpus", "memory", "pids"}:
        yield "limits without cpus, memory or pids"
    if not limits and "pids_limit" not in service:
        yield "no limits"
    for port in service.get("ports", []):
        if not str(port).startswith("127.0.0.1:"):
            yield f"port {port} is published beyond loopback"
    for key in service.get("environment", {}):
        if SECRET_NAME.search(key):
            yield f"{key} is a secret in the environment: use a file"


def refers(path, services, service, used):
    for volume in service.get("volumes", []):
        source, target, *mode = volume.split(":")
        if not source.startswith("."):
            used["volumes"].add(source)
            continue
        if not (path.parent / source).exists():
            yield f"{source} does not exist"
        if mode != ["ro"]:
            yield f"{target} from the host can be written to"
    used["networks"].update(service.get("networks", []))
    used["secrets"].update(service.get("secrets", []))
    text = json.dumps([service.get("environment", {}), service.get("command", [])])
    for name in re.findall(r"/run/secrets/(\w+)", text):
        if name not in service.get("secrets", []):
            yield f"reads the secret {name} and is not given it"
    for other, how in service.get("depends_on", {}).items():
        if other not in services:
            yield f"depends on {other}, which is not there"
        elif how["condition"] == "service_healthy" and "healthcheck" not in services[other]:
            yield f"waits for the health of {other}, which is not checked"
        elif services[other].get("profiles") and how.get("required", True):
            yield f"depends on {other}, which is there with its profile only"


def stops(repo, service):
    """Checks that citetap services have time to drain, and that citetap accepts their variables."""
    if not service["image"].startswith("citetap:") or service.get("command", ["serve"])[0] != "serve":
        return
    env = {key: interpolated(value) for key, value in service.get("environment", {}).items()}
    needed = drain_s(repo, {}, env)
    if seconds(service.get("stop_grace_period", "10s")) <= needed:
        yield f"stop_grace_period is not longer than the {needed:.0f} s that citetap may take"
    yield from citetap_check(repo, None, env)


def interpolated(value):
    """Interpolates a value with only CITETAP_UPSTREAM set."""
    value = str(value).replace("${CITETAP_UPSTREAM", "https://api.example.com${CITETAP_UPSTREAM")
    return re.sub(r"\$\{\w+(?::?[-?][^}]*)?\}", "", value)


def scraped(repo):
    """Checks that Prometheus scrapes each citetap of compose.full.yaml separately."""
    folder = repo.deploy / "prometheus"
    services = documents((repo.deploy / "compose.full.yaml").read_text())[0]["services"]
    command = " ".join(services["prometheus"].get("command", []))
    named = re.search(r"--config\.file=/etc/prometheus/(\S+)", command)
    if not named or not (folder / named[1]).exists():
        yield f"prometheus: no such configuration: {command}"
        return
    config = documents((folder / named[1]).read_text())[0]
    for name in config["rule_files"]:
        if not (folder / name).exists():
            yield f"{named[1]}: no {name}"
    found = [sd for job in config["scrape_configs"] for sd in job.get("dns_sd_configs", [])]
    if [(sd["names"], sd["type"], sd["port"]) for sd in found] != [(["citetap"], "A", 8787)]:
        yield f"{named[1]}: not every citetap is scraped"
    promtool = repo.tools / "prometheus/promtool"
    if promtool.exists():
        code, output = run(promtool, "check", "config", "--lint=all", "--lint-fatal", named[1], cwd=folder)
        if code:
            yield f"{named[1]}: {output}"


def secrets(repo):
    """Checks that secrets.sh creates the secrets of compose.full.yaml, and does not overwrite them."""
    folder = repo.folder()
    script = folder / "secrets.sh"
    script.write_bytes((repo.deploy / "secrets.sh").read_bytes())
    made = folder / "secrets"
    named = documents((repo.deploy / "compose.full.yaml").read_text())[0].get("secrets", {})
    seen = []
    for store in ("postgres", "redis"):
        code, output = run("bash", script, store)
        if code:
            return [f"secrets.sh {store}: {output}"]
        seen.append({path.name: path.read_text() for path in made.iterdir()})
    first, second = seen
    complaints = [f"secrets.sh does not make {name}" for name in set(named) - set(first)]
    complaints += [f"secrets.sh made {name} again" for name in set(first) - {"store_url"} if first[name] != second[name]]
    if first.get("store_url") != f"postgres://citetap:{first.get('postgres_password')}@postgres:5432/citetap":
        complaints.append("secrets.sh: store_url is not PostgreSQL's")
    password = re.search(r"requirepass (\S+)", second.get("redis_conf", ""))
    if not password or second.get("store_url") != f"redis://:{password[1]}@redis:6379/0":
        complaints.append("secrets.sh redis: store_url is not Redis's")
    if made.stat().st_mode & 0o077:
        complaints.append("secrets.sh leaves the folder open to others")
    if any(path.stat().st_mode & 0o444 != 0o444 for path in made.iterdir()):
        complaints.append("secrets.sh makes files that the containers' users cannot read")
    if "/deploy/secrets/" not in (repo.root / ".gitignore").read_text().splitlines():
        complaints.append(".gitignore does not have /deploy/secrets/")
    return complaints
