"""Random draws of values and of mappings, the same ones for the same seed."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any, Final

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """A mapping of which each key is there with a chance of one in `share`."""

    of: "Drawn"
    share: int = 2


Drawn = Mapping[str, Sequence[Any] | Block]
"""Key -> the values that it may have, each as likely."""
BOTH: Final = (True, False)


class Draw:
    """A source of chance."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311  the same draws each time

    def pick(self, of: Sequence[Any]) -> Any:
        """One of several, by itself: nothing that is done to it is done to the others."""
        return deepcopy(self._random.choice(of))

    def one_in(self, number: int) -> bool:
        """Whether a chance of one in so many came."""
        return self._random.randrange(number) == 0

    def value(self, of: Sequence[Any] | Block) -> Any:
        """A value of a key."""
        return self.some(of.of, of.share) if isinstance(of, Block) else self.pick(of)

    def some(self, of: Drawn, share: int = 4) -> Tree:
        """Each key with a chance of one in `share`."""
        return {key: self.value(each) for key, each in of.items() if self.one_in(share)}
