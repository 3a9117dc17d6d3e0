"""The documents of a translation: those of lint, with scripts read by their own targets."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from tunec.compiler.frontend.hydra_overrides import is_composed, without_overrides
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.shell_references import OVER_A_FILE
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRAINERS, Document
from tunec.compiler.lints.document import TRL as OF_TRL
from tunec.compiler.lints.kinds import EXPLAINED, known_keys
from tunec.compiler.lints.neighbours import is_shipped
from tunec.compiler.target import File, Target
from tunec.compiler.translate.overrides import with_overrides
from tunec.compiler.translate.python_scripts import MENTIONS_ADAPTERS, OF_UNSLOTH, fast_loads
from tunec.compiler.translate.scripts import with_own_scripts
from tunec.schemas.frozen import replace

_TRL: Final = "trl"
_ENGINE: Final = "deepspeed"
_TRAINER: Final = "huggingface"
_AUTO: Final = "auto"
_SLURM: Final = "slurm"
_SBATCH: Final = "sbatch"
_BATCH_SCRIPT: Final = "train.sbatch"
_STEP: Final = "srun"
_NO_COMMAND: Final = ("skypilot", "kubeflow")
"""Kinds of files that are no command line, whatever flags resemble them."""
_TRAINING: Final = "training_args.yaml"
_MODEL: Final = "model_args.yaml"
_OF_A_SCRIPT: Final = (_TRAINING, "sft.yaml")
"""Files whose tables have flags of scripts: transformers' arguments, alone or with TRL's."""


class Documents(Struct, frozen=True):
    """The documents to translate."""

    every: tuple[Document, ...]
    has_unknown_program: bool
    """Whether flags belong to an unknown program: then the defaults of transformers' arguments are
    known, those of its other classes are not."""


def documents_of(documents: Sequence[Document], run: LintContext) -> Documents:
    """The documents with a table that configure a run, without views, which repeat others.

    An engine's file that ships with its program is only given by its name.
    """
    shipped = (replace(each, origin=None, paths={}) for each in documents if is_shipped(each))
    told = (*(each for each in documents if not each.is_view), *shipped)
    own = with_own_scripts(with_overrides(told), run.targets, run.environment.readers)
    read = _in_code([each for each in own if each.target is not None])
    own = _beside_the_trainers(each for each in read if not _is_argument(each))
    own = _precise(own)
    own = _explained(_with_flags(own), documents)
    scripts = [each for each in own if _is_of_unknown_program(each)]
    every = [part for each in own for part in (_split(each) if each in scripts else (each,))]
    flagged = {each.name for each in every if each.format == "shell" and each.kind != "launch"}
    flagged |= {each.name for each in documents if each.kind == OVER_A_FILE}
    cut = [_cut(each) if each.name in flagged else each for each in every]
    alone = (_alone(_filled(each, run)) for each in _of_slurm(cut, run))
    return Documents(tuple(alone), bool(scripts))


def _with_flags(documents: Sequence[Document]) -> tuple[Document, ...]:
    """The documents, with a config and the flags beside it merged; a flag overrides the config.

    If several commands or configs are read, they stay separate.
    """
    flags = [each for each in documents if each.file is not None and each.file.over]
    configs = [each for each in documents for one in flags if _is_config_of(each, one)]
    if len(flags) != 1 or len(configs) != 1:
        return tuple(documents)
    (flag,), (config,) = flags, configs
    fields = {**(config.root.fields or {}), **(flag.root.fields or {})}
    whole = replace(config, root=replace(config.root, fields=fields))
    return tuple(whole if each is config else each for each in documents if each is not flag)


def _explained(own: Iterable[Document], every: Iterable[Document]) -> tuple[Document, ...]:
    """The documents, with the data sets as the file beside them describes them."""
    told = next((each.root for each in every if each.kind == EXPLAINED), None)
    if told is None:
        return tuple(own)
    return tuple(_with_data_sets(each, told) for each in own)


def _with_data_sets(document: Document, told: Node) -> Document:
    if document.file is None or not any(EXPLAINED in row.keys for row in document.file.entries):
        return document
    named = ",".join(str(document.value(key) or "") for key in ("dataset", "eval_dataset"))
    names = {each.strip() for each in named.split(",")}
    fields = {key: each for key, each in (told.fields or {}).items() if key in names}
    root = document.root
    held = {**(root.fields or {}), EXPLAINED: replace(told, fields=fields)}
    return replace(document, root=replace(root, fields=held))


def _is_config_of(document: Document, flags: Document) -> bool:
    """Whether flags override what a document holds."""
    if document.file is None or document.target is None or flags.target is None:
        return False
    is_theirs = document.target.name == flags.target.name
    return flags.file is not None and is_theirs and document.file.name == flags.file.over


def _in_code(documents: Sequence[Document]) -> list[Document]:
    """The documents, with the calls of Python programs by the names of their own arguments."""
    adapters = {
        each.name: each for each in documents if (each.format, each.kind) == ("python", "peft")
    }
    return [
        _by_its_calls(each, adapters.get(each.name)) if each.format == "python" else each
        for each in documents
    ]


_ADAPTED: Final = "use_peft"


def _by_its_calls(document: Document, adapter: Document | None) -> Document:
    """A document of a program; a trainer of TRL is given an adapter, or none, by an argument.

    trl 0.8.6 to 1.16.0 trainer/*_trainer.py: `peft_config`, which `use_peft` fills in TRL's own
    scripts.
    """
    if document.file is not None and document.file.in_code is not None:
        if fast_loads(document):
            return _without(document, *OF_UNSLOTH)
        return replace(document, file=document.file.in_code)
    if document.kind not in OF_TRL or _ADAPTED in document.found:
        return document
    is_open = adapter is None and MENTIONS_ADAPTERS.search(document.text) is not None
    span = (adapter or document).start()
    given = {} if is_open else {_ADAPTED: Node(span, value=adapter is not None, key_span=span)}
    root = replace(document.root, fields={**(document.root.fields or {}), **given})
    return replace(document, root=root)


def _alone(document: Document) -> Document:
    """A file that could name another one, and does not."""
    file = document.file
    if file is None or file.alone is None or any(key in document.found for key in file.names):
        return document
    return replace(document, file=file.alone)


def _filled(document: Document, run: LintContext) -> Document:
    """DeepSpeed's file that leaves keys to a trainer, though none of a trainer's files was read.

    DeepSpeed alone does not know `auto`, and would use its default.
    """
    file = document.file
    if document.kind != _ENGINE or file is None or file.filled:
        return document
    trainers = next(each for each in run.targets[_TRAINER].files if each.name == file.name)
    is_left = any(
        place.value == _AUTO and key in (trainers.filled or ())
        for key, place in document.found.items()
    )
    return replace(document, file=replace(file, filled=trainers.filled)) if is_left else document


def _of_slurm(documents: Sequence[Document], run: LintContext) -> Iterator[Document]:
    """The documents, with options of a batch script as read by the target that writes such scripts.

    The launcher that `srun` starts on each node replaces it.
    """
    starting = {each.name for each in documents if _launcher(each) not in (None, _STEP)}
    files = {file.name: file for file in run.targets[_SLURM].files} if _SLURM in run.targets else {}
    for each in documents:
        if each.file is not None and each.file.name == _SBATCH and _BATCH_SCRIPT in files:
            root = replace(each.root, fields={_SBATCH: each.root})
            target = run.targets[_SLURM]
            yield replace(each, root=root, target=target, file=files[_BATCH_SCRIPT])
        elif _launcher(each) == _STEP and each.name in starting:
            yield _without(each, "script", "launcher")
        else:
            yield each


def _launcher(document: Document) -> str | None:
    return document.value("launcher") if document.kind == "launch" else None


def _without(document: Document, *keys: str) -> Document:
    fields = document.root.fields or {}
    kept = {key: child for key, child in fields.items() if key not in keys}
    return replace(document, root=replace(document.root, fields=kept))


def _beside_the_trainers(documents: Iterable[Document]) -> tuple[Document, ...]:
    """The documents, where a file that several programs read is assigned to one of them.

    DeepSpeed's file belongs to the trainer beside it, and TRL's beside the Trainer's own arguments
    to the same script. `compiler/lints/recognition.py` recognises each file alone.
    """
    every = tuple(documents)
    own = next((each.target for each in every if _is_trainers_own(each)), None)
    others = [each.target for each in every if each.kind != _ENGINE and each.target is not None]
    return tuple(
        _read_by(each, others if each.kind == _ENGINE else [own] if _is_trls(each) and own else [])
        for each in every
    )


_ON_TRAINER: Final = (*TRAINERS, "axolotl", "ms-swift")
"""Kinds whose programs train with transformers' Trainer."""


def _precise(documents: Sequence[Document]) -> tuple[Document, ...]:
    """The documents without a `mixed_precision: no` of accelerate's that a Trainer overrides.

    transformers 4.40.2 to 4.57.6 training_args.py `__post_init__` sets the launcher's variable by
    its own flags, and 5.23.0 gives them to the Accelerator; the variable counts if both are off.
    """
    if not any(each.kind in _ON_TRAINER for each in documents):
        return tuple(documents)
    return tuple(
        _without(each, "mixed_precision")
        if each.kind == "accelerate" and each.value("mixed_precision") in ("no", False)
        else each
        for each in documents
    )


def _read_by(document: Document, targets: Iterable[Target]) -> Document:
    """The document as read by the first target that has such a file."""
    for target in targets:
        for file in target.files:
            if document.file is not None and file.name == document.file.name:
                return replace(document, target=target, file=file)
    return document


def _is_trainers_own(document: Document) -> bool:
    names = (_TRAINING, _MODEL)
    return document.file is not None and document.file.name in names and document.format == "yaml"


def _is_trls(document: Document) -> bool:
    return document.target is not None and document.target.name == _TRL


def _is_argument(document: Document) -> bool:
    """Whether flags belong to an unknown program, and stay words of the command."""
    entries = document.file.entries if document.file else ()
    known = {key for entry in entries for key in entry.keys}
    is_flags = document.format == "shell" and "launcher" not in document.found
    is_trainers = document.kind in TRAINERS and not known.isdisjoint(document.found)
    return is_flags and not is_trainers and document.kind in (*TRAINERS, *_NO_COMMAND)


def _is_of_unknown_program(document: Document) -> bool:
    """Whether flags of TrainingArguments stand beside those of other classes: `train.py --lr`."""
    file, target = document.file, document.target
    is_hf = target is not None and target.name == "huggingface" and document.format == "shell"
    return is_hf and file is not None and file.name in _OF_A_SCRIPT


def _split(document: Document) -> tuple[Document, ...]:
    """The arguments of transformers' class, and those of the others under TRL's names."""
    files = {file.name: file for file in document.target.files} if document.target else {}
    training = known_keys(document.target, files[_TRAINING]) if document.target else frozenset()
    fields = document.root.fields or {}
    mine = {key: child for key, child in fields.items() if key in training}
    rest = {key: child for key, child in fields.items() if key not in training}
    return (
        _part(document, mine, files[_TRAINING], "hf"),
        *((_part(document, rest, files[_MODEL], "model"),) if rest else ()),
    )


def is_given_flags(document: Document) -> bool:
    """Whether these are TrainingArguments flags of a user's script."""
    file = document.file
    return document.format == "shell" and file is not None and file.name == _TRAINING


def is_own_flags(document: Document) -> bool:
    """Whether these are the other flags of a user's script."""
    file = document.file
    return document.format == "shell" and file is not None and file.name == _MODEL


def _part(document: Document, fields: dict[str, Node], file: File, kind: str) -> Document:
    root = replace(document.root, fields=fields)
    return replace(document, root=root, file=file, kind=kind)


def _cut(document: Document) -> Document:
    """A launcher's command without its program's flags, which another document holds."""
    fields = document.root.fields or {}
    script = fields.get("script")
    if document.kind != "launch" or script is None or script.items is None:
        return document
    words = [str(each.value) for each in script.items]
    if words and is_composed(words[0]):
        kept = without_overrides(script.items)
    else:
        end = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
        kept = script.items[:end]
    cut = replace(script, items=kept)
    return replace(document, root=replace(document.root, fields={**fields, "script": cut}))
