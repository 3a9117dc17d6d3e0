"""What a run requests of FSDP, ZeRO and the parallel widths in accelerate's file."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rule import Finding, keys
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.compiler.ir.slots import Fsdp
    from tunec.schemas.terms import FsdpSharding


def count(document: Document, key: str) -> tuple[int, Place] | None:
    """A whole number of at least 1 that the file sets, and its place."""
    place = document.get(key)
    if place is None or not isinstance(place.value, int) or isinstance(place.value, bool):
        return None
    return (place.value, place) if place.value > 0 else None


def engine(document: Document) -> Place | None:
    """The place of the engine that the file starts, if its value is text."""
    place = document.get("distributed_type")
    return place if place is not None and isinstance(place.value, str) else None


SECTION: Final = "parallelism_config.parallelism_config_"
"""accelerate's own section; its keys repeat its name."""


def shared_sequences(run: LintContext) -> Iterator[Place]:
    """Each sequence-parallel width above 1 in accelerate's file."""
    for place in run.each("accelerate", f"{SECTION}sp_size"):
        ways = place.value
        if is_whole(ways) and ways > 1:
            yield place


_PREFIX: Final = "fsdp_"
_BESIDE: Final = ("min_num_params", "transformer_layer_cls_to_wrap")
_OFF: Final = (None, False, "", "none", "false")
TRUTHS: Final = ("y", "yes", "t", "true", "on", "1", "n", "no", "f", "false", "off", "0")
"""accelerate 0.30.1 to 1.15.0 utils/environment.py `str_to_bool`, in lower case."""

TURNS_ON: Final = (
    *("accelerate:distributed_type", "launch:flags.use_fsdp", "trainer:fsdp"),
    *keys("axolotl", "fsdp", "fsdp_config"),
)
"""Keys of which at least one is written whenever `asked` finds anything."""


def fsdp_keys(*names: str) -> tuple[str, ...]:
    """The `reads` of a rule about options of FSDP, wherever they can be set."""
    options = tuple(prefix + name for name in names for prefix in ("", _PREFIX))
    return (
        *keys("accelerate|trainer|axolotl", *(f"fsdp_config.{each}" for each in options)),
        *keys("launch", *(f"flags.{_PREFIX}{name}" for name in names)),
        *keys("trainer", *(_PREFIX + name for name in names if name in _BESIDE)),
    )


class FsdpSettings(Struct, frozen=True):
    """The FSDP settings of one file."""

    who: Literal["accelerate", "trainer", "axolotl"]
    document: Document
    on: Place
    """The key that turns FSDP on."""
    keys: Mapping[str, Place]
    """The options in fsdp_config, without the prefix `fsdp_`."""
    version: int | None
    """1 or 2; None: it depends on the release, which is not given."""

    def get(self, *names: str) -> Place | None:
        """The first of these keys that the file sets."""
        return next((self.keys[name] for name in names if name in self.keys), None)


def asked(run: LintContext) -> Iterator[FsdpSettings]:
    """Every file that turns FSDP on, in the order of the files."""
    for document in run.documents:
        if document.is_view:
            continue
        found = _accelerate(document) or _flags(document) or _trainer(run, document)
        found = found or _axolotl(document)
        if found is not None:
            yield found


def words(place: Place) -> tuple[str, ...]:
    """The options in the trainer's `fsdp`: `full_shard auto_wrap`, or a list of them."""
    value = place.value
    if isinstance(value, str):
        return tuple(value.split())
    every = value if isinstance(value, list | tuple) else ()
    return tuple(each for each in every if isinstance(each, str))


def offloaded(each: FsdpSettings) -> Place | None:
    """The key that offloads FSDP's shards to host memory."""
    away = each.get("offload_params", "cpu_offload")
    if is_true(away):
        return away
    return each.on if each.who == "trainer" and "offload" in words(each.on) else None


def is_true(place: Place | None) -> bool:
    """Whether a key is true, as a boolean or as text."""
    return place is not None and str(place.value).lower() in ("true", "1", "yes")


def is_false(place: Place | None) -> bool:
    """Whether a key is false, as a boolean or as text."""
    return place is not None and str(place.value).lower() in ("false", "0", "no")


def _accelerate(document: Document) -> FsdpSettings | None:
    on = document.get("distributed_type")
    if document.kind != "accelerate" or on is None or on.value != "FSDP":
        return None
    told = _options(document)
    return FsdpSettings("accelerate", document, on, told, _number(told.get("version")) or 1)


def _flags(document: Document) -> FsdpSettings | None:
    """The settings of `accelerate launch --use_fsdp`, whose flags are named as the file's keys."""
    on = document.get("flags.use_fsdp")
    if document.kind != "launch" or document.value("launcher") != "accelerate" or on is None:
        return None
    mark = f"flags.{_PREFIX}"
    told = {
        path.removeprefix(mark): place
        for path, place in document.found.items()
        if path.startswith(mark) and place.value is not None
    }
    return FsdpSettings("accelerate", document, on, told, _number(told.get("version")) or 1)


def _trainer(run: LintContext, document: Document) -> FsdpSettings | None:
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
    return FsdpSettings("trainer", document, on, told, version)


def _axolotl(document: Document) -> FsdpSettings | None:
    on = document.get("fsdp_config") or document.get("fsdp")
    if document.kind != "axolotl" or on is None or on.value in _OFF:
        return None
    told = _options(document)
    said = document.get("fsdp_version") or told.get("version")
    return FsdpSettings("axolotl", document, on, told, _number(said) or 1)


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
    """The `reads` of a rule about keys below zero_optimization."""
    return keys("deepspeed", *(f"zero_optimization.{name}" for name in names))


STAGE: Final = zero_keys("stage")
OFFLOADS_OPTIMIZER: Final = zero_keys("offload_optimizer.device", "cpu_offload")
"""The keys that offload the optimizer; the second is the older name."""


def stage_of(run: LintContext) -> Effective:
    """The ZeRO stage that the run will use."""
    return run.effective("deepspeed", "zero_optimization.stage")


def said_in(run: LintContext, keys: Iterable[str]) -> Iterator[Place]:
    """The places of keys below zero_optimization in documents, in the order of the keys."""
    for key in keys:
        yield from run.each("deepspeed", f"zero_optimization.{key}")


_GATHER: Final = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
_ALSO: Final = (
    "zero_optimization.gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save",
)
"""Other spellings of `_GATHER`: the field's own name, which pydantic also accepts, and its old
one."""
_SAVES: Final = ("save_strategy", "save_steps", "save_total_limit", "load_best_model_at_end")


def ungathered(run: LintContext, message: str, label: str, note: str) -> Finding | None:
    """A finding if a trainer saves at stage 3 and does not gather the shards.

    No finding if nothing is saved, or if the key is set under another of its names.
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


_STRATEGIES: Final[Mapping[str, "FsdpSharding"]] = {
    "1": "full",
    "FULL_SHARD": "full",
    "2": "grad_op",
    "SHARD_GRAD_OP": "grad_op",
    "3": "none",
    "NO_SHARD": "none",
    "4": "hybrid",
    "HYBRID_SHARD": "hybrid",
}
"""torch 2.13 `distributed/fsdp/api.py`, `ShardingStrategy`, by name and by the number that
accelerate 1.15 `utils/constants.py` gives each (`FSDP_SHARDING_STRATEGY`)."""

_SLOTS: Final = ("version", "sharding", "wrap", "offload_params", "efficient_loading")
"""What a program's own table says of its FSDP."""


def is_fully_sharded(run: LintContext) -> bool:
    """Whether any file turns FSDP on, or a program does that has its own."""
    return any(True for _ in asked(run)) or run.value("parallel.engine") == "fsdp"


def fsdp_of(run: LintContext) -> "Fsdp | None":
    """The settings of the file that is read last; None for a sharding that no slot can ask for.

    Where no key is written, both accelerate and transformers do the same: all is sharded, and each
    layer is a unit of its own, without which FSDP takes more.
    """
    from tunec.compiler.analyses.memory.workload import USUAL_FSDP

    files = list(asked(run))
    if not files:
        said = {name: run.value(f"fsdp.{name}") for name in _SLOTS}
        return replace(USUAL_FSDP, **{k: each for k, each in said.items() if each is not None})
    each = files[-1]
    sharding = _sharding(each)
    if sharding is None:
        return None

    policy = each.get("auto_wrap_policy")
    whole = policy is not None and str(policy.value).upper() == "NO_WRAP"
    return replace(
        USUAL_FSDP,
        version=each.version or USUAL_FSDP.version,
        sharding=sharding,
        offload_params=_offloads(each),
        wrap="none" if whole else "transformer",
        efficient_loading=not is_false(each.get("cpu_ram_efficient_loading")),
        checkpointing=is_true(each.get("activation_checkpointing")),
    )


def _sharding(each: FsdpSettings) -> "FsdpSharding | None":
    if each.version != 1:
        return "grad_op" if is_false(each.get("reshard_after_forward")) else "full"
    said = each.get("sharding_strategy", "reshard_after_forward")
    if said is not None:
        return _STRATEGIES.get(str(said.value).upper())
    options = [word.upper() for word in words(each.on) if "SHARD" in word.upper()]
    return _STRATEGIES.get(options[0]) if options else "full"


def _offloads(each: FsdpSettings) -> bool:
    return is_true(each.get("offload_params")) or "offload" in words(each.on)
