"""Ask another model of the same provider."""

from __future__ import annotations

from dataclasses import dataclass

from adapters.actions.base import Action, Draft, Field


@dataclass(frozen=True)
class SwapModel(Action):
    type = "swap_model"
    title = "Swap the model"
    help = "Which calls it is for is said by the match, e.g. model gpt-4*. Later rules still match the app's model."
    fields = (Field("model", "text", "The model's name at the provider.", required=True),)

    model: str

    def apply(self, draft: Draft) -> Draft:
        if draft.body.get("model") == self.model:
            return draft
        return draft.with_body({**draft.body, "model": self.model})
