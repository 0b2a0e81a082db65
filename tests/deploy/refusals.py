"""Values that the chart must refuse: (values on top of ci/default-values.yaml, words of the schema's error, words of the
templates' error if the schema is skipped). None: only the other one refuses them."""

ONE_WRITER = "or more with store.type postgres or redis: a SQLite file has one writer"

REFUSALS = [
    (["replicaCount=2"], ONE_WRITER, "a SQLite file has one writer. Set store.type to postgres or redis"),
    (["autoscaling.enabled=true"], "or true with store.type postgres or redis", "a SQLite file has one writer"),
    (["replicaCount=2", "store.type=memory"], ONE_WRITER, "each pod would know its own records only"),
    (["autoscaling.enabled=true", "store.type=memory"], "or true with store.type",
     "each pod would know its own records only"),
    (["store.type=postgres"], None, "store.type postgres needs its address: store.existingSecret names a Secret"),
    (["store.type=redis", "store.url=postgres://db.example.com/citetap"], None, "is no URL of store.type redis"),
    (["store.type=postgres", "store.url=postgres://db.example.com/citetap", "store.existingSecret=other"], None,
     "store.url and store.existingSecret say the same"),
    (["store.existingSecret=other"], None, "store.type sqlite has no address"),
    (["store.type=mysql"], 'must be one of the following: "sqlite", "memory", "postgres", "redis"', None),
    (["config.routes=null"], None, "config.routes is empty"),
    (["config.tenants=null"], None, "every client that can connect could read every record"),
    (["config.store=memory:"], "config.store", "config.store is the chart's"),
    (["config.listen=0.0.0.0:80"], "config.listen", "config.listen is the chart's"),
    (["config.timeouts.drain=5s"], "config.timeouts.drain", "the pod's grace period depends on it"),
    (["config.tls.cert=a.pem"], "config.tls", "whose probes speak plain HTTP"),
    (["existingConfigSecret=other"], None, "config and existingConfigSecret say the same"),
    (["replicas=2"], "Additional property replicas is not allowed", None),
    (["ingress.enabled=true"], "ingress.hosts", None),
    (["adminListener.port=8787"], "adminListener.port", None),
    (["config.tenants[0].key_sha256=abc"], "key_sha256", None),
]
