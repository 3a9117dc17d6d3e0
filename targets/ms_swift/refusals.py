"""Plans that ms-swift does not run, or runs differently."""

from typing import Final

from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.ir.plan import Plan, training_data
from tunec.schemas.data_paths import chosen
from tunec.targets.ms_swift.datasets import has_split_without_name
from tunec.targets.ms_swift.models import is_named, type_and_template
from tunec.targets.ms_swift.packages import PACKAGE, RELEASES
from tunec.targets.ms_swift.rewards import REGISTERED, plugin_of
from tunec.targets.rows import has_images, has_pairs, is_rewarded
from tunec.targets.scripts.launchers import refusing_rank_flag
from tunec.targets.scripts.refusals import Refusal


def _says_itself(plan: Plan) -> bool:
    """Whether the spec's extra keys set how the model is loaded."""
    passed = {each.partition("=")[0] for each in plan.runtime.extra}
    return {f"{PACKAGE}.model_type", f"{PACKAGE}.template"} <= passed


def _is_unknown(release: str, plan: Plan) -> bool:
    return not (is_named(plan, release) or type_and_template(plan) or _says_itself(plan))


def _unknown(release: str, until: str) -> Refusal:
    return Refusal(
        ("model.path",),
        "the release does not know the model by its name, and tunec knows no template for it",
        lambda plan: _is_unknown(release, plan),
        f"ms-swift {release} model/model_meta.py `get_model_info_meta`",
        "name both in `extra: {ms-swift: {model_type: ..., template: ...}}`, as "
        "`swift.model.MODEL_MAPPING` has them",
        since=release,
        until=until,
    )


_EACH: Final = zip(RELEASES, (*RELEASES[1:], "999"), strict=True)


def _is_unregistered(plan: Plan) -> bool:
    named = [plugin_of(each) for each in plan.objective.rewards]
    is_known = all(path or name in REGISTERED for path, name in named)
    return is_rewarded(plan) and not (is_known and len({path for path, _ in named} - {""}) < 2)


def _needs_flash(plan: Plan) -> bool:
    return plan.data.packing and plan.attention.implementation != "flash_attention_2"


def _is_taken_apart(plan: Plan) -> bool:
    evaluation = plan.data.evaluation
    names = (*training_data(plan), *((evaluation,) if evaluation else ()))
    return any("#" in each or ":" in chosen(each).path for each in names)


def _has_fewer(plan: Plan) -> bool:
    """Whether data sets have fewer samples than are taken of each."""
    limits, samples = plan.data.limits, plan.data.samples
    return bool(limits) and all(limits) and samples is not None and samples < sum(limits)


REFUSALS: Final = (
    *(_unknown(since, until) for since, until in _EACH),
    Refusal(
        ("parallel.engine",),
        "it puts whole weights on each device before FSDP shards them",
        lambda plan: plan.parallel.engine == "fsdp",
        "ms-swift 4.0.4 to 4.3.2 model/utils.py `get_default_device_map`; 4.6.0 "
        "arguments/sft_args.py `_init_fsdp`",
        "take ms-swift 4.6, or set `engine: deepspeed`",
        until="4.6",
    ),
    Refusal(
        ("objective.rewards",),
        "it takes rewards by the names under which they are registered: "
        f"{joined(REGISTERED, 'and')} are its own, and `plugin.py:name` is one of a file",
        _is_unregistered,
        "ms-swift 4.0.4 to 4.6.0 rewards/orm.py `orms`, which a file of `external_plugins` adds to",
        "register it in one file, `orms['name'] = ...`, and write `plugin.py:name`",
    ),
    Refusal(
        ("generation.engine",),
        "vLLM on the same devices or the model itself writes the answers",
        lambda plan: (
            is_rewarded(plan) and plan.generation.engine not in ("transformers", "vllm_colocate")
        ),
        "ms-swift 4.0.4 to 4.6.0 arguments/rlhf_args.py `_init_rollout`: a server has an address",
        "set `objective.grpo.generator: vllm_colocate`",
    ),
    refusing_rank_flag("the method", "ms-swift 4.0.4 to 4.6.0 cli/main.py `cli_main`"),
    Refusal(
        ("data.packing", "attention.implementation"),
        "it packs samples beside flash attention only",
        _needs_flash,
        "ms-swift 4.0.4 to 4.6.0 arguments/sft_args.py `_check_padding_free`",
        "set `attention: flash_attention_2`",
    ),
    Refusal(
        ("data.packing", "objective.kind"),
        "packed pairs are not in the account of memory",
        lambda plan: plan.data.packing and has_pairs(plan),
        "ms-swift 4.0.4 to 4.6.0 dataset/packing.py, which packs pairs too",
        "set data.packing to false",
    ),
    Refusal(
        ("objective.kind", "model.kind"),
        "pairs with images are written with other columns here",
        lambda plan: has_pairs(plan) and has_images(plan),
        "ms-swift 4.0.4 to 4.6.0 dataset/preprocessor/core.py",
        "train towards texts, or compile to trl",
    ),
    Refusal(
        ("data.train",),
        "it takes a name apart at `:` and `#`: hub, subset and number of samples",
        _is_taken_apart,
        "ms-swift 4.0.4 to 4.6.0 dataset `DatasetSyntax.parse`",
        "rename the data",
    ),
    Refusal(
        ("data.limits", "data.samples"),
        "it repeats the samples of a data set that has fewer than are taken of it",
        _has_fewer,
        "ms-swift 4.0.4 to 4.6.0 dataset/utils.py `sample_dataset`: n_repeat_sample",
        "leave `samples` of the parts out",
    ),
    Refusal(
        ("data.train", "data.evaluation"),
        "of a folder it evaluates on what it trains on",
        has_split_without_name,
        "ms-swift 4.0.4 to 4.6.0 dataset/loader.py `_load_repo_dataset`: its split `train`",
        "write the other split to a file of its own, or compile to trl",
    ),
)
