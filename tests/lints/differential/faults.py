"""Faults that are put into a sound pair of files, each told in words."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final

from draws import Draw, Tree
from tests.tables import table
from trainer_fields import STRAY

TABLES = table(__file__)

Fault = Callable[[Draw, Tree | None, Tree], str]
"""Of the training arguments, if there are any, and of the file that the fault goes into."""

_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, "auto", "8", "1e-4", "true", "false", "abc", "", 0, 1, 3, -1, 7, 1.5, 2.0),
    *(1e8, -0.5, [], [1, 2], {}, {"enabled": True}, "none", ["a"], "0", "0.5", "-1", [None]),
)
_FOREIGN: Final[Tree] = TABLES["_FOREIGN"]
"""Parameters of another optimizer or schedule, misspelt ones, and values of another type."""
_SECTIONS: Final[Tree] = TABLES["_SECTIONS"]
"""Sections of other releases, words that nobody takes, and values at another level."""
_REFERENCES: Final[tuple[Any, ...]] = (
    "8",
    "true",
    "none.json",
    "",
    True,
    {},
    {"zero_optimization": {}},
    2,
    "null",
)


def _paths(tree: Tree, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from _paths(value, (*prefix, key))


def _at(tree: Tree, path: tuple[str, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _path(draw: Draw, tree: Tree) -> tuple[tuple[str, ...], Tree]:
    """A key and the mapping that holds it."""
    path: tuple[str, ...] = draw.pick(tuple(_paths(tree)))
    return path, _at(tree, path[:-1])


def _another_value(draw: Draw, _: Tree | None, tree: Tree) -> str:
    path, holder = _path(draw, tree)
    value = draw.pick(_VALUES)
    holder[path[-1]] = deepcopy(value)
    return f"{'.'.join(path)} = {value!r}"


def _as_text(draw: Draw, _: Tree | None, tree: Tree) -> str:
    """A value in quotes, as files have it that a script writes."""
    path, holder = _path(draw, tree)
    value = holder[path[-1]]
    if isinstance(value, dict | list | str | None):
        return "nothing"
    holder[path[-1]] = str(value)
    return f"{'.'.join(path)} in quotes"


def _another_level(draw: Draw, _: Tree | None, tree: Tree) -> str:
    path, holder = _path(draw, tree)
    blocks = [each for each in _paths(tree) if isinstance(_at(tree, each), dict)]
    goal = draw.pick(((), *blocks))
    if goal[: len(path)] == path or goal == path[:-1]:
        return "nothing"
    _at(tree, goal)[path[-1]] = holder.pop(path[-1])
    return f"{'.'.join(path)} moved to {'.'.join(goal) or 'the top'}"


def _misspelt(draw: Draw, _: Tree | None, tree: Tree) -> str:
    path, holder = _path(draw, tree)
    if len(path[-1]) < 4:
        return "nothing"
    holder[path[-1][:-2]] = holder.pop(path[-1])
    return f"{'.'.join(path)} misspelt"


def _left_out(draw: Draw, _: Tree | None, tree: Tree) -> str:
    path, holder = _path(draw, tree)
    del holder[path[-1]]
    return f"{'.'.join(path)} left out"


def _stray(draw: Draw, arguments: Tree | None, _: Tree) -> str:
    key = draw.pick(tuple(STRAY))
    if arguments is None:
        return "nothing"
    arguments[key] = deepcopy(STRAY[key])
    return f"{key} put in"


def _foreign(draw: Draw, arguments: Tree | None, tree: Tree) -> str:
    """A parameter of another class in the section of the optimizer or of the schedule."""
    held = [tree.get(name) for name in ("optimizer", "scheduler")]
    blocks = [each["params"] for each in held if isinstance(each, dict) and each.get("params")]
    open_ones = [each for each in blocks if isinstance(each, dict)]
    if tree is arguments or not open_ones:
        return "nothing"
    key = draw.pick(tuple(_FOREIGN))
    open_ones[draw.pick(range(len(open_ones)))][key] = deepcopy(_FOREIGN[key])
    return f"{key} = {_FOREIGN[key]!r} among the parameters"


def _section(draw: Draw, arguments: Tree | None, tree: Tree) -> str:
    if tree is arguments:
        return "nothing"
    key = draw.pick(tuple(_SECTIONS))
    tree[key] = deepcopy(_SECTIONS[key])
    return f"{key} = {_SECTIONS[key]!r}"


def _reference(draw: Draw, arguments: Tree | None, _: Tree) -> str:
    if arguments is None or not draw.one_in(4):
        return "nothing"
    arguments["deepspeed"] = deepcopy(draw.pick(_REFERENCES))
    return f"deepspeed = {arguments['deepspeed']!r}"


FAULTS: Final[tuple[Fault, ...]] = (
    *(_another_value, _another_value, _another_value, _as_text, _another_level, _misspelt),
    *(_left_out, _stray, _foreign, _foreign, _section, _section, _reference),
)
