"""What a run asks of FSDP, of ZeRO and of the widths in accelerate's file."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rule import Finding, keys


def count(document: Document, key: str) -> tuple[int, Place] | None:
    """A whole number of at least 1 that the file says, and its place."""
    place = document.get(key)
    if place is None or not isinstance(place.value, int) or isinstance(place.value, bool):
        return None
    return (place.value, place) if place.value > 0 else None


def engine(document: Document) -> Place | None:
    """The place of the engine that the file starts, where that is a word."""
    place = document.get("distributed_type")
    return place if place is not None and isinstance(place.value, str) else None


SECTION: Final = "parallelism_config.parallelism_config_"
"""accelerate's own section; its keys repeat its name."""


def shared_sequences(run: LintContext) -> Iterator[Place]:
    """Each width of more than one rank that DeepSpeed is to share sequences over."""
    for place in run.each("accelerate", f"{SECTION}sp_size"):
        ways = place.value
        if is_whole(ways) and ways > 1:
            yield place


_PREFIX: Final = "fsdp_"
_BESIDE: Final = ("min_num_params", "transformer_layer_cls_to_wrap")
_OFF: Final = (None, False, "", "none", "false")
TRUTHS: Final = ("y", "yes", "t", "true", "on", "1", "n", "no", "f", "false", "off", "0")
"""accelerate 0.30.1 to 1.15.0 utils/environment.py `str_to_bool`, of small letters."""

TURNS_ON: Final = (
    *("accelerate:distributed_type", "launch:flags.use_fsdp", "trainer:fsdp"),
    *keys("axolotl", "fsdp", "fsdp_config"),
)
"""Keys of which one is written wherever `asked` finds anything."""


def fsdp_keys(*names: str) -> tuple[str, ...]:
    """Options of FSDP wherever they can be told, as a rule names what it reads."""
    options = tuple(prefix + name for name in names for prefix in ("", _PREFIX))
    return (
        *keys("accelerate|trainer|axolotl", *(f"fsdp_config.{each}" for each in options)),
        *keys("launch", *(f"flags.{_PREFIX}{name}" for name in names)),
        *keys("trainer", *(_PREFIX + name for name in names if name in _BESIDE)),
    )


class Asked(Struct, frozen=True):
    """One file's words about FSDP."""

    who: Literal["accelerate", "trainer", "axolotl"]
    document: Document
    on: Place
    """The key that turns FSDP on."""
    keys: Mapping[str, Place]
    """Its fsdp_config, without the prefix `fsdp_`."""
    version: int | None
    """1 or 2; None: it depends on a release that nobody named."""

    def get(self, *names: str) -> Place | None:
        """The first of these keys that the file says."""
        return next((self.keys[name] for name in names if name in self.keys), None)


def asked(run: LintContext) -> Iterator[Asked]:
    """Every file that turns FSDP on, in the order of the files."""
    for document in run.documents:
        if document.is_view:
            continue
        found = _accelerate(document) or _flags(document) or _trainer(run, document)
        found = found or _axolotl(document)
        if found is not None:
            yield found


def words(place: Place) -> tuple[str, ...]:
    """The options of the trainer's `fsdp`: `full_shard auto_wrap`, or a list of them."""
    value = place.value
    if isinstance(value, str):
        return tuple(value.split())
    every = value if isinstance(value, list | tuple) else ()
    return tuple(each for each in every if isinstance(each, str))


def offloaded(each: Asked) -> Place | None:
    """The key that lays FSDP's shards in the host's memory."""
    away = each.get("offload_params", "cpu_offload")
    if is_true(away):
        return away
    return each.on if each.who == "trainer" and "offload" in words(each.on) else None


def is_true(place: Place | None) -> bool:
    """Whether a key says yes, as a truth value or as a word."""
    return place is not None and str(place.value).lower() in ("true", "1", "yes")


def is_false(place: Place | None) -> bool:
    """Whether a key says no, as a truth value or as a word."""
    return place is not None and str(place.value).lower() in ("false", "0", "no")


def _accelerate(document: Document) -> Asked | None:
    on = document.get("distributed_type")
    if document.kind != "accelerate" or on is None or on.value != "FSDP":
        return None
    told = _options(document)
    return Asked("accelerate", document, on, told, _number(told.get("version")) or 1)


def _flags(document: Document) -> Asked | None:
    """`accelerate launch --use_fsdp`, whose flags are called as the keys of its file."""
    on = document.get("flags.use_fsdp")
    if document.kind != "launch" or document.value("launcher") != "accelerate" or on is None:
        return None
    mark = f"flags.{_PREFIX}"
    told = {
        path.removeprefix(mark): place
        for path, place in document.found.items()
        if path.startswith(mark) and place.value is not None
    }
    return Asked("accelerate", document, on, told, _number(told.get("version")) or 1)


def _trainer(run: LintContext, document: Document) -> Asked | None:
    on = document.get("fsdp")
    if document not in run.of("trainer") or on is None or on.value in _OFF or on.value == []:
        return None
    told = {**_beside(document), **_options(document)}
    version = _number(told.get("version"))
    if run.runs("transformers<5") is True:
        version = 1  # no release before 5 reads a version
    elif version is None and run.runs("transformers<=5.6.2") is True:
        version = 1
    elif version is None and run.runs("transformers>=5.15") is True:
        version = 2
    return Asked("trainer", document, on, told, version)


def _axolotl(document: Document) -> Asked | None:
    on = document.get("fsdp_config") or document.get("fsdp")
    if document.kind != "axolotl" or on is None or on.value in _OFF:
        return None
    told = _options(document)
    said = document.get("fsdp_version") or told.get("version")
    return Asked("axolotl", document, on, told, _number(said) or 1)


def _options(document: Document) -> dict[str, Place]:
    config = "fsdp_config."
    return {
        path.removeprefix(config).removeprefix(_PREFIX): place
        for path, place in document.found.items()
        if path.startswith(config) and place.value is not None
    }


def _beside(document: Document) -> dict[str, Place]:
    """Options beside `fsdp_config`: transformers 4.40.2 to 4.57.6 training_args.py merges them."""
    found = {name: document.get(_PREFIX + name) for name in _BESIDE}
    return {name: place for name, place in found.items() if place is not None and place.value}


def _number(place: Place | None) -> int | None:
    text = "" if place is None else str(place.value)
    return int(text) if text in ("1", "2") else None


def zero_keys(*names: str) -> tuple[str, ...]:
    """Keys below zero_optimization, as a rule names what it reads."""
    return keys("deepspeed", *(f"zero_optimization.{name}" for name in names))


STAGE: Final = zero_keys("stage")
OFFLOADS_OPTIMIZER: Final = zero_keys("offload_optimizer.device", "cpu_offload")
"""What offloads the optimizer, the second by its older name."""


def stage_of(run: LintContext) -> Effective:
    """The ZeRO stage of the run, as it will be."""
    return run.effective("deepspeed", "zero_optimization.stage")


def said_in(run: LintContext, keys: Iterable[str]) -> Iterator[Place]:
    """Keys below zero_optimization that a document says, in the order of the keys."""
    for key in keys:
        yield from run.each("deepspeed", f"zero_optimization.{key}")


_GATHER: Final = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
_ALSO: Final = (
    "zero_optimization.gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save",
)
"""Other spellings of `_GATHER`: the field's own name, which pydantic takes too, and its old one."""
_SAVES: Final = ("save_strategy", "save_steps", "save_total_limit", "load_best_model_at_end")


def ungathered(run: LintContext, message: str, label: str, note: str) -> Finding | None:
    """A finding where a trainer saves at stage 3 and leaves the shards apart.

    Silent where nobody saves, and where the key stands under another of its names.
    """
    stage, gather = stage_of(run), run.effective("deepspeed", _GATHER)
    if stage.value != 3 or stage.place is None or gather.value is not False:
        return None
    saving, strategy = run.said("trainer", *_SAVES), run.said("trainer", "save_strategy")
    if run.said("deepspeed", *_ALSO) or (strategy and strategy.value in ("no", False)):
        return None
    if gather.place is None and saving is None:
        return None
    where = gather.place or stage.place
    edit = None if where.document.is_view else where.document.added(_GATHER, True)
    return Finding(
        message,
        (where.label(label), *also(saving if gather.place is None else stage.place)),
        (f"stage3_gather_16bit_weights_on_model_save is false ({gather.by})", note),
        "write stage3_gather_16bit_weights_on_model_save: true in zero_optimization"
        if where.document.kind != "accelerate"
        else "write zero3_save_16bit_model: true",
        Fix((edit,), "unsafe") if edit and gather.place is None else None,
        severity="note" if run.own.lacks("Trainer") else None,  # nothing there saves so
    )
