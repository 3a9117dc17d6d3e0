"""What the rows of public data sets say of the parts that a spec names on the Hub."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.wording import nearest_one, quoted
from tunec.compiler.passes.contract import Scribe
from tunec.schemas.data_paths import Chosen, chosen, first_of, usual_split
from tunec.schemas.datasets.catalogue import PublicDataset, public_dataset, samples_in
from tunec.schemas.training_data import Data, parts


def samples_of_rows(data: Data) -> int | None:
    """The samples of an epoch by the rows of its data sets; None unless all parts have one."""
    total = 0
    for part in parts(data.train):
        count = samples_in(part.name)
        if count is None:
            return None
        total += part.seen_of(count)
    return total


def report_missing_parts(scribe: Scribe, evaluation: str | None) -> None:
    """Report configurations and splits that a data set lacks, by its row."""
    data = scribe.facts.spec.data
    trained = [each.name for each in parts(data.train)]
    for name in dict.fromkeys(trained):
        _report(scribe, name, "train", "data.train")
    if evaluation is not None:
        _report(scribe, evaluation, usual_split(evaluation, trained), "data.evaluation")


def _report(scribe: Scribe, name: str, usual: str, at: str) -> None:
    known, part = public_dataset(name), chosen(name)
    found = known and _missing(known, part, usual)
    if known and found:
        what, remedy = found
        scribe.report(
            "data-part-missing",
            "warning",
            f"{part.path} has {what}",
            at,
            notes=("the run would end as it loads its data", f"known from {known.source}"),
            help=remedy,
        )


def _missing(known: PublicDataset, part: Chosen, usual: str) -> tuple[str, str] | None:
    """What the data set does not have, and what to write; None where it has the part."""
    if part.config is None and known.configs and not known.splits:
        named = quoted(known.configs, "and")
        said = f"write `{{path: {part.path}, config: {next(iter(known.configs))}}}`"
        return f"no default configuration: it has {named}", said
    if part.config and part.config not in known.configs:
        # A row may lack some of many configurations, so only a likely slip is told of.
        meant = nearest_one(part.config, known.configs)
        what, remedy = f"no configuration `{part.config}`", f"write `config: {meant}`"
        return (what, remedy) if meant else None
    splits = known.splits_of(part.config)
    absent = [each for each in _splits(part.split or usual) if splits and each not in splits]
    if not absent:
        return None
    return (
        f"no split {quoted(absent)}: it has {quoted(splits, 'and')}",
        f"write `{{path: {part.path}, split: {next(iter(splits))}}}`",
    )


def _splits(said: str) -> Iterator[str]:
    """The names in a split, which may add some and take a slice of each: `train[:10%]+test`."""
    for each in said.split("+"):
        yield (first_of(each)[0] or "").partition("[")[0].strip()
