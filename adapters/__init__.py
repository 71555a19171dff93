"""The relay adapter core: typed Python over NVIDIA NeMo Relay.

For people who write an agent of their own::

    from adapters import record_to, turn, wrap

    record_to("http://127.0.0.1:8000", token)
    client = wrap(openai.OpenAI())
    with turn(session="s1"):
        client.chat.completions.create(...)

Hosts use `adapters.relay_runtime`, `adapters.relay_llm`, `adapters.relay_tools` and `adapters.auxiliary_client`.
"""

from adapters.logical import logical_call
from adapters.sdk_clients import wrap
from adapters.sinks import record_to
from adapters.turns import turn

__all__ = ["logical_call", "record_to", "turn", "wrap"]
