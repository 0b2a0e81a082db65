"""Reads as Open WebUI's backend does: aiohttp lines, `data:` only; the key `event` goes to its user interface."""

import asyncio
import json

import aiohttp
from drive import QUESTION, Outcome, main, urls


async def read(cell):
    outcome, body = Outcome(sources=[]), {"model": cell["model"], "messages": QUESTION, "stream": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(cell["base"] + "/chat/completions", json=body, headers=cell["headers"]) as response,
    ):
        response.raise_for_status()
        # aiohttp fails at lines above 128 KiB.
        async for line in response.content:
            if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
                continue
            data = json.loads(line[5:])
            outcome.id = data.get("id") or outcome.id
            event = data.get("event") or {}
            if event.get("type") in ("source", "citation"):
                outcome.sources += linked(event["data"])
            if data.get("error"):
                raise ValueError(data["error"])
            for choice in data.get("choices", [])[:1]:
                delta = choice.get("delta", {})
                outcome.add(delta.get("content"))
                outcome.sources += urls(delta.get("annotations"))
                outcome.end = choice.get("finish_reason") or outcome.end
    return outcome


def linked(data):
    """Checks the fields that its page needs (a name, metadata for every excerpt); returns the source's URL."""
    if not data["source"]["name"] or len(data["document"]) != len(data["metadata"]):
        raise ValueError(f"a source that cannot be shown: {data}")
    return [data["source"]["url"]] if data["source"].get("url") else []


main({"backend": lambda cell: asyncio.run(read(cell))}, "aiohttp")
