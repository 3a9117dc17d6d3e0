"""Regular expressions from users, compiled only if matching them takes bounded time.

Python tries one way of matching after the other: for `(a+)+b` their number is a power of two in the
length of the name. An upper bound of the number follows from the expression's tree.
"""

import re
from collections.abc import Iterable, Sequence
from math import log2
from typing import Any, Final

_parser: Any = vars(re)["_parser"]  # the tree that `re` compiles; it has no public name

_LONGEST: Final = 81
"""Characters of a module's name: the longest of the catalogue has as many."""
_MOST: Final = 26.0
"""Ways to match one name, as a power of two: four repetitions of any length, side by side."""
_REPEATS: Final = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_GROUPS: Final = frozenset({"SUBPATTERN", "ASSERT", "ASSERT_NOT"})


def compiled(expression: str) -> re.Pattern[str]:
    """A regular expression over a module's name.

    Raises re.error, also for one that is too large or too deep for Python, or takes too long.
    """
    try:
        found = re.compile(expression)
        ways = _of_all(_parser.parse(expression))
    except OverflowError:
        raise re.error("it is too large") from None
    except RecursionError:
        raise re.error("it nests too deeply") from None
    if ways > _MOST:
        raise re.error(
            "matching it can take too long: it repeats what itself varies, or varies too often"
        )
    return found


def _of_all(parts: Iterable[tuple[Any, Any]]) -> float:
    """The ways to match a sequence, as a power of two."""
    return sum(_of(str(kind), said) for kind, said in parts)


def _of(kind: str, said: Any) -> float:
    if kind in _REPEATS:
        return _of_repeat(*said)
    if kind == "BRANCH":
        return _of_either(said[1])
    if kind in _GROUPS:
        return _of_all(said[-1])
    if kind == "ATOMIC_GROUP":
        return _of_all(said)
    if kind == "GROUPREF_EXISTS":
        return _of_either([each for each in said[1:] if each is not None])
    return 0.0


def _of_repeat(least: int, most: int, repeated: Iterable[tuple[Any, Any]]) -> float:
    times = min(int(most), _LONGEST)
    varies = log2(max(times - least, 0) + 1)
    return varies + times * _of_all(repeated)


def _of_either(branches: Sequence[Iterable[tuple[Any, Any]]]) -> float:
    ways = [min(_of_all(each), 2 * _MOST) for each in branches]
    return log2(sum(2**each for each in ways))
