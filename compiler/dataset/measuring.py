"""Measures files of samples: their lengths, and every fault with its place."""

import hashlib
import os
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from tunec.compiler.analyses.packing import Lengths
from tunec.compiler.dataset.counting import Counter
from tunec.compiler.dataset.files import RecordAt, Unread, records, unit
from tunec.compiler.dataset.forms import Form, RecordNotOfForm, Sample, form_of, sample_of
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.faults import error
from tunec.schemas.lengths import KeptLengths, MeasuredBy, MeasuredFile
from tunec.schemas.source import Span, start_of

_TOGETHER: Final = 512
"""The number of samples that are counted at once."""
_MOST_TOLD: Final = 20
"""The most faults of one file that are shown; the rest is only counted."""
_MOST_ORDERED: Final = 200_000
"""The most samples whose order is kept: 1 MB of numbers."""


_NEVER: Final = 2**31 - 1
"""The start of the answer in a sample that has none."""


class Source(Struct, frozen=True):
    """A file to measure."""

    path: Path
    times: int = 1
    """How often an epoch includes the file."""
    most: int | None = None
    """How many of its first samples an epoch includes; None: all."""


class Length(Struct, frozen=True):
    """The length of one sample in tokens, and its place."""

    path: Path
    at: int
    tokens: int
    before: int
    """The number of tokens before the first that is trained if only answers are."""

    @property
    def is_mute(self) -> bool:
        """Whether the sample has no answer at all."""
        return self.before >= self.tokens

    @property
    def place(self) -> str:
        """The place in words: `train.jsonl:17`."""
        return f"{self.path.name}:{self.at}"


class SampleLengths(Struct, frozen=True):
    """The lengths of the samples in some files."""

    form: Form
    samples: tuple[Length, ...]
    """Each sample once, in order."""
    files: tuple[tuple[Source, int, str, int], ...]
    """Each file with its bytes, its digest and its number of samples."""

    @property
    def order(self) -> tuple[int, ...]:
        """The tokens of each sample of an epoch, in order."""
        return tuple(each.tokens for each in self._epoch())

    def _epoch(self) -> Iterator[Length]:
        at = 0
        for source, _, _, number in self.files:
            for _ in range(source.times):
                yield from self.samples[at : at + number]
            at += number

    def lengths(self, *, is_estimate: bool) -> Lengths:
        """The lengths in the form that plans use."""
        order = self.order
        befores = (_NEVER if each.is_mute else each.before for each in self._epoch())
        answers = Tally(befores) if self.form.has_answers else {}
        return Lengths(
            tuple(sorted(Tally(order).items())),
            order if len(order) <= _MOST_ORDERED else (),
            is_estimate=is_estimate,
            answers=tuple(sorted(answers.items())),
        )

    def unlearned(self, sequence: int) -> list[Length]:
        """Samples of which no answer remains at a sequence length in tokens."""
        if not self.form.has_answers:
            return []
        return [each for each in self.samples if each.is_mute or each.before >= sequence]


class Outcome(Struct):
    """The result of measuring: lengths, or why there are none."""

    measured: SampleLengths | None = None
    faults: list[Diagnostic] = field(default_factory=list)


def measure(sources: Sequence[Source], counter: Counter, text: str | None = None) -> Outcome:
    """Measure files in order; the first faults of each file are reported, the rest is counted."""
    outcome = Outcome()
    form: Form | None = None
    lengths: list[Length] = []
    files: list[tuple[Source, int, str, int]] = []
    for source in sources:
        before = len(lengths)
        found, form = _measure(source, counter, form, text, outcome.faults)
        lengths += found
        if not outcome.faults:
            content = source.path.stat().st_size
            files.append((source, content, _digest(source.path), len(lengths) - before))
    if not outcome.faults and form is not None:
        outcome.measured = SampleLengths(form, tuple(lengths), tuple(files))
    return outcome


def missing(sources: Iterable[Source]) -> list[Diagnostic]:
    """A fault for each file that cannot be opened, for plans that do not count its tokens."""
    faults = []
    for path in (source.path for source in sources):
        try:
            next(records(path), None)
        except Unread as fault:
            faults.append(_unread(path, fault))
    return faults


def _unread(path: Path, fault: Unread) -> Diagnostic:
    at = Span(str(path), fault.line, fault.column, fault.line, fault.column + 1)
    return error("E0201", f"cannot read `{path}`: {fault}", at, help=fault.help)


def _measure(
    source: Source, counter: Counter, form: Form | None, text: str | None, faults: list[Diagnostic]
) -> tuple[list[Length], Form | None]:
    found: list[Length] = []
    torn: list[Diagnostic] = []
    path = source.path
    try:
        rows = islice(records(path), source.most)
        while batch := list(islice(rows, _TOGETHER)):
            form, samples = _samples(path, batch, form, text, torn)
            found += _counted(path, samples, counter, torn)
    except Unread as fault:
        torn.append(_unread(path, fault))
    if not found and not torn:
        torn.append(error("E0302", f"`{path}` holds no sample", start_of(str(path))))
    faults += torn[:_MOST_TOLD]
    if len(torn) > _MOST_TOLD:
        why = f"and {len(torn) - _MOST_TOLD:,} more records of `{path}` cannot be used"
        faults.append(error("E0303", why, torn[_MOST_TOLD].span))
    return found, form


def _samples(
    path: Path,
    rows: Iterable[RecordAt],
    form: Form | None,
    text: str | None,
    torn: list[Diagnostic],
) -> tuple[Form | None, list[tuple[int, Sample]]]:
    found: list[tuple[int, Sample]] = []
    for row in rows:
        if row.record is None:
            torn.append(_fault(path, row.at, row.fault, row.column))
            continue
        try:
            form = form or form_of(row.record, text)
            found.append((row.at, sample_of(row.record, form)))
        except RecordNotOfForm as why:
            torn.append(_fault(path, row.at, str(why)))
            if form is None:
                raise Unread(
                    f"the form of its records is not known: {why}",
                    "name a column of text: --text COLUMN",
                ) from None
    return form, found


def _counted(
    path: Path, samples: Sequence[tuple[int, Sample]], counter: Counter, torn: list[Diagnostic]
) -> Iterator[Length]:
    counted = counter.count([sample for _, sample in samples])
    for (at, _), each in zip(samples, counted, strict=True):
        if isinstance(each, RecordNotOfForm):
            torn.append(_fault(path, at, str(each)))
        elif not each.tokens:
            torn.append(_fault(path, at, "it has no token"))
        else:
            yield Length(path, at, each.tokens, each.before)


def _fault(path: Path, at: int, why: str, column: int = 1) -> Diagnostic:
    span = Span(str(path), at, column, at, column + 1)
    return error("E0303", f"{unit(path)} {at} of `{path.name}` is no sample: {why}", span)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def kept(measured: SampleLengths, tokenizer: MeasuredBy, beside: Path) -> KeptLengths:
    """The content of a file of lengths in the folder `beside`."""
    lengths = measured.lengths(is_estimate=tokenizer.sha256 is None)
    files = [
        MeasuredFile(
            path=_from(beside, source.path),
            bytes=size,
            sha256=digest,
            samples=samples,
            times=source.times,
        )
        for source, size, digest, samples in measured.files
    ]
    model = tokenizer.model
    named = _from(beside, Path(model)) if model and Path(model).exists() else model
    return KeptLengths(
        tunec_lengths=1,
        files=tuple(files),
        tokenizer=tokenizer.model_copy(update={"model": named}),
        form=measured.form.name,
        counts=lengths.counts,
        answers=lengths.answers,
        order=lengths.order,
    )


def _from(folder: Path, path: Path) -> str:
    """A path relative to a folder."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def text_of(found: KeptLengths) -> str:
    """The file's text, with a line for each field, as long lists of numbers are not for reading."""
    import json

    data = found.model_dump(mode="json")
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in data.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"
