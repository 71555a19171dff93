"""The actions a rule can have: one small module each, one face (`adapters.actions.base.Action`)."""

from __future__ import annotations

from adapters.actions.base import Action
from adapters.actions.block import BlockCall
from adapters.actions.headers import Headers
from adapters.actions.parameters import RemoveParameters, SetParameters
from adapters.actions.redact import Redact
from adapters.actions.system_text import SystemText

ACTIONS: dict[str, type[Action]] = {
    action.type: action for action in (SetParameters, RemoveParameters, SystemText, Headers, Redact, BlockCall)
}
