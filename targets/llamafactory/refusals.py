"""Plans that LLaMA-Factory does not run, or runs differently."""

from itertools import chain, pairwise
from typing import Final

from packaging.version import Version

from tunec.compiler.frontend.names import is_written_as_path
from tunec.compiler.ir.plan import Plan
from tunec.targets.huggingface.text_layers import names_in_the_text
from tunec.targets.llamafactory.model import template_of
from tunec.targets.llamafactory.packages import RELEASES, WRITTEN
from tunec.targets.llamafactory.templates import ENDS_ONCE, sees
from tunec.targets.rows import has_adapter, has_images, in_four_bits, is_quantised
from tunec.targets.scripts.launchers import refusing_rank_flag
from tunec.targets.scripts.refusals import TEXT_ALONE, Refusal, read_by_omegaconf

_TEMPLATE: Final = "llamafactory.template"
_WRITTEN: Final = RELEASES[RELEASES.index(WRITTEN) :]


def _is_pattern(plan: Plan) -> bool:
    """Whether the targets are a pattern; LLaMA-Factory has `all` for all linear layers."""
    targets = plan.adapter.targets
    is_pattern = isinstance(targets, str) and targets != "all-linear"
    return has_adapter(plan) and is_pattern and not names_in_the_text(plan)


_TOLD_APART: Final = {
    "0.9.3": (
        *("gemma3", "internvl", "llama4", "llava", "llava_next", "llava_next_video", "minicpmv"),
        *("minicpmo", "mistral3", "mllama", "paligemma", "qwen2_audio", "qwen2_5_omni"),
        *("qwen2_vl", "qwen2_5_vl", "video_llava"),
    ),
    "0.9.4": (
        *("glm4v", "glm4v_moe", "interns1", "kimi_vl", "qwen3_vl", "qwen3_vl_moe"),
        "qwen3_omni_moe",
    ),
    "0.9.5": ("gemma4", "glm_ocr", "minicpmv4_6", "qwen3_5", "qwen3_5_moe"),
}
"""The families whose towers a release knows, by the first one. Of others, names hold for towers as
well. Gemma 3n is left out: `up_proj` is in its `altup_projections` too, a list that is no layer."""


def _towers_of(since: str, until: str) -> Refusal:
    held = (names for at, names in _TOLD_APART.items() if Version(at) <= Version(since))
    known = frozenset(chain.from_iterable(held))
    return Refusal(
        ("adapter.targets", "model.family"),
        "of this model it does not keep the named layers apart from those of its tower",
        lambda plan: bool(names_in_the_text(plan)) and plan.model.family not in known,
        f"llamafactory {since} model/model_utils/visual.py `COMPOSITE_MODELS`, "
        "`patch_target_modules`",
        "name the layers in `targets`, which adapts the tower's too, or compile to trl",
        since=since,
        until=until,
    )


def _has_no_eyes(plan: Plan) -> bool:
    """Whether no template of any release supports the images of the samples."""
    names = (template_of(plan, release) for release in RELEASES)
    known = any(name is not None and sees(name) for name in names)
    return has_images(plan) and not known and not sees(_named_template(plan))


def _named_template(plan: Plan) -> str:
    """The template that the spec passes on; empty if it names none."""
    passed = (each.partition("=") for each in plan.runtime.extra)
    return next((value.strip('"') for key, _, value in passed if key == _TEMPLATE), "")


_LONE_SYSTEM: Final = frozenset(
    {"gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text"}
    | {"qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text"}
)
"""Families whose own templates refuse a system message alone, or write nothing for it."""


def _is_unmade(plan: Plan, release: str) -> bool:
    """Whether the tokenizer of a folder has a template that is not known by the folder's name."""
    is_known = _named_template(plan) or template_of(plan, release)
    talks = plan.data.format not in ("alpaca", "prompt-completion", "text")
    is_folder = is_written_as_path(plan.model.path)
    return is_folder and talks and not is_known and plan.model.family in _LONE_SYSTEM


def _makes(release: str, until: str) -> Refusal:
    return Refusal(
        ("model.path", "model.family"),
        "it knows a template by the name of the model, and of one of another name it makes it by "
        "writing a system message alone, which the template of this family does not take",
        lambda plan: _is_unmade(plan, release),
        f"llamafactory {release} data/template.py `parse_template`: System role not supported; No "
        "user query found in messages; A placeholder is required",
        "name the template of its kind, as `extra: {llamafactory: {template: gemma2}}` or "
        "`qwen3_5`, or the folder like the model on the Hub",
        since=release,
        until=until,
    )


def _decays_early(plan: Plan) -> bool:
    """Whether the length of the plateau is left to LLaMA-Factory."""
    is_said = any(name == "num_stable_steps" for name, _ in plan.schedule.arguments)
    return plan.schedule.kind == "warmup_stable_decay" and not is_said


def _ends_once(plan: Plan, release: str) -> bool:
    """Whether the template of a release takes the loss over answers alone."""
    return (_named_template(plan) or template_of(plan, release)) in ENDS_ONCE


def _learns_all(release: str, until: str) -> Refusal:
    return Refusal(
        ("data.loss_on", "model.path"),
        "with this model's template, which ends the last turn alone, it takes the loss over "
        "answers and nothing else",
        lambda plan: plan.data.loss_on == "all" and _ends_once(plan, release),
        f"llamafactory {release} data/template.py `get_template_and_fix_tokenizer`: Current "
        "template does not support `train_on_prompt`",
        "set data.loss_on to answers, or compile to trl",
        since=release,
        until=until,
    )


def _stays_as_stored(plan: Plan) -> bool:
    """Whether the frozen part computes in the dtype of its file, which may differ from fp32."""
    return plan.precision.compute == "fp32" and has_adapter(plan)


def _packs_by_mask(plan: Plan) -> bool:
    return plan.data.packing and plan.attention.implementation != "flash_attention_2"


def _shards_8_bits(plan: Plan) -> bool:
    is_sharded = plan.parallel.engine == "fsdp" or plan.zero.stage == 3
    return is_sharded and plan.quantization.format == "int8"


REFUSALS: Final = (
    *read_by_omegaconf("model.path", "runtime.output", "adapter.targets"),
    Refusal(
        ("model.family",),
        "files are written for llamafactory 0.9.3 and later; earlier ones are only read",
        lambda _: True,
        "llamafactory 0.9.3 hparams",
        "request llamafactory@0.9.3 or later",
        until=WRITTEN,
    ),
    Refusal(
        ("model.published",),
        "it expands weights that are published quantised from 0.9.4 on",
        lambda plan: plan.model.published != "none",
        "llamafactory 0.9.4 and 0.9.5 model/model_utils/quantization.py `configure_quantization`",
        "request llamafactory@0.9.4 or later, or train a copy in 16 bits",
        until="0.9.4",
    ),
    refusing_rank_flag("its file", "llamafactory 0.9.3 to 0.9.5 hparams/parser.py `read_args`"),
    Refusal(
        ("adapter.targets",),
        "it takes names of layers; the only expression is that of a language model's layers",
        _is_pattern,
        "llamafactory 0.9.3 to 0.9.5 hparams/finetuning_args.py `split_arg`",
        "name the layers in `targets`",
    ),
    *(_towers_of(*each) for each in pairwise((*_TOLD_APART, "1"))),
    Refusal(
        ("model.path", "data.images"),
        "none of its templates is known to put images before this model",
        _has_no_eyes,
        "llamafactory 0.9.3 to 0.9.5 data/mm_plugin.py; a template made of the tokenizer's own has "
        "the plugin `base`, which takes no images",
        "name the template of its kind, as `extra: {llamafactory: {template: qwen2_vl}}`, or "
        f"compile to trl; {TEXT_ALONE}",
    ),
    *(make(*each) for make in (_learns_all, _makes) for each in pairwise((*_WRITTEN, "1"))),
    Refusal(
        ("precision.compute", "adapter.kind"),
        "it loads the frozen part in the dtype of its file, and has no key for another",
        _stays_as_stored,
        "llamafactory 0.9.3 to 0.9.5 model/loader.py `load_model`: torch_dtype",
        "compute in bf16 or fp16",
    ),
    Refusal(
        ("schedule.kind", "schedule.arguments"),
        "it holds the rate for a third of the steps after the warm-up, decays it, and trains the "
        "rest at the end of the decay, unless the schedule's arguments say how long it is held",
        _decays_early,
        "llamafactory 0.9.3 to 0.9.5 train/trainer_utils.py `create_custom_scheduler`: use 1/3 for "
        "stable by default",
        "give `schedule_arguments` num_stable_steps too: all steps less those of the warm-up and "
        "of the decay",
    ),
    Refusal(
        ("data.packing", "attention.implementation"),
        "beside this attention packed samples are kept apart by a mask of all pairs of tokens, "
        "which the account does not hold",
        _packs_by_mask,
        "llamafactory 0.9.3 to 0.9.5 data/collator.py `prepare_4d_attention_mask`",
        "set `attention: flash_attention_2`",
    ),
    Refusal(
        ("data.packing", "batch.micro"),
        "of packed rows it takes one in a batch",
        lambda plan: plan.data.packing and plan.batch.micro > 1,
        "llamafactory 0.9.5 data/collator.py: bsz should be 1 for neat packing",
        "leave batch.micro to tunec",
        since="0.9.5",
    ),
    Refusal(
        ("data.packing", "objective.kind"),
        "it does not pack pairs",
        lambda plan: plan.data.packing and plan.objective.kind == "dpo",
        "llamafactory 0.9.3 to 0.9.5 hparams/parser.py `get_train_args`",
        "set data.packing to false",
    ),
    Refusal(
        ("objective.kind", "model.kind"),
        "pairs with images are written with other columns here",
        lambda plan: plan.objective.kind == "dpo" and has_images(plan),
        "llamafactory 0.9.3 to 0.9.5 data/converter.py",
        "train towards texts, or compile to trl",
    ),
    Refusal(
        ("quantization.format", "parallel.engine"),
        "where the base is sharded it takes 4 bits only",
        _shards_8_bits,
        "llamafactory 0.9.3 to 0.9.5 model/model_utils/quantization.py `configure_quantization`",
        "set `method: qlora`, or `engine: ddp`",
    ),
    Refusal(
        ("objective.reference", "parallel.engine"),
        "it gives DeepSpeed the accelerator for the batch of the reference, which ends the run",
        lambda plan: plan.objective.reference == "resident" and plan.parallel.engine == "deepspeed",
        "llamafactory 0.9.4 train/dpo/trainer.py `CustomDPOTrainer.__init__`; trl 0.18.0 to 0.24.0 "
        "trainer/utils.py `prepare_deepspeed`, where 0.9.5 takes that of models/utils.py",
        "take llamafactory 0.9.5, set `engine: ddp`, or train adapters, which need no reference",
        since="0.9.4",
        until="0.9.5",
    ),
    Refusal(
        ("adapter.dora", "quantization.format"),
        "it refuses DoRA over any quantised base: what it calls bnb, transformers calls "
        "bitsandbytes",
        lambda plan: plan.adapter.dora and is_quantised(plan),
        "llamafactory 0.9.3 to 0.9.5 model/adapter.py `_setup_lora_tuning`: DoRA is not compatible "
        "with PTQ-quantized models; extras/constants.py `QuantizationMethod.BNB`",
        "leave `dora` out, or compile to trl, axolotl or ms-swift",
    ),
    Refusal(
        ("evaluation.predictions",),
        "answers are as long as its own arguments for generation say, and logits are not kept",
        lambda plan: plan.evaluation.predictions != "loss",
        "llamafactory 0.9.3 to 0.9.5 train/sft/workflow.py, hparams/generating_args.py",
        "evaluate by the loss",
    ),
    Refusal(
        ("attention.implementation", "model.family"),
        "it runs this family by an attention of its own, whatever the file says",
        lambda plan: plan.model.family == "gpt_oss",
        "llamafactory 0.9.4 and 0.9.5 model/model_utils/attention.py",
        "compile to trl",
        since="0.9.4",
    ),
    Refusal(
        ("quantization.storage",),
        "it packs 4-bit weights into the dtype of the products",
        lambda plan: in_four_bits(plan) and plan.quantization.storage is None,
        "llamafactory 0.9.3 to 0.9.5 model/model_utils/quantization.py: bnb_4bit_quant_storage",
        "leave quantization.storage to tunec",
    ),
)
