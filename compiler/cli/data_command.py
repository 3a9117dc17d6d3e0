"""`tunec data`: the lengths of samples, and what follows from them."""

import hashlib
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tunec.compiler.analyses.packing import Lengths
from tunec.compiler.cli.inputs import asked_targets
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session, is_colored
from tunec.compiler.dataset.counting import Characters, Counter, Tokenizer
from tunec.compiler.dataset.files import Unread
from tunec.compiler.dataset.measuring import SampleLengths, Source, kept, measure, missing, text_of
from tunec.compiler.dataset.report import Report, report_json, report_text
from tunec.compiler.dataset.templates import ChatTemplate
from tunec.compiler.dataset.tokenizers import find
from tunec.compiler.dataset.tokenizers import text_of as template_text
from tunec.compiler.diagnostics.diagnostic import has_errors
from tunec.compiler.driver import Planned, plan
from tunec.compiler.frontend.disk import Unreadable
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.load import Loaded, load_spec
from tunec.compiler.frontend.project import Outside, project_root, require_inside
from tunec.compiler.review.screen.pen import Pen
from tunec.compiler.writing import write_all
from tunec.schemas.data_paths import data_kind
from tunec.schemas.frozen import replace
from tunec.schemas.lengths import MeasuredBy
from tunec.schemas.models.catalogue import repository
from tunec.schemas.models.chat_templates import PLAIN
from tunec.schemas.source import COMMAND_LINE, Span
from tunec.schemas.spec import InlineModel
from tunec.schemas.terms import PLAIN_TEMPLATE
from tunec.schemas.training_data import parts

_NO_LENGTHS: Final = "data.lengths=null"
"""The spec's own lengths are not read: its file is what is measured, and may not be there yet."""
_BATCH: Final = 8
"""Samples in a batch if there is no plan: a usual number."""


class _Counting(NamedTuple):
    """The tokenizer that counts, and its description."""

    counter: Counter
    record: MeasuredBy
    words: str


def run(options: Namespace, session: Session) -> int:
    """Measure data files, and print or store their lengths."""
    loaded = _loaded(options, session)
    if loaded is not None and loaded.spec is None:
        return session.refuse(loaded.diagnostics, loaded.sources)
    try:
        counting = _counting(options, loaded)
    except Unread as why:
        line = f"--model {options.model or ''}"
        at = Span(COMMAND_LINE, 1, 1, 1, len(line) + 1)
        fault = error("E0305", str(why), at, help=why.help)
        gone = missing(_sources(options, loaded))
        return session.refuse((fault, *gone), {COMMAND_LINE: line})
    named, once = len(options.files), len(_once(options.files))
    if named > once:
        several = "" if once == 1 else "s"
        session.note(f"{named} names are of {once} file{several}: each is measured once")
    found = measure(_sources(options, loaded), counting.counter, options.text)
    if found.measured is None:
        return session.refuse(found.faults, {})
    return _show(found.measured, counting, loaded, options, session)


def _show(
    measured: SampleLengths,
    counting: _Counting,
    loaded: Loaded | None,
    options: Namespace,
    session: Session,
) -> int:
    lengths = measured.lengths(is_estimate=counting.record.sha256 is None)
    planned = _planned(loaded, lengths, options, session)
    if planned is not None:
        session.diagnose(planned.diagnostics, planned.loaded.sources)
        if has_errors(planned.diagnostics):
            return session.refuse((), {})
    report = _report(measured, lengths, counting, planned, options)
    if session.format == "json":
        session.json(report_json(report))
    else:
        pen = Pen(is_colored(session.stdout), session.draws)
        session.result(report_text(report, pen))
    return _keep(measured, counting.record, options, session)


def _report(
    measured: SampleLengths,
    lengths: Lengths,
    counting: _Counting,
    planned: Planned | None,
    options: Namespace,
) -> Report:
    longest = lengths.counts[-1][0]
    made = planned.plan if planned is not None else None
    if made is None:
        return Report(
            measured, lengths, counting.words, options.sequence or longest, options.batch or _BATCH
        )
    batch, sequence = made.batch, made.data.sequence
    return Report(
        measured, lengths, counting.words, sequence, batch.micro, batch.accumulation, planned
    )


def _keep(measured: SampleLengths, record: MeasuredBy, options: Namespace, session: Session) -> int:
    """Write the file of lengths, or compare it with new measurements."""
    if options.check is not None:
        path = Path(options.check)
        text = text_of(kept(measured, record, path.parent))
        is_same = path.is_file() and path.read_bytes() == text.encode()
        session.note(f"{path}: {'as measured' if is_same else 'not what is measured now'}")
        return OK if is_same else INPUT
    if options.output is not None:
        path = Path(options.output)
        for written in write_all({path: text_of(kept(measured, record, path.parent))}):
            session.note(f"wrote {written}: `data.lengths: {written.name}` in a spec uses it")
    return OK


def _loaded(options: Namespace, session: Session) -> Loaded | None:
    if options.spec is None:
        if not options.files:
            raise Misuse("name data files, or a spec that trains on some: --spec SPEC")
        if options.model is None and options.tokenizer is None and not options.estimate:
            raise Misuse("name the model whose tokenizer counts: --model M")
        return None
    if options.sequence or options.batch:
        raise Misuse("--sequence and --batch are the plan's where --spec is given")
    return load_spec(
        Path(options.spec),
        overrides=(*options.overrides, _NO_LENGTHS),
        hardware=options.hardware,
        targets=session.registry.names(),
        allow_outside=options.allow_outside,
    )


def _sources(options: Namespace, loaded: Loaded | None) -> Sequence[Source]:
    if options.files or loaded is None or loaded.spec is None:
        return [Source(path) for path in _once(options.files).values()]
    full = Path(options.spec).resolve()
    return list(_named(loaded, None if options.allow_outside else project_root(full)))


def _once(files: Sequence[str]) -> Mapping[Path, Path]:
    """Files as they were named first, by where they lie: `*.jsonl train.jsonl` has one twice."""
    found: dict[Path, Path] = {}
    for each in map(Path, files):
        found.setdefault(each.resolve(), each)
    return found


def _named(loaded: Loaded, root: Path | None) -> Iterator[Source]:
    """The files that a spec trains on; raise Misuse for one outside its project."""
    for each in parts(loaded.spec.data.train) if loaded.spec else ():
        if data_kind(each.path) != "file":
            raise Misuse(f"the spec trains on {each.path!r}, which is no file: name its files")
        with suppress(Unreadable):  # measuring tells it
            _require_inside(loaded.base / each.path, root)
        yield Source(loaded.base / each.path, each.times, each.samples)


def _require_inside(path: Path, root: Path | None) -> None:
    try:
        require_inside(path, root)
    except Outside:
        what = f"{path} lies outside the project of the spec"
        raise Misuse(f"{what}: move it, or allow files outside it: --allow-outside") from None


def _counting(options: Namespace, loaded: Loaded | None) -> _Counting:
    """The tokenizer that counts tokens; raise Unread if it is not available."""
    if options.estimate:
        record = MeasuredBy(model="", sha256=None)
        words = "AN ESTIMATE by characters, 4 a token: a tokenizer may count a third more or less"
        return _Counting(Characters(), record, words)
    model = _model(options, loaded)
    folder = Path(options.tokenizer) if options.tokenizer else None
    files = find(model, folder)
    text, whose = _template(options, loaded, files.template)
    template = ChatTemplate(text, files.special) if text is not None else None
    digest = hashlib.sha256(text.encode()).hexdigest() if text is not None else None
    record = MeasuredBy(model=model, sha256=files.sha256, template_sha256=digest)
    words = f"counted by {files.file}" + (f", with {whose}" if text is not None else "")
    return _Counting(Tokenizer(files, template), record, words)


def _template(options: Namespace, loaded: Loaded | None, own: str | None) -> tuple[str | None, str]:
    """The chat template, and whose it is: the one that is named, that of the spec, or its own."""
    if options.template:
        return template_text(Path(options.template)), "the chat template"
    said = loaded.spec.data.chat_template if loaded is not None and loaded.spec else None
    if loaded is None or said is None:
        return own, "its chat template"
    if said == PLAIN_TEMPLATE:
        return PLAIN, "the plain chat template"
    root = None if options.allow_outside else project_root(Path(options.spec).resolve())
    with suppress(Unreadable):  # reading tells it
        _require_inside(loaded.base / said, root)
    return template_text(loaded.base / said), f"the chat template of {said}"


def _model(options: Namespace, loaded: Loaded | None) -> str:
    """The repository or folder of the model whose tokenizer counts."""
    named = options.model
    if named is None and loaded is not None and loaded.spec is not None:
        model = loaded.spec.model
        named = model.path if isinstance(model, InlineModel) else model
        inside = loaded.base / named
        named = str(inside) if inside.exists() else named
    if named is None or Path(named).exists():
        return named or ""
    try:
        return repository(named)
    except LookupError:
        return str(named)


def _planned(
    loaded: Loaded | None, lengths: Lengths, options: Namespace, session: Session
) -> Planned | None:
    """The spec's plan with these lengths instead of those that it names."""
    if loaded is None:
        return None
    known = replace(loaded, lengths=lengths)
    return plan(known, asked_targets(options.targets, known, session))
