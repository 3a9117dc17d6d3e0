"""Makers' scripts and the libraries that they stand on, asked about the examples of the pages."""

import shlex
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from apart import apart  # noqa: E402
from programs import FOLDER, ROOT, example, refusal  # noqa: E402
from test_libraries import llama  # noqa: E402

from tunec.compiler.consumers.environments import (  # noqa: E402
    prepare,
)
from tunec.compiler.consumers.queries import ask_each  # noqa: E402
from tunec.compiler.consumers.sets import choose  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("transformers", "peft", "diffusers", "trl"):
    pytest.importorskip(needed)

pytestmark = pytest.mark.usefixtures("own_environment")


def words(rule: str, kind: str, number: int, script: str) -> list[str]:
    """The flags behind a script in the command of a rule's example."""
    text = next(iter(example(rule, kind, number).files.values()))
    command = shlex.split(text.replace("\\\n", " "), comments=True)
    return command[next(at for at, word in enumerate(command) if script in word) + 1 :]


def asked(
    requirements: tuple[str, ...],
    consumer: str,
    questions: list[dict[str, Any]],
    root: Path = ROOT,
) -> list[Any]:
    """The answers of a consumer in its own environment."""
    return ask_each(prepare(requirements), consumer, questions, 600.0, root)


# ── llama-cookbook ───────────────────────────────────────────────────────────────────────────────

_REFUSED: Final = "flags-refused-by-llama-cookbook"
_UNREAD: Final = "flag-not-read-by-llama-cookbook"


@cache
def cookbook() -> dict[tuple[str, str, int], Any]:
    from tunec.targets.llama_cookbook.schema import CONSUMER, REQUIREMENTS

    wanted = [
        (_REFUSED, "bad", 2),
        (_REFUSED, "bad", 5),
        (_REFUSED, "good", 0),
        (_UNREAD, "bad", 0),
    ]
    argv = [words(*each, "llama_cookbook.finetuning") for each in wanted]
    questions = [{"verb": "resolve", "argv": each} for each in argv]
    return dict(zip(wanted, asked(REQUIREMENTS, CONSUMER, questions), strict=True))


def test_llama_cookbook_refuses_words_that_it_does_not_have() -> None:
    """flags-refused-by-llama-cookbook"""
    assert "Peft config not found" in refusal(cookbook()[_REFUSED, "bad", 2])
    assert "Unknown dataset: samsum" in refusal(cookbook()[_REFUSED, "bad", 5])
    assert refusal(cookbook()[_REFUSED, "good", 0]) == ""


def test_llama_cookbook_goes_on_without_a_parameter_that_it_does_not_know() -> None:
    """flag-not-read-by-llama-cookbook"""
    answer = cookbook()[_UNREAD, "bad", 0]
    assert refusal(answer) == ""
    assert "unknown parameter" in answer["said"]


# ── SwissArmyTransformer ─────────────────────────────────────────────────────────────────────────

_OWN: Final = {"--max_source_length": 1, "--max_target_length": 1, "--use_lora": 0}
"""Flags that finetune_visualglm.py takes away before the others are parsed."""


def of_sat(number: int, kind: str = "bad", rule: str = "sat-flags-clash") -> list[str]:
    given = words(rule, kind, number, "finetune_visualglm.py")
    kept: list[str] = []
    while given:
        word, *given = given
        if word in _OWN:
            given = given[_OWN[word] :]
        else:
            kept.append(word)
    return kept


@cache
def sat() -> list[Any]:
    from tunec.targets.visualglm.schema import CONSUMER, REQUIREMENTS

    file = example("sat-flags-clash", "bad", 2).files["ds_config.json"]
    argv = [of_sat(0), of_sat(1), of_sat(2), of_sat(0, "good"), of_sat(4), of_sat(5)]
    argv.append(of_sat(2, rule="script-flag-unknown"))
    held = {"verb": "resolve", "scripts": [], "files": {"ds_config.json": file}}
    return asked(REQUIREMENTS, CONSUMER, [{**held, "argv": each} for each in argv])


def test_sat_takes_one_precision_and_one_count() -> None:
    """sat-flags-clash"""
    assert "cannot specify both fp16 and bf16" in refusal(sat()[0])
    assert "only one of train_iters and epochs" in refusal(sat()[1])
    assert refusal(sat()[3]) == ""


def test_the_file_takes_the_place_of_sat_s_flags() -> None:
    """sat-flags-clash"""
    assert "16" in of_sat(2)
    assert sat()[2]["values"]["batch_size"] == 4


def test_sat_brings_files_for_three_stages_and_turns_fp16_on() -> None:
    """sat-flags-clash"""
    assert "deepspeed_zero3.json" in refusal(sat()[4])
    assert "--fp16" not in of_sat(5)
    assert sat()[5]["values"]["fp16"] is True


def test_argparse_refuses_a_flag_that_the_script_does_not_have() -> None:
    """script-flag-unknown"""
    assert "--fp32" in of_sat(2, rule="script-flag-unknown")
    assert refusal(sat()[6]) == "parse: SystemExit: 2"


# ── GLM-4 ────────────────────────────────────────────────────────────────────────────────────────

_GLM: Final = (
    ("glm-4-file-refused", "bad", 0),
    ("glm-4-file-refused", "bad", 1),
    ("glm-4-file-refused", "good", 0),
    ("key-outside-its-block", "bad", 0),
    ("key-outside-its-block", "good", 0),
)


def of_glm(rule: str, kind: str, number: int) -> dict[str, Any]:
    """A question about an example's file, by the state of the script of today."""
    from tunec.targets.glm4.schema import SOURCES
    from tunec.targets.scripts.sources import obtain

    text = next(iter(example(rule, kind, number).files.values()))
    machine = {"capability": [8, 0], "model_config": {"hidden_size": 8}}
    source = str(obtain(SOURCES["3f79b54"]))
    return {"verb": "resolve", "source": source, "files": {"finetune.yaml": text}, **machine}


@cache
def glm() -> dict[tuple[str, str, int], str]:
    from tunec.targets.glm4.verify import SCRIPT

    questions = [of_glm(*each) for each in _GLM]
    pins = (*choose("transformers", "5.23.0").requirements, "ruamel.yaml==0.18.6")
    told = asked(pins, SCRIPT, questions)
    return dict(zip(_GLM, map(refusal, told), strict=True))


def test_glm_s_classes_take_what_they_have() -> None:
    """glm-4-file-refused, key-outside-its-block"""
    assert "argument after ** must be a mapping" in glm()["glm-4-file-refused", "bad", 0]
    assert "unexpected keyword argument 'lora_r'" in glm()["glm-4-file-refused", "bad", 1]
    assert "unexpected keyword argument 'bf16'" in glm()["key-outside-its-block", "bad", 0]
    assert glm()["glm-4-file-refused", "good", 0] == glm()["key-outside-its-block", "good", 0] == ""


# ── diffusers ────────────────────────────────────────────────────────────────────────────────────


def rates(name: str, steps: int = 40, **options: Any) -> list[float]:
    """The rates of a schedule as the examples ask for it."""
    from diffusers.optimization import get_scheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_scheduler(name, optimizer, num_training_steps=steps, **options)
    found = []
    for _ in range(steps):
        found.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return found


def test_a_schedule_passes_over_the_numbers_of_others() -> None:
    """example-flag-unread"""
    said = words("example-flag-unread", "bad", 3, "train_dreambooth_lora_flux.py")
    name = said[said.index("--lr_scheduler") + 1]
    plain = rates(name, num_warmup_steps=0)
    assert rates(name, num_warmup_steps=0, num_cycles=3) == plain
    assert rates("cosine_with_restarts", num_warmup_steps=0, num_cycles=3) != plain
    assert rates("constant", num_warmup_steps=20)[0] == 1.0
    assert rates("constant_with_warmup", num_warmup_steps=20)[0] == 0.0


def test_an_example_cannot_train_with_these_numbers() -> None:
    """example-number-unusable"""
    from diffusers import DDPMScheduler
    from diffusers.training_utils import compute_snr

    with pytest.raises(ValueError, match="is not a valid SchedulerType"):
        rates("cosine_with_min_lr", num_warmup_steps=0)
    steps = torch.arange(0, 1000, 100)
    ratio = compute_snr(DDPMScheduler(), steps)
    weights = torch.stack([ratio, 0.0 * torch.ones_like(steps)], dim=1).min(dim=1)[0]
    assert weights.abs().sum() == 0


def test_the_xl_denoiser_wants_more_than_the_text() -> None:
    """example-of-another-model"""
    from diffusers import UNet2DConditionModel

    small: dict[str, Any] = {
        "sample_size": 8,
        "block_out_channels": (8,),
        "layers_per_block": 1,
        "down_block_types": ("CrossAttnDownBlock2D",),
        "up_block_types": ("CrossAttnUpBlock2D",),
        "cross_attention_dim": 8,
        "attention_head_dim": 2,
        "norm_num_groups": 4,
    }
    given = torch.zeros(1, 4, 8, 8), torch.tensor([1]), torch.zeros(1, 3, 8)
    assert UNet2DConditionModel(**small)(*given).sample.shape == (1, 4, 8, 8)
    large = UNet2DConditionModel(
        **small,
        addition_embed_type="text_time",
        addition_time_embed_dim=4,
        projection_class_embeddings_input_dim=32,
    )
    with pytest.raises(TypeError, match="argument of type 'NoneType' is not"):
        large(*given)


# ── PEFT and TRL ─────────────────────────────────────────────────────────────────────────────────


def test_names_with_commas_are_one_name() -> None:
    """targets-in-one-word"""
    from peft import LoraConfig, get_peft_model
    from transformers import HfArgumentParser

    given = words("targets-in-one-word", "bad", 0, "train_lora.py")
    apart_ = words("targets-in-one-word", "good", 0, "train_lora.py")
    (held, _), (fit, _) = (_targets(HfArgumentParser, each) for each in (given, apart_))
    with pytest.raises(ValueError, match="not found in the base model"):
        get_peft_model(llama(), LoraConfig(target_modules=held))
    assert get_peft_model(llama(), LoraConfig(target_modules=fit)).peft_config


def _targets(parser: Any, given: list[str]) -> tuple[list[str], list[str]]:
    """`lora_target_modules` as a dataclass of FastChat's kind is given it, and the rest."""
    from dataclasses import make_dataclass

    kind = make_dataclass("LoraArguments", [("lora_target_modules", list[str])])
    held, rest = parser(kind).parse_args_into_dataclasses(given, return_remaining_strings=True)
    return held.lora_target_modules, rest


def _gathered() -> str:
    from trl.generation.vllm_generation import VLLMGeneration

    held = SimpleNamespace(num_processes=4, process_index=0)
    generation = VLLMGeneration.__new__(VLLMGeneration)
    said = {"mode": "colocate", "tensor_parallel_size": 3, "accelerator": held, "model": llama()}
    for key, value in said.items():
        setattr(generation, key, value)
    generation._init_vllm()
    return "started"


def test_an_engine_is_of_as_many_processes_each() -> None:
    """vllm-width-does-not-divide"""
    from unittest.mock import patch

    with patch("trl.generation.vllm_generation.is_vllm_available", return_value=True):
        assert "must divide world size (4) evenly" in apart(_gathered)


def test_layers_of_awq_have_no_dora() -> None:
    """dora-on-quantised-base"""
    from peft import LoraConfig
    from peft.tuners.lora.awq import AwqLoraLinear

    with pytest.raises(ValueError, match="does not support DoRA yet"):
        AwqLoraLinear(torch.nn.Linear(4, 4), "default", config=LoraConfig(r=2, use_dora=True), r=2)


def test_a_video_that_is_cut_has_more_features_than_tokens() -> None:
    """video-longer-than-sequence"""
    from transformers import Qwen2_5_VLModel

    held = SimpleNamespace(config=SimpleNamespace(image_token_id=7, video_token_id=8))
    cut, features = torch.full((1, 4), 8), torch.ones(6, 2)
    with pytest.raises(ValueError, match="Video features and video tokens do not match"):
        Qwen2_5_VLModel.get_placeholder_mask(
            held, cut, torch.ones(1, 4, 2), video_features=features
        )


# ── what is on no hub ───────────────────────────────────────────────────────────────────────────


def test_prodigy_steps_by_its_own_estimate() -> None:
    """rate-of-a-rate-free-optimizer"""
    rates = [{"verb": "train", "rate": rate} for rate in (1e-4, 1.0)]
    pins = ("prodigyopt==1.1.2",)
    slow, right = asked(pins, "lints.consumers.prodigy_runs", rates, FOLDER)
    assert slow["last"] > 0.99 * slow["first"]
    assert right["last"] < 0.5 * right["first"]
