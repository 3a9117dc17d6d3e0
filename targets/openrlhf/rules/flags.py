"""Flags that the parsers of OpenRLHF's programs refuse."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined, nearest
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.facts.training_loop import is_number, is_whole
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Finding, of_known_release, rule
from tunec.schemas.caches import cached
from tunec.targets.openrlhf.packages import RELEASES

RENAMED: Final[Mapping[str, str]] = {
    "pretrain": "model.model_name_or_path",
    "ref_pretrain": "ref.model_name_or_path",
    "pretrain_mode": "model.pretrain_mode_enable",
    "gradient_checkpointing": "model.gradient_checkpointing_enable",
    "gradient_checkpointing_use_reentrant": "model.gradient_checkpointing_reentrant",
    "aux_loss_coef": "model.aux_loss_coef",
    "nll_loss_coef": "model.nll_loss_coef",
    "beta": "model.beta",
    "ipo": "model.ipo_enable",
    "label_smoothing": "model.label_smoothing",
    "ref_offload": "ref.offload",
    "save_path": "ckpt.output_dir",
    "save_steps": "ckpt.save_steps",
    "save_hf_ckpt": "ckpt.save_hf",
    "disable_ds_ckpt": "ckpt.disable_ds",
    "ckpt_path": "ckpt.path",
    "max_ckpt_num": "ckpt.max_num",
    "max_ckpt_mem": "ckpt.max_mem",
    "load_checkpoint": "ckpt.load_enable",
    "logging_steps": "logger.logging_steps",
    "use_wandb": "logger.wandb.key",
    "wandb_org": "logger.wandb.org",
    "wandb_group": "logger.wandb.group",
    "wandb_project": "logger.wandb.project",
    "wandb_run_name": "logger.wandb.run_name",
    "use_tensorboard": "logger.tensorboard_dir",
    "eval_steps": "eval.steps",
    "eval_dataset": "eval.dataset",
    "eval_split": "eval.split",
    "micro_train_batch_size": "train.micro_batch_size",
    "train_batch_size": "train.batch_size",
    "max_epochs": "train.max_epochs",
    "seed": "train.seed",
    "full_determinism": "train.full_determinism_enable",
    "zero_stage": "ds.zero_stage",
    "param_dtype": "ds.param_dtype",
    "zpg": "ds.zpg",
    "adam_offload": "ds.adam_offload",
    "attn_implementation": "ds.attn_implementation",
    "use_liger_kernel": "ds.use_liger_kernel",
    "grad_accum_dtype": "ds.grad_accum_dtype",
    "overlap_comm": "ds.overlap_comm",
    "deepcompile": "ds.deepcompile",
    "use_ds_universal_ckpt": "ds.use_universal_ckpt",
    "ds_tensor_parallel_size": "ds.tensor_parallel_size",
    "ring_attn_size": "ds.ring_attn_size",
    "ring_head_stride": "ds.ring_attn_head_stride",
    "load_in_4bit": "ds.load_in_4bit",
    "lora_rank": "ds.lora.rank",
    "lora_alpha": "ds.lora.alpha",
    "lora_dropout": "ds.lora.dropout",
    "target_modules": "ds.lora.target_modules",
    "packing_samples": "ds.packing_samples",
    "learning_rate": "adam.lr",
    "adam_betas": "adam.betas",
    "l2": "adam.weight_decay",
    "dataset": "data.dataset",
    "dataset_probs": "data.dataset_probs",
    "dataset_split": "data.dataset_split",
    "max_samples": "data.max_samples",
    "multiturn": "data.multiturn",
    "input_key": "data.input_key",
    "output_key": "data.output_key",
    "input_template": "data.input_template",
    "apply_chat_template": "data.apply_chat_template",
    "tokenizer_chat_template": "data.tokenizer_chat_template",
    "max_len": "data.max_len",
    "prompt_key": "data.prompt_key",
    "chosen_key": "data.chosen_key",
    "rejected_key": "data.rejected_key",
    "disable_fast_tokenizer": "data.disable_fast_tokenizer",
    "dataloader_num_workers": "data.dataloader_num_workers",
    "value_head_prefix": "ds.value_head_prefix",
    "compute_fp32_loss": "model.compute_fp32_loss_enable",
    "margin_loss": "model.margin_loss_enable",
    "loss": "model.loss_type",
}
"""Found by their use: openrlhf 0.9.10 to 0.10.1.post2, and 0.10.2, cli/train_sft.py,
cli/train_dpo.py, cli/train_rm.py."""
_MODELS: Final = ("actor", "ref", "reward", "critic")
_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "actor": (
        *("eps_clip", "eps_clip_low_high", "dual_clip", "policy_loss_type", "aux_loss_coef"),
        "freeze_visual_encoder",
    ),
    "algo.advantage": ("lambd", "gamma"),
    "ckpt": ("best_metric_key",),
    "critic": ("value_clip", "save_value_network"),
    "data": ("prompt_split", "label_key", "image_key", "max_images_per_prompt"),
    "reward": ("overlong_buffer_len", "overlong_penalty_factor", "stop_properly_penalty_coef"),
    "rollout": (
        *("max_new_tokens", "vllm_generate_batch_size", "top_p", "temperature"),
        "n_samples_per_prompt",
    ),
    "train": (
        *("agent_func_path", "async_queue_size", "colocate_actor_ref", "colocate_critic_reward"),
        *("enable_ema", "ema_beta", "num_episodes"),
    ),
    "vllm": ("enable_prefix_caching", "enforce_eager"),
}
"""Flags that kept their names below a section."""
RENAMED_OF_REWARDS: Final[Mapping[str, str]] = {
    **{f"{model}_num_nodes": f"{model}.num_nodes" for model in _MODELS},
    **{f"{model}_num_gpus_per_node": f"{model}.num_gpus_per_node" for model in _MODELS},
    **{f"{model}_learning_rate": f"{model}.adam.lr" for model in ("actor", "critic")},
    **{
        f"vllm_{name}": f"vllm.{name}"
        for name in (
            *("num_engines", "tensor_parallel_size", "sync_backend", "sync_with_ray"),
            *("enable_sleep", "gpu_memory_utilization"),
        )
    },
    **{name: f"{section}.{name}" for section, names in _SECTIONS.items() for name in names},
    "pretrain": "actor.model_name_or_path",
    "reward_pretrain": "reward.model_name_or_path",
    "critic_pretrain": "critic.model_name_or_path",
    "remote_rm_url": "reward.remote_url",
    "normalize_reward": "reward.normalize_enable",
    "reward_clip_range": "reward.clip_range",
    "gradient_checkpointing": "actor.gradient_checkpointing_enable",
    "gradient_checkpointing_use_reentrant": "actor.gradient_checkpointing_reentrant",
    "entropy_loss_coef": "actor.entropy_coef",
    "freezing_actor_steps": "critic.freezing_steps",
    "colocate_all_models": "train.colocate_all",
    "async_train": "train.async_enable",
    "partial_rollout": "train.partial_rollout_enable",
    "use_dynamic_batch": "train.dynamic_batch_enable",
    "train_max_tokens_per_gpu": "train.max_tokens_per_gpu",
    "rollout_max_tokens_per_gpu": "rollout.max_tokens_per_gpu",
    "rollout_batch_size": "rollout.batch_size",
    "micro_rollout_batch_size": "rollout.micro_batch_size",
    "deepspeed_enable_sleep": "ds.enable_sleep",
    "init_kl_coef": "algo.kl.init_coef",
    "kl_target": "algo.kl.target",
    "kl_horizon": "algo.kl.horizon",
    "kl_estimator": "algo.kl.estimator",
    "use_kl_loss": "algo.kl.use_loss",
    "advantage_estimator": "algo.advantage.estimator",
    "no_advantage_std_norm": "algo.advantage.no_std_norm",
    "dynamic_filtering": "algo.dynamic_filtering_enable",
    "dynamic_filtering_reward_range": "algo.dynamic_filtering_range",
    "prompt_data": "data.prompt_dataset",
    "prompt_data_probs": "data.prompt_probs",
    "eval_temperature": "eval.temperature",
    "eval_n_samples_per_prompt": "eval.n_samples_per_prompt",
}
"""Found by their help texts: the same releases, cli/train_ppo_ray.py; checked before those
above."""
OF_REWARDS: Final = "actor."
"""The section of the program for rewards, which README.md of 0.10.2 to 0.11.2 also shows for SFT
and DPO."""


_KIND: Final = "openrlhf"
_PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    _KIND: ("train_sft", "train_dpo"),
    "openrlhf-rm": ("train_rm",),
    "openrlhf-ppo": ("train_ppo_ray",),
}
"""The programs of each kind of flags."""
_OF_REWARDS: Final = "openrlhf-ppo"
_LAUNCHERS: Final = ("python", "torchrun", "deepspeed", "accelerate")
_SECTIONED: Final = "openrlhf>=0.10.2"
_REFUSED: Final = "argparse ends the program: unrecognized arguments"
_OF_TEXTS: Final = (("model.model_name_or_path", "a model"), ("data.dataset", "data"))
_OF_PROMPTS: Final = (("actor.model_name_or_path", "a model"), ("data.prompt_dataset", "data"))
"""Flags that are None by default, and without which nothing is loaded."""
_TYPES: Final = {"integer": "a whole number", "number": "a number"}


@rule(
    "error",
    "parse",
    consumers=("openrlhf",),
    reads=("openrlhf:*", "openrlhf-rm:*", "openrlhf-ppo:*"),
    hardware=True,
)
def flag_refused_by_openrlhf(run: LintContext) -> Iterator[Finding]:
    """A flag or value that the program's parser refuses, or a missing one."""
    is_older = run.runs(_SECTIONED) is False
    flags = (each for kind in _PROGRAMS for each in run.of(kind) if each.get("launcher") is None)
    for document in () if is_older else flags:
        known = {name: each for at in _programs(run, document) for name, each in _flags(at).items()}
        flags_of_it = {e: at for e, at in document.found.items() if not at.node.fields}
        unknown = [_unknown(e, at, known) for e, at in flags_of_it.items() if not _named(e, known)]
        told = list(of_known_release(unknown, run, _SECTIONED))
        yield from told
        if len(told) < len(unknown):
            continue
        for path, place in flags_of_it.items():
            yield from _flag(document, path, place, known)
        yield from _missing(document)
        yield from _shares(run, document) if document.kind != _OF_REWARDS else ()


def _programs(run: LintContext, document: Document) -> Iterator[str]:
    """The programs that its script starts; if a variable names them, all of its kind."""
    of_kind = _PROGRAMS[document.kind]
    words = [
        word
        for each in launches(run, *_LAUNCHERS)
        if each.name == document.name and (at := each.get("script")) is not None
        for word in [at.first_word]
    ]
    named = [name for name in of_kind if any(name in str(word) for word in words)]
    yield from named or of_kind


@cached()
def _flags(program: str) -> Mapping[str, Any]:
    """The schema of each flag by its full name, from the newest release that has it."""
    told = (schema(f"openrlhf/{program}/{release}.json") for release in RELEASES)
    return {name: flag for each in told for name, flag in _below(each["properties"], "")}


def _below(properties: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, each in properties.items():
        if "properties" in each:
            yield from _below(each["properties"], f"{prefix}{name}.")
        else:
            yield prefix + name, each


def _flag(
    document: Document, path: str, place: Place, known: Mapping[str, Any]
) -> Iterator[Finding]:
    name = _named(path, known)
    if name is not None and not document.hides(path):
        yield from _value(path, place, known[name])


def _named(path: str, known: Mapping[str, Any]) -> str | None:
    """The flag that a word names: argparse takes the beginning of one for it."""
    whole = [path] if path in known else [name for name in known if name.startswith(path)]
    return whole[0] if len(whole) == 1 else None


def _unknown(path: str, place: Place, known: Mapping[str, Any]) -> Finding:
    new = next((each for each in _new_names(path) if each in known), None)
    if new is not None:
        why = f"before 0.10.2 it is --{path}, and since then --{new}"
        return _renamed(path, new, place, why, "safe")
    moved = f"model.{path.removeprefix(OF_REWARDS)}"
    if path.startswith(OF_REWARDS) and moved in known:
        why = "only the program for rewards has sections that begin with actor"
        return _renamed(path, moved, place, why, "safe")
    near = nearest(path, known)[:1]
    return _renamed(path, near[0] if near else "", place, "", "unsafe")


def _new_names(path: str) -> tuple[str, ...]:
    """The new names of a renamed flag: first that of its own program."""
    return tuple(names[path] for names in (RENAMED_OF_REWARDS, RENAMED) if path in names)


def _renamed(path: str, new: str, place: Place, why: str, how: Any) -> Finding:
    return Finding(
        f"the program has no flag --{path}",
        (place.key_label("refused"),),
        (why,) if why else (_REFUSED,),
        f"write --{new}" if new else "remove it",
        Fix((place.renamed(new),), how) if new else None,
    )


def _value(path: str, place: Place, flag: Mapping[str, Any]) -> Iterator[Finding]:
    """A value that argparse cannot convert to the flag's type."""
    value, words = place.value, flag.get("enum")
    if words is not None and value not in words:
        told = joined(words, "or")
        yield _refused(path, place, f"invalid choice: one of {told}", f"write {told}")
    kind = flag.get("type")
    if kind in _TYPES and not (is_whole(value) if kind == "integer" else is_number(value)):
        yield _refused(path, place, f"{_TYPES[kind]} is read", f"write {_TYPES[kind]}")
    if kind == "string" and value is True:
        yield _refused(path, place, "expected one argument", "write its value behind it")
    if kind == "boolean" and value is not True:
        yield _refused(path, place, "it takes no value: unrecognized arguments", "remove the value")
    yield from _list(path, place, flag)


def _list(path: str, place: Place, flag: Mapping[str, Any]) -> Iterator[Finding]:
    count = next((each["minItems"] for each in flag.get("anyOf", ()) if "minItems" in each), None)
    given = len(place.node.items or ()) or 1
    if count is not None and given != count:
        yield _refused(path, place, f"expected {count} arguments", f"write {count} numbers")


def _refused(path: str, place: Place, why: str, help: str) -> Finding:
    return Finding(
        f"--{path} does not take this value", (place.label("refused"),), (f"argparse: {why}",), help
    )


def _missing(document: Document) -> Iterator[Finding]:
    """A required flag is missing, in a command whose words are all known."""
    first = next(iter(document.found.values()), None)
    if first is None or document.unknown:
        return
    by_rewards = document.kind == _OF_REWARDS
    old = {new: name for name, new in (RENAMED_OF_REWARDS if by_rewards else RENAMED).items()}
    for flag, what in _OF_PROMPTS if by_rewards else _OF_TEXTS:
        others = (flag, old[flag], f"{OF_REWARDS}{flag.rpartition('.')[2]}")
        if not any(document.get(each) for each in others):
            yield Finding(
                f"no flag names {what}",
                (first.key_label("the first of these flags"),),
                (f"--{flag} is none by default, and nothing is loaded by that name",),
                f"write --{flag}",
                consequence="init",
            )


_MICRO, _BATCH = "train.micro_batch_size", "train.batch_size"


def _shares(run: LintContext, document: Document) -> Iterator[Finding]:
    """A global batch that does not divide into micro batches of all processes."""
    world, micro = run.value("parallel.world"), document.value(_MICRO, 8)
    batch = document.value(_BATCH, 128)
    at = document.get(_BATCH) or document.get(_MICRO)
    if at is None or document.hides(_MICRO, _BATCH):
        return
    if not (is_whole(world) and is_whole(micro) and is_whole(batch)) or world * micro < 1:
        return
    shared = batch
    for key in ("ds.ring_attn_size", "ds.tensor_parallel_size"):
        width = document.value(key, 1)
        if document.hides(key) or not is_whole(width):
            return
        shared *= width
    if shared % (world * micro):
        yield Finding(
            f"a batch of {batch} has no equal parts for {world} processes of {micro}",
            (at.label("refused"),),
            ("DeepSpeed's assertion on the batch fails: train_batch_size is no product",),
            f"write a multiple of {world * micro} as --{_BATCH}",
            consequence="init",
        )
