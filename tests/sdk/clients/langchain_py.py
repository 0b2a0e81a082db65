"""LangChain's ChatOpenAI. It drops the annotations and the id of a streamed chat completion."""

from drive import Outcome, main
from langchain_openai import ChatOpenAI


def chat(cell):
    model = ChatOpenAI(
        model=cell["model"],
        base_url=cell["base"],
        api_key="none",
        default_headers={**cell["headers"], "x-task-id": cell["task"]},
        max_retries=0,
        use_responses_api=False,
    )
    outcome, message = Outcome(), None
    if cell["whole"]:
        message = model.invoke("hello")
        outcome.add(message.text)
    else:
        for chunk in model.stream("hello"):
            outcome.add(chunk.text)
            message = chunk if message is None else message + chunk
    outcome.end = message.response_metadata.get("finish_reason")
    return outcome


main({"chat": chat}, "langchain-openai", "openai")
