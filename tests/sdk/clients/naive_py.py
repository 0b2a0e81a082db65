"""A reader without a library, as many people write it: parses every `data:` line as JSON and ignores event names."""

import json
import urllib.request

from drive import Outcome, main


def payloads(cell):
    request = urllib.request.Request(cell["base"], data=b"{}", headers=cell["headers"])
    with urllib.request.urlopen(request) as response:
        for line in response:
            if line.startswith(b"data:"):
                yield json.loads(line[5:])


def cited(outcome, data):
    if "citations" in data:
        if outcome.end:
            raise ValueError("the sources came after the end")
        outcome.sources = [source["url"] for source in data["citations"]["citations"]]


def tencent(cell):
    outcome = Outcome()
    for data in payloads(cell):
        outcome.text += data["delta_content"]
        outcome.pieces += 1
        cited(outcome, data)
        if data["is_stop"]:
            outcome.end = data["finish_reason"]
            outcome.id = data["completion_id"]
            if outcome.text != data["content"]:
                raise ValueError("the deltas and the finish frame's content differ")
    return outcome


def doubao(cell):
    outcome, thinking, mine = Outcome(), set(), False
    for data in payloads(cell):
        cited(outcome, data)
        blocks = data.get("content", {}).get("content_block", [])
        for patch in data.get("patch_op", []):
            blocks = blocks + patch["patch_value"].get("content_block", [])
        for block in blocks:
            if block["block_type"] == 10040:
                thinking.add(block["block_id"])
            elif block["block_type"] == 10000:
                mine = block.get("parent_id") not in thinking
                outcome.add(block["content"]["text_block"]["text"] if mine else "")
        if "text" in data and mine:
            outcome.add(data["text"])
        if data.get("end_type") == 1:
            outcome.id = data["msg_finish_attr"]["msgid"]
        if data.get("end_type") == 3:
            outcome.end = "stop"
    return outcome


def either(cell):
    return {"tencent": tencent, "doubao": doubao}[cell["dialect"]](cell)


main({"lines": either})
