"""A run of files that many surroundings share: only what is asked of them is read, and once."""

from collections.abc import Iterator
from functools import cached_property
from typing import Final

from tunec.compiler.ir.ledger import Definition
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.run import Run, by
from tunec.compiler.read import read_slot
from tunec.compiler.target import Dialect

_KEPT: Final = (
    *("releases", "deepspeed_reader", "_of", "_said", "_faults", "_by_slot", "_dialects"),
)
"""What a run works out from its files and versions alone."""


class Sparing(Run):
    """A run that reads its files for the slots that are asked, and for no other."""

    _by_slot: dict[str, tuple[Definition, ...]]

    def moved(self, environment: Environment) -> "Sparing":
        """The same files elsewhere, without working out again what surroundings do not touch."""
        moved = Sparing(self.documents, environment, self.targets)
        known = self.__dict__
        moved.__dict__.update({name: known[name] for name in _KEPT if name in known})
        moved.__dict__["_first"] = self
        return moved

    def definitions(self, path: str) -> tuple[Definition, ...]:
        """As `Run.definitions`."""
        if path not in self._by_slot:
            self._by_slot[path] = tuple(self._read(path))
        around = (each for each in self._surroundings() if each.slot == path)
        return (*self._by_slot[path], *around)

    def _read(self, slot: str) -> Iterator[Definition]:
        for each in self.documents:
            if each.target is not None and each.file is not None:
                dialect = self._dialects[each.target.name]
                found = read_slot(slot, each.file, each.flat, dialect, each.target)
                yield from (by(each, one) for one in found)
        yield from (each for each in self.said_together if each.slot == slot)

    @cached_property
    def _dialects(self) -> dict[str, Dialect]:
        software = {name: str(each.version) for name, each in self.releases.items()}
        return {
            name: each.dialect(self.release(each.package).version, software)
            for name, each in self.targets.items()
        }

    @property
    def said_together(self) -> tuple[Definition, ...]:
        """What the files say of slots only together."""
        first = self.__dict__.get("_first", self).__dict__
        if "_together" not in first:
            first["_together"] = tuple(self.together())
        found: tuple[Definition, ...] = first["_together"]
        return found
