"""The actions a rule can have: one small module each, one face (`adapters.actions.base.Action`)."""

from __future__ import annotations

from adapters.actions.base import Action
from adapters.actions.block import BlockCall
from adapters.actions.fault import FaultCall
from adapters.actions.headers import Headers
from adapters.actions.json_patch import JsonPatch
from adapters.actions.parameters import RemoveParameters, SetParameters
from adapters.actions.redact import Redact
from adapters.actions.regex_replace import RegexReplace
from adapters.actions.respond import RespondCall
from adapters.actions.swap_model import SwapModel
from adapters.actions.system_text import SystemText
from adapters.actions.tools import Tools
from adapters.actions.trim_history import TrimHistory

ACTIONS: dict[str, type[Action]] = {
    action.type: action
    for action in (
        SetParameters,
        RemoveParameters,
        SwapModel,
        SystemText,
        RegexReplace,
        Tools,
        TrimHistory,
        JsonPatch,
        Headers,
        Redact,
        BlockCall,
        RespondCall,
        FaultCall,
    )
}
