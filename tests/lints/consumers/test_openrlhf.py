"""What OpenRLHF's programs refuse behind their parser, and what they take and do not use."""

import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from programs import refusal  # noqa: E402
from test_scripts import asked  # noqa: E402

from tunec.compiler.consumers.sets import choose  # noqa: E402
from tunec.targets.openrlhf.packages import RELEASES  # noqa: E402
from tunec.targets.openrlhf.verify import SCRIPT  # noqa: E402

_SFT, _DPO = "openrlhf.cli.train_sft", "openrlhf.cli.train_dpo"
_BASE: Final = "--model.model_name_or_path m --data.dataset d.jsonl --train.micro_batch_size 2"
_REFUSED: Final = {
    "conversations": (_SFT, "--data.multiturn", "apply_chat_template must be enabled"),
    "shared sequences": (_SFT, "--ds.ring_attn_size 2", "packing_samples must be enabled"),
    "bits": (_SFT, "--ds.load_in_4bit --ds.param_dtype fp16", "bnb_4bit_compute_dtype = bf16"),
    "split model": (
        *(_DPO, "--ds.tensor_parallel_size 2 --ds.param_dtype fp16"),
        "BF16 is required",
    ),
    "last steps": (_DPO, "--lr_scheduler warmup_stable_decay", "num_decay_steps"),
    "no schedule": (_SFT, "--lr_scheduler cosin", "not a valid SchedulerType"),
}
_MENDED: Final = {
    "conversations": (_SFT, "--data.multiturn --data.apply_chat_template"),
    "shared sequences": (_SFT, "--ds.ring_attn_size 2 --ds.packing_samples"),
    "bits": (_SFT, "--ds.load_in_4bit --ds.param_dtype bf16"),
    "split model": (_DPO, "--ds.tensor_parallel_size 2 --ds.param_dtype bf16"),
    "last steps": (_DPO, "--lr_scheduler cosine"),
    "no schedule": (_SFT, "--lr_scheduler cosine"),
}
_UNREAD: Final = {
    "alpha": (_SFT, "", "--ds.lora.alpha 32"),
    "dropout": (_SFT, "", "--ds.lora.dropout 0.5"),
    "targets": (_SFT, "", "--ds.lora.target_modules q_proj"),
    "rate of Muon": (_SFT, "", "--muon.lr 0.5"),
    "momentum": (_DPO, "", "--muon.momentum 0.5"),
    "steps of Muon": (_SFT, "--optim muon", "--muon.ns_steps 9"),
    "Nesterov": (_SFT, "--optim muon", "--muon.no_nesterov"),
    "variant": (_SFT, "", "--model.gradient_checkpointing_reentrant"),
    "least rate": (_SFT, "--lr_scheduler linear", "--min_lr_ratio 0.2"),
    "evaluation": (_DPO, "", "--eval.steps 7"),
    "kernel": (_SFT, "--ds.packing_samples", "--ds.attn_implementation sdpa"),
}
_READ: Final = {
    "alpha": (_SFT, "--ds.lora.rank 8", "--ds.lora.alpha 32"),
    "dropout": (_SFT, "--ds.lora.rank 8", "--ds.lora.dropout 0.5"),
    "targets": (_SFT, "--ds.lora.rank 8", "--ds.lora.target_modules q_proj"),
    "rate of Muon": (_SFT, "--optim muon", "--muon.lr 0.5"),
    "momentum": (_DPO, "--optim muon", "--muon.momentum 0.5"),
    "variant": (
        *(_SFT, "--model.gradient_checkpointing_enable"),
        "--model.gradient_checkpointing_reentrant",
    ),
    "least rate": (_SFT, "--lr_scheduler cosine_with_min_lr", "--min_lr_ratio 0.2"),
    "kernel": (_SFT, "", "--ds.attn_implementation sdpa"),
}


def _asks(program: str, words: str) -> dict[str, Any]:
    argv = f"{_BASE} {words}".split()
    return {"verb": "resolve", "program": program, "argv": argv, "samples": 9000, "world_size": 4}


@cache
def answers(release: str) -> dict[tuple[str, str], Any]:
    wanted = [*((program, words) for program, words, _ in _REFUSED.values()), *_MENDED.values()]
    for program, before, words in (*_UNREAD.values(), *_READ.values()):
        wanted += [(program, before), (program, f"{before} {words}")]
    wanted = list(dict.fromkeys(wanted))
    found = asked(
        choose("openrlhf", release).requirements, SCRIPT, [_asks(*each) for each in wanted]
    )
    return dict(zip(wanted, found, strict=True))


def _comes_to(release: str, program: str, words: str) -> Any:
    answer = answers(release)[program, words]
    assert refusal(answer) == ""
    return answer["derived"]


@pytest.mark.parametrize("name", _REFUSED)
@pytest.mark.parametrize("release", RELEASES)
def test_flags_are_refused_together(release: str, name: str) -> None:
    """openrlhf-flags-clash"""
    program, words, why = _REFUSED[name]
    assert why in refusal(answers(release)[program, words])
    assert refusal(answers(release)[_MENDED[name]]) == ""


@pytest.mark.parametrize("name", _UNREAD)
@pytest.mark.parametrize("release", RELEASES)
def test_a_flag_comes_to_nothing(release: str, name: str) -> None:
    """flag-unread-by-openrlhf"""
    program, before, words = _UNREAD[name]
    alone = _comes_to(release, program, before)
    assert _comes_to(release, program, f"{before} {words}") == alone


@pytest.mark.parametrize("name", _READ)
@pytest.mark.parametrize("release", RELEASES)
def test_a_flag_counts_where_it_is_read(release: str, name: str) -> None:
    program, before, words = _READ[name]
    alone = _comes_to(release, program, before)
    assert _comes_to(release, program, f"{before} {words}") != alone
