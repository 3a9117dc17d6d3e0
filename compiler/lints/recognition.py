"""Which program's file a document is, by its keys; a name tells where the keys leave it open."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.frontend.nodes import Node, plain
from tunec.compiler.frontend.shell_references import (
    OWN,
    OWN_ENGINE,
    SCRIPTS,
    is_of_trainers,
    starts_engine,
)
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.facts.key_releases import HANDBOOK
from tunec.compiler.lints.formats import Parsed
from tunec.compiler.lints.kinds import (
    LEAST_SHARE,
    OF_SCRIPTS,
    by_name,
    fields_of,
    has_alternatives,
    is_of_others,
    kind_by_class,
    kind_of,
    known_keys,
    without_dashes,
)
from tunec.compiler.target import File, Target

_FIRST: Final = (
    *(
        "ai-toolkit",
        "musubi-tuner",
        "sd-scripts",
        "torchtune",
        "axolotl",
        "llamafactory",
        "ms-swift",
        "verl",
        "trl-methods",
    ),
    *("simpletuner", "accelerate", "trl"),
)
_LAST: Final = ("glm4", "minicpm-v")
_TOML: Final = ("simpletuner", "sd-scripts", "musubi-tuner")
"""Who reads TOML, which no other program that is known does, and no YAML: simpletuner 4.10.1
helpers/configuration/loader.py, scripts of diffusers' kind having many of its keys;
kohya-ss/sd-scripts 0.10.1 library/train_util.py `read_config_from_file`."""
_NO_JSON: Final = ("sd-scripts", "musubi-tuner")
"""Kinds of config that are TOML alone (`read_config_from_file`, also of musubi-tuner 0.3.4
training/parser_common.py): JSON with the same keys is that of an interface around the scripts."""
_WITH_PROGRAM: Final = (
    *("ai-toolkit", "axolotl", "llamafactory", "llama-cookbook", "ms-swift", "musubi-tuner"),
    *("nemo-automodel", "openrlhf", "sd-scripts", "simpletuner", "torchtune", "unsloth", "verl"),
    *("accelerate", "deepspeed"),
)
"""Who brings the program that reads its keys: flags of another script are not theirs."""
_SEQ2SEQ: Final = frozenset(
    {
        *("predict_with_generate", "generation_max_length", "generation_num_beams"),
        *("generation_config", "sortish_sampler"),
    }
)
"""Fields of Seq2SeqTrainingArguments (transformers 4.40.2 to 5.23.0 training_args_seq2seq.py)."""
_CLASSED: Final = ("hf", *TRL)
"""Kinds that are recognised by keys that many programs have."""
_BLOCKS: Final = ("deepspeed",)
_PROGRAM: Final = re.compile(
    r"\Atrl (sft|dpo|grpo|kto|reward|rloo)\b"
    r"|(?:\A|[/.])(sft|dpo|grpo|kto|rloo|gkd|ppo)(?:_[a-z0-9_]*)?(?:\.py)?\Z"
    r"|(?:\A|[/.])scripts[/.](reward)(?:_modeling)?(?:\.py)?\Z"
)
"""trl 0.9 to 1.16 cli, and the scripts in trl/scripts and examples/scripts of its repository."""
_OF_TRL: Final = re.compile(r"(?:\A|/)(?:examples|trl)/scripts/\w+\.py\Z")
"""Where the scripts of TRL's repository and of its package lie."""
_SHARE_OF_FLAGS: Final = 0.4
"""The share of the flags of a script that the trainer has to know: the others are the script's."""
_SHARE_OF_ENGINE: Final = 0.9
"""The share the trainer has to know where a flag says that the script starts DeepSpeed itself."""
_SHARE_OF_SECTIONS: Final = 0.4
"""The share that DeepSpeed has to know: GPT-NeoX puts its sections among keys of its own."""
_SHARE_OF_SCRIPTS: Final = 0.8
"""The share of the keys that scripts of sd-scripts and musubi-tuner have to know: interfaces around
them keep most of the flags in files of their own, among settings of theirs."""
_SHARE_OF_PART: Final = 0.5
"""The share of the keys of a part of LLaMA-Factory's file, which names no model, that it has to
know: programs that start it have files of their own with some of its keys."""
_BY_MARKS: Final = (*_NO_JSON, "nemo-automodel", "trl-methods", "unsloth", "verl")
"""Whose files are told by keys of their own: trainers and many scripts share the others."""
_OF_METHODS: Final = {"trl-methods": "output_dir", "trl": "model_name_or_path"}
"""Whose files are of one method each, and the key that every whole one has."""
_OF_WHOLE: Final = frozenset(_OF_METHODS.values())
_OF_TUNERS: Final = frozenset({"rlhf_type", "base_model", "stage", "finetuning_type", "rl"})
"""Keys of ms-swift, Axolotl and LLaMA-Factory, which have numbers of the same methods."""
_OF_MERGES: Final = frozenset({"models", "slices"})
"""Of mergekit 0.1.4 config.py `MergeConfiguration`, which has Axolotl's base_model, too."""
_REQUIRED: Final = {"axolotl": "base_model", "llamafactory": "model_name_or_path"}
"""A key without which a program takes no file: others have many of its keys too."""
_OF_CPO: Final = frozenset({"cpo_alpha", "simpo_gamma"})
"""Fields of CPOConfig alone (trl 0.9.6 to 0.24.0 trainer/cpo_config.py, 1.16.0 experimental/cpo):
its other fields are those of TrainingArguments, and some of DPOConfig's, whose file it is not."""
_LEAST_FLAGS: Final = 2
"""Fields of the trainer, besides `deepspeed`, that a script's flags have at the least: scripts that
only load a model are given that one too."""
_OF_ANY_PROGRAM: Final = frozenset({"output_dir", "seed", "debug", "run_name"})
"""Flags that programs have which train nothing: alone they show no trainer."""
_OF_TRAINERS: Final = frozenset({"output_dir", "per_device_train_batch_size", "do_train"})
_NO_FLAGS: Final = ("ds_config.json", "accelerate.yaml")
"""Files that no program takes as flags of its own."""


def recognised(
    parsed: Parsed, targets: Mapping[str, Target], readers: Sequence[str], file_name: str = ""
) -> tuple[Target, File, str] | None:
    """The target, its file, and what rules call it; None where nobody's who is known."""
    if parsed.kind:
        return of_kind(parsed.kind, targets)
    document = plain(parsed.root)
    if parsed.reader == OWN or (not parsed.part and is_of_others(document)):
        return None
    started = _by_program(parsed, targets) or _of_cpo(parsed, document, targets)
    if started is not None:
        return started
    if parsed.reader is not None:
        found = _of_target(parsed, document, targets)
        if found is not None or parsed.reader in targets:
            return found
    document = _without_sections(parsed, document)
    named = [targets[name] for name in readers if name in targets]
    others = [targets[name] for name in _in_order(targets) if name not in readers]
    for group in (named, others):
        files = [(t, f) for t in group for f in t.files if _fits(t, f, parsed)]
        told = None if parsed.part else by_name(file_name, files, document)
        if told is not None:
            return _narrowed((*told, kind_of(*told)), files, document)
        if parsed.format == "yaml" and group is not named:
            files = [each for each in files if each[0].name not in _TOML]
        found = _marked(files, parsed, document, is_named=group is named)
        found = found or _best(files, parsed, document, is_named=group is named)
        if found is not None:
            return found
    return None


def _marked(
    files: Sequence[tuple[Target, File]], parsed: Parsed, document: Any, *, is_named: bool
) -> tuple[Target, File, str] | None:
    """The first file that knows the document for its own."""
    for target, file in files:
        if _is(file, document) and (is_named or _is_its_own(target, file, parsed, document)):
            found = target, file, kind_of(target, file)
            return _narrowed(found, files, document) if parsed.part != "flags" else found
    return None


def _of_cpo(
    parsed: Parsed, document: Any, targets: Mapping[str, Target]
) -> tuple[Target, File, str] | None:
    """The file of TrainingArguments, where fields of CPO stand in it: it is not DPO's."""
    keys = frozenset(document) if isinstance(document, dict) and not parsed.part else frozenset()
    is_another_s = bool(keys & {"base_model", "stage", "finetuning_type", "rl"})
    if not keys & _OF_CPO or "output_dir" not in keys or is_another_s:
        return None
    every = ((target, file) for target in targets.values() for file in target.files)
    return next(((*each, "hf") for each in every if kind_of(*each) == "hf"), None)


def of_kind(kind: str, targets: Mapping[str, Target]) -> tuple[Target, File, str] | None:
    """The file of a kind that is known before: TRL's own where transformers' target has it, too."""
    names = sorted(targets, key=lambda name: not name.startswith("trl"))
    every = ((targets[name], file) for name in names for file in targets[name].files)
    return next(((*each, kind) for each in every if kind_of(*each) == kind), None)


def _batch(targets: Mapping[str, Target]) -> tuple[Target, File, str] | None:
    """`#SBATCH` lines are Slurm's, whatever they ask for."""
    every = ((target, file) for target in targets.values() for file in target.files)
    return next(((*each, "slurm") for each in every if kind_of(*each) == "slurm"), None)


def _without_sections(parsed: Parsed, document: Any) -> Any:
    """The keys of TOML's sections beside those at the top: they tell whose file it is."""
    if parsed.format != "toml" or not isinstance(document, dict):
        return document
    below = (each for each in document.values() if isinstance(each, dict))
    sections = {key: value for each in below for key, value in each.items()}
    tops = {key: each for key, each in document.items() if not isinstance(each, dict)}
    return {**sections, **tops}


def _by_program(parsed: Parsed, targets: Mapping[str, Target]) -> tuple[Target, File, str] | None:
    """The file of TRL whose flags `trl dpo` takes, or a script that is called as TRL's own is."""
    if parsed.part == "slurm":
        return _batch(targets)
    said = _PROGRAM.search(parsed.program) if parsed.part == "flags" else None
    if said is None or "trl" not in targets or parsed.reader not in (None, "trl", "huggingface"):
        return None
    both = [targets[name] for name in ("trl", "trl-methods") if name in targets]
    every = [(target, file) for target in both for file in target.files]
    mine = [each for each in every if kind_of(*each) == said[said.lastindex or 1]]
    is_by_path = _OF_TRL.search(parsed.program) is not None
    is_own = parsed.reader == "trl" or is_by_path or _knows(mine, parsed, LEAST_SHARE)
    return next(((*each, kind_of(*each)) for each in mine if is_own), None)


def _part_of_trl(
    files: Iterable[tuple[Target, File]], document: Any
) -> tuple[Target, File, str] | None:
    """The file of a preference method whose own keys stand in a part that names no model."""
    if not isinstance(document, dict) or _OF_WHOLE & set(document) or _OF_TUNERS & set(document):
        return None
    for target, file in files:
        told = _OF_METHODS.get(target.name)
        kind = kind_of(target, file)
        if told is None or kind == "sft" or not _is(file, {**document, told: ""}):
            continue
        if len(set(document) & known_keys(target, file)) >= LEAST_SHARE * len(document):
            return target, file, kind
    return None


def _narrowed(
    found: tuple[Target, File, str], files: Iterable[tuple[Target, File]], document: Any
) -> tuple[Target, File, str]:
    """A file of the trainer's own fields, with fields that only TRL's classes have, is TRL's."""
    kind = kind_by_class(frozenset(document)) if found[2] == "hf" else None
    if kind not in TRL:
        return found
    trl = ((t, f) for t, f in files if t.name.startswith("trl") and kind_of(t, f) == kind)
    return next(((t, f, kind) for t, f in trl), found)


def _in_order(targets: Mapping[str, Target]) -> list[str]:
    """Names of targets, those first whose files are known by marks of their own."""
    return sorted(targets, key=lambda name: (_place(name), name in _LAST))


def _place(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _of_target(
    parsed: Parsed, document: Any, targets: Mapping[str, Target]
) -> tuple[Target, File, str] | None:
    """The file of the target that a script names: flags say what its YAML or JSON would."""
    target = targets.get(parsed.reader or "")
    if target is None:
        return None
    files = [(target, f) for f in target.files if kind_of(target, f) not in ("deepspeed", "launch")]
    if target.name == "huggingface" and not _knows(files, parsed, _SHARE_OF_FLAGS):
        return None
    if target.name == "huggingface":
        files = [each for each in files if kind_of(*each) != "sft" or _says_trl(document)]
    exact = next(((t, f) for t, f in files if _is(f, document)), None)
    if exact is not None and kind_of(*exact) == "model" and _trains(parsed, document):
        exact = None
    if exact is not None and kind_of(*exact) != "sft":
        return (*exact, kind_of(*exact))
    return _by_keys(files, document, least=0.0)


def _trains(parsed: Parsed, document: Any) -> bool:
    """Whether flags that name a model are those of a trainer, too."""
    return parsed.part == "flags" and bool(_OF_TRAINERS & frozenset(document))


def _says_trl(document: Any) -> bool:
    """Whether flags have a field of TRL's classes that scripts of others do not have as well."""
    keys = frozenset(document) if isinstance(document, dict) else frozenset()
    return bool(keys & fields_of("sft") - fields_of("hf") - OF_SCRIPTS)


def _is_its_own(target: Target, file: File, parsed: Parsed, document: Any) -> bool:
    """Whether most of a file's keys are a trainer's: others have `output_dir` and `optim` too."""
    kind = kind_of(target, file)
    keys = frozenset(parsed.root.fields or ())
    if kind == "deepspeed":
        return "fsdp" not in keys and len(
            keys & known_keys(target, file)
        ) >= _SHARE_OF_SECTIONS * len(keys)
    if kind == "llamafactory" and not parsed.part:
        return _REQUIRED[kind] in keys or len(
            keys & known_keys(target, file)
        ) >= _SHARE_OF_PART * len(keys)
    if kind in _TOML and not parsed.part:
        mine = without_dashes(frozenset(document))
        least = _SHARE_OF_SCRIPTS if kind in _NO_JSON else LEAST_SHARE
        return len(mine & without_dashes(known_keys(target, file))) >= least * len(mine)
    if kind not in _CLASSED:
        return True
    least = _SHARE_OF_FLAGS if parsed.part == "flags" else LEAST_SHARE
    return _knows([(target, file)], parsed, least)


def _knows(files: Sequence[tuple[Target, File]], parsed: Parsed, least: float) -> bool:
    """Whether a trainer knows enough of the keys; one that holds a block is another's."""
    if parsed.part == "flags" and is_of_trainers(parsed.program, parsed.root):
        return True
    fields = parsed.root.fields or {}
    if parsed.part == "flags" and starts_engine(parsed.root):
        fields = {key: each for key, each in fields.items() if key not in OWN_ENGINE}
        least = _SHARE_OF_ENGINE
    if not fields:
        return False  # the engine's own flags are of no trainer
    every = _SEQ2SEQ.union(*(known_keys(*each) for each in files))
    if not parsed.part and any(kind_of(*each) in TRL for each in files):
        every |= frozenset(HANDBOOK)  # a recipe of the handbook, which TRL's classes read now
    mine = [key for key, each in fields.items() if key in every and _may_be(key, each)]
    loads_only = parsed.part == "flags" and "deepspeed" in mine and "output_dir" not in mine
    if loads_only and len(fields_of("hf").intersection(mine)) - 1 < _LEAST_FLAGS:
        return False
    is_shown = parsed.part != "flags" or starts_engine(parsed.root)
    is_shown = is_shown or not _OF_ANY_PROGRAM.issuperset(mine)
    return is_shown and len(mine) >= least * len(fields)


def _may_be(key: str, node: Node) -> bool:
    return node.fields is None or key.endswith(("_config", "_kwargs", "_args")) or key in _BLOCKS


def _fits(target: Target, file: File, parsed: Parsed) -> bool:
    data = ("json", "yaml", "toml")
    if "text" in (parsed.format, file.format):
        return parsed.format == file.format
    if parsed.format == "toml" and (target.name not in _TOML or has_alternatives(parsed.root)):
        return False
    if parsed.format == "yaml" and kind_of(target, file).endswith("-data"):
        return False  # SimpleTuner reads its data sets by json.load
    if parsed.format == "json" and kind_of(target, file) in _NO_JSON:
        return False
    if parsed.part == "flags" and parsed.reader is None and target.name in _WITH_PROGRAM:
        return False
    if parsed.part in ("launcher", "slurm"):
        return file.format == "shell" and target.name not in SCRIPTS  # of these, flags are read
    if parsed.format == "shell" and parsed.part != "flags":
        return file.format in ("env", "shell")
    if parsed.part == "flags":
        return file.format in data and not file.name.endswith(_NO_FLAGS)
    return file.format in data and parsed.format in data


def _is(file: File, document: Any) -> bool:
    try:
        return bool(file.recognise(document))
    except (TypeError, ValueError, AttributeError, LookupError):
        return False


def _best(
    files: Sequence[tuple[Target, File]], parsed: Parsed, document: Any, *, is_named: bool
) -> tuple[Target, File, str] | None:
    """The file of a method whose own keys are there, or else the one that knows most keys."""
    part = None if parsed.part else _part_of_trl(files, document)
    if part is not None:
        return part
    mine = files if is_named else [each for each in files if _may_take(each[0], document)]
    found = _by_keys(mine, document)
    return found if found is not None and _is_plausible(found, parsed, document) else None


def _is_plausible(found: tuple[Target, File, str], parsed: Parsed, document: Any) -> bool:
    if parsed.part == "flags":
        return _is_its_own(found[0], found[1], parsed, document)
    if found[2].endswith("-data"):
        return False  # a list of anything has a first and a second: `_is` knows its own
    return found[2] != "deepspeed" or parsed.format == "json"


def _may_take(target: Target, document: Any) -> bool:
    """Whether a file may be a program's by its keys alone."""
    if isinstance(document, dict) and set(document) == {"model_type"}:
        return False  # a model's own config, of which a test needs no more
    if target.name == "trl" and isinstance(document, dict) and not set(document) & fields_of("hf"):
        return False  # rank and targets of LoRA alone are many scripts' own
    if target.name in _BY_MARKS:
        return False
    if isinstance(document, dict) and "merge_method" in document and _OF_MERGES & set(document):
        return False
    required = _REQUIRED.get(target.name)
    return required is None or (isinstance(document, dict) and required in document)


def _by_keys(
    files: Iterable[tuple[Target, File]], document: Any, least: float = LEAST_SHARE
) -> tuple[Target, File, str] | None:
    """The kind that knows most of the keys, if it knows enough of them; the earliest of equals."""
    keys = set(document) if isinstance(document, dict) else set()
    shares = [
        (len(keys & known_keys(target, file)) / len(keys), target, file)
        for target, file in files
        if keys
    ]
    share, target, file = max(shares, key=lambda each: each[0], default=(0, None, None))
    if target is None or file is None or share < least:
        return None
    return target, file, kind_of(target, file)
