"""Runs the cells of one process: reads a job from standard input, writes one line of JSON per cell to the file argv[1].

A client is a function of a cell that returns an Outcome; an exception is the cell's error.
"""

import json
import signal
import sys
from dataclasses import asdict, dataclass, field
from importlib.metadata import version


@dataclass
class Outcome:
    text: str = ""
    end: str | None = None
    # None: this client has no field for sources.
    sources: list[str] | None = None
    id: str | None = None
    pieces: int = 0
    error: str | None = None
    versions: dict[str, str] = field(default_factory=dict)

    def add(self, text):
        if text:
            self.text += text
            self.pieces += 1


def urls(annotations):
    """URLs of `url_citation` annotations, which are dictionaries or the SDK's types."""
    found = []
    for annotation in annotations or []:
        if not isinstance(annotation, dict):
            annotation = annotation.model_dump()
        if annotation["type"] == "url_citation":
            found.append(annotation["url_citation"]["url"])
    return found


QUESTION = [{"role": "user", "content": "Where do the answers come from?"}]


def late(*_):
    raise TimeoutError("the client did not end in time")


def main(clients, *packages):
    job = json.load(sys.stdin)
    signal.signal(signal.SIGALRM, late)
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        for cell in job["cells"]:
            signal.alarm(job["timeout"])
            try:
                outcome = clients[cell["client"]](cell)
            except Exception as error:
                outcome = Outcome(error=f"{type(error).__name__}: {error}"[:500])
            finally:
                signal.alarm(0)
            outcome.versions = {name: version(name) for name in packages}
            out.write(json.dumps({"cell": cell["name"], **asdict(outcome)}) + "\n")
            out.flush()
