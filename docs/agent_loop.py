"""An agent loop that records itself: a session, a turn a question, streamed calls with retries, a tool."""

import json
import uuid
from typing import Any

import openai

from adapters import relay_llm, relay_tools, turn

MODEL = "gpt-4o-mini"
NUMBERS = {"type": "object", "properties": {"numbers": {"type": "array", "items": {"type": "number"}}}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": NUMBERS}}]


def ask(client: openai.OpenAI, messages: list[Any], tries: int = 3) -> dict[str, Any]:
    """One wanted answer is one logical call; every try is an attempt of it."""
    request = {"model": MODEL, "messages": messages, "tools": TOOLS, "stream": True}
    call = {"api_mode": "chat_completions", "api_request_id": uuid.uuid4().hex}
    for retry in range(tries):
        answer = relay_llm.ChatStreamAccumulator()
        try:
            for chunk in relay_llm.stream_current(
                request,
                lambda outgoing: client.chat.completions.create(**outgoing),
                name="openai",
                model_name=MODEL,
                metadata={**call, "retry_count": retry},
                on_chunk=answer.observe,
                defer_logical_completion=True,  # a try that fails does not end the call
            ):
                print(chunk.choices[0].delta.content or "", end="", flush=True)
        except openai.APIError as error:
            print(f"[{error}]")
            continue
        relay_llm.complete_logical_call(call["api_request_id"], outcome="success")
        return answer.response()["choices"][0]["message"]
    relay_llm.complete_logical_call(call["api_request_id"], outcome="failed")
    raise RuntimeError(f"no answer in {tries} tries")


def agent(client: openai.OpenAI, question: str, session: str) -> str:
    """Answer a question, calling the tool for as long as the model wants it."""
    messages: list[Any] = [{"role": "user", "content": question}]
    with turn(session=session):
        while True:
            messages.append(message := ask(client, messages))
            if not message.get("tool_calls"):
                return message["content"]
            for wish in message["tool_calls"]:
                wanted = json.loads(wish["function"]["arguments"])
                total, _ = relay_tools.execute("add", wanted, lambda a: str(sum(a["numbers"])), tool_call_id=wish["id"])
                messages.append({"role": "tool", "tool_call_id": wish["id"], "content": total})


if __name__ == "__main__":
    agent(openai.OpenAI(max_retries=0), "What is 19 + 23? Use the tool.", session="sums")
