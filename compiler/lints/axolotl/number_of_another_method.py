"""A number of one preference method in a file of Axolotl that trains by another, or by none."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.conditions import Need, lacking, told
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SIMPO: Final = ("rl=simpo",)
_KTO: Final = ("rl=kto",)
_DPO: Final = ("rl=dpo", "rl=ipo")
_GROUPED: Final = ("rl=grpo", "rl=gdpo", "rl=ebft")
_NEEDS: Final = (
    Need("simpo_gamma", _SIMPO, "it is the margin of SimPO"),
    Need("cpo_alpha", _SIMPO, "it weighs the likelihood in CPO's trainer, which SimPO is run by"),
    Need("kto_desirable_weight", _KTO, "it is a weight of KTO"),
    Need("kto_undesirable_weight", _KTO, "it is a weight of KTO"),
    Need("dpo_use_weighting", _DPO, "it is DPO's own"),
    Need("dpo_padding_free", _DPO, "it is DPO's own"),
    Need("dpo_use_logits_to_keep", _DPO, "it is DPO's own"),
    Need("dpo_label_smoothing", ("rl=dpo",), "it is DPO's own", "axolotl>=0.13"),
    Need("precompute_ref_log_probs", _DPO, "only DPO's trainer is told", "axolotl>=0.13"),
    Need("max_prompt_len", ("rl=orpo", "rl=kto"), "only these are told", "axolotl<0.13"),
    Need("trl.num_generations", _GROUPED, "it is of methods that compare answers to one prompt"),
    Need("trl.reward_funcs", _GROUPED, "it is of methods that compare answers to one prompt"),
    Need("rl_beta", ("rl",), "there is no preference method"),
    Need("orpo_alpha", ("rl",), "there is no preference method"),
)
_IN_SPAN: Final = "axolotl<0.13"


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        for need in _NEEDS:
            is_old = need.since == _IN_SPAN and not run.runs(_IN_SPAN)
            found = None if is_old else lacking(run, document, need)
            if found is None:
                continue
            at, beside = found
            yield Finding(
                f"{at.path} is read by nobody without {told(need.others[0])}",
                (at.label("not read"), *([beside.label("", primary=False)] if beside else [])),
                (need.why,),
                f"write {told(need.others[0])}, or remove it",
            )


RULE = Rule(
    name="number-of-another-method",
    severity="warning",
    consequence="silent",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 core/trainer_builder.py `HFRLTrainerBuilder`, 0.13.2 and 0.19.0 "
            "core/builders/rl.py `_build_training_arguments`, core/trainers/dpo/__init__.py "
            "`set_training_args_kwargs`, core/trainers/grpo/__init__.py: which numbers each "
            "method's arguments are given"
        ),
        "axolotl-ai-cloud/axolotl#3113: max_prompt_len had no effect in GRPO until 0.13",
    ),
    check=_check,
)
