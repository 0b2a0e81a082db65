"""LiteLLM's SDK, as its proxy uses it."""

import os

# Use the bundled price list instead of downloading the newest one.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm  # noqa: E402
from drive import QUESTION, Outcome, main, urls  # noqa: E402

litellm.telemetry = False


def completion(cell):
    answer = litellm.completion(
        model="openai/" + cell["model"],
        api_base=cell["base"],
        api_key="none",
        extra_headers=cell["headers"],
        messages=QUESTION,
        num_retries=0,
        stream=not cell["whole"],
    )
    if cell["whole"]:
        choice = answer.choices[0]
        found = urls(getattr(choice.message, "annotations", None))
        return Outcome(choice.message.content, choice.finish_reason, found, answer.id)
    outcome = Outcome(sources=[])
    for chunk in answer:
        outcome.add(chunk.choices[0].delta.content)
        outcome.sources += urls(getattr(chunk.choices[0].delta, "annotations", None))
        outcome.end = chunk.choices[0].finish_reason or outcome.end
        outcome.id = chunk.id
    return outcome


main({"completion": completion}, "litellm", "openai")
