"""A run that notes what is asked of its surroundings, and read of its files.

What a rule finds in files on one cluster, it finds on any other that answers alike what it asked
of the surroundings: the cluster, its devices, the number of processes. And it finds it in any other
files that differ in nothing that it read. Releases and kinds of documents are taken to be equal.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tunec.compiler.ir.ledger import Definition, Ledger, Rank
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.noted import FAULTS, SLOT, Notes, Read
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.questions import Question, answer
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.watching import Watched

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel
    from tunec.compiler.lints.schemas import Fault

_Result = TypeVar("_Result")

MODEL: Final = ("model",)
"""What is read where anything of the model is."""
_WORLD: Final = "parallel.world"
"""The only slot of which the surroundings speak."""
_ENVIRONMENT: Final = "environment"
_MOST: Final = 10_000
_CONSTANT: Final = ("releases", "deepspeed_reader")
"""What is the same in all files of a kind."""


class Surrounded(Run):
    """A run with real files: `read` of them and of its surroundings since `begin`."""

    real: Run
    told: dict[Question, str]
    """What it has answered so far."""
    _behind: dict[Question, dict[Read, None]]
    """What was read for each answer."""
    _watched: Watched
    _notes: Notes

    def __init__(self, run: Run, notes: Notes, known: Callable[[Question], str]) -> None:
        """`known` answers questions about the surroundings, and nobody notes it."""
        for name in _CONSTANT:
            getattr(run, name)
        watched = Watched(run, _MOST, known)
        self.__dict__.update(run.__dict__)
        self.__dict__.update(real=run, told={}, _behind={}, _watched=watched, _notes=notes)
        self.__dict__.pop("model", None)

    @property
    def read(self) -> dict[Read, None]:
        """What was read of files, slots and surroundings, in that order."""
        return self._notes.read

    def begin(self) -> None:
        """Note anew."""
        self._resume({})

    def _resume(self, read: dict[Read, None]) -> None:
        self._watched.asked = self._notes.read = read

    def answer(self, question: Question) -> str:
        """Answer a question once, and note nothing but for that."""
        before = self.read
        self.begin()
        self.told[question] = self._answer(question)
        self._behind[question] = self.read
        self._resume(before)
        return self.told[question]

    def note(self, question: Question) -> None:
        """Note what an answer was rested on."""
        self.read.update(self._behind[question])

    def _answer(self, question: Question) -> str:
        if question[0] == "at" and question[1].startswith(_ENVIRONMENT):
            self._look(*question)
            return str(self._watched.asked[question])
        return answer(self, question)

    def _look(self, *question: str) -> None:
        self._watched._ask(*question)  # noqa: SLF001  it keeps what is asked for this class too

    # ── what is noted ────────────────────────────────────────────────────────────────────────────

    @property
    def environment(self) -> Environment:
        """What is known beside the files; each of its parts is a question of its own."""
        return cast("Environment", self._watched.environment)

    @property
    def model(self) -> "ResolvedModel | None":
        """As `Run.model`."""
        self.read[MODEL] = None
        return self.real.model

    @property
    def ledger(self) -> Ledger:
        """As `Run.ledger`, to be asked for one slot at a time."""
        return cast("Ledger", _Ledger(self))

    def slot(self, path: str) -> Definition | None:
        """As `Run.slot`; of the number of processes the surroundings have the last word."""
        if path == _WORLD and self.real.environment.world is not None:
            self._look("at", f"{_ENVIRONMENT}.world")
            return self.real.slot(path)
        return super().slot(path)

    def definitions(self, path: str) -> tuple[Definition, ...]:
        """As `Run.definitions`."""
        return self.ledger.of(path)

    def place(self, definition: Definition | None) -> Place | None:
        """As `Run.place`."""
        found = self._unnoted(partial(self.real.place, definition))
        if found is not None:
            self.read[self.documents.index(found.document), found.path] = None
        return found

    def faults(self, document: Document) -> "tuple[Fault, ...]":
        """As `Run.faults`."""
        self.read[self.documents.index(document), FAULTS] = None
        return self._unnoted(partial(self.real.faults, document))

    def _unnoted(self, work: Callable[[], _Result]) -> _Result:
        """What a run works out of all files, which is noted in fewer words."""
        before = self.read
        self.begin()
        found = work()
        self._resume(before)
        return found


class _Ledger:
    """The ledger of a surrounded run."""

    def __init__(self, run: Surrounded) -> None:
        self._run = run

    def of(self, slot: str) -> tuple[Definition, ...]:
        """As `Ledger.of`."""
        self._run.read[SLOT, slot] = None
        found = self._run._unnoted(lambda: self._run.real.definitions(slot))  # noqa: SLF001
        if slot != _WORLD:
            return found
        for name in ("world", "cluster"):
            self._look(name)
        return tuple(
            cast("Definition", _OfHardware(each, self._look))
            if each.rank == Rank.CATALOGUE
            else each
            for each in found
        )

    def winner(self, slot: str) -> Definition | None:
        """As `Ledger.winner`."""
        return max(self.of(slot), key=lambda each: each.rank, default=None)

    def _look(self, name: str) -> None:
        self._run._look("at", f"{_ENVIRONMENT}.{name}")  # noqa: SLF001  as above


class _OfHardware:
    """How many devices there are: the name of the cluster stands only in the reason."""

    def __init__(self, definition: Definition, look: Callable[[str], None]) -> None:
        self._definition, self._look = definition, look
        look("cluster.device_count")

    @property
    def reason(self) -> str:
        self._look("cluster.name")
        return self._definition.reason

    def __getattr__(self, name: str) -> Any:
        return getattr(self._definition, name)
