"""What dataset_info.json says of the data sets that a YAML of LLaMA-Factory names."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, nearly
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.kinds import EXPLAINED
from tunec.compiler.lints.rule import Finding, rule
from tunec.targets.read_only import split_names

_COLUMNS: Final = frozenset(
    {
        *("prompt", "query", "response", "history", "messages", "system", "tools"),
        *("images", "videos", "audios", "chosen", "rejected", "kto_tag"),
    }
)
_TAGS: Final = frozenset(
    {
        *("role_tag", "content_tag", "user_tag", "assistant_tag"),
        *("observation_tag", "function_tag", "system_tag"),
    }
)
_PLACES: Final = frozenset(
    {
        *("hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name", "file_name"),
        *("formatting", "ranking", "subset", "split", "folder", "num_samples", "columns", "tags"),
    }
)
"""llamafactory 0.9.1 to 0.9.5 data/parser.py `DatasetAttr.join`, `get_dataset_list`."""
_LEVELS: Final[Mapping[str, frozenset[str]]] = {"": _PLACES, "columns": _COLUMNS, "tags": _TAGS}
_SLIPS: Final[Mapping[str, str]] = {"format": "formatting", "formating": "formatting"}
_OF_TURNS: Final = ("sharegpt", "openai")
_NEEDED: Final = ("role_tag", "content_tag", "user_tag", "assistant_tag")
_PAIRS: Final = ("rm", "dpo")
_STAGES: Final = ("pt", "sft", "ppo", "kto", *_PAIRS)
_LIKE: Final = 0.85
_DOES: Final = ("do_train", "do_eval", "do_predict")


class _Set(Struct, frozen=True):
    """A data set as a file describes it, and the place that names it."""

    name: str
    said: Place
    named: Place
    is_alone: bool
    """Whether the run has no other."""

    def get(self, path: str) -> Place | None:
        return self.said.document.get(f"{self.said.path}.{path}")

    def keys(self, level: str) -> tuple[str, ...]:
        held = self.get(level) if level else self.said
        return tuple(held.node.fields or ()) if held is not None else ()


def _file(run: LintContext, document: Document) -> Document | None:
    """The data sets' file of a YAML, if it is at hand."""
    folder = document.value("dataset_dir", "data")
    if not isinstance(folder, str) or document.get("export_dir") is not None:
        return None
    parts = [PurePath(each.name).parent.name for each in run.of(EXPLAINED)]
    fitting = [
        each
        for each, part in zip(run.of(EXPLAINED), parts, strict=True)
        if part in ("", PurePath(folder).name)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _named(document: Document) -> Iterator[tuple[str, Place, bool]]:
    if document.is_view or not any(document.value(each) for each in _DOES):
        return
    for key in ("dataset", "eval_dataset"):
        place = document.get(key)
        names = split_names(place.value) if place is not None else ()
        for name in names:
            if place is not None and name and not {"$", "{", "."} & set(name):
                yield name, place, len(names) == 1


def _sets(run: LintContext) -> Iterator[_Set]:
    for document in run.of("llamafactory"):
        info = _file(run, document)
        for name, place, is_alone in _named(document) if info is not None else ():
            said = info.get(name) if info is not None else None
            if said is not None and said.node.fields is not None:
                yield _Set(name, said, place, is_alone)


@rule("warning", "init", consumers=("llamafactory",), reads=("llamafactory:dataset",))
def data_set_not_described(run: LintContext) -> Iterator[Finding]:
    """A name of a data set that is almost one of dataset_info.json's."""
    for document in run.of("llamafactory"):
        info = _file(run, document)
        for name, place, is_alone in _named(document) if info is not None else ():
            held = frozenset(info.root.fields or ()) if info is not None else frozenset()
            near = None if name in held else nearly(name, held, _LIKE)
            if near is not None:
                yield Finding(
                    f"dataset_info.json does not describe {name}",
                    (place.label("unknown"),),
                    ("ValueError: undefined dataset",),
                    f"did you mean {near}?",
                    Fix((place.replaced(near),), "unsafe") if is_alone else None,
                )


@rule("error", "init", consumers=("llamafactory",), reads=("llamafactory:dataset",))
def data_set_of_another_stage(run: LintContext) -> Iterator[Finding]:
    """Pairs are for `dpo` and `rm` alone, which take nothing else."""
    for each in _sets(run):
        stage = each.named.document.get("stage")
        word = stage.value if stage is not None else "sft"
        ranking = each.get("ranking")
        has_pairs = ranking is not None and ranking.value is True
        is_other = ranking is not None and not isinstance(ranking.value, bool)
        if word not in _STAGES or is_other or has_pairs == (word in _PAIRS):
            continue  # "true" as text is neither of the two, and taken by every stage
        shown = ranking if ranking is not None else each.said
        yield Finding(
            f"stage {word} refuses {each.name}, which is described "
            f"{'as' if has_pairs else 'without'} pairs",
            (each.named.label("refused"), shown.label("", primary=False)),
            ("ValueError: the dataset is not applicable in the current training stage",),
            "write stage: dpo, or rm" if has_pairs else 'write "ranking": true for it',
        )


@rule("warning", "silent", consumers=("llamafactory",), reads=(f"{EXPLAINED}:*",))
def data_set_word_unread(run: LintContext) -> Iterator[Finding]:
    """A key that is almost one of those that are looked up."""
    for each in _sets(run):
        for level, known in _LEVELS.items():
            held = frozenset(each.keys(level))
            for key in sorted(held - known):
                meant = _SLIPS.get(key) or next(iter(nearest(key, known - held)), None)
                place = each.get(f"{level}.{key}" if level else key)
                if place is None or meant is None or meant in held:
                    continue
                yield Finding(
                    f"{each.name} has {key}, which LLaMA-Factory does not look up",
                    (place.key_label("not read"), each.named.label("", primary=False)),
                    (_instead(each, meant),),
                    f"did you mean {meant}?",
                    Fix((place.renamed(meant),), "unsafe"),
                    consequence="init" if each.is_alone and meant == "formatting" else None,
                )


def _instead(each: _Set, meant: str) -> str:
    if meant != "formatting":
        return f"other keys are passed over silently, and {meant} has its default"
    if "columns" in each.keys(""):
        return "it is read as alpaca: no record has a response, and all are dropped"
    return "it is read as alpaca, whose columns are instruction, input and output"


@rule("error", "init", consumers=("llamafactory",), reads=(f"{EXPLAINED}:*",))
def data_set_words_left_out(run: LintContext) -> Iterator[Finding]:
    """A block of columns or tags has no defaults: what it leaves out is missing."""
    for each in _sets(run):
        form = each.get("formatting")
        if form is None or form.value not in _OF_TURNS:
            continue
        for level, words in (("columns", ("messages",)), ("tags", _NEEDED)):
            block = each.get(level)
            left = [word for word in words if word not in each.keys(level)]
            if block is None or block.node.fields is None or not left:
                continue
            is_dropped = left[0] in _NEEDED[2:]
            yield Finding(
                f"{level} of {each.name} leave out {left[0]}, which then has no default",
                (block.key_label("incomplete"), each.named.label("", primary=False)),
                (
                    "every record counts as broken, and is dropped"
                    if is_dropped
                    else "KeyError: None, at the first record",
                ),
                f"write {left[0]}",
                consequence="silent" if is_dropped and not each.is_alone else None,
            )
