"""Replace what a regular expression matches in the texts of chosen roles."""

from __future__ import annotations

import time
from dataclasses import dataclass

import regex

from adapters.actions.base import Action, Draft, Field, RuleError
from adapters.actions.patterns import check, compiled
from adapters.actions.texts import ROLES, change_texts

TIME_LIMIT_S = 0.25  # for one call, all its texts together


@dataclass(frozen=True)
class RegexReplace(Action):
    type = "regex_replace"
    title = "Replace text"
    help = "Works on texts, not on tool arguments or reasoning. All texts of a call together have 250 ms."
    fields = (
        Field("pattern", "text", "A regular expression (Python's, with possessive quantifiers).", True, check=check),
        Field("replacement", "textarea", r"What to put there; \1 or \g<name> is a group.", default=""),
        Field("roles", "list", "Whose texts.", default=ROLES, choices=ROLES),
        Field("ignore_case", "bool", "Upper and lower case alike.", default=False),
    )

    pattern: str
    replacement: str = ""
    roles: tuple[str, ...] = ROLES
    ignore_case: bool = False

    def __post_init__(self) -> None:
        if not self.roles:
            raise RuleError("roles", "choose at least one role")
        object.__setattr__(self, "_compiled", compiled(self.pattern, ignore_case=self.ignore_case))
        try:
            # A template is only read when something matches: the same groups, and nothing as an alternative.
            regex.compile(f"{self.pattern}\n|").sub(self.replacement, "")
        except (regex.error, IndexError, ValueError) as error:
            raise RuleError("replacement", f"does not fit the pattern: {error}") from None

    def apply(self, draft: Draft) -> Draft:
        pattern: regex.Pattern[str] = self._compiled  # type: ignore[attr-defined]
        deadline = time.monotonic() + TIME_LIMIT_S

        def change(text: str) -> str:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the pattern took more than {TIME_LIMIT_S:g} s")
            return pattern.sub(self.replacement, text, timeout=left)

        return draft.with_body(change_texts(draft.body, draft.facts.api_mode, self.roles, change))
