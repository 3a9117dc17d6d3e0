"""The chat template: the plain one that is written into a bundle, and rows that name a template."""

import posixpath
from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, File, Json, in_every_plan
from tunec.schemas.models.chat_templates import PLAIN, PLAIN_WITH_MARKS
from tunec.schemas.terms import PLAIN_TEMPLATE

NAME: Final = "chat_template.jinja"


def plain_template(
    when: Callable[[Plan], bool] = in_every_plan, *, marks_answers: bool = False
) -> File:
    """The file of the plain template, in the plans of `when` that have it.

    `marks_answers`: its program finds answers by transformers' marks (trl 1.16.0
    trainer/sft_trainer.py `assistant_only_loss`).
    """
    text = PLAIN_WITH_MARKS if marks_answers else PLAIN
    return File(
        name=NAME,
        format="text",
        entries=(),
        recognise=lambda _: False,
        when=lambda plan: when(plan) and plan.data.chat_template == PLAIN_TEMPLATE,
        render=lambda _values, _header: text,
        parse=lambda _: {},
    )


def template_path(plan: Plan, target: str) -> str | None:
    """The path of a plan's template, as its program sees it from the root of the bundle."""
    said = plan.data.chat_template
    return posixpath.join(target, NAME) if said == PLAIN_TEMPLATE else said


def template_named(path: Json, target: str) -> Mapping[str, Any]:
    """The slot's value for a path of a template; a name on the Hub is no file, and has none."""
    if not isinstance(path, str) or not path.endswith(_JINJA):
        return {}
    is_plain = path == posixpath.join(target, NAME)
    return {"data.chat_template": PLAIN_TEMPLATE if is_plain else path}


_JINJA: Final = (".jinja", ".j2")


def template_row(
    key: str,
    target: str,
    source: str,
    *,
    since: str | None = None,
    when: Callable[[Plan], bool] = in_every_plan,
    package: str = "",
) -> Entry:
    """The row of a key that holds the path of a template."""

    def write(plan: Plan) -> Mapping[str, Json]:
        path = template_path(plan, target)
        return {} if path is None else {key: path}

    return Entry(
        (key,),
        ("data.chat_template",),
        write,
        lambda found: template_named(found[key], target),
        source,
        since=since,
        absent=((ALWAYS, {"data.chat_template": None}),),
        when=when,
        package=package,
        yields=True,
    )
