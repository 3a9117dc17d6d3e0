"""How a text is spoilt: its bytes, its lines, its words, or the tree that it holds."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

WORDS = (
    *("", " ", "null", "-1", "0", "1e999", "-0.0", "NaN", ".inf", "true", "yes", "auto", "none"),
    *("[]", "{}", "'", '"', "`", "\\", "${X}", "${oc.env:HOME}", "$(id)", "--", "-", "---", "..."),
    *("9" * 20, "9" * 400, "0x1F", "1_000", "1.5", "8GB", "a" * 400, "é", "\U0001f600", "\u202e"),
    *("\x00", "\x1b[31m", "\x07", "\x7f", "\x85", "\u2028", "\ufeff", "\t", "\r", "\r\n"),
    *("&a", "*a", "!!python/object:os.system", "<<: *a", "? x", "#", ": ", "=", "@", "%", "|", ">"),
    # an absolute path that even root cannot write to: a drawn `-o` must not harm the machine
    *("../../x", "/proc/version", "/dev/zero", ".", "~", "C:\\x", "a" * 300 + ".yaml"),
)
VALUES: tuple[Any, ...] = (
    *("abc", "8", "1e-4", "auto", "", " ", "../x", "--x", "a" * 300, "\x1b[31m", "é"),
    *(None, True, False, -1, 0, 1, 3, 1.5, 1e-300, 10**12, 10**30, float("inf"), float("nan")),
    *([], [1, "a"], [[]], [None], {}, {"a": {"b": 1}}, {"": ""}, {"1": [1]}),
)
_FEW_TIMES = (2, 3, 50, 400)


def mangled(text: str, other: str, random: Random) -> bytes:
    """The bytes of a text after one to four changes; `other` lends lines."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        text = random.choice(_CHANGES)(text, other, random)
    return _encoded(text, random)


def mangled_bytes(content: bytes, random: Random) -> bytes:
    """Bytes that are no text: some exchanged, cut off, doubled, or none at all."""
    at = random.randrange(len(content) + 1)
    match random.randrange(4):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + content[at : at + random.choice((1, 4, 100))] * 3 + content[at:]
        case _:
            return _scattered(content, random)


def _scattered(content: bytes, random: Random) -> bytes:
    data = bytearray(content or b"x")
    for _ in range(random.choice((1, 1, 20))):
        data[random.randrange(len(data))] = random.choice((0, 0xFF, random.randrange(256)))
    return bytes(data)


def mangled_word(word: str, random: Random) -> str:
    """One word of a command line, spoilt; never with what the system itself refuses."""
    cut = random.randrange(len(word) + 1)
    new = random.choice((random.choice(WORDS), word[:cut] + random.choice(WORDS) + word[cut:]))
    return new.replace("\x00", "")


def _encoded(text: str, random: Random) -> bytes:
    draw = random.random()
    if draw < 0.94:
        return text.encode("utf-8", "surrogatepass" if draw < 0.9 else "replace")
    if draw < 0.97:
        return _scattered(text.encode("utf-8", "replace"), random)
    return text.encode(random.choice(("utf-16", "utf-8-sig", "latin-1")), "replace")


# ── characters, lines and words ──────────────────────────────────────────────────────────────────


def _cut(text: str, _: str, random: Random) -> str:
    start = random.randrange(len(text) + 1)
    end = min(len(text), start + random.choice((1, 2, 10, 100, len(text) or 1)))
    return text[:start] + text[end:]


def _insert(text: str, _: str, random: Random) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice(WORDS) + text[at:]


def _drop_line(text: str, _: str, random: Random) -> str:
    lines = text.split("\n")
    del lines[random.randrange(len(lines))]
    return "\n".join(lines)


def _repeat_line(text: str, _: str, random: Random) -> str:
    lines = text.split("\n")
    at = random.randrange(len(lines))
    lines[at:at] = [lines[at]] * random.choice(_FEW_TIMES)
    return "\n".join(lines)


def _lend_line(text: str, other: str, random: Random) -> str:
    lines = text.split("\n")
    lines.insert(random.randrange(len(lines) + 1), random.choice(other.split("\n")))
    return "\n".join(lines)


def _swap_lines(text: str, _: str, random: Random) -> str:
    lines = text.split("\n")
    one, two = random.randrange(len(lines)), random.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    return "\n".join(lines)


def _replace_value(text: str, _: str, random: Random) -> str:
    lines = text.split("\n")
    at = random.randrange(len(lines))
    head, mark, _ = lines[at].partition(random.choice((":", "=", " ")))
    lines[at] = head + mark + random.choice(("", " ")) + random.choice(WORDS)
    return "\n".join(lines)


def _indent(text: str, _: str, random: Random) -> str:
    lines = text.split("\n")
    at = random.randrange(len(lines))
    lines[at] = random.choice((" ", "\t", "  - ", "- ", "    ")) + lines[at].strip()
    return "\n".join(lines)


def _nest(text: str, _: str, random: Random) -> str:
    opening, closing = random.choice((("[", "]"), ("{a: ", "}"), ("((", "))"), ("- ", "")))
    deep = random.choice((3, 60, 3000))
    return _insert_at(text, opening * deep + closing * deep, random)


def _insert_at(text: str, more: str, random: Random) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + more + text[at:]


def _returns(text: str, _: str, random: Random) -> str:
    return text.replace("\n", random.choice(("\r\n", "\r", "\n\n", "\x0b", "\x85", "\u2028")))


# ── the tree that a text holds ───────────────────────────────────────────────────────────────────


def _change_tree(text: str, other: str, random: Random) -> str:
    """Exchange, move, rename or drop something in the tree; as lines where there is no tree."""
    try:
        tree = deepcopy(yaml.load(text, _LOADER))  # noqa: S506  safe, both
        places = list(_places(tree))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return _replace_value(text, other, random)
    if not places:
        return _replace_value(text, other, random)
    holder, key = _held(tree, random.choice(places))
    match random.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            name = str(key)
            cut = random.randrange(len(name) + 1)
            holder[name[:cut] + random.choice(("", "_", "s", "x")) + name[cut + 1 :]] = holder[key]
        case 2:
            source, other_key = _held(tree, random.choice(places))
            holder[key] = deepcopy(source[other_key])
        case _:
            holder[key] = deepcopy(random.choice(VALUES))
    return _written(tree, text)


def _places(tree: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if not isinstance(tree, dict | list):
        return
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*before, key)
        yield from _places(value, (*before, key))


def _held(tree: Any, place: tuple[Any, ...]) -> tuple[Any, Any]:
    for key in place[:-1]:
        tree = tree[key]
    return tree, place[-1]


def _written(tree: Any, text: str) -> str:
    """The tree as text; the text as it was, where the tree grew too deep to write."""
    try:
        if text.lstrip().startswith(("{", "[")):
            return json.dumps(tree, indent=1, default=str, ensure_ascii=False)
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    except RecursionError:
        return text


_CHANGES: tuple[Callable[[str, str, Random], str], ...] = (
    *(_cut, _insert, _drop_line, _repeat_line, _lend_line, _swap_lines, _replace_value, _indent),
    *(_nest, _returns, _change_tree, _change_tree, _change_tree, _change_tree),
)
