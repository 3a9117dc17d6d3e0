"""The verl target: one YAML that Hydra composes over verl's own, for SFT or for rewards."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.analyses.counting import Counting, Epoch
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.target import Cannot, Dialect, File, Json, Target, constant
from tunec.schemas.frozen import replace
from tunec.schemas.objectives import Grpo, Ppo
from tunec.schemas.spec import Spec
from tunec.schemas.terms import BESIDE_TRAINING
from tunec.targets.answers import answers_alone, only_answers
from tunec.targets.huggingface.packages import PEFT, PEFT_RELEASES, TRANSFORMERS
from tunec.targets.huggingface.target import CANNOT
from tunec.targets.read_only import schema_of
from tunec.targets.rows import (
    evaluates,
    has_critic,
    is_rewarded,
    is_supervised,
    writes_answers,
)
from tunec.targets.scripts.refusals import refusing
from tunec.targets.trainers import (
    averaging_tokens,
    going_on,
    other_releases,
    reading_formats,
    supervised,
    taking_the_tokenizers_template,
    training_plainly,
    writing_text,
)
from tunec.targets.verl.critic import VALUED
from tunec.targets.verl.engine import ALWAYS_SO, engine
from tunec.targets.verl.leaves import LEAVES, REWARDED_LEAVES, VALUED_LEAVES
from tunec.targets.verl.migration import CARRIES, REWARDED_CARRIES
from tunec.targets.verl.model import every_layer, model
from tunec.targets.verl.optimizer import optimizer
from tunec.targets.verl.packages import (
    PACKAGE,
    RELEASES,
    SOURCE,
    SUPPORTED,
    companions,
    imports,
    installed_releases,
    ranges,
)
from tunec.targets.verl.refusals import REFUSALS
from tunec.targets.verl.rewards import ACTOR, COMPARED, REWARDED
from tunec.targets.verl.training import DATA, TRAINER

_BASE: Final = "sft_trainer_engine"
"""verl's own configuration for SFT, over which the file is composed."""
_SECTIONS: Final[Mapping[str, frozenset[str]]] = {
    "data": frozenset({"micro_batch_size_per_gpu", "train_files", "max_token_len_per_gpu"}),
    "trainer": frozenset({"total_training_steps", "default_local_dir", "total_epochs"}),
    "engine": frozenset({"fsdp_size", "model_dtype", "strategy", "reshard_after_forward"}),
    "optim": frozenset({"lr_warmup_steps_ratio", "optimizer_impl", "clip_grad"}),
}
"""Its sections, each with keys that are typical of verl."""


_REWARDED: Final = "ppo_trainer"
"""verl's own configuration of `main_ppo`, which trains with rewards."""


def _is_of_answers(document: Json) -> bool:
    """Whether a document's defaults name verl's file, or it has the actor's section."""
    if not isinstance(document, dict):
        return False
    defaults = document.get("defaults")
    if isinstance(defaults, list) and _REWARDED in defaults:
        return _is_on_fsdp(defaults)
    held = document.get("actor_rollout_ref")
    return isinstance(held, dict) and bool(held.keys() & {"actor", "rollout", "model"})


def _trains_a_critic(document: Mapping[str, Json]) -> bool:
    """Whether the advantages are those of a critic, as they are unless a key says otherwise.

    A part of a file without an estimator is taken for a part of GRPO's, if nothing is of a critic.
    """
    algorithm = document.get("algorithm")
    named = algorithm.get("adv_estimator") if isinstance(algorithm, dict) else None
    return named == "gae" or (named is None and isinstance(document.get("critic"), dict))


def _is_grpo(document: Json) -> bool:
    return _is_of_answers(document) and not _trains_a_critic(document)


def _is_ppo(document: Json) -> bool:
    return _is_of_answers(document) and _trains_a_critic(document)


def _is_sft(document: Json) -> bool:
    """Whether a document's defaults name verl's file, or it has two typical sections."""
    if not isinstance(document, dict):
        return False
    defaults = document.get("defaults")
    if isinstance(defaults, list) and _BASE in defaults:
        return _is_on_fsdp(defaults)
    held = [
        name
        for name, keys in _SECTIONS.items()
        if isinstance(document.get(name), dict) and keys & {*document[name]}
    ]
    return len(held) > 1 and "actor_rollout_ref" not in document


def _is_on_fsdp(defaults: Sequence[Json]) -> bool:
    """Whether no other engine is selected, as by `override engine: megatron`."""
    chosen = [
        word
        for each in defaults
        if isinstance(each, dict)
        for group, word in each.items()
        if "engine" in group or "optim" in group
    ]
    return all(word == "fsdp" for word in chosen)


CONFIG: Final = File(
    name="verl_sft.yaml",
    format="yaml",
    entries=(
        constant("defaults", [_BASE, "_self_"], f"{SOURCE} trainer/sft_trainer.py `main`"),
        *model("model"),
        *engine("engine", "engine.strategy"),
        *optimizer("optim", 1e-3),
        *DATA,
        *TRAINER,
    ),
    recognise=_is_sft,
    schema=schema_of(PACKAGE, RELEASES, PACKAGE),
    when=is_supervised,
    check=other_releases(PACKAGE, ranges, installed_releases),
    phrases=(every_layer("model"),),
    carries=CARRIES,
    leaves=LEAVES,
    # workers/utils/losses.py `sft_loss`; utils/dataset/multiturn_sft_dataset.py
    defaults=answers_alone(averaging_tokens(across=True)),
)
_OF_ANSWERS: Final = (
    constant("defaults", [_REWARDED, "_self_"], f"{SOURCE} trainer/main_ppo.py `main`"),
    *model("actor_rollout_ref.model"),
    *engine(f"{ACTOR}.fsdp_config", f"{ACTOR}.strategy"),
    *optimizer(f"{ACTOR}.optim", 1e-6),
    *REWARDED,
)
"""What `main_ppo` reads, with a critic and without one."""
GRPO: Final = File(
    name="verl_grpo.yaml",
    format="yaml",
    entries=(*_OF_ANSWERS, *COMPARED),
    recognise=_is_grpo,
    schema=schema_of(f"{PACKAGE}/{_REWARDED}", RELEASES, PACKAGE),
    when=is_rewarded,
    check=other_releases(PACKAGE, ranges, installed_releases),
    phrases=(every_layer("actor_rollout_ref.model"),),
    carries=REWARDED_CARRIES,
    leaves=REWARDED_LEAVES,
)


PPO: Final = replace(
    GRPO,
    name="verl_ppo.yaml",
    entries=(*_OF_ANSWERS, *VALUED),
    recognise=_is_ppo,
    when=has_critic,
    carries=(),
    leaves=VALUED_LEAVES,
)


def is_for_rewards(spec: Spec) -> bool:
    """Whether a spec needs `main_ppo`, the program for rewards."""
    return spec.objective.answered is not None


# ── what no key says ─────────────────────────────────────────────────────────────────────────────

_UNSEEDED: Final = (
    "samples are drawn by torch's DistributedSampler with its own seed, and `trainer.seed` is "
    "read by nothing"
)
_CANNOT: Final = {
    **CANNOT,
    **supervised("verl"),
    **training_plainly("verl"),
    **taking_the_tokenizers_template("it is given the text of a template, and no file"),
    **only_answers("verl"),
    **reading_formats("it reads lists of messages with role and content"),
    **{slot: Cannot("one process shards nothing") for slot in SLOTS if slot.startswith("fsdp.")},
    "objective.kind": Cannot(
        "no program of verl trains towards pairs", True, ("sft", "grpo", "ppo")
    ),
    "objective.reference": Cannot("beta and adapters decide whether there is a second model"),
    "batch.evaluation": Cannot("held-out prompts are answered all at once"),
    "loss.path": Cannot("its engine takes the logits whole", loses=True, harmless=("full",)),
    **writing_text("verl"),
    "quantization.format": Cannot("it stores no base in fewer bits", True, ("none",)),
    "adapter.frozen": Cannot("it freezes no part of a model", True, ((),)),
    "parallel.engine": Cannot("it wraps one process too, of which FSDP shards nothing"),
    "parallel.sequence": Cannot("no account is kept of sequences that are shared", True, (1,)),
    "batch.accumulation": Cannot("global batch, micro batch and processes say it"),
    "schedule.warmup_share": Cannot("it is given the steps of a warm-up"),
    "schedule.warmup_steps": Cannot("it is given a share of the steps"),
    "runtime.seed": Cannot(_UNSEEDED, True, (42,)),
}
_REQUIRES: Final[Mapping[str, Any]] = {
    "activation_checkpointing.reentrant": False,
    "precision.tf32": False,
    "runtime.dataloader_pin_memory": False,
    "schedule.log_steps": 1,
}


def _needs(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Slots that verl fixes: the full logits, its launcher, and FSDP on several devices."""
    whole: dict[str, Any] = {}
    if spec.objective.dpo is None:
        starter = "python" if is_for_rewards(spec) else "torchrun"
        starts = {} if spec.launcher else {"launch.launcher": starter}
        whole = {"loss.path": "full", **starts, **_seen(draft)}
    if spec.objective.answered is not None:
        whole |= _of_answers(spec.objective.answered)
    if "devices" not in draft.groups or spec.engine not in (None, "fsdp"):
        return whole
    is_several = draft.devices.nodes * draft.devices.per_node > 1
    engine = {} if spec.engine else {"parallel.engine": "fsdp" if is_several else "none"}
    held = {**ALWAYS_SO, **(_held(spec) if spec.objective.answered is not None else {})}
    return {**whole, **engine, **(held if is_several else {})}


_LOOKED_AT: Final = frozenset(
    {*("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), "glm4v"}
)
"""Families through whose tower an image of zeros goes if a pass has no image.

verl 0.8.0 to 0.9.1 models/transformers/*.py `_get_input_embeds`, by `apply_monkey_patch`.
"""
_PATCHES: Final = 16
"""Patches of that image; the tower is trained, although all of its gradients are zero."""


def _seen(draft: Draft) -> Mapping[str, Any]:
    """The patches that a tower gets beside text."""
    model = draft.groups.get("model")
    is_looked_at = model is not None and model.family in _LOOKED_AT
    return {"data.vision_tokens": _PATCHES} if is_looked_at else {}


def _held(spec: Spec) -> Mapping[str, Any]:
    """Keep parameters on the devices while training: FSDP 1 has no key for that."""
    return {} if "fsdp.offload_params" in spec.pin else {"fsdp.offload_params": False}


def _of_answers(asked: Grpo | Ppo) -> Mapping[str, Any]:
    """vLLM in the training processes by default, which frees its memory between uses."""
    engine = {} if asked.generator else {"generation.engine": "vllm_colocate"}
    beside = not asked.generator or asked.generator in BESIDE_TRAINING
    sleeps = {"generation.engine_sleeps": True} if beside and asked.engine_sleeps is None else {}
    return {**engine, **sleeps}


_FILES: Final = (CONFIG, GRPO, PPO)


def entry(plan: Plan, _: Dialect) -> tuple[str, ...]:
    """The program's module, with the file's folder added to Hydra's search path.

    hydra-core 1.3.8 _internal/utils.py `_run_hydra`: --config-dir.
    """
    module = "main_ppo" if writes_answers(plan) else "sft_trainer"
    file = next((each for each in _FILES if each.when(plan)), CONFIG)
    name = file.name.removesuffix(".yaml")
    return (f"verl.trainer.{module}", "--config-dir", PACKAGE, "--config-name", name)


_refusals: Final = refusing(PACKAGE, REFUSALS)


def _check(plan: Plan, version: Version) -> Iterator[Diagnostic]:
    yield from _refusals(plan, version)
    if is_supervised(plan) and evaluates(plan):
        batch = plan.batch.global_
        yield Diagnostic(
            "held-out-in-whole-batches",
            "note",
            f"{PACKAGE} evaluates whole batches of {batch} held-out samples, and leaves out the "
            "rest; of fewer samples the loss is nan",
            (Label("these samples", path="data.evaluation"),),
            notes=(f"{SOURCE} trainer/sft_trainer.py `_build_dataloader`: drop_last",),
        )


def counting(dialect: Dialect, _: Mapping[str, Any]) -> Counting:
    """Only whole batches are used, of the samples that divide over all processes.

    verl 0.8.0 to 0.9.1 trainer/sft_trainer.py `_build_dataloader`: drop_last of sampler and loader;
    0.8.0 trainer/ppo/ray_trainer.py, 0.9.0 to 0.9.1 trainer/ppo/v1/trainer_base.py: of prompts too.
    """

    def steps(epoch: Epoch, epochs: float) -> int:
        if epoch.answers:
            return int(epochs) * (epoch.rows // max(epoch.prompts_a_step, 1))
        share = epoch.rows // epoch.processes
        return int(epochs) * (share // (epoch.micro * epoch.accumulation))

    return Counting(f"verl {dialect[PACKAGE]}", steps, "buffered")


def _evaluated(known: Callable[[str], Any]) -> Mapping[str, Any]:
    """Held-out prompts at once: whole groups of answers on each device, for who splits them."""
    samples = known("generation.samples")
    return {} if samples is None else {"batch.evaluation": samples}


TARGET: Final = Target(
    name=PACKAGE,
    package=PACKAGE,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=_FILES,
    cannot=_CANNOT,
    requires=_REQUIRES,
    needs=_needs,
    takes_fsdp=True,
    starts_workers=is_for_rewards,
    check=_check,
    beside={"transformers": TRANSFORMERS, PEFT: PEFT_RELEASES},
    companions=companions,
    imports=imports,
    entry=entry,
    run_by="trl",
    # utils/checkpoint/checkpoint_handler.py, trainer/ppo `_load_checkpoint`: resume_mode is auto
    goes_on=going_on(PACKAGE, "trainer.resume_mode"),
    counting=counting,
    derives=_evaluated,
    verify="tunec.targets.verl.verify",
)
"""The target for verl's trainers of SFT and of rewards."""
