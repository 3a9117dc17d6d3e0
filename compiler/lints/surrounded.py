"""A run that notes what is asked of its surroundings, and read of its files.

What a rule finds in files on one cluster, it finds on any other that answers alike what it asked
of the surroundings: the cluster, its devices, the number of processes. And it finds it in any other
files that differ in nothing that it read. Versions and model are taken to be equal.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Final, cast

from tunec.compiler.ir.ledger import Definition, Ledger
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.noted import EVERYTHING, SLOT, Cell, Notes
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.questions import Question, answer
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.watching import Watched

if TYPE_CHECKING:
    from tunec.compiler.lints.schemas import Fault

_WORLD: Final = "parallel.world"
"""The only slot of which the surroundings speak."""
_SPLIT: Final = ("parallel.tensor", "parallel.sequence")
_BESIDE: Final = ("environment", "data_parallel")
_MOST: Final = 10_000
_CONSTANT: Final = ("releases", "model", "deepspeed_reader", "ledger", "_places")
"""What a run works out once, before anybody's reading is noted."""


class Surrounded(Run):
    """A run with real files: `asked` of its surroundings since `begin`, and `read` of its files."""

    real: Run
    known: Callable[[Question], str]
    """Answers without noting it."""
    told: dict[Question, str]
    """What it has answered so far."""
    _behind: dict[Question, tuple[dict[Question, str], set[Cell]]]
    """What was asked and read for each answer."""
    _watched: Watched
    _notes: Notes

    def __init__(self, run: Run, notes: Notes) -> None:
        for name in _CONSTANT:
            getattr(run, name)
        known = cache(partial(answer, run))
        watched = Watched(run, _MOST, known)
        self.__dict__.update(run.__dict__)
        self.__dict__.update(
            real=run, known=known, told={}, _behind={}, _watched=watched, _notes=notes
        )

    @property
    def asked(self) -> dict[Question, str]:
        """What the surroundings were asked, with their answers."""
        return self._watched.asked

    @property
    def read(self) -> set[Cell]:
        """What was read of files and slots."""
        return self._notes.cells

    def begin(self) -> None:
        """Note anew."""
        self._watched.asked, self._notes.cells = {}, set()

    def answer(self, question: Question) -> str:
        """Answer a question once, and note nothing but for that."""
        before = self.asked, self.read
        self.begin()
        self.told[question] = self._answer(question)
        self._behind[question] = self.asked, self.read
        self._watched.asked, self._notes.cells = before
        return self.told[question]

    def note(self, question: Question) -> None:
        """Note what an answer was rested on."""
        asked, read = self._behind[question]
        self.asked.update(asked)
        self.read.update(read)

    def _answer(self, question: Question) -> str:
        if question[0] == "at" and question[1].startswith(_BESIDE):
            self._look(*question)
            return self.asked[question]
        return answer(self, question)

    def _look(self, *question: str) -> None:
        self._watched._ask(*question)  # noqa: SLF001  it keeps what is asked for this class too
        if question[1] == "data_parallel":
            self.read.update((SLOT, each) for each in (_WORLD, *_SPLIT))

    # ── what is noted ────────────────────────────────────────────────────────────────────────────

    @property
    def environment(self) -> Environment:
        """What is known beside the files; each of its parts is a question of its own."""
        return cast("Environment", self._watched.environment)

    @property
    def data_parallel(self) -> int | None:
        """As `Run.data_parallel`."""
        self._look("at", "data_parallel")
        return self.real.data_parallel

    @property
    def ledger(self) -> Ledger:
        """As `Run.ledger`, to be asked for one slot at a time."""
        return cast("Ledger", _Ledger(self))

    def place(self, definition: Definition | None) -> Place | None:
        """As `Run.place`."""
        found = self.real.place(definition)
        if found is not None:
            self.read.add((self.documents.index(found.document), found.path))
        return found

    def faults(self, document: Document) -> "tuple[Fault, ...]":
        """As `Run.faults`."""
        self.read.add((self.documents.index(document), EVERYTHING))
        return self.real.faults(document)


class _Ledger:
    """The ledger of a surrounded run."""

    def __init__(self, run: Surrounded) -> None:
        self._run = run

    def of(self, slot: str) -> tuple[Definition, ...]:
        self._note("ledger", slot)
        return self._run.real.ledger.of(slot)

    def winner(self, slot: str) -> Definition | None:
        self._note("slot", slot)
        return self._run.real.ledger.winner(slot)

    def _note(self, kind: str, slot: str) -> None:
        self._run.read.add((SLOT, slot))
        if slot == _WORLD:
            self._run._look(kind, slot)  # noqa: SLF001  the classes here are one
