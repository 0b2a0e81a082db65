"""Which client is run against what. Every cell is run; nothing here is a result."""

from dataclasses import dataclass, field

# Expected failures: a column, "column/capture", or where sources are found (`Client.at`). They are run nevertheless, and the
# run fails if all cells of an entry pass: then remove the entry.
NOT_YET: set[str] = set()

# Timeouts in seconds: one answer, one process with all its answers, the start of a server.
CELL_TIMEOUT = 30
DRIVER_TIMEOUT = 300
START_TIMEOUT = 20


@dataclass(frozen=True)
class Route:
    """One answer that a client can request: the capture, its dialect, and the server."""

    capture: str
    dialect: str
    server: str
    path: str
    headers: dict = field(default_factory=dict)
    model: str = "any"
    # Whether markers in its text are rewritten as links.
    links: bool = False


@dataclass(frozen=True)
class Column:
    key: str
    routes: tuple
    whole: bool = False


# The paths of the demo's routes as their own clients call them.
DEMO = {
    "doubao": "/doubao/chat/completion",
    "doubao-en": "/doubao-en/chat/completion",
    "tencent": "/tencent/cgi-bin/v1/ai/qa",
}

# Captures of OpenAI-like upstreams, each with its own format of citations.
OPENAI_LIKE = (
    "ark-bots",
    "dashscope",
    "hunyuan",
    "minimax",
    "openai-search",
    "openrouter",
    "perplexity",
    "qianfan",
    "ragflow",
    "xai",
    "zhipu",
)

LINK_HEADER = {"x-citetap-markers": "link"}


def web(name):
    return "tencent" if name == "tencent" else "doubao"


def profiled(dialect, path="", headers=None):
    headers = {"x-citetap-profile": dialect, **(headers or {})}
    links = "x-citetap-markers" in headers
    return tuple(Route(name, dialect, "demo", f"/{name}{path}", headers, links=links) for name in (*DEMO, "openai"))


MODELS = {
    "doubao": "doubao-demo",
    "doubao-en": "doubao-demo-en",
    "tencent": "lexiang-demo",
    "openai": "openai-demo",
}
V1 = tuple(Route(name, "openai", "demo", "/v1", model=model) for name, model in MODELS.items())

COLUMNS = (
    Column(
        "native",
        (
            *(Route(name, web(name), "demo", path) for name, path in DEMO.items()),
            Route("openai", "openai", "demo", "/openai/v1"),
            *(Route(f"openai/{name}", "openai", "serve", f"/openai/{name}") for name in OPENAI_LIKE),
        ),
    ),
    # The profile is set by a header for the demo, and by the route's configuration for `serve`.
    Column("openai", (*profiled("openai"), Route("doubao", "openai", "serve", "/profile/openai/doubao"))),
    Column(
        "links",
        (
            *(Route(name, web(name), "demo", path, LINK_HEADER, links=True) for name, path in DEMO.items()),
            Route("openai", "openai", "demo", "/openai/v1", LINK_HEADER, links=True),
            *profiled("openai", headers=LINK_HEADER),
            *profiled("ai-sdk", "/api/chat", headers=LINK_HEADER),
            *profiled("open-webui", headers=LINK_HEADER),
        ),
    ),
    Column("v1", V1),
    Column("v1-whole", V1, whole=True),
    Column("ai-sdk", profiled("ai-sdk", "/api/chat")),
    Column("open-webui", profiled("open-webui")),
)

# The same upstreams without citetap: a client that cannot read one directly need not read it through citetap.
DIRECT = {
    name: Route(name, "openai", "player", f"/{name}") for name in ("openai", *(f"openai/{name}" for name in OPENAI_LIKE))
}

# Self-test: a stream without citetap that contains an event which is no chunk. The clients of FAIL_AT_CONTROL must fail at
# it; if they do not, the run would not notice such an event from citetap.
CONTROL = Column("control", (Route("control", "control", "player", "/control"),))
FAIL_AT_CONTROL = {
    ("openai_py.py", "loop"),
    ("openai_js.mjs", "loop"),
    ("openai_js.mjs", "helper"),
    ("ai_sdk.mjs", "compatible"),
}


# How users of a client without a field for sources get them: by the message's id, if the client exposes it, or by a task
# id that the client sends in a header.
BY_ID = "`/citations/{id}`"
BY_TASK = "`/tasks/{id}`"


@dataclass(frozen=True)
class Client:
    """`env` and `script` select the process, `name` the function in it; `at`: where its user finds the sources."""

    label: str
    env: str
    script: str
    name: str
    speaks: tuple
    at: str
    # Whether the client supports unstreamed answers, and custom headers.
    whole: bool = False
    headers: bool = True


def openai_python(env):
    label, script, speaks = "OpenAI Python {openai}", "openai_py.py", ("openai",)
    yield Client(f"{label}, `create(stream=True)`", env, script, "loop", speaks, "`annotations`", whole=True)
    yield Client(f"{label}, `.stream()`", env, script, "helper", speaks, "`annotations`")


def openai_js(package, suffix=""):
    label, script, speaks = f"OpenAI JS {{{package}}}", "openai_js.mjs", ("openai",)
    yield Client(
        f"{label}, `create({{stream: true}})`", "node", script, "loop" + suffix, speaks, "`annotations`", whole=True
    )
    yield Client(f"{label}, `.stream()`", "node", script, "helper" + suffix, speaks, "`annotations`")


def ai_sdk(ai, openai, compatible, suffix=""):
    label, script = f"AI SDK {{{ai}}}", "ai_sdk.mjs"
    made = f"{label}, `@ai-sdk/openai` {{{openai}}}"
    yield Client(made, "node", script, "openai" + suffix, ("openai",), "`sources`", whole=True)
    made = f"{label}, `@ai-sdk/openai-compatible` {{{compatible}}}"
    yield Client(made, "node", script, "compatible" + suffix, ("openai",), BY_ID, whole=True)
    yield Client(
        f"{label}, `useChat` (its `AbstractChat`)", "node", script, "chat" + suffix, ("ai-sdk",), "`source-url` parts"
    )
    yield Client(
        f"{label}, `readUIMessageStream`", "node", script, "reader" + suffix, ("ai-sdk",), "`source-url` parts"
    )


WEB = ("doubao", "tencent")

CLIENTS = (
    *openai_python("openai"),
    *openai_python("openai-old"),
    *openai_js("openai"),
    *openai_js("openai-6", "-6"),
    *ai_sdk("ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible"),
    *ai_sdk("ai-6", "ai-6-openai", "ai-6-openai-compatible", "-6"),
    Client(
        "LangChain Python {langchain-openai}", "openai", "langchain_py.py", "chat", ("openai",), BY_TASK, whole=True
    ),
    Client("LangChain JS {@langchain/openai}", "node", "langchain_js.mjs", "chat", ("openai",), BY_TASK, whole=True),
    Client("LiteLLM {litellm}", "litellm", "litellm_py.py", "completion", ("openai",), "`annotations`", whole=True),
    Client(
        "like Open WebUI's backend (aiohttp {aiohttp})",
        "litellm",
        "open_webui.py",
        "backend",
        ("open-webui", "openai"),
        "`source` events, `annotations`",
    ),
    Client(
        "`fetch`, eventsource-parser {eventsource-parser}", "node", "sse_js.mjs", "parser", WEB, "`citations` event"
    ),
    Client("`EventSource` (Node {node})", "node", "sse_js.mjs", "source", WEB, "`citations` event", headers=False),
    Client("Python, `data:` lines only", "openai", "naive_py.py", "lines", WEB, "`citations` key"),
)
