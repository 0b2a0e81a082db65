"""The OpenAI Python SDK: the loop of most tutorials, and the `.stream()` helper."""

import openai
from drive import QUESTION, Outcome, main, urls


def connect(cell):
    return openai.OpenAI(base_url=cell["base"], api_key="none", default_headers=cell["headers"], max_retries=0)


def loop(cell):
    client, outcome, annotations = connect(cell), Outcome(sources=[]), []
    if cell["whole"]:
        return whole(client, cell)
    for chunk in client.chat.completions.create(model=cell["model"], messages=QUESTION, stream=True):
        # Naive on purpose: fails at an empty `choices`.
        outcome.add(chunk.choices[0].delta.content)
        annotations += getattr(chunk.choices[0].delta, "annotations", None) or []
        outcome.end = chunk.choices[0].finish_reason or outcome.end
        outcome.id = chunk.id
    outcome.sources = urls(annotations)
    if cell["marked"]:
        check_ranges(outcome.text, annotations)
    return outcome


def check_ranges(text, annotations):
    """Checks that the text has a marker at each annotation's range (in code points)."""
    for number, annotation in enumerate(annotations, 1):
        cited = annotation["url_citation"]
        marker = text[cited["start_index"] : cited["end_index"]]
        forms = (f"[{number}]", f'<span id="ai-qa-ref">{number}</span>', f"[[{number}]]({cited['url']})")
        if marker not in forms:
            raise ValueError(f"annotation {number} is at {marker!r}")


def whole(client, cell):
    if cell["model"] not in [model.id for model in client.models.list()]:
        raise ValueError("the model is not listed")
    answer = client.chat.completions.create(model=cell["model"], messages=QUESTION)
    choice = answer.choices[0]
    return Outcome(choice.message.content, choice.finish_reason, urls(choice.message.annotations), answer.id)


def helper(cell):
    outcome = Outcome()
    with connect(cell).chat.completions.stream(model=cell["model"], messages=QUESTION) as stream:
        for event in stream:
            if event.type == "content.delta":
                outcome.add(event.delta)
        answer = stream.get_final_completion()
    choice = answer.choices[0]
    if outcome.text != choice.message.content:
        raise ValueError("the helper's events and its final message differ")
    outcome.end, outcome.id = choice.finish_reason, answer.id
    outcome.sources = urls(choice.message.annotations)
    return outcome


main({"loop": loop, "helper": helper}, "openai")
