"""The rows of `data/proofs.yaml` and `data/coverage.yaml`: how real programs prove the rules."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.lints.corpus import held

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Proof:
    """An example of a rule's page, the release that is asked, and what must be seen."""

    rule: str
    number: int
    """Which of the page's bad examples, from 0."""
    program: str
    """A name in `programs.PROGRAMS`."""
    version: str
    row: Mapping[str, Any]

    @property
    def text(self) -> str:
        """Words of the refusal; empty where the example is taken."""
        return str(self.row.get("says", ""))

    def shows(self, answer: Answer) -> bool:
        """Whether the answer shows that the value is not what is written."""
        found = _at(answer, self.row["at"])
        (how,) = _SHOWN.keys() & self.row.keys()
        return bool(_SHOWN[how](found, self.row[how], answer))


_SHOWN: Final[Mapping[str, Callable[[Any, Any, Answer], bool]]] = {
    "is": lambda found, value, _: bool(found == value),
    "has": lambda found, value, _: value in found,
    "lacks": lambda found, value, _: value not in found,
    "mentions": lambda found, value, _: value in str(found),
    "omits": lambda found, value, _: value not in str(found),
    "differs_from": lambda found, path, answer: bool(found != _at(answer, path)),
}


def _at(answer: Any, path: str) -> Any:
    for part in path.split("/"):
        answer = answer[int(part)] if isinstance(answer, list) else answer[part]
    return answer


def _proofs(kind: str) -> Iterator[Proof]:
    for each in held("proofs.yaml"):
        for row in each.get(kind, ()):
            yield Proof(row["rule"], row["number"], each["program"], each["version"], row)


REFUSED: Final = tuple(_proofs("refused"))
SEEN: Final = tuple(_proofs("seen"))

_COVERAGE: Final = held("coverage.yaml")
ELSEWHERE: Final[Mapping[str, tuple[str, str]]] = {
    rule: (file, test) for file, tests in _COVERAGE["tests"].items() for rule, test in tests.items()
}
"""Rule -> (file beside this one, test) where it is more than a row of a table."""
NOT_PROVEN: Final[Mapping[str, list[str]]] = {
    each["why"]: each["rules"] for each in _COVERAGE["not_proven"]
}
"""Why no proof is run here -> the rules."""
