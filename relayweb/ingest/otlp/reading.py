"""What a span says, in ATOF's terms."""

from __future__ import annotations

from typing import Any

import msgspec

from relayweb.recording.conventions.attributes import without_none
from relayweb.recording.conventions.chat import Call


class Reading(msgspec.Struct):
    """What one vocabulary reads out of a span; None is what it does not say."""

    category: str | None = None
    name: str | None = None
    start_data: Any = None
    end_data: Any = None
    start_metadata: dict[str, Any] = {}
    end_metadata: dict[str, Any] = {}
    start_profile: dict[str, Any] = {}
    end_profile: dict[str, Any] = {}
    streaming: bool = False
    used: frozenset[str] = frozenset()
    """Attributes that went into the members above; the others are kept as metadata."""

    def over(self, other: Reading) -> Reading:
        """This reading, and the other one where this says nothing."""
        return Reading(
            category=self.category or other.category,
            name=self.name or other.name,
            start_data=other.start_data if self.start_data is None else self.start_data,
            end_data=other.end_data if self.end_data is None else self.end_data,
            start_metadata={**other.start_metadata, **self.start_metadata},
            end_metadata={**other.end_metadata, **self.end_metadata},
            start_profile={**other.start_profile, **self.start_profile},
            end_profile={**other.end_profile, **self.end_profile},
            streaming=self.streaming or other.streaming,
            used=self.used | other.used,
        )

    def tell(self, call: Call, *, first_chunk: Any = None) -> None:
        """Make this the reading of a call. `first_chunk`: seconds until the first chunk."""
        self.category = "llm"
        self.start_data = {"content": call.request(), "headers": {}}
        if call.answers or call.usage:
            self.end_data = call.answer()
        self.start_metadata["api_mode"] = self.end_metadata["api_mode"] = "chat_completions"
        self.start_profile = without_none({"model_name": call.model})
        self.end_profile = without_none({"model_name": call.model, "time_to_first_chunk": first_chunk})
