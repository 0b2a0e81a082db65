"""The expected text and source URLs of a capture, parsed here and not by citetap."""

import json
import pathlib
import re
from dataclasses import dataclass, replace

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclass
class Expected:
    text: str
    urls: list[str]
    # Whether the upstream itself sends `url_citation` annotations.
    annotated: bool = False


def frames(path):
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        data = [line[5:].strip() for line in block.split("\n") if line.startswith("data:")]
        if data and data != ["[DONE]"]:
            yield json.loads("".join(data))


def doubao(path):
    """A Doubao stream has the text twice: for display and for speech output. This reads the latter."""
    text, cards = "", {}
    for frame in frames(path):
        for patch in frame.get("patch_op", []):
            text += patch["patch_value"].get("tts_content", "")
            for block in patch["patch_value"].get("content_block", []):
                for result in block["content"].get("search_query_result_block", {}).get("results", []):
                    cards[result["text_card"]["index"]] = result["text_card"]["url"]
    return Expected(text, [cards[index] for index in sorted(cards)])


def tencent(path):
    """The finish frame has the whole text, and the documents with paths on the service's site."""
    last = list(frames(path))[-1]
    docs = last["additional_content"]["reference_docs"]
    return Expected(last["content"], ["https://lexiangla.com" + doc["url"] for doc in docs])


def openai(path):
    """Joins the deltas. Sources are taken from the golden record, because every service has them in another field."""
    deltas = [choice.get("delta", {}) for frame in frames(path) for choice in frame.get("choices", [])]
    record = json.loads(path.with_suffix(".citations.json").read_text(encoding="utf-8"))
    return Expected(
        "".join(delta.get("content") or "" for delta in deltas),
        [source["url"] for source in record["citations"] if source["url"]],
        any(delta.get("annotations") for delta in deltas),
    )


def demo_openai(path):
    """The demo's answer has its sources in `citations`, as Perplexity's."""
    found = list(frames(path))
    text = "".join(choice["delta"].get("content") or "" for frame in found for choice in frame["choices"])
    return Expected(text, next(frame["citations"] for frame in found if "citations" in frame))


def linked(expected):
    """Rewrites every marker to `[[1]](url)`: captures have `[1]` and `<span id="ai-qa-ref">1</span>`."""

    def link(marker):
        number = int(marker[1] or marker[2])
        return f"[[{number}]]({expected.urls[number - 1]})"

    text = re.sub(r'\[(\d+)\]|<span id="ai-qa-ref">(\d+)</span>', link, expected.text)
    return replace(expected, text=text)


def of(capture, links=False):
    if capture.startswith("openai/"):
        return openai(ROOT / "tests/fixtures" / f"{capture}.sse")
    read = {"tencent": tencent, "openai": demo_openai}.get(capture, doubao)
    expected = read(ROOT / "src/replay/captures" / f"{capture}.sse")
    return linked(expected) if links else expected
