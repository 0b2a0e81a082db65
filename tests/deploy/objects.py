"""Checks a set of Kubernetes objects: selectors match pods, ports exist in containers, and citetap's containers are
restricted, have time to drain, and have a configuration that citetap accepts."""

import re
import tomllib

from common import citetap_check, drain_s


def check(repo, documents):
    by_kind = {}
    for document in documents:
        by_kind.setdefault(document["kind"], []).append(document)
    for document in documents:
        name = f"{document['kind']}/{document['metadata']['name']}"
        if "app.kubernetes.io/name" not in document["metadata"].get("labels", {}):
            yield f"{name}: no label app.kubernetes.io/name"
        for complaint in KINDS.get(document["kind"], lambda *_: ())(repo, document, by_kind):
            yield f"{name}: {complaint}"


# ---- pods ------------------------------------------------------------------------------------------------------------


def deployment(repo, document, by_kind):
    spec = document["spec"]
    template = spec["template"]
    if not selects(spec["selector"]["matchLabels"], template["metadata"]["labels"]):
        yield "its selector does not find its own pods"
    yield from pod(repo, template["spec"], by_kind)
    for container in citetaps(template["spec"]):
        env = variables(container)
        config = config_of(container, template["spec"], by_kind)
        needed = drain_s(repo, tomllib.loads(config or ""), env)
        grace = template["spec"].get("terminationGracePeriodSeconds", 30)
        if grace <= needed:
            yield f"{grace} s of grace are not more than the {needed:.0f} s that citetap may take"
        yield from citetap_check(repo, config, {name: value for name, value in env.items() if is_ours(name)})
        scaled = any(hpa["spec"]["scaleTargetRef"]["name"] == document["metadata"]["name"]
                     for hpa in by_kind.get("HorizontalPodAutoscaler", []))
        if scaled == ("replicas" in spec):
            yield "the autoscaler and `replicas` contradict each other" if scaled else "no number of replicas"
        if (scaled or spec.get("replicas", 1) > 1) and not env.get("CITETAP_STORE_FILE"):
            yield "several pods without a store that they share"
        if "/data" in [mount["mountPath"] for mount in container.get("volumeMounts", [])]:
            if spec.get("strategy", {}).get("type") != "Recreate":
                yield "two pods on one SQLite file during an update"


def pod(repo, spec, by_kind):
    if spec.get("automountServiceAccountToken") is not False:
        yield "pods have a token for the cluster"
    account = spec.get("serviceAccountName", "default")
    if account not in ["default", *names(by_kind, "ServiceAccount")]:
        yield f"no service account {account}"
    if spec.get("securityContext", {}).get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "no seccomp profile"
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    containers = spec.get("initContainers", []) + spec["containers"]
    mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts", [])}
    for name in sorted(mounted ^ set(volumes)):
        yield f"volume {name} is {'not mounted' if name in volumes else 'not there'}"
    for container in containers:
        context = {**spec.get("securityContext", {}), **container.get("securityContext", {})}
        for complaint in restricted(context):
            yield f"container {container['name']} {complaint}"
        if "memory" not in container.get("resources", {}).get("limits", {}):
            yield f"container {container['name']} has no limit of memory"
    for container in citetaps(spec):
        yield from probes(container)
        if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
            yield "citetap's root can be written to"


def restricted(context):
    """Checks a container against Kubernetes' "restricted" profile."""
    if context.get("runAsNonRoot") is not True:
        yield "may run as root"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "can gain privileges"
    if context.get("capabilities", {}).get("drop") != ["ALL"]:
        yield "keeps capabilities"


def probes(container):
    if container.get("args", ["serve"])[0] != "serve":
        return
    loopback = variables(container).get("CITETAP_LISTEN", "").startswith("127.")
    ports = {port["name"] for port in container.get("ports", [])}
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = container.get(kind, {})
        get = probe.get("httpGet")
        if not get and probe.get("exec", {}).get("command", [])[:2] != ["/usr/local/bin/citetap", "health"]:
            yield f"no {kind}"
        if get and loopback:
            yield f"{kind} comes from outside and cannot reach loopback"
        if get and get["port"] not in ports:
            yield f"{kind} asks a port {get['port']} that is not there"
        if get and get["path"] not in ("/healthz", "/readyz"):
            yield f"{kind} asks {get['path']}"
    live = container.get("livenessProbe", {})
    if live.get("periodSeconds", 10) * live.get("failureThreshold", 3) < 60 or "readyz" in str(live):
        yield "livenessProbe is quick to cut every open stream"


def citetaps(spec):
    containers = spec.get("initContainers", []) + spec["containers"]
    return [container for container in containers if re.search(r"(^|/)citetap[:@]", container["image"])]


def variables(container):
    return {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}


def is_ours(name):
    return name.startswith("CITETAP") or name.startswith("TAVILY")


def config_of(container, spec, by_kind):
    """The text of citetap.toml from a ConfigMap of these documents, or None."""
    for mount in container.get("volumeMounts", []):
        volume = next((volume for volume in spec.get("volumes", []) if volume["name"] == mount["name"]), {})
        name = volume.get("configMap", {}).get("name")
        for config in by_kind.get("ConfigMap", []):
            if mount["mountPath"] == "/etc/citetap" and name == config["metadata"]["name"]:
                return config["data"]["citetap.toml"]
    # Mounted from a Secret that is not in these documents: use any valid file.
    if any(mount["mountPath"] == "/etc/citetap" for mount in container.get("volumeMounts", [])):
        return 'auth = "none"\n[[routes]]\nname = "main"\nprefix = "/"\nupstream = "https://api.example.com"\n'
    return None


# ---- services, ingress, autoscaler, monitor ----------------------------------------------------------------------------------------------


def service(_, document, by_kind):
    spec = document["spec"]
    found = [template for template in templates(by_kind) if selects(spec["selector"], template["metadata"]["labels"])]
    if not found:
        yield "its selector finds no pod"
    for template in found:
        ports = {port["name"] for container in template["spec"]["containers"] for port in container.get("ports", [])}
        for port in spec["ports"]:
            if port["targetPort"] not in ports:
                yield f"no container has the port {port['targetPort']}"


def selecting(_, document, by_kind):
    spec = document["spec"]
    selector = spec["podSelector"] if "podSelector" in spec else spec["selector"]
    if not any(selects(selector["matchLabels"], template["metadata"]["labels"]) for template in templates(by_kind)):
        yield "its selector finds no pod"
    ports = {port["name"] for template in templates(by_kind) for container in template["spec"]["containers"]
             for port in container.get("ports", [])}
    for rule in spec.get("ingress", []):
        for port in rule.get("ports", []):
            if port["port"] not in ports:
                yield f"no container has the port {port['port']}"


def autoscaler(_, document, by_kind):
    spec = document["spec"]
    if spec["scaleTargetRef"]["name"] not in names(by_kind, "Deployment"):
        yield "it scales nothing that is here"
    if spec["minReplicas"] < 2:
        yield "it may leave one pod"
    for target in by_kind.get("Deployment", []):
        for container in target["spec"]["template"]["spec"]["containers"]:
            if "cpu" not in container["resources"].get("requests", {}):
                yield "it scales by CPU utilization, but the container requests no CPU"


def ingress(_, document, by_kind):
    services = {service["metadata"]["name"]: {port["name"] for port in service["spec"]["ports"]}
                for service in by_kind.get("Service", [])}
    for rule in document["spec"]["rules"]:
        for path in rule["http"]["paths"]:
            backend = path["backend"]["service"]
            if backend["port"]["name"] not in services.get(backend["name"], ()):
                yield f"it leads to {backend['name']}, which is not there"
    notes = document["metadata"].get("annotations", {})
    if notes.get("nginx.ingress.kubernetes.io/proxy-buffering") != "off":
        yield "it buffers"
    if int(notes.get("nginx.ingress.kubernetes.io/proxy-read-timeout", 60)) <= 300:
        yield "it gives up before citetap does"


def monitor(_, document, by_kind):
    for endpoint in document["spec"]["endpoints"]:
        found = [service for service in by_kind.get("Service", [])
                 if selects(document["spec"]["selector"]["matchLabels"], service["metadata"]["labels"])
                 and endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}]
        if len(found) != 1:
            yield f"{len(found)} services have the port {endpoint['port']}"


def templates(by_kind):
    return [document["spec"]["template"] for document in by_kind.get("Deployment", [])]


def names(by_kind, kind):
    return [document["metadata"]["name"] for document in by_kind.get(kind, [])]


def selects(selector, labels):
    return bool(selector) and selector.items() <= labels.items()


def lone_pod(repo, document, by_kind):
    return pod(repo, document["spec"], by_kind)


KINDS = {"Deployment": deployment, "Pod": lone_pod, "Service": service, "PodDisruptionBudget": selecting,
         "NetworkPolicy": selecting, "HorizontalPodAutoscaler": autoscaler, "Ingress": ingress,
         "ServiceMonitor": monitor}
