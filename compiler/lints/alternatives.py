"""Two calls of one kind in one file are two choices: each is a run of its own."""

from collections.abc import Iterator

from tunec.compiler.lints.documents import Reading
from tunec.compiler.lints.references import is_among, named_by
from tunec.schemas.frozen import replace


def alternatives(reading: Reading) -> Iterator[Reading]:
    """The runs of what was read together: each takes one of the alternatives of a file.

    Of the files that another one names, an alternative has its own, and not those of the others.
    """
    runs: dict[str, set[int]] = {}
    for each in reading.documents:
        runs.setdefault(each.name, set()).update(each.alternatives)
    several = {name: sorted(every) for name, every in runs.items() if len(every) > 1}
    if not several:
        yield reading
    for name, number in ((name, each) for name, every in several.items() for each in every):
        mine = [
            each for each in reading.documents if number in each.alternatives or each.name != name
        ]
        others = [each for each in reading.documents if each not in mine]
        strange = named_by(others) - named_by(each for each in mine if each.name == name)
        kept = (each for each in mine if each.name == name or each.name not in several)
        documents = tuple(each for each in kept if not is_among(each.name, strange))
        yield replace(reading, documents=documents)
