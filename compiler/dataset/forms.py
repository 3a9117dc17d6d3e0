"""The forms of records that trainers read: chats, prompts with answers, texts, pairs.

trl 1.16.0 data_utils.py and docs/source/dataset_formats.md; llamafactory 0.9.5 data/converter.py
(`AlpacaDatasetConverter`, `SharegptDatasetConverter`); axolotl 0.19.0 prompt_strategies.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.wording import quoted, shown

Message = Mapping[str, Any]


class Chat(Struct, frozen=True):
    """A conversation, which a chat template turns into a text."""

    messages: tuple[Message, ...]
    asked: int
    """The number of messages before the first answer; all of them if there is no answer."""
    tools: Any = None


class Plain(Struct, frozen=True):
    """A text, or a prompt with its completion."""

    prompt: str
    completion: str
    is_text: bool = False
    """Whether all of it is trained."""


Sequence_ = Chat | Plain
Sample = tuple[Sequence_, ...]
"""The sequences of one record in a batch: two for a pair, otherwise one."""


class RecordNotOfForm(ValueError):
    """A record does not have its form; the message says why."""


class Form(Struct, frozen=True):
    """One form of records."""

    name: str
    columns: tuple[str, ...]
    """The columns that identify the form, and that every record has."""
    read: Callable[[Mapping[str, Any]], Sample]
    has_answers: bool = True
    """Whether the form marks what is an answer."""


def form_of(record: Mapping[str, Any], text: str | None = None) -> Form:
    """The form of a record by its columns; `text` names a column with plain text. Raises Unfit."""
    if text is not None:
        return Form("text", (text,), lambda found: (_text(found, text),), has_answers=False)
    found = next((form for form in FORMS if all(c in record for c in form.columns)), None)
    if found is None:
        known = "; ".join(", ".join(form.columns) for form in FORMS)
        raise RecordNotOfForm(
            f"it has the columns {quoted(list(record)[:12], 'and')}, which no trainer reads "
            f"by default; known are {known}"
        )
    return found


def sample_of(record: Mapping[str, Any], form: Form) -> Sample:
    """The sample of a record. Raises Unfit."""
    for name in form.columns:
        if record.get(name) is None:
            raise RecordNotOfForm(f"it has no `{name}`, as the first record has")
    return form.read(record)


_ROLES: Final[Mapping[str, str]] = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_call": "assistant",
    "developer": "developer",
}
"""Roles by the words that data sets use: llamafactory 0.9.5 data/parser.py `DatasetAttr`; axolotl
0.19.0 prompt_strategies/chat_template.py `role_map`."""


def _text_in(record: Mapping[str, Any], column: str) -> str:
    value = record.get(column)
    if not isinstance(value, str):
        raise RecordNotOfForm(f"`{column}` must be text, and is {shown(value)}")
    return value


def _message(said: Any, at: int) -> Message:
    if not isinstance(said, Mapping):
        raise RecordNotOfForm(f"message {at} is {shown(said)} and no mapping")
    if "from" in said and "role" not in said:
        said = {"role": said["from"], "content": said.get("value")}
    role = said.get("role")
    if not isinstance(role, str) or role.lower() not in _ROLES:
        raise RecordNotOfForm(f"message {at} is of the role {shown(role)}, which no trainer knows")
    content = _content(said.get("content"))
    if content is None and not said.get("tool_calls"):
        raise RecordNotOfForm(f"message {at} has no content")
    kept = {name: value for name, value in said.items() if value is not None}
    return {**kept, "role": _ROLES[role.lower()], "content": content or ""}


def _content(said: Any) -> Any:
    """A text unchanged; a list joined if all its parts are texts."""
    if not isinstance(said, list):
        return said if isinstance(said, str) else None
    texts = [each.get("text") if isinstance(each, Mapping) else each for each in said]
    found = [each for each in texts if isinstance(each, str)]
    return "".join(found) if len(found) == len(said) else said


def _messages(said: Any, column: str) -> tuple[Message, ...]:
    if not isinstance(said, Sequence) or isinstance(said, str):
        raise RecordNotOfForm(f"`{column}` must be a list of messages, and is {shown(said)}")
    if not said:
        raise RecordNotOfForm(f"`{column}` is empty")
    return tuple(_message(each, at) for at, each in enumerate(said, 1))


def _chat(
    messages: tuple[Message, ...], record: Mapping[str, Any], asked: int | None = None
) -> Chat:
    answers = (at for at, each in enumerate(messages) if each["role"] == "assistant")
    first = next(answers, len(messages)) if asked is None else asked
    return Chat(messages, first, record.get("tools"))


def _conversation(column: str) -> Callable[[Mapping[str, Any]], Sample]:
    def read(record: Mapping[str, Any]) -> Sample:
        messages = _messages(record[column], column)
        system = record.get("system")
        if isinstance(system, str) and system and messages[0]["role"] != "system":
            messages = ({"role": "system", "content": system}, *messages)
        return (_chat(messages, record),)

    return read


def _answered(record: Mapping[str, Any], column: str) -> Sequence_:
    """A prompt with the answer in a column."""
    if isinstance(record.get("prompt"), str):
        return Plain(record["prompt"], _text_in(record, column))
    prompt = _messages(record["prompt"], "prompt")
    return _chat((*prompt, *_messages(record[column], column)), record, len(prompt))


def _completed(record: Mapping[str, Any]) -> Sample:
    return (_answered(record, "completion"),)


def _pair(record: Mapping[str, Any]) -> Sample:
    if record.get("prompt") is not None:
        chosen = record["chosen"]
        if isinstance(record["prompt"], str) and not isinstance(chosen, str):
            record = {**record, "prompt": [{"role": "user", "content": record["prompt"]}]}
        return _answered(record, "chosen"), _answered(record, "rejected")
    if isinstance(record["chosen"], str):
        return Plain("", record["chosen"]), Plain("", _text_in(record, "rejected"))
    both = (_messages(record[name], name) for name in ("chosen", "rejected"))
    return tuple(_chat(each, record, len(each) - 1) for each in both)


def _alpaca(record: Mapping[str, Any]) -> Sample:
    """A record as in llamafactory 0.9.5 data/converter.py, with the input on its own line."""
    more = _text_in(record, "input") if record.get("input") else ""
    asked = "\n".join(filter(None, (_text_in(record, "instruction"), more)))
    messages = [{"role": "user", "content": asked}]
    if record.get("system"):
        messages.insert(0, {"role": "system", "content": _text_in(record, "system")})
    answer = {"role": "assistant", "content": _text_in(record, "output")}
    return (_chat((*messages, answer), record, len(messages)),)


def _prompt(record: Mapping[str, Any]) -> Sample:
    if isinstance(record["prompt"], str):
        return (Plain(record["prompt"], "", is_text=True),)
    messages = _messages(record["prompt"], "prompt")
    return (_chat(messages, record, len(messages)),)


def _text(record: Mapping[str, Any], column: str) -> Plain:
    return Plain("", _text_in(record, column), is_text=True)


FORMS: Final = (
    Form("pairs", ("chosen", "rejected"), _pair),
    Form("messages", ("messages",), _conversation("messages")),
    Form("conversations", ("conversations",), _conversation("conversations")),
    Form("instructions", ("instruction", "output"), _alpaca),
    Form("prompts and completions", ("prompt", "completion"), _completed),
    Form("text", ("text",), lambda record: (_text(record, "text"),), has_answers=False),
    Form("prompts", ("prompt",), _prompt, has_answers=False),
)
"""In the order in which they are tried."""
