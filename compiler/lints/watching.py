"""A stand-in for a run that keeps what a rule asks of it, with the answers.

What a rule asks before it finds nothing is told in the words of `tunec.compiler.lints.questions`.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NoReturn, cast

from tunec.compiler.lints.document import Document, Test
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.questions import Question, answer, document_of, handle_of, is_plain
from tunec.compiler.lints.run import Run

_MOST_QUESTIONS: Final = 40
_VALUES: Final = "values()"


class Unsayable(Exception):
    """A rule looks at something whose answer cannot be written down."""


class Watched:
    """Stands for a run, and keeps each question that it is asked with its answer.

    What it does not know how to write down raises Unsayable.
    """

    def __init__(
        self, run: Run, most: int = _MOST_QUESTIONS, ask: Callable[[Question], str] | None = None
    ) -> None:
        self._run = run
        self._most = most
        self._answer = ask or partial(answer, run)
        self.asked: dict[Question, Any] = {}

    def _ask(self, *question: str) -> None:
        if question in self.asked:
            return
        if len(self.asked) == self._most:
            raise Unsayable("more")
        self.asked[question] = self._answer(question)

    def _document(self, document: Document) -> Document:
        return cast("Document", _WatchedDocument(self, handle_of(self._run, document)))

    def _place(self, place: Place | None) -> Place | None:
        return None if place is None else cast("Place", _WatchedPlace(self, place))

    def of(self, *kinds: str) -> tuple[Document, ...]:
        """As `Run.of`."""
        self._ask("of", *kinds)
        return tuple(map(self._document, self._run.of(*kinds)))

    @property
    def documents(self) -> tuple[Document, ...]:
        """As `Run.documents`."""
        self._ask("of")
        return tuple(map(self._document, self._run.documents))

    def said(self, kind: str, *keys: str) -> Place | None:
        """As `Run.said`."""
        self._ask("said", kind, *keys)
        return self._place(self._run.said(kind, *keys))

    def each(self, kind: str, key: str) -> Iterator[Place]:
        """As `Run.each`."""
        self._ask("each", kind, key)
        return iter([cast("Place", _WatchedPlace(self, p)) for p in self._run.each(kind, key)])

    def effective(self, kind: str, key: str) -> Any:
        """As `Run.effective`."""
        self._ask("effective", kind, key)
        found = self._run.effective(kind, key)
        return _Shown(
            {"place": lambda: self._effective_at(kind, key)},
            value=found.value,
            source=found.source,
            known=found.known,
            is_written=found.is_written,
        )

    def _effective_at(self, kind: str, key: str) -> Place | None:
        self._ask("effective at", kind, key)
        return self._place(self._run.effective(kind, key).place)

    def slot(self, path: str) -> Any:
        """As `Run.slot`."""
        self._ask("slot", path)
        found = self._run.slot(path)
        if found is None:
            return None
        at = {"shown_at": lambda: self._slot_at(path)}
        return _Shown(at, slot=path, value=found.value, rank=found.rank)

    def _slot_at(self, path: str) -> Place | None:
        self._ask("place of", path)
        return self._place(self._run.place(self._run.slot(path)))

    def value(self, path: str, otherwise: Any = None) -> Any:
        """As `Run.value`."""
        found = self.slot(path)
        return otherwise if found is None else found.value

    def observed(self, path: str) -> Any:
        """As `Run.observed`."""
        self._ask("slot", path)
        return None if self._run.observed(path) is None else self.slot(path)

    def place(self, definition: Any) -> Any:
        """As `Run.place`."""
        return None if definition is None else definition.shown_at

    @property
    def world(self) -> Any:
        """As `Run.world`."""
        return self.slot("parallel.world")

    def runs(self, requirement: str) -> bool | None:
        """As `Run.runs`."""
        self._ask("runs", requirement)
        return self._run.runs(requirement)

    def release(self, package: str) -> Any:
        """As `Run.release`."""
        self._ask("release", package)
        return self._run.release(package)

    def faults(self, document: Any) -> tuple[Any, ...]:
        """As `Run.faults`."""
        self._ask("faults", document.handle)
        found = self._run.faults(document_of(self._run, document.handle))
        return tuple(
            _Shown(what=f.what, path=f.path, is_refused=f.is_refused, place=self._place(f.place))
            for f in found
        )

    @property
    def ledger(self) -> Any:
        """As `Run.ledger`, to be asked for one slot at a time."""
        return _Shown(of=self._definitions)

    def _definitions(self, path: str) -> tuple[Any, ...]:
        self._ask("ledger", path)
        return tuple(
            _Shown(
                slot=path,
                value=each.value,
                rank=each.rank,
                author=each.author,
                shown_at=self._place(self._run.place(each)),
            )
            for each in self._run.ledger.of(path)
        )

    def __getattr__(self, name: str) -> Any:
        if name in ("missing", "unread"):
            self._ask("at", name)
            if getattr(self._run, name):
                raise Unsayable(name)
            return ()
        if name in ("environment", "model", "model_name", "deepspeed_reader", "data_parallel"):
            return _shown(self, name, getattr(self._run, name))
        raise Unsayable(name)


def _shown(watched: Watched, path: str, value: Any) -> Any:
    watched._ask("at", path)  # noqa: SLF001  the classes here are one
    return value if is_plain(value) else _WatchedObject(watched, path, value)


class _Shown:
    """What was told, and nothing besides but what can be asked."""

    def __init__(self, later: Mapping[str, Callable[[], Any]] | None = None, **told: Any) -> None:
        self.__dict__.update(told)
        self._later = later or {}

    def __getattr__(self, name: str) -> Any:
        if name not in self._later:
            raise Unsayable(name)
        return self._later[name]()


class _WatchedObject:
    """A fact of the surroundings: each of its parts is a question of its own."""

    def __init__(self, watched: Watched, path: str, value: Any) -> None:
        self._told = watched, path, value

    def __getattr__(self, name: str) -> Any:
        watched, path, value = self._told
        if callable(getattr(value, name)):
            return lambda word: _shown(
                watched, f"{path}.{name}({word})", getattr(value, name)(word)
            )
        return _shown(watched, f"{path}.{name}", getattr(value, name))

    def __bool__(self) -> bool:
        return bool(self._told[2])

    def __str__(self) -> str:
        raise Unsayable(self._told[1])

    __repr__ = __str__

    def values(self) -> Any:
        watched, path, value = self._told
        return _shown(watched, f"{path}.{_VALUES}", tuple(value.values()))

    def __len__(self) -> int:
        return len(self._told[2])  # told with it

    def __iter__(self) -> Iterator[Any]:
        watched, path, value = self._told
        if not isinstance(value, tuple | list):
            raise Unsayable(path)
        for at, each in enumerate(value):
            yield _shown(watched, f"{path}.[{at}]", each)


class _WatchedPlace:
    """A place: its value was told with it; where it stands is for findings."""

    def __init__(self, watched: Watched, place: Place) -> None:
        self._told = watched, place

    @property
    def value(self) -> Any:
        return self._told[1].value

    @property
    def path(self) -> str:
        return self._told[1].path

    @property
    def node(self) -> Any:
        """Only whether it holds keys: these were told with the value."""
        return _Shown(fields=self.value if isinstance(self.value, dict) else None)

    @property
    def document(self) -> Document:
        watched, place = self._told
        return watched._document(place.document)  # noqa: SLF001  the classes here are one

    def __getattr__(self, name: str) -> NoReturn:
        raise Unsayable(name)


class _WatchedDocument:
    """A document, by its kind."""

    def __init__(self, watched: Watched, handle: str) -> None:
        self._watched, self.handle = watched, handle

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WatchedDocument) and other.handle == self.handle

    def __hash__(self) -> int:
        return hash(self.handle)

    @property
    def _document(self) -> Document:
        return document_of(self._watched._run, self.handle)  # noqa: SLF001

    def get(self, path: str) -> Place | None:
        self._watched._ask("get", self.handle, path)  # noqa: SLF001
        return self._watched._place(self._document.get(path))  # noqa: SLF001

    def value(self, path: str, otherwise: Any = None) -> Any:
        found = self.get(path)
        return otherwise if found is None else found.value

    def where(self, test: Test) -> Mapping[str, Place]:
        return {key: at for key, at in self.found.items() if test(at.path, at.value)}

    @property
    def found(self) -> Mapping[str, Place]:
        return cast("Mapping[str, Place]", _WatchedKeys(self, self.keys))

    @property
    def origin(self) -> Document | None:
        self._watched._ask("document", self.handle, "is_view")  # noqa: SLF001
        shown = self._watched._document  # noqa: SLF001
        return shown(self._document.origin) if self._document.origin is not None else None

    def __getattr__(self, name: str) -> Any:
        if name not in ("kind", "name", "format", "is_view", "unknown", "keys"):
            raise Unsayable(name)
        self._watched._ask("document", self.handle, name)  # noqa: SLF001
        return getattr(self._document, name)


class _WatchedKeys(Mapping[str, Any]):
    """The keys of a document; the value of each is a question of its own."""

    def __init__(self, document: _WatchedDocument, keys: tuple[str, ...]) -> None:
        self._document, self._keys = document, keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return _LaterPlace(self._document, key)


class _LaterPlace:
    """A place whose value is asked for when somebody looks."""

    def __init__(self, document: _WatchedDocument, path: str) -> None:
        self.document, self.path = document, path

    @property
    def value(self) -> Any:
        return self.document.value(self.path)

    def __getattr__(self, name: str) -> NoReturn:
        raise Unsayable(name)


def trail(check: Callable[[Run], Any], run: Run) -> tuple[dict[Question, str], bool]:
    """What a check asks of a run, each question once, and whether it then finds nothing.

    The trail ends where the check asks for what cannot be written down, or too much.
    """
    watched = Watched(run)
    try:
        found = any(True for _ in check(cast("Run", watched)))
    except Exception:  # noqa: BLE001  what is not a run may fail in any way: then it proves nothing
        return watched.asked, False
    return watched.asked, not found
