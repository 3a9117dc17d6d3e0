"""The value that a key has in the running version, by default or filled in."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.consumers.schemas import (
    automatic_keys,
    class_defaults,
    class_schema,
    ds_config_defaults,
    known_releases,
    parser_default,
)
from tunec.compiler.lints.document import TRAINERS, TRL, Document, Place
from tunec.compiler.lints.environment import Release
from tunec.compiler.lints.own_source import UNDECLARED, UNSETTLED
from tunec.compiler.releases import neighbours
from tunec.schemas.caches import cached

if TYPE_CHECKING:
    from tunec.compiler.lints.context import LintContext


Source = Literal["document", "default", "filled", "unknown"]


class Effective(Struct, frozen=True):
    """The value of a key, and the source that sets it."""

    value: Any
    """None if the value is unknown: check `known` first."""
    source: Source
    """`document`: the value is written. `filled`: it is `auto`, and the trainer fills it in.
    `default`: the key is absent. `unknown`: no document of that kind was read, or the value cannot
    be determined."""
    by: str
    """The source in words: `ds.json`, `the default of deepspeed 0.19.8`."""
    place: Place | None = None
    """The place where the key is written, even if its value is `auto`."""

    @property
    def known(self) -> bool:
        """Whether the value in use is known."""
        return self.source != "unknown"

    @property
    def is_written(self) -> bool:
        """Whether a document contains the value itself."""
        return self.source == "document"


UNKNOWN: Final = Effective(None, "unknown", "")
AUTO_OF_DEEPSPEED: Final = ("zero_optimization.zenflow.", "pipeline.", "expert_parallel.")
"""Blocks in which `auto` is a value of DeepSpeed itself: deepspeed 0.19.8
runtime/zenflow/zenflow_config.py `select_strategy`, `select_interval`, `update_interval`; 0.14.5 to
0.19.8 runtime/config.py `get_pipeline_config`, 0.19.8 `get_expert_parallel_config`,
module_inject/auto_ep_config.py `parse_autoep_config`."""

CLASSES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "hf": (("training_arguments", "transformers"),),
    "sft": (("sft_config", "trl"), ("training_arguments", "transformers")),
    "dpo": (("dpo_config", "trl"), ("training_arguments", "transformers")),
    "grpo": (("grpo_config", "trl"), ("training_arguments", "transformers")),
    "kto": (("kto_config", "trl"), ("training_arguments", "transformers")),
    "reward": (("reward_config", "trl"), ("training_arguments", "transformers")),
    "rloo": (("rloo_config", "trl"), ("training_arguments", "transformers")),
    "gkd": (("gkd_config", "trl"), ("training_arguments", "transformers")),
    "ppo": (("ppo_config", "trl"), ("training_arguments", "transformers")),
    "llamafactory": (("training_arguments", "transformers"),),
    "peft": (("lora_config", "peft"),),
}
"""The configuration classes behind each kind of document, with their packages; the first class that
has a field decides its default. LLaMA-Factory 0.9.4 hparams/training_args.py `TrainingArguments`
and TRL's configs are subclasses of transformers' own."""


def effective(run: "LintContext", kind: str, key: str) -> Effective:
    """The value of a key in a kind of document: written, filled in, or the default."""
    documents = run.of(kind)
    for document in documents:
        said = document.get(key)
        if said is not None:
            return _said(run, document.kind, key, said)
        if key in document.unknown:
            return UNKNOWN
    if not documents or (documents[0].is_partial and is_trainer_kind(documents[0].kind)):
        return UNKNOWN  # what another tool leaves out is not left to the trainer's own default
    own = _of_heirs(run, documents[0], key)
    if own is not None:
        return own
    if run.own.decides(key, documents[0], run.missing):
        return UNKNOWN
    if _is_put_in(run, documents[0], key):
        return Effective(1, "filled", "accelerate, where the file leaves it out")
    if documents[0].kind == "deepspeed" and key in DERIVED:
        return DERIVED[key](run)
    return default_of(run, documents[0].kind, key)


_OF_CLASSES: Final = frozenset({"hf", *TRL})


def _of_heirs(run: "LintContext", document: "Document", key: str) -> Effective | None:
    """The default in a class of the repository that derives from the trainer's configuration."""
    if document.kind not in _OF_CLASSES or document.format == "python":
        return None
    value = run.own.default_of(key, run.started.get(document.name, ()))
    if value is UNDECLARED:
        return None
    by = "the default of the repository's own class"
    return UNKNOWN if value is UNSETTLED else Effective(value, "default", by)


def _is_put_in(run: "LintContext", document: "Document", key: str) -> bool:
    """Whether accelerate adds the accumulation, 1, to a ds_config that another program reads.

    accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`: if
    "gradient_accumulation_steps" is not in the config it is 1, whatever the trainer's value is.
    """
    is_file = document.kind == "deepspeed" and not document.is_view
    return is_file and key == "gradient_accumulation_steps" and run.deepspeed_reader == "trainer"


def _accumulation(run: "LintContext") -> Effective:
    """The accumulation that follows from both batch sizes; None if the world is unknown."""
    key = "gradient_accumulation_steps"
    total = run.effective("deepspeed", "train_batch_size").value
    micro = run.effective("deepspeed", "train_micro_batch_size_per_gpu").value
    if not (total and micro and type(total) is int and type(micro) is int):
        return default_of(run, "deepspeed", key)
    world = run.data_parallel
    steps = total // (micro * world) if world else None
    return Effective(steps, "default", "DeepSpeed, from the two batch sizes")


def _overlap(run: "LintContext") -> Effective:
    stage = run.effective("deepspeed", "zero_optimization.stage")
    release = run.release("deepspeed")
    if not stage.known:
        return UNKNOWN
    return Effective(stage.value == 3, "default", f"the default of {release} by the stage")


OLDER_NAMES: Final[Mapping[str, str]] = {
    "zero_optimization.offload_optimizer.device": "zero_optimization.cpu_offload",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": (
        "zero_optimization.stage3_gather_fp16_weights_on_model_save"
    ),
}
"""Keys of ds_config.json with their older equivalents: deepspeed 0.14.5 to 0.19.8
runtime/zero/config.py."""


def _older_device(run: "LintContext") -> Effective:
    """The offload device, which `cpu_offload: true`, the older key, sets to the CPU."""
    key = "zero_optimization.offload_optimizer.device"
    old = run.said("deepspeed", OLDER_NAMES[key])
    if old is None or old.value is not True:
        return default_of(run, "deepspeed", key)
    return Effective("cpu", "document", old.document.name, old)


def _older_gathering(run: "LintContext") -> Effective:
    key = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
    old = run.said("deepspeed", OLDER_NAMES[key])
    if old is None or not isinstance(old.value, bool):
        return default_of(run, "deepspeed", key)
    return Effective(old.value, "document", old.document.name, old)


DERIVED: Final[Mapping[str, Callable[["LintContext"], Effective]]] = {
    "gradient_accumulation_steps": _accumulation,
    "zero_optimization.overlap_comm": _overlap,
    "zero_optimization.offload_optimizer.device": _older_device,
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": _older_gathering,
}
"""Keys of ds_config.json whose default depends on other keys: deepspeed 0.14.5 to 0.19.8
runtime/config.py `_set_batch_related_parameters`; runtime/zero/config.py `overlap_comm_valid`, and
the older names of `cpu_offload` and `stage3_gather_fp16_weights_on_model_save`."""


def _said(run: "LintContext", kind: str, key: str, said: Place) -> Effective:
    if kind != "deepspeed" or said.value != "auto":
        return Effective(said.value, "document", said.document.name, said)
    if run.deepspeed_reader == "unknown":
        return Effective(None, "unknown", "", said)
    if run.deepspeed_reader == "trainer" and key == "zero_optimization.stage":
        by = "the default of accelerate's plugin"
        is_flag = is_launched_by_accelerate(run)
        return Effective(None, "unknown", "", said) if is_flag else Effective(2, "filled", by, said)
    if run.deepspeed_reader == "plain" or key not in filled_keys(run):
        # a block of DeepSpeed drops "auto" (runtime/config_utils.py `DeepSpeedConfigModel`)
        found = default_of(run, kind, key)
        return Effective(found.value, found.source, found.by, said)
    return _filled(run, key, said)


def is_launched_by_accelerate(run: "LintContext") -> bool:
    """Whether accelerate's launcher may set values that a ds_config leaves to its plugin by `auto`.

    accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`: the stage, 2
    by default, the offload devices and the gathering on save come from accelerate's variables.
    """
    starts = (each.value("launcher") for each in run.of("launch"))
    return bool(run.of("accelerate")) or "accelerate" in starts


def filled_keys(run: "LintContext") -> tuple[str, ...]:
    """The keys of ds_config.json whose `auto` the Trainer of this release fills in."""
    return automatic_keys(filling_release(run))


def filling_release(run: "LintContext") -> str:
    """The release of transformers that fills in a ds_config, at least the oldest known release.

    transformers 4.30.2 deepspeed.py and 4.36.2 integrations/deepspeed.py fill in what 4.40.2 does.
    """
    return str(max(run.release("transformers").version, Version("4.40.2")))


Fill = Callable[["LintContext"], Any]


def _trainer(*keys: str) -> Fill:
    def fill(run: "LintContext") -> Any:
        values = [run.effective("trainer", key) for key in keys]
        if not all(each.known for each in values):
            return None
        return [each.value for each in values] if len(values) > 1 else values[0].value

    return fill


def _any_of(*keys: str) -> Fill:
    def fill(run: "LintContext") -> Any:
        values = [run.effective("trainer", key) for key in keys]
        if any(not isinstance(each.value, bool | None) for each in values):
            return None
        if any(each.value is True for each in values):
            return True
        if run.hides("trainer", *keys) or any(_is_left_open(each) for each in values):
            return None
        return False if values[0].known else None

    return fill


def _is_left_open(found: Effective) -> bool:
    """Whether the class computes the value itself, as TRL's classes do for bf16.

    trl 0.20.0 to 1.16.0 trainer/sft_config.py `__post_init__`: bf16 None becomes `not fp16`.
    """
    return found.source == "default" and found.value is None


def _train_batch(run: "LintContext") -> Any:
    factors = _trainer("per_device_train_batch_size", "gradient_accumulation_steps")(run)
    world = run.data_parallel
    if factors is None or world is None or not all(isinstance(f, int) for f in factors):
        return None
    return factors[0] * factors[1] * world


FILLS: Final[Mapping[str, tuple[str, Fill]]] = {
    "train_micro_batch_size_per_gpu": (
        "per_device_train_batch_size",
        _trainer("per_device_train_batch_size"),
    ),
    "gradient_accumulation_steps": (
        "gradient_accumulation_steps",
        _trainer("gradient_accumulation_steps"),
    ),
    "train_batch_size": (
        "per_device_train_batch_size x gradient_accumulation_steps x processes",
        _train_batch,
    ),
    "gradient_clipping": ("max_grad_norm", _trainer("max_grad_norm")),
    "optimizer.params.lr": ("learning_rate", _trainer("learning_rate")),
    "optimizer.params.betas": ("adam_beta1, adam_beta2", _trainer("adam_beta1", "adam_beta2")),
    "optimizer.params.eps": ("adam_epsilon", _trainer("adam_epsilon")),
    "optimizer.params.weight_decay": ("weight_decay", _trainer("weight_decay")),
    "scheduler.params.warmup_max_lr": ("learning_rate", _trainer("learning_rate")),
    "fp16.enabled": ("fp16 or fp16_full_eval", _any_of("fp16", "fp16_full_eval")),
    "bf16.enabled": ("bf16 or bf16_full_eval", _any_of("bf16", "bf16_full_eval")),
}
"""DeepSpeed key -> (the trainer's arguments for it, the function that computes its value):
transformers 4.40.2 to 5.23.0 integrations/deepspeed.py
`HfTrainerDeepSpeedConfig.trainer_config_process`. The trainer fills in keys that are `auto`, and
compares the others."""


def _filled(run: "LintContext", key: str, said: Place) -> Effective:
    words, fill = FILLS.get(key, ("", lambda _run: None))
    value = fill(run)
    if value is None:
        return Effective(None, "unknown", "", said)
    return Effective(value, "filled", f"the trainer, from {words}", said)


# ── defaults ─────────────────────────────────────────────────────────────────────────────────────


def default_of(run: "LintContext", kind: str, key: str) -> Effective:
    """The consumer's default for an absent key, in the running release."""
    if kind == "deepspeed":
        return _of_table(run.release("deepspeed"), key, _deepspeed_default)
    if kind in OF_PARSERS:
        return _of_table(run.release(kind), key, partial(parser_default, kind, _MISSING))
    for stem, package in CLASSES.get(kind, ()):
        found = _of_table(run.release(package), key, partial(_class_default, stem))
        if found.known or _has_field(stem, str(run.release(package).version), key):
            return found
    return UNKNOWN


_MISSING: Final = object()


def _of_table(release: Release, key: str, look: Callable[[str, str], Any]) -> Effective:
    value = look(str(release.version), key)
    if value is _MISSING:
        return UNKNOWN
    return Effective(value, "default", f"the default of {release}")


def _deepspeed_default(version: str, key: str) -> Any:
    try:
        return ds_config_defaults(version).get(key, _MISSING)
    except LookupError:
        return _MISSING


OF_PARSERS: Final = ("sd-scripts", "musubi-tuner")
"""Kinds whose schemas come from command line parsers; each is also the package's name."""


def _class_default(stem: str, version: str, key: str) -> Any:
    """The default in a release, or the value that the known releases before and after agree on."""
    around = releases_around(stem, version)
    values = [_default_at(stem, each, key) for each in around]
    if not values or any(value is _MISSING or value != values[0] for value in values):
        return _MISSING
    return values[0]


def _has_field(stem: str, version: str, key: str) -> bool:
    """Whether a known release near a version has the field with a default."""
    around = releases_around(stem, version)
    return any(_default_at(stem, each, key) is not _MISSING for each in around)


@cached()
def releases_around(stem: str, version: str) -> tuple[str, ...]:
    """The last known release of a version's minor, or the known releases before and after."""
    asked = Version(version)
    known = known_releases(stem)
    same = [each for each in known if Version(each).release[:2] == asked.release[:2]]
    if same:
        return (same[-1],)
    return neighbours(asked, known)


def known_around(stem: str, release: Release) -> tuple[str, ...]:
    """The known releases around each candidate of a release."""
    every = (each for one in release.candidates for each in releases_around(stem, str(one)))
    return tuple(dict.fromkeys(every))


def _default_at(stem: str, version: str, key: str) -> Any:
    try:
        return class_defaults(stem, version).get(key, _MISSING)
    except (LookupError, OSError):  # only some classes have a table of settled values
        field = class_schema(stem, version)["properties"].get(key, {})
        return field.get("default", _MISSING)


def is_trainer_kind(kind: str) -> bool:
    """Whether documents of a kind hold the fields of TrainingArguments."""
    return kind in TRAINERS
