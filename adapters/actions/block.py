"""Refuse a call."""

from __future__ import annotations

from dataclasses import dataclass

from adapters.actions.base import Action, Block, Draft, Field


@dataclass(frozen=True)
class BlockCall(Action):
    type = "block"
    title = "Block the call"
    help = "The provider is not called; the app gets an error with this message."
    fields = (Field("message", "textarea", "What the app is told.", required=True),)

    message: str

    def apply(self, draft: Draft) -> Draft:
        return draft.but(effect=Block(self.message))
