"""One turn that several processes saw is one turn, and a call of it is one call.

Each process opens a turn scope of its own, with the same session and turn id in its metadata; the calls inside tell the
same request id. The scope that began first stands for all: the others are hidden (`joined_uuid`), and what hangs below
them counts for the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from relayweb.recording.projection.nodes import Node, began

Key = tuple[str, str]

GATEWAY = "gateway"
"""The profile of gateways, who hand turns on to each other."""
CLAUDE_CODE, CODEX, GEMINI_CLI, QWEN_CODE = "claude-code", "codex", "gemini-cli", "qwen-code"
"""The profiles of turns of which each log record tells a piece."""
_IN_PIECES = frozenset((GATEWAY, CLAUDE_CODE, CODEX, GEMINI_CLI, QWEN_CODE))


def end_told_elsewhere(first: Node, inside: Iterable[Node]) -> Node | None:
    """The scope whose end stands for that of `first`, a turn or a call whose own process told none: it was killed.

    A gateway that went on with a turn knows when the whole of it is over. Not so while an attempt runs, or where one
    ended later than that: then `first` is open still. `inside` is everything that its turn counts.
    """
    if first.end_seq is not None or first.joined_uuid is not None or first.profile not in _IN_PIECES:
        return None
    others = [node for node in inside if node.joined_uuid == first.uuid and node.profile == first.profile]
    ended = [(node.end_us, node.uuid, node) for node in others if node.end_seq is not None and node.end_us is not None]
    if not ended:
        return None
    over_us, _, last = max(ended)
    for node in inside:
        counts = node.role == "attempt" and (first.role == "turn" or node.logical_uuid == first.uuid)
        if counts and (node.status == "running" or (node.end_us or 0) > over_us):
            return None
    return last


def turn_key(node: Node) -> Key | None:
    """What a turn scope has in common with the same turn's scopes of other processes."""
    state = node.home_state
    if node.role != "turn" or state is None or state.own_session is None or node.turn_id is None:
        return None
    return state.own_session, node.turn_id


def join_turns(scopes: Iterable[Node], known: Callable[[set[str]], Iterable[Node]]) -> list[Node]:
    """Let turns of one key be one.

    Args:
        scopes: those that may have changed; one of another key than before leaves those it was joined with.
        known: gives all turns on record or in memory that tell one of these turn ids.

    Returns:
        the scopes that are joined to another one than before.
    """
    keys: set[Key] = set()
    left: list[Node] = []
    for node in scopes:
        key = turn_key(node)
        if node.turn_key is not None and key != node.turn_key:
            keys.add(node.turn_key)
        if key is not None:
            keys.add(key)
        elif node.role == "turn" and node.joined_uuid is not None:
            node.joined_uuid = None
            left.append(node)
        node.turn_key = key
    if not keys:
        return left
    groups: dict[Key, dict[bytes, Node]] = {}
    for node in known({turn_id for _, turn_id in keys}):
        key = turn_key(node)
        if key in keys and key is not None:
            groups.setdefault(key, {})[node.uuid] = node
    return left + [node for group in groups.values() for node in _join(group.values())]


def join_calls(inside: Iterable[Node]) -> list[Node]:
    """Let calls of one request id that hang under different scopes of one turn be one; as `join_turns`."""
    groups: dict[str, list[Node]] = {}
    for node in inside:
        if node.role == "logical_call" and node.api_request_id is not None:
            groups.setdefault(node.api_request_id, []).append(node)
    changed = []
    for group in groups.values():
        first: dict[bytes | None, Node] = {}  # one process may use an id again, for another call
        for node in sorted(group, key=_order):
            first.setdefault(node.parent_uuid, node)
        rest = [node for node in group if node not in first.values() and node.joined_uuid is not None]
        for node in rest:
            node.joined_uuid = None
        changed += [*rest, *_join(first.values())]
    return changed


def _join(group: Iterable[Node]) -> list[Node]:
    first, *others = sorted(group, key=_order)
    changed = []
    for node, joined in ((first, None), *((other, first.uuid) for other in others)):
        if node.joined_uuid != joined:
            node.joined_uuid = joined
            changed.append(node)
    return changed


def _order(node: Node) -> tuple[int, bytes]:
    return began(node), node.uuid
