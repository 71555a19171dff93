"""An agent loop that records itself: a session, a turn a question, streamed calls with retries, a tool."""

import json
from typing import Any

import openai

from adapters import logical_call, relay_llm, relay_tools, turn

NUMBERS = {"type": "object", "properties": {"numbers": {"type": "array", "items": {"type": "number"}}}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": NUMBERS}}]


def ask(client: openai.OpenAI, messages: list[Any], tries: int = 3) -> dict[str, Any]:
    request = {"model": "gpt-4o-mini", "messages": messages, "tools": TOOLS, "stream": True}
    with logical_call("openai", api_mode="chat_completions") as call:  # one wanted answer, whatever it takes
        while True:
            answer = relay_llm.ChatStreamAccumulator()
            try:
                chunks = call.stream(request, lambda r: client.chat.completions.create(**r), on_chunk=answer.observe)
                for chunk in chunks:
                    print(chunk.choices[0].delta.content or "", end="", flush=True)
                return answer.response()["choices"][0]["message"]
            except openai.APIError:
                if call.attempts == tries:
                    raise


def agent(client: openai.OpenAI, question: str, session: str) -> str:
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
