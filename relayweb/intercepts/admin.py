"""Intercepts in the admin: the list in running order, the form of each action, history, rollback, import and export."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_GET, require_POST

from adapters.intercepts import ACTIONS, Rule, RuleError
from adapters.json_values import visible
from relayweb.access.permissions import may_edit_intercepts, may_view
from relayweb.intercepts import backtest, changes, effects, publish, transfer, trial
from relayweb.intercepts.forms import ConfigForm, one_or_more
from relayweb.intercepts.models import InterceptConfig, Revision, StaleError, Value
from relayweb.recording.reading.query_language import QueryError

LIST = "admin:intercepts_interceptconfig_changelist"
CHANGE = "admin:intercepts_interceptconfig_change"


class Page(TemplateResponse):
    """A page that may show half characters, which were stored before they were refused."""

    @property
    def rendered_content(self) -> str:
        return visible(super().rendered_content)


@admin.register(InterceptConfig)
class InterceptConfigAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Every page but the delete confirmation is our own: a change here is a publication, not a row that is saved."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may_view(request.user)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_view(request.user)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may_edit_intercepts(request.user)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_edit_intercepts(request.user)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_edit_intercepts(request.user)

    def delete_model(self, request: HttpRequest, obj: InterceptConfig) -> None:
        obj.withdraw(author(request))

    def get_urls(self) -> list[URLPattern]:
        def route(at: str, view: Any, name: str, *, edits: bool = False) -> URLPattern:
            checked = require_POST(_editors_only(view)) if edits else require_GET(view)
            made: URLPattern = path(at, self.admin_site.admin_view(checked), name=f"intercepts_interceptconfig_{name}")
            return made

        own = [
            route("fields/", self.fields_view, "fields"),
            route("rule/<str:key>/", self.rule_view, "rule"),
            route("export/<str:form>/", self.export_view, "export"),
            path("import/", self.admin_site.admin_view(self.import_view), name="intercepts_interceptconfig_import"),
            route("back-test/", self.back_test_view, "back_test", edits=True),
            route("<int:pk>/discard-draft/", self.discard_draft_view, "discard_draft", edits=True),
            route("reorder/", self.reorder_view, "reorder", edits=True),
            route("<int:pk>/toggle/", self.toggle_view, "toggle", edits=True),
            route("<int:pk>/roll-back/<int:number>/", self.roll_back_view, "roll_back", edits=True),
        ]
        return own + super().get_urls()

    def page(self, request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
        everywhere = self.admin_site.each_context(request)
        may_edit = may_edit_intercepts(request.user)
        return Page(request, f"intercepts/{template}", {**everywhere, "title": title, "may_edit": may_edit, **context})

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        configs = list(InterceptConfig.objects.all())
        did = effects.of_last_day()
        newest = {r.key: r for r in Revision.objects.filter(config__isnull=False).order_by("number")}
        unusable = publish.unusable()
        rows = [
            {
                "config": config,
                "action": ACTIONS[config.action_type].title if config.action_type in ACTIONS else config.action_type,
                "effect": did.get(config.key) or effects.Effect(),
                "newest": newest.get(config.key),
                "unusable": unusable.get(config.key, ""),
                "match": match_words(config.match),
            }
            for config in configs
        ]
        return self.page(request, "list.html", "Intercepts", rows=rows)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: Any = None,
    ) -> HttpResponse:
        config = self.get_object(request, object_id) if object_id else None
        if object_id and config is None:
            raise Http404(f"There is no intercept {object_id}.")
        if request.method == "POST":
            if not may_edit_intercepts(request.user):
                raise PermissionDenied
            form = ConfigForm(request.POST, config=config)
            if form.is_valid():
                try:
                    saved = self.keep(request, config, form)
                    return redirect(CHANGE, saved.pk)
                except StaleError:
                    config = InterceptConfig.objects.filter(pk=config.pk).first() if config else None
                    return self.form_page(request, config, form, read=request.POST["stamp"])
        else:
            form = ConfigForm(config=config, action_type=request.GET.get("action_type", ""))
        return self.form_page(request, config, form)

    def keep(self, request: HttpRequest, config: InterceptConfig | None, form: ConfigForm) -> InterceptConfig:
        """Keep or publish what the form holds, and say so; raises StaleError."""
        stamp = request.POST.get("stamp")
        if "save_draft" in request.POST:
            saved = InterceptConfig.keep_draft(form.value, author(request), stamp=stamp)
            stays = f"r{saved.revision} stays in force" if saved.revision else "nothing is in force yet"
            messages.success(request, f"The draft of {saved.key} is kept; {stays}.")
            return saved
        saved = InterceptConfig.publish(form.value, author(request), form.cleaned_data["note"], stamp=stamp)
        saved.drop_draft()
        fresh = config is None or saved.revision != config.revision
        messages.success(request, f"r{saved.revision} of {saved.key} is in force." if fresh else "Nothing changed.")
        return saved

    def form_page(
        self, request: HttpRequest, config: InterceptConfig | None, form: ConfigForm, *, read: str | None = None
    ) -> TemplateResponse:
        """The form; `read` is the stamp it was opened with, where a save was refused because that is past."""
        return self.page(
            request,
            "form.html",
            config.title if config else "New intercept",
            config=config,
            form=form,
            stamp=config.stamp if config else InterceptConfig().stamp,
            stale=changes.since(config, read) if read is not None else None,
            next_number=(config.revision if config else 0) + 1,
            history=history(config) if config else [],
            draft_changes=changes.between(config.value(), config.draft) if config and config.draft else [],
            effect=(effects.of_last_day(config.key).get(config.key) or effects.Effect()) if config else None,
            neighbours=neighbours(config),
            unusable=publish.unusable().get(config.key, "") if config else "",
            limits=backtest.LIMITS,
            limit=backtest.LIMIT,
        )

    def fields_view(self, request: HttpRequest) -> HttpResponse:
        """The fields of one action, for the form when another is chosen."""
        form = ConfigForm(action_type=request.GET.get("action_type", ""))
        return TemplateResponse(request, "intercepts/_action.html", {"form": form})

    def back_test_view(self, request: HttpRequest) -> HttpResponseBase:
        """What the draft in the form would do to recorded requests, told as it goes; nothing is saved."""
        config = InterceptConfig.objects.filter(key=request.POST.get("config", "")).first()
        form = ConfigForm(request.POST, config=config)
        context: dict[str, Any] = {"form": form, "q": request.POST.get("back_test_q", "").strip()}

        def page(report: backtest.Report) -> str:
            drawn = {**context, "report": report, "bars": bars(report.durations)}
            return render_to_string("intercepts/_backtest.html", drawn, request)

        asked = request.POST.get("back_test_limit", "")
        limit = int(asked) if asked in map(str, backtest.LIMITS) else backtest.LIMIT
        if form.is_valid():
            try:
                return trial.answer(backtest.steps(form.value, q=context["q"], limit=limit), page)
            except QueryError as error:
                context["query_error"] = error.message
        return TemplateResponse(request, "intercepts/_backtest.html", context)

    def rule_view(self, request: HttpRequest, key: str) -> HttpResponse:
        """Where a recorded rewrite links to: the config of that key, or what is left of it."""
        config = InterceptConfig.objects.filter(key=key).first()
        if config is not None:
            number = request.GET.get("r", "")
            return redirect(reverse(CHANGE, args=[config.pk]) + (f"#r{number}" if number.isdecimal() else ""))
        revisions = with_changes(Revision.objects.filter(key=key))
        if not revisions:
            raise Http404(f"No intercept was ever called {key}.")
        return self.page(request, "deleted.html", key, key=key, history=revisions)

    def export_view(self, request: HttpRequest, form: str) -> HttpResponse:
        if form not in ("toml", "json"):
            raise Http404("Intercepts are exported as toml or json.")
        try:
            text = transfer.dump((c.value() for c in InterceptConfig.published()), cast(transfer.Format, form))
        except transfer.FileError as error:
            messages.error(request, str(error))
            return redirect(LIST)
        answer = HttpResponse(text, content_type=f"application/{form}; charset=utf-8")
        answer["Content-Disposition"] = f'attachment; filename="intercepts.{form}"'
        return answer

    def import_view(self, request: HttpRequest) -> HttpResponse:
        if not may_edit_intercepts(request.user):
            raise PermissionDenied
        text, problems = request.POST.get("text", ""), []
        if request.method == "POST":
            try:
                if upload := request.FILES.get("file"):
                    text = upload.read().decode("utf-8")
                values = transfer.load(text)
                changed = transfer.apply(values, author(request), "imported")
                messages.success(request, f"{changed} of {len(values)} intercepts changed and are in force.")
                return redirect(LIST)
            except UnicodeDecodeError as error:
                problems = [f"The file is not UTF-8 text: byte {error.start} cannot be read."]
            except transfer.FileError as error:
                problems = error.problems
        return self.page(request, "import.html", "Import intercepts", text=text, problems=problems)

    def reorder_view(self, request: HttpRequest) -> HttpResponse:
        """Give the configs the order of the posted keys; each keeps its priority where the order allows."""
        configs = {config.key: config for config in InterceptConfig.published()}
        keys = [key for key in request.POST.getlist("key") if key in configs]
        keys += [key for key in configs if key not in keys]
        floor: int | None = None
        for key in keys:
            config = configs[key]
            priority = config.priority if floor is None or config.priority > floor else floor + 10
            if priority != config.priority:
                InterceptConfig.publish({**config.value(), "priority": priority}, author(request), "reordered")
            floor = priority
        return redirect(LIST)

    def discard_draft_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        config = get_object_or_404(InterceptConfig, pk=pk)
        config.drop_draft()
        messages.success(request, f"The draft of {config.key} is gone.")
        return redirect(CHANGE, pk) if config.revision else redirect(LIST)

    def toggle_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        config = get_object_or_404(InterceptConfig.published(), pk=pk)
        on = request.POST.get("enabled") == "true"
        saved = InterceptConfig.publish({**config.value(), "enabled": on}, author(request))
        messages.success(request, f"{saved.key} is {'enabled' if on else 'disabled'}, r{saved.revision}.")
        return redirect(request.POST.get("next") == "form" and reverse(CHANGE, args=[pk]) or LIST)

    def roll_back_view(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        config = get_object_or_404(InterceptConfig, pk=pk)
        revision = get_object_or_404(Revision, key=config.key, number=number, value__isnull=False)
        value = cast(Value, revision.value)
        try:
            Rule.check(value)
        except RuleError as error:
            messages.error(request, f"r{number} cannot come back as it was: {error}")
            return redirect(CHANGE, pk)
        saved = InterceptConfig.publish(value, author(request), f"rolled back to r{number}")
        messages.success(request, f"r{number} is back in force, as r{saved.revision}.")
        return redirect(CHANGE, pk)


def author(request: HttpRequest) -> str:
    return request.user.get_username()


def _editors_only(view: Any) -> Any:
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not may_edit_intercepts(request.user):
            raise PermissionDenied
        return cast(HttpResponseBase, view(request, *args, **kwargs))

    return checked


def with_changes(revisions: Any) -> list[dict[str, Any]]:
    """Revisions, newest first, each with what it changed against the one before it."""
    newest_first = list(revisions.order_by("-number"))
    older: list[Revision | None] = [*newest_first[1:], *([None] if newest_first else [])]
    return [
        {
            "revision": revision,
            "summary": changes.summary(before.value if before else None, revision.value),
            "changes": changes.between(before.value if before else None, revision.value) if before else [],
        }
        for revision, before in zip(newest_first, older, strict=True)
    ]


def history(config: InterceptConfig) -> list[dict[str, Any]]:
    return with_changes(Revision.objects.filter(key=config.key))


def neighbours(config: InterceptConfig | None) -> str:
    """Between which others the config runs, in words."""
    if config is None:
        return ""
    others = list(InterceptConfig.objects.exclude(pk=config.pk).filter(enabled=True))
    before = [o for o in others if (o.priority, o.key) < (config.priority, config.key)]
    after = [o for o in others if (o.priority, o.key) > (config.priority, config.key)]
    if before:
        return f"After {before[-1].key} ({before[-1].priority})"
    return f"Before {after[0].key} ({after[0].priority})" if after else ""


def bars(durations: list[float], columns: int = 20) -> list[dict[str, float]]:
    """How long the runs took, as columns of a 200 × 32 drawing; the slowest twentieth is left out of the scale."""
    ordered = sorted(durations)
    if len(ordered) < 2:
        return []
    scale = ordered[int(len(ordered) * 0.95) - 1] * 1.25 or 1.0
    counts = [0] * columns
    for us in ordered:
        counts[min(columns - 1, int(us / scale * columns))] += 1
    most = max(counts)
    return [
        {"x": i * 10, "y": round(32 - 31 * count / most, 1), "height": round(31 * count / most, 1)}
        for i, count in enumerate(counts)
        if count
    ]


def match_words(match: dict[str, Any]) -> str:
    """A match in one line: `model claude-* · role primary · 25 %`; "every call" when nothing narrows it."""
    words = []
    for name, item in match.items():
        if name == "stream":
            words.append("streamed" if item else "buffered")
        elif name == "sample":
            words.append(f"{item:g} %")
        elif item:
            words.append(f"{name.replace('call_role', 'role').replace('_', ' ')} {', '.join(one_or_more(item))}")
    return " · ".join(words) or "every call"
