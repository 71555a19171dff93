"""The form of a config. Its fields are drawn from what the rule and its action say of themselves (adapters.intercepts).

What people type becomes plain data and is judged by Rule.check alone, so the form, an import and a file in a repository
are checked by the same code and fail with the same words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django import forms

from adapters.actions.base import Field as Spec
from adapters.intercepts import ACTIONS, Rule, RuleError
from relayweb.intercepts.models import InterceptConfig, Value

LABELS = {"pii": "Personal data", "delay_s": "Delay"}
API_MODES = ("chat_completions", "codex_responses", "anthropic_messages")


def to_text(kind: str, value: Any) -> Any:
    """A stored value as it stands in the form; the inverse of `from_text`."""
    if value is None:
        return False if kind == "bool" else ""
    if kind == "list":
        return "\n".join(one_or_more(value))
    if kind == "mapping":
        return "\n".join(f"{name}: {text}" for name, text in value.items())
    if kind == "json_object":
        return "\n".join(f"{name}: {_loose(item)}" for name, item in value.items())
    if kind == "json":
        return json.dumps(value, indent=2, ensure_ascii=False)
    if kind == "number" and float(value).is_integer():
        return int(value)
    return value


def from_text(kind: str, text: str) -> Any:
    """What was typed as plain data; None when nothing was.

    Raises:
        ValueError: says what is wrong, with the line where there are several.
    """
    if kind in ("text", "textarea"):
        return text.replace("\r\n", "\n") or None
    text = text.strip()
    if not text:
        return None
    if kind == "integer":
        try:
            return int(text.replace(" ", ""))
        except ValueError:
            raise ValueError("Whole number, for example 30") from None
    if kind == "number":
        try:
            return float(text.replace(",", "."))
        except ValueError:
            raise ValueError("Number, for example 12.5") from None
    if kind == "list":
        return [line.strip() for line in _split(text) if line.strip()]
    if kind == "json":
        return _json(text)
    if kind == "json_object" and text.startswith("{"):
        return _json(text)
    if kind in ("mapping", "json_object"):
        return _lines(text, strict=kind == "mapping")
    return text


def _split(text: str) -> list[str]:
    """Lines as a textarea sends them; str.splitlines would also cut at characters that values may hold."""
    return text.replace("\r\n", "\n").split("\n")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"Not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None


def _lines(text: str, *, strict: bool) -> dict[str, Any]:
    """`name: value` lines; unless strict a value that is JSON is taken as such, any other as text."""
    found: dict[str, Any] = {}
    for number, line in enumerate(_split(text), 1):
        if not line.strip():
            continue
        name, colon, rest = line.partition(":")
        name, rest = name.strip(), rest.strip()
        if not colon or not name:
            raise ValueError(f"Line {number}: write name: value")
        if name in found:
            raise ValueError(f"Line {number}: {name} stands there twice")
        if strict:
            found[name] = rest
            continue
        try:
            found[name] = json.loads(rest)
        except json.JSONDecodeError:
            if rest[:1] in ("{", "[", '"'):
                raise ValueError(f"Line {number}: the value of {name} is not JSON") from None
            found[name] = rest
    return found


def _loose(item: Any) -> str:
    """A value so that `_lines` reads the same again: text stands bare unless it would read as JSON."""
    bare = isinstance(item, str) and not {"\n", "\r"} & set(item) and item == item.strip()
    if bare and item[:1] not in ("{", "[", '"'):
        try:
            json.loads(item)
        except json.JSONDecodeError:
            return str(item)
    return json.dumps(item, ensure_ascii=False)


def _widget(spec: Spec) -> forms.Widget:
    if spec.kind == "list":
        return forms.Textarea(attrs={"class": "textarea mono", "rows": 2, "placeholder": "one a line"})
    if spec.kind in ("mapping", "json_object"):
        return forms.Textarea(attrs={"class": "textarea mono", "rows": 3, "placeholder": "name: value"})
    if spec.kind in ("textarea", "json"):
        return forms.Textarea(attrs={"class": "textarea mono", "rows": 4})
    if isinstance(spec.default, str) and "\n" in spec.default:
        return forms.Textarea(attrs={"class": "textarea mono", "rows": 2})
    numeric = {"inputmode": "decimal"} if spec.kind in ("integer", "number") else {}
    return forms.TextInput(attrs={"class": "input mono", **numeric})


def form_field(spec: Spec) -> forms.Field:
    """The form field that shows one value of an action."""
    label = LABELS.get(spec.name) or spec.name.replace("_", " ").capitalize()
    initial = to_text(spec.kind, spec.default)
    if spec.kind == "bool":
        return forms.BooleanField(label=label, help_text=spec.help, required=False, initial=initial)
    if spec.choices and spec.kind == "list":
        return forms.MultipleChoiceField(
            label=label,
            help_text=spec.help,
            required=False,
            initial=list(spec.default or ()),
            choices=[(c, c.replace("_", " ")) for c in spec.choices],
            widget=forms.CheckboxSelectMultiple,
        )
    if spec.choices:
        few = len(spec.choices) <= 4
        return forms.ChoiceField(
            label=label,
            help_text=spec.help,
            required=False,
            initial=spec.default or spec.choices[0],
            choices=[(c, c.replace("_", " ").capitalize()) for c in spec.choices],
            widget=forms.RadioSelect if few else forms.Select(attrs={"class": "select"}),
        )
    # Stripping would take the spaces and newlines that a separator or a system text is made of.
    return forms.CharField(
        label=label, help_text=spec.help, required=False, initial=initial, widget=_widget(spec), strip=False
    )


def _glob_field(label: str, help_text: str = "") -> forms.CharField:
    widget = forms.TextInput(attrs={"class": "input mono", "placeholder": "any"})
    return forms.CharField(label=label, required=False, help_text=help_text, widget=widget)


class ConfigForm(forms.Form):
    """A config as people edit it. After `is_valid`, `value` is what InterceptConfig.publish takes."""

    title = forms.CharField(label="Title", max_length=120, widget=forms.TextInput(attrs={"class": "input"}))
    key = forms.CharField(label="Key", max_length=64, widget=forms.TextInput(attrs={"class": "input mono"}))
    enabled = forms.BooleanField(label="Enabled", required=False, initial=True)
    match_profile = _glob_field("Profile")
    match_provider = _glob_field("Provider")
    match_model = _glob_field("Model")
    match_call_role = _glob_field("Call role")
    match_api_mode = forms.ChoiceField(
        label="API mode",
        required=False,
        choices=[("", "any"), *((mode, mode) for mode in API_MODES)],
        widget=forms.Select(attrs={"class": "select"}),
    )
    match_stream = forms.ChoiceField(
        label="Stream",
        required=False,
        choices=[("", "either"), ("true", "streamed only"), ("false", "buffered only")],
        widget=forms.Select(attrs={"class": "select"}),
    )
    match_session = _glob_field("Session")
    match_sample = forms.CharField(
        label="Sample",
        required=False,
        initial="100",
        help_text="The same sessions each time.",
        widget=forms.TextInput(attrs={"class": "input mono", "inputmode": "decimal"}),
    )
    action_type = forms.ChoiceField(label="What it does", widget=forms.Select(attrs={"class": "select"}))
    mode = forms.ChoiceField(
        label="Mode", choices=InterceptConfig.Mode.choices, initial="shadow", widget=forms.RadioSelect
    )
    priority = forms.CharField(
        label="Priority", initial="100", widget=forms.TextInput(attrs={"class": "input mono", "inputmode": "numeric"})
    )
    on_error = forms.ChoiceField(
        label="When it fails",
        choices=InterceptConfig.OnError.choices,
        initial="open",
        help_text="Open sends the request without it. Closed blocks the call.",
        widget=forms.RadioSelect,
    )
    break_chain = forms.BooleanField(label="Stop the chain on a hit", required=False)
    note = forms.CharField(
        label="Note",
        required=False,
        max_length=200,
        help_text="Why, for those who read the history.",
        widget=forms.TextInput(attrs={"class": "input"}),
    )

    value: Value

    def __init__(self, *args: Any, config: InterceptConfig | None = None, action_type: str = "", **kwargs: Any) -> None:
        self.config = config
        if config is not None:
            kwargs["initial"] = {**initial(config.draft or config.value()), **kwargs.get("initial", {})}
        super().__init__(*args, **kwargs)
        choice = self.fields["action_type"]
        assert isinstance(choice, forms.ChoiceField)
        choice.choices = [(name, action.title) for name, action in ACTIONS.items()]
        chosen = self.data.get("action_type") if self.is_bound else action_type or self.initial.get("action_type")
        self.action = ACTIONS.get(str(chosen or ""), next(iter(ACTIONS.values())))
        self.initial["action_type"] = self.action.type
        # Templates would call the class.
        self.action_name, self.action_help = self.action.type, self.action.help
        for spec in self.action.fields:
            self.fields[f"action_{spec.name}"] = form_field(spec)
        if config is not None:
            self.fields["key"].disabled = True

    def action_fields(self) -> list[forms.BoundField]:
        return [self[f"action_{spec.name}"] for spec in self.action.fields]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        value: Value = {
            "key": data.get("key", ""),
            "title": data.get("title", ""),
            "enabled": bool(data.get("enabled")),
            "mode": data.get("mode", "shadow"),
            "priority": self._typed("priority", "integer", data),
            "break_chain": bool(data.get("break_chain")),
            "on_error": data.get("on_error", "open"),
            "match": self._match(data),
            "action": self._action(data),
        }
        if self.config is None and InterceptConfig.objects.filter(key=value["key"]).exists():
            self.add_error("key", "This key is taken; a key names one intercept for ever.")
        try:
            InterceptConfig(**value).clean_fields(exclude=["revision", "match", "action", *self.errors])
        except forms.ValidationError as error:
            for name, messages in error.message_dict.items():
                self.add_error(name if name in self.fields else None, messages)
        if self.errors:
            return data
        try:
            Rule.check(value)
        except RuleError as error:
            self.add_error(self.field_for(error.field), sentence(error.message))
        self.value = value
        return data

    def field_for(self, place: str) -> str | None:
        """The form field that a RuleError names, as in "action.parameters"; None for the form as a whole."""
        name = place.replace(".", "_", 1)
        return name if name in self.fields else None

    def _typed(self, name: str, kind: str, data: dict[str, Any]) -> Any:
        typed = data.get(name)
        if not isinstance(typed, str):
            return typed
        try:
            return from_text(kind, typed)
        except ValueError as error:
            self.add_error(name, str(error))
            return None

    def _match(self, data: dict[str, Any]) -> dict[str, Any]:
        match: dict[str, Any] = {}
        for name in ("profile", "provider", "model", "call_role", "api_mode", "session"):
            if globs := [glob for glob in data.get(f"match_{name}", "").replace(",", " ").split() if glob]:
                match[name] = globs
        if data.get("match_stream"):
            match["stream"] = data["match_stream"] == "true"
        sample = self._typed("match_sample", "number", data)
        if sample is not None and sample != 100:
            match["sample"] = sample
        return match

    def _action(self, data: dict[str, Any]) -> dict[str, Any]:
        action: dict[str, Any] = {"type": self.action.type}
        for spec in self.action.fields:
            item = self._typed(f"action_{spec.name}", spec.kind, data)
            if item is None or item == spec.default or (item == [] and not spec.default):
                continue
            action[spec.name] = item
        return action


def initial(value: Value) -> dict[str, Any]:
    """The form's initial data for a stored value."""
    match, action = value["match"], value["action"]
    data = {name: value[name] for name in ("title", "key", "enabled", "mode", "priority", "break_chain", "on_error")}
    for name in ("profile", "provider", "model", "call_role", "session"):
        data[f"match_{name}"] = " ".join(one_or_more(match.get(name) or []))
    data["match_api_mode"] = next(iter(one_or_more(match.get("api_mode") or [])), "")
    stream = match.get("stream")
    data["match_stream"] = "" if stream is None else "true" if stream else "false"
    data["match_sample"] = to_text("number", match.get("sample", 100))
    data["action_type"] = action.get("type", "")
    kind = ACTIONS.get(data["action_type"])
    for spec in kind.fields if kind else ():
        if spec.name in action:
            choices = spec.kind == "list" and spec.choices
            data[f"action_{spec.name}"] = (
                one_or_more(action[spec.name]) if choices else to_text(spec.kind, action[spec.name])
            )
    return data


def one_or_more(value: str | Iterable[str]) -> list[str]:
    """A list of texts, which files may also give as one text."""
    return [value] if isinstance(value, str) else list(value)


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
