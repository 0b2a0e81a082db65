"""Checks the manifests with Kubernetes' schemas, and with `objects.py` for rules that no schema has."""

import functools
import json

import kubernetes_validate

import objects
from common import documents, lint, passwords

VERSION = kubernetes_validate.latest_version()


# The ingress refers to the Service in the other file.
TOGETHER = ("standalone.yaml", "ingress.yaml")
KINDS = {"Deployment", "Service", "ConfigMap", "ServiceAccount", "HorizontalPodAutoscaler", "PodDisruptionBudget",
         "NetworkPolicy", "Ingress"}


def check(repo):
    together, valid = [], True
    for path in sorted((repo.deploy / "kubernetes").glob("*.yaml")):
        yield from lint(path)
        yield from passwords(path.read_text(), path.name)
        found = documents(path.read_text())
        wrong = [f"{path.name}: {complaint}" for complaint in schema(found)]
        yield from wrong
        valid = valid and not wrong
        if path.name in TOGETHER:
            together += found
        elif not wrong:
            yield from (f"{path.name}: {complaint}" for complaint in objects.check(repo, found))
    if valid:
        yield from (f"standalone.yaml: {complaint}" for complaint in objects.check(repo, together))
        yield from (f"standalone.yaml: no {kind}" for kind in sorted(KINDS - {found["kind"] for found in together}))


def schema(found):
    for document in found:
        wrong = against_schema(json.dumps(document))
        if wrong:
            yield f"{document.get('kind')}/{document.get('metadata', {}).get('name')}: {wrong}"


# Cached, because the schemas are large and most documents are the same in every copy.
@functools.cache
def against_schema(text):
    document = json.loads(text)
    try:
        kubernetes_validate.validate(document, VERSION, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        return f"no schema for {document.get('apiVersion')}"
    except kubernetes_validate.ValidationError as error:
        return f"{'/'.join(map(str, error.path))}: {error.message[:200]}"
    return ""
