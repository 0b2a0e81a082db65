"""Reads as Open WebUI's backend does: lines of aiohttp, `data:` only, a key `event` goes to its user interface."""

import asyncio
import json

import aiohttp
from drive import QUESTION, Outcome, main


async def read(cell):
    outcome, body = Outcome(sources=[]), {"model": cell["model"], "messages": QUESTION, "stream": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(cell["base"] + "/chat/completions", json=body, headers=cell["headers"]) as response,
    ):
        response.raise_for_status()
        # By line, which fails at one of more than twice 64 KiB.
        async for line in response.content:
            if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
                continue
            data = json.loads(line[5:])
            outcome.id = data.get("id") or outcome.id
            event = data.get("event") or {}
            if event.get("type") in ("source", "citation"):
                outcome.sources.append(source(event["data"]))
            if data.get("error"):
                raise ValueError(data["error"])
            for choice in data.get("choices", [])[:1]:
                delta = choice.get("delta", {})
                outcome.add(delta.get("content"))
                outcome.sources += [each["url_citation"]["url"] for each in delta.get("annotations") or []]
                outcome.end = choice.get("finish_reason") or outcome.end
    return outcome


def source(data):
    """What its list of sources needs: a name, and one metadata entry per excerpt."""
    if not data["source"]["name"] or len(data["document"]) != len(data["metadata"]):
        raise ValueError(f"a source that cannot be shown: {data}")
    return data["metadata"][0]["source"]


main({"backend": lambda cell: asyncio.run(read(cell))}, "aiohttp")
