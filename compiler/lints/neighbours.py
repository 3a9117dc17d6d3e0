"""Files named by other files, and files of a checkpoint, of a model, or shipped with a program."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.python_settings import ScriptArguments, given_by
from tunec.compiler.frontend.shell_variables import UNKNOWN as LEFT_OPEN
from tunec.compiler.frontend.shell_written import written_in
from tunec.compiler.lints.context import Missing
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.formats import Parsed
from tunec.compiler.lints.repository import Reach
from tunec.schemas.frozen import replace
from tunec.schemas.source import start_of

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel

_PYTHON: Final = (".py", ".ipynb")
LONGEST: Final = 500
"""The length limit of a file name, in characters."""


def written_by(documents: Iterable[Document], named: str) -> tuple[str, str | None]:
    """The script that writes a file, and the text that it writes, as `written_in` returns it."""
    scripts = {each.name: each.text for each in documents if each.format == "shell"}
    found = ((name, written_in(text, named)) for name, text in scripts.items())
    return next((each for each in found if each[1] is not None), ("", None))


def is_python(name: str) -> bool:
    """Whether a name is that of a Python file or a notebook."""
    return name.endswith(_PYTHON) and len(name) < LONGEST


def script_of(started: str) -> str:
    """The Python file that a command starts, by path or as a module; empty if it starts none."""
    is_module = "." in started and all(map(str.isidentifier, started.split(".")))
    if is_python(started) or not is_module or len(started) > LONGEST:
        return started if is_python(started) else ""
    return f"{started.replace('.', '/')}.py"


def starts_of(parsed: Iterable[Parsed]) -> Mapping[str, ScriptArguments]:
    """The arguments that launch lines give each script, by the name they use for the script."""
    lines: dict[str, list[list[str | None]]] = {}
    for each in parsed:
        script = each.root.child("script") if each.part == "launcher" else None
        items = (script.items if script is not None else None) or ()
        words = [word.value if isinstance(word.value, str) else None for word in items]
        if words and words[0] is not None:
            lines.setdefault(words[0], []).append(words[1:])
    return {script: given_by(every) for script, every in lines.items()}


def is_file_name(text: str) -> bool:
    """Whether a text is the file name of a config."""
    is_path = text.endswith((".json", ".yaml", ".yml", ".toml")) and not set("{=") & set(text)
    return is_path and len(text) < LONGEST


_MOST: Final = 100_000
"""The number of names that are read of one folder."""
_STATES: Final = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_\d+_optim_states\.pt")
_PARTS: Final = re.compile(r"zero_pp_rank_\d+_mp_rank_\d+_model_states\.pt")
_RANDOM: Final = re.compile(r"rng_state(?:_(\d+))?\.pth")
"""deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_get_rank_zero_ckpt_name`, `_get_ckpt_name`;
transformers 4.40.2 to 5.23.0 trainer.py `_save_rng_state`."""


def checkpoints(
    document: Document, near: Callable[[Path], Iterable[Path]], admits: Callable[[Path], bool]
) -> Iterator[tuple[Path, Node]]:
    """The checkpoint folder from which a trainer's file resumes training, if it exists.

    `near` gives the candidate locations of a path in that file; `admits` returns whether a location
    may be read.
    """
    said, output = (document.value(key) for key in ("resume_from_checkpoint", "output_dir"))
    wanted = output if said is True else said
    if not isinstance(wanted, str) or not 0 < len(wanted) < LONGEST:
        return
    for each in filter(admits, near(Path(wanted))):
        folder = last_of(each) if said is True else each
        if folder is None or not admits(folder):
            continue
        node = checkpoint_node(folder)
        if node is not None:
            yield folder, node
            return


def last_of(folder: Path) -> Path | None:
    """The newest checkpoint in an output directory, which the trainer chooses for `true`."""
    found = {int(name[11:]): name for name in _names(folder) if re.match(r"checkpoint-\d+$", name)}
    return folder / found[max(found)] if found else None


def checkpoint_node(folder: Path) -> Node | None:
    """`engine`, `processes` and `sharded` of a checkpoint; None for another folder."""
    names = _names(folder)
    tags = sorted(name for name in names if name.startswith("global_step"))
    inner = _names(folder / _tag(folder, tags)) if tags else []
    states = [int(found[1]) for each in inner if (found := _STATES.fullmatch(each))]
    ranks = [int(found[1] or 0) for each in names if (found := _RANDOM.fullmatch(each))]
    if not states and not ranks:
        return None
    engine = "deepspeed" if states else "none"
    told = {
        "engine": engine,
        "processes": 1 + max(states or ranks),
        "sharded": any(_PARTS.fullmatch(each) for each in inner),
    }
    at = start_of(str(folder))
    return Node(
        at, fields={key: Node(at, value, is_inline_json=True) for key, value in told.items()}
    )


def _tag(folder: Path, tags: list[str]) -> str:
    """The folder that is loaded: the one that `latest` names, else the last one."""
    try:
        named = read_bytes(folder / "latest").decode("utf-8", "replace").strip()
    except Unreadable:
        named = ""
    return named if named in tags else tags[-1]


def _names(folder: Path) -> list[str]:
    try:
        every: Iterable[Path] = folder.iterdir()
        return sorted(each.name for _, each in zip(range(_MOST), every, strict=False))
    except OSError:
        return []


_AUTO: Final = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    "gradient_clipping",
)
_EITHER: Final = {"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}
_BF16: Final = {"bf16": {"enabled": True}}
_CPU: Final = {"device": "cpu", "pin_memory": True}
_OPTIMIZER: Final = {"offload_optimizer": _CPU}
_BOTH: Final = {"offload_optimizer": _CPU, "offload_param": _CPU}

_LLAMAFACTORY: Final[Mapping[str, tuple[int, Mapping[str, Any], Mapping[str, Any]]]] = {
    "ds_z0_config.json": (0, {}, _EITHER),
    "ds_z2_config.json": (2, {}, _EITHER),
    "ds_z2_offload_config.json": (2, _OPTIMIZER, _EITHER),
    "ds_z3_config.json": (3, {}, _EITHER),
    "ds_z3_offload_config.json": (3, _BOTH, _EITHER),
}
"""hiyouga/LlamaFactory v0.9.4 examples/deepspeed: stage, offloaded parts, half precision blocks."""
_AXOLOTL: Final[Mapping[str, tuple[int, Mapping[str, Any], Mapping[str, Any]]]] = {
    "zero1.json": (1, {}, _EITHER),
    "zero3.json": (3, {}, _EITHER),
    "zero3_bf16.json": (3, {}, _BF16),
    "zero3_bf16_cpuoffload_all.json": (3, _BOTH, _BF16),
    "zero3_bf16_cpuoffload_params.json": (3, {"offload_param": _CPU}, _BF16),
}
"""axolotl-ai-cloud/axolotl v0.18.0 deepspeed_configs, without zero2.json, which has changed."""
_GATHERED: Final = {
    "allgather_partitions": True,
    "allgather_bucket_size": 2e8,
    "reduce_scatter": True,
    "overlap_comm": False,
    "reduce_bucket_size": 2e8,
    "contiguous_gradients": True,
}
_IN_PARTS: Final = {
    "overlap_comm": False,
    "contiguous_gradients": True,
    "sub_group_size": 1e9,
    **dict.fromkeys(("reduce_bucket_size", "stage3_prefetch_bucket_size"), "auto"),
    "stage3_param_persistence_threshold": "auto",
    **dict.fromkeys(("stage3_max_live_parameters", "stage3_max_reuse_distance"), 1e9),
}
_MS_SWIFT: Final[Mapping[str, tuple[int, Mapping[str, Any], Mapping[str, Any]]]] = {
    "zero0": (0, _GATHERED, _EITHER),
    "zero1": (1, _GATHERED, _EITHER),
    "zero2": (2, _GATHERED, _EITHER),
    "zero3": (3, _IN_PARTS, _EITHER),
    "zero2_offload": (2, {**_GATHERED, **_OPTIMIZER}, _EITHER),
    "zero3_offload": (3, {**_IN_PARTS, **_BOTH}, _EITHER),
}
"""ms-swift 4.0.4 to 4.6.0 config, by the names in arguments/sft_args.py `_init_deepspeed`."""
_FOLDERS: Final = ("deepspeed_configs", "deepspeed")
_MAKERS: Final = {"llamafactory": "LLaMA-Factory", "axolotl": "Axolotl", "ms-swift": "ms-swift"}


def as_shipped(
    documents: Sequence[Document], missing: Sequence[Missing]
) -> tuple[tuple[Document, ...], tuple[Missing, ...]]:
    """The DeepSpeed configs known by name alone, and the missing files with notes about them.

    There are none if a DeepSpeed file was read: that file may be the intended one.
    """
    if any(each.kind == "deepspeed" for each in documents):
        return (), tuple(missing)
    engines = {each.place: _engine(each.place) for each in missing}
    named = (each.get("deepspeed") for each in documents if each.kind == "ms-swift")
    own = [_engine(place) for place in named if place is not None]
    told = (
        replace(each, why=f"{each.why}, and it is taken as {_maker(each)} ships it")
        if engines[each.place] is not None
        else each
        for each in missing
    )
    every = (*engines.values(), *own)
    return tuple(each for each in every if each is not None), tuple(told)


def is_shipped(document: Document) -> bool:
    """Whether a document is a shipped DeepSpeed config, known by name alone."""
    origin = document.origin
    return document.kind == "deepspeed" and origin is not None and origin.kind in _MAKERS


def _maker(missing: Missing) -> str:
    return _MAKERS[missing.place.document.kind]


def _engine(place: Place) -> Document | None:
    """The content of a shipped file, with each key at the key that names the file: not editable."""
    name = PurePosixPath(str(place.value))
    kind = place.document.kind
    if place.path != "deepspeed" or (place.document.format == "shell" and kind != "ms-swift"):
        return None
    table = {"llamafactory": _LLAMAFACTORY, "ms-swift": _MS_SWIFT}.get(kind, {})
    if kind == "axolotl" and name.parent.name in _FOLDERS:
        table = _AXOLOTL
    held = table.get(str(name) if kind == "ms-swift" else name.name)
    if held is None:
        return None
    root = _at(place.node, _content(*held))
    paths = dict.fromkeys(_paths(root), place.path)
    origin = place.document
    return Document(
        origin.name, "deepspeed", origin.format, origin.text, root, origin=origin, paths=paths
    )


def _content(stage: int, held: Mapping[str, Any], halves: Mapping[str, Any]) -> dict[str, Any]:
    zero = {"stage": stage, **held}
    if stage == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    return {**dict.fromkeys(_AUTO, "auto"), **halves, "zero_optimization": zero}


def _at(place: Node, value: Any) -> Node:
    if isinstance(value, dict):
        fields = {key: _at(place, each) for key, each in value.items()}
        return Node(place.span, key_span=place.key_span, fields=fields, is_inline_json=True)
    return Node(place.span, value, key_span=place.key_span, is_inline_json=True)


def _paths(node: Node, prefix: str = "") -> Iterator[str]:
    for key, child in (node.fields or {}).items():
        yield f"{prefix}{key}"
        yield from _paths(child, f"{prefix}{key}.")


UNKNOWN: Final = "this model is not known"
"""The message if neither a file nor the catalogue has the model."""
_CONFIG: Final = "config.json"


def model_at_hand(files: Iterable[Path], reach: Reach) -> "Callable[[str], ResolvedModel | None]":
    """A function that finds the models that files on disk name.

    A folder with a config.json is that model, wherever the run looks for it: beside the files,
    above them, or where the command runs. A name of the Hub is the catalogue's model; if the
    catalogue lacks it, the config.json beside the files describes it.
    """
    folders = {file.parent: file for file in files}
    return partial(_model, tuple(folders.values()), reach)


def _model(files: tuple[Path, ...], reach: Reach, name: str) -> "ResolvedModel | None":
    found = next(_in_folder(files, reach, name), None) or catalogue_model(name)
    return found or next(_beside(files, reach, name), None)


def _in_folder(files: tuple[Path, ...], reach: Reach, name: str) -> "Iterator[ResolvedModel]":
    """The model in a folder of the given name."""
    if len(name) > LONGEST or "\0" in name:
        return
    for file in files:
        for path, content in reach.contents(Path(name) / _CONFIG, file):
            yield from _derived(name, path, _config(content))


def _beside(files: tuple[Path, ...], reach: Reach, name: str) -> "Iterator[ResolvedModel]":
    """The model of a config.json in a file's folder, unless the config names another model."""
    for file in files:
        for path, content in reach.contents((file.parent / _CONFIG).absolute(), file):
            config = _config(content)
            own = str(config.get("_name_or_path") or name)
            if _last(own) == _last(name):
                yield from _derived(name, path, config)


def _config(content: bytes) -> dict[str, Any]:
    """A model's config; empty if the file is something else, such as SimpleTuner's config.json."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    is_config = isinstance(found, dict) and {"architectures", "_class_name"} & found.keys()
    return found if is_config else {}


def _derived(name: str, path: Path, config: dict[str, Any]) -> "Iterator[ResolvedModel]":
    """The model of a config; none if no rule derives its architecture and no card is cached.

    Reading files never makes a card, which may take a minute.
    """
    if not config:
        return
    from tunec.compiler.analyses.architecture import FAMILIES
    from tunec.compiler.derived_cards import is_at_hand
    from tunec.compiler.resolve import Unresolved, resolve_model

    families = {config.get("model_type"), config.get("_class_name")}
    if families.isdisjoint(FAMILIES) and not is_at_hand(config):
        return

    try:
        yield replace(resolve_model(str(path.resolve()), Path()), path=name)
    except (Unresolved, LookupError, ValueError, OSError):
        return


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()


def catalogue_model(name: str) -> "ResolvedModel | None":
    """The catalogue's model of a name; None if there is none.

    A folder, or a copy in another account, has the modules of the model with the same last part.
    """
    from tunec.compiler.resolve import catalogued

    last = name.rstrip("/").rpartition("/")[2]
    for each in dict.fromkeys((name, last)):
        try:
            found = catalogued(each)
            return found if each == name else replace(found, path=name)
        except (LookupError, ValueError, OSError):
            continue
    return None


_REFERENCES: Final = (
    *("deepspeed", "deepspeed_config.deepspeed_config_file", "deepspeed_config"),
    *("training_args.deepspeed", "dataset_config"),
)
"""Keys that name another file of the run: TrainingArguments, LLaMA-Factory and Axolotl; accelerate;
SimpleTuner and accelerate's command line; GLM-4's scripts; sd-scripts' data."""


def _is_path(text: str) -> bool:
    """Whether the text of `deepspeed` is a path, with any ending, or base64.

    transformers 4.40.2 to 5.23.0 integrations/deepspeed.py `HfDeepSpeedConfig.__init__`.
    """
    is_open = set("{}$=<>?*").intersection(text) or text[:1] == "-" or LEFT_OPEN in text
    return "/" in text.strip("/") and len(text) < LONGEST and not is_open


def is_among(path: str, names: Iterable[str]) -> bool:
    """Whether a path equals one of some names, or has the same file name as one of them."""
    return any(path == name or Path(path).name == Path(name).name for name in names)


def script_references(document: Document, parsed: Parsed) -> Iterator[Place]:
    """The files that a script names, other than under the keys of a configuration."""
    for key, file, span in parsed.references:
        if key not in _REFERENCES and is_file_name(file):
            yield Place(document, key, Node(span, value=file))


def references(document: Document) -> Iterator[Place]:
    """The places of a document that name another file of the run."""
    for key in _REFERENCES:
        place = document.get(key)
        if place is None or not isinstance(place.value, str):
            continue
        if is_file_name(place.value) or (key == "deepspeed" and _is_path(place.value)):
            yield place
