"""Chat templates, rendered like transformers renders them.

transformers 5.23.0 utils/chat_template_utils.py `_compile_jinja_template`: an immutable sandbox,
trimmed blocks, loop controls, the tag `generation`, and a few functions. Templates get a fixed
date, so that lengths are the same on every day.
"""

import json
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from tunec.compiler.dataset.files import EXTRA, Unread
from tunec.compiler.dataset.forms import Chat, RecordNotOfForm
from tunec.compiler.diagnostics.wording import shortened

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment

_DAY: Final = date(2026, 1, 1)
_MOST_POWER: Final = 64
_MOST_PRODUCT: Final = 1 << 24


class ChatTemplate:
    """One template with the special tokens that it may use."""

    def __init__(self, text: str, special: Mapping[str, str]) -> None:
        """Compile it. Raises Unread if the text is not a template, or jinja2 is not installed."""
        self.text = text
        self._special = special
        self._template = _compiled(text)

    def render(self, chat: Chat) -> str:
        """The text of a whole conversation. Raises Unfit."""
        return self._render(chat, len(chat.messages), is_asked=False)

    def render_asked(self, chat: Chat) -> str:
        """The text before the first answer."""
        return self._render(chat, chat.asked, is_asked=True)

    def _render(self, chat: Chat, upto: int, *, is_asked: bool) -> str:
        tools = chat.tools
        try:
            return self._template.render(
                messages=[dict(each) for each in chat.messages[:upto]],
                tools=json.loads(tools) if isinstance(tools, str) and tools else tools or None,
                documents=None,
                add_generation_prompt=is_asked,
                **self._special,
            )
        except Exception as fault:  # noqa: BLE001  whatever a template raises is what it says of the messages
            why = shortened(f"{fault}", 200) or type(fault).__name__
            raise RecordNotOfForm(f"the chat template does not take its messages: {why}") from None


def _compiled(text: str) -> "Template":
    try:
        from jinja2 import TemplateSyntaxError
        from jinja2.exceptions import TemplateError
        from jinja2.ext import loopcontrols
    except ImportError:
        raise Unread(
            "chat templates are rendered by jinja2, which is not installed", EXTRA
        ) from None

    def refuse(message: str) -> None:
        raise TemplateError(message)

    extensions = [_generation(), loopcontrols]
    environment = _sandbox()(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = _DAY.strftime
    try:
        return environment.from_string(text)
    except TemplateSyntaxError as fault:
        why = f"the chat template is no template: {fault.message}"
        raise Unread(why, line=fault.lineno) from None
    except Exception as fault:  # noqa: BLE001  Python compiles what jinja2 makes of it, and has limits
        why = shortened(f"{fault}", 200) or type(fault).__name__
        raise Unread(f"the chat template cannot be compiled: {why}") from None


def _sandbox() -> "type[ImmutableSandboxedEnvironment]":
    """The sandbox of transformers, which limits products to the size of a text that can be read."""
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            sizes = [len(each) if hasattr(each, "__len__") else abs(each) for each in (left, right)]
            if (operator == "**" and sizes[1] > _MOST_POWER) or sizes[0] * sizes[1] > _MOST_PRODUCT:
                raise SecurityError(f"the result of {operator} is too large")
            return super().call_binop(context, operator, left, right)

    return Sandbox


def _generation() -> Any:
    """The tag around the model's output, which does not change the text."""
    from jinja2.ext import Extension
    from jinja2.nodes import Node
    from jinja2.parser import Parser

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser: Parser) -> list[Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Generation


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
