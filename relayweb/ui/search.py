"""The one state of the list: a query in the URL, shown as chips, changed by facets, chips, brush and field alike.

recording.query_language reads a query; this only cuts it into the pieces people see, also when it cannot be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from urllib.parse import urlencode

from relayweb.recording.reading.query_language import MAX_LENGTH, MAX_TERMS

_TERM = re.compile(r'-?[A-Za-z_]+:(?:"[^"]*"?|\S*)|-?"[^"]*"?|\S+')
_FIELD = re.compile(r"(-?[A-Za-z_]+:)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Chip:
    """One term as written, at `start` (0-based) of the query; `field` keeps its colon and minus."""

    text: str
    start: int
    field: str
    value: str
    bad: bool = False
    without: str = ""

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def href(q: str, **more: str) -> str:
    """A link to the list in the state `q`."""
    query = {k: v for k, v in {"q": q, **more}.items() if v}
    return "?" + urlencode(query) if query else "?"


def chips(q: str, bad_column: int | None = None) -> list[Chip]:
    """The terms of a query, of one that is too long those that could be read. The one with `bad_column` is marked.

    Each has a link to all the others, so a page of ten thousand would hold a hundred million.
    """
    found = []
    for match in islice(_TERM.finditer(q[:MAX_LENGTH]), MAX_TERMS + 1):
        named = _FIELD.fullmatch(match[0])
        field, value = (named[1], named[2]) if named else ("", match[0])
        bad = bad_column is not None and match.start() < bad_column <= match.end() + 1
        found.append(Chip(match[0], match.start(), field, value.strip('"') if field else value, bad))
    if bad_column is not None and found and not any(chip.bad for chip in found):
        found[-1] = Chip(**{**found[-1].__dict__, "bad": True})
    return [Chip(**{**chip.__dict__, "without": href(joined(found, leave=i))}) for i, chip in enumerate(found)]


def joined(terms: list[Chip], leave: int | None = None) -> str:
    return " ".join(term.text for i, term in enumerate(terms) if i != leave)


def mended(q: str, column: int, suggestion: str) -> str:
    """The query with the term at `column` (1-based) put as suggested."""
    for chip in chips(q, column):
        if chip.bad:
            return q[: chip.start] + suggestion + q[chip.end :]
    return suggestion


def chosen(q: str, field: str) -> set[str]:
    """The values that `field:a,b` terms of the query name."""
    return {
        value
        for chip in chips(q)
        if chip.field == f"{field}:"
        for value in ([chip.value] if '"' in chip.text else chip.value.split(","))
        if value
    }


def toggled(q: str, field: str, value: str) -> str:
    """The query with one value of a field added (as "or" to the others of that field) or taken out."""
    values = chosen(q, field)
    wanted = values - {value} if value in values else values | {value}
    kept = [chip.text for chip in chips(q) if chip.field != f"{field}:"]
    awkward = [v for v in wanted if re.search(r'[\s,"]', v)]
    # A value that must be quoted cannot stand in a list of alternatives.
    if awkward:
        newest = value if value in awkward else awkward[0]
        kept.append(f'{field}:"{newest.replace(chr(34), "")}"')
    elif wanted:
        kept.append(f"{field}:{','.join(sorted(wanted))}")
    return " ".join(kept)


def term(field: str, value: str) -> str:
    """The term that names this value, quoted where it must be. For a quote inside stands `*`, as none can be said."""
    value = value.replace('"', "*")
    return f'{field}:"{value}"' if re.search(r"[\s,]", value) else f"{field}:{value}"


def with_term(q: str, term: str) -> str:
    """The query with one term, in the place of any other of the same field."""
    field = term.partition(":")[0] + ":"
    return " ".join([*(chip.text for chip in chips(q) if chip.field != field), term])
