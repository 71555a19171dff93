"""The copy of a body that Relay carries, and how Relay's native codec sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nemo_relay

from adapters.json_values import frozen, overlay


class Carried:
    """A body as Relay carries it: escaped and redacted.

    `native` is a codec of Relay, None for a wire format Relay does not know. Relay converts slowly (20 µs a KB), so
    each copy is given to it once, and not before somebody asks.
    """

    __slots__ = (
        "_annotation",
        "_compared",
        "_decoded",
        "_frozen",
        "_headers",
        "_native",
        "_request",
        "_seen",
        "body",
        "exact",
    )

    def __init__(self, native: Any | None, body: dict[str, Any], headers: Mapping[str, Any]) -> None:
        self.body = body
        self.exact = True  # whether the annotation says what the body says
        self._native = native
        self._headers = headers
        self._request: nemo_relay.LLMRequest | None = None
        self._frozen: bytes | None = None
        self._compared: Any = None  # the last value that was found to be this body
        self._seen: nemo_relay.LLMRequest | None = None  # what the annotation was decoded from
        self._annotation: Any | None = None
        self._decoded = native is None

    @property
    def annotation(self) -> Any | None:
        """The body as the native codec sees it, None where it refuses it."""
        if not self._decoded:
            self._decode(self.request(self._headers))
            if self._annotation is None and any(v is None for v in self.body.values()):
                # The codecs refuse `tools: null` and the like (R69).
                self._decode(nemo_relay.LLMRequest({}, {k: v for k, v in self.body.items() if v is not None}))
        return self._annotation

    def _decode(self, seen: nemo_relay.LLMRequest) -> None:
        assert self._native is not None
        self._seen, self._decoded = seen, True
        try:
            self._annotation = self._native.decode(seen)
        except Exception:  # the codec refuses real bodies; the call then runs without one
            self._annotation = None

    def stand_in(self, empty: Mapping[str, Any]) -> None:
        """Gives a body that the codec cannot hold an annotation that says nothing, where Relay insists on one.

        `empty` is a body without content that the codec takes.
        """
        model = self.body.get("model")
        self.exact = False
        self._decode(nemo_relay.LLMRequest({}, {**empty, "model": model if isinstance(model, str) else ""}))

    def request(self, headers: Mapping[str, Any]) -> nemo_relay.LLMRequest:
        """Relay's request with this body."""
        if self._request is None:
            self._headers, self._request = headers, nemo_relay.LLMRequest(headers, self.body)
        if headers == self._headers:
            return self._request
        return nemo_relay.LLMRequest(headers, self.body)

    def says(self, content: Any) -> bool:
        """Whether `content`, from Relay, is this body."""
        if content is self.body or content is self._compared:
            return True
        if frozen(content) != self.frozen:
            return False
        self._compared = content
        return True

    @property
    def frozen(self) -> bytes:
        """The body as canonical bytes."""
        if self._frozen is None:
            self._frozen = frozen(self.body)
        return self._frozen

    def readdressed(self, annotation: Any, original: nemo_relay.LLMRequest) -> nemo_relay.LLMRequest | None:
        """This body under the headers of `original`, without converting it; None where the codec makes another body.

        Relay puts headers of its own between our intercept and `encode`, below an Agent scope.
        """
        if self._native is None or not self.exact or original.headers == self._headers:
            return None
        request: nemo_relay.LLMRequest = self._native.encode(annotation, original)
        return request if self.says(request.content) else None

    def changed_by(self, annotation: Any) -> dict[str, Any]:
        """The body with the difference between `annotation` and ours laid over it; `body` itself when there is none.

        The difference is taken from what the codec makes of our own annotation, never from the body (R70). Raises where
        the codec fails, or cannot say what a change means for a body it does not hold.
        """
        got = self._encoded(annotation)
        if self.exact and self.says(got):
            return self.body
        base = self._encoded(self.annotation)
        if frozen(got) == frozen(base):
            return self.body
        if not self.exact:
            raise ValueError("the rules made a body that the codec does not hold")
        changed: dict[str, Any] = overlay(self.body, base, got)
        return changed

    def _encoded(self, annotation: Any) -> dict[str, Any]:
        assert self._native is not None
        content = self._native.encode(annotation, self._seen).content
        if not isinstance(content, dict):
            raise TypeError(f"the codec gave {type(content).__name__}, not an object")
        return content
