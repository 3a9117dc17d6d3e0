"""bf16 on devices whose arithmetic units do not have it."""

from collections.abc import Iterator, Sequence
from typing import Final

from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.precision.asked import device_name, turned_on
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = (
    ("trainer", "bf16"),
    ("hf", "bf16"),
    ("trainer", "bf16_full_eval"),
    ("llamafactory", "pure_bf16"),
    ("deepspeed", "bf16.enabled"),
    ("deepspeed", "bfloat16.enabled"),
    ("accelerate", "mixed_precision"),
    ("launch", "flags.mixed_precision"),
    ("launch", "environment.ACCELERATE_MIXED_PRECISION"),
    ("simpletuner", "mixed_precision"),
    ("axolotl", "bf16"),
    ("diffusers", "mixed_precision"),
    ("llama-cookbook", "fsdp_config.pure_bf16"),
)

_ENGINES: Final = ("deepspeed", "sat")


def _check(run: Run) -> Iterator[Finding]:
    device = run.environment.weakest
    if device is None or device.supports("bf16"):
        return
    places = turned_on(run, _KEYS, "bf16")
    if not places:
        yield from _by_default(run, device_name(device))
        yield from _loaded(run, device_name(device))
        return
    labels = [each.label("bf16", primary=at == 0) for at, each in enumerate(places)]
    yield Finding(
        f"{device_name(device)} has no bf16 arithmetic",
        tuple(labels),
        (
            (
                "transformers refuses it where torch says that it is unsupported; from torch 2.4 "
                "on torch counts emulation as support, and the run goes on many times slower"
            ),
        ),
        "use fp16 with fp32 master weights, or hardware of compute capability 8.0 and more",
        consequence=_when(run, places),
    )


def _when(run: Run, places: Sequence[Place]) -> Consequence | None:
    """DeepSpeed looks at the device when its engine is made; the others, when they read.

    A torch that counts emulation as support is asked by all of them.
    """
    if run.runs("torch>=2.4"):
        return "slow"
    return "init" if all(each.document.kind in _ENGINES for each in places) else None


def _by_default(run: Run, device: str) -> Iterator[Finding]:
    """TRL turns bf16 on where its file says nothing of a precision."""
    for document in run.of(*TRL):
        is_own = document.target is not None and document.target.name == "trl"
        is_said = any(document.get(key) or key in document.unknown for key in ("bf16", "fp16"))
        first = next(iter(document.found.values()), None)
        if document.is_view or not is_own or is_said or first is None:
            continue
        if run.runs("trl>=0.20"):
            yield Finding(
                f"{device} has no bf16 arithmetic, and TRL turns bf16 on where nobody says",
                (first.label("bf16 is left out, and is true"),),
                ("bf16 is `not fp16` where it is left out, from TRL 0.20 on",),
                "write fp16: true, or bf16: false",
            )


def _loaded(run: Run, device: str) -> Iterator[Finding]:
    """llama-cookbook has no flag for bf16: what is not fp16 is loaded in it."""
    for document in run.of("llama-cookbook"):
        first = document.get("model_name") or next(iter(document.found.values()), None)
        if first is not None and "use_fp16" not in {*document.keys, *document.unknown}:
            yield Finding(
                f"{device} has no bf16 arithmetic, and llama-cookbook loads the model in bf16",
                (first.label("bf16, where use_fp16 is left out"),),
                ("nothing refuses it: torch emulates bf16, many times slower",),
                "write --use_fp16",
                severity="warning",
                consequence="slow",
            )


RULE = Rule(
    name="bf16-without-hardware",
    severity="error",
    consequence="parse",
    consumers=("transformers", "deepspeed", "accelerate", "simpletuner", "diffusers"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments.__post_init__`: "
            "ValueError, your setup doesn't support bf16/gpu"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_do_sanity_check`: Type bf16 is not "
            "supported on your device; accelerate 0.30.1 to 1.15.0 commands/launch.py "
            "`_validate_launch_command`: bf16 mixed precision requires a supported device"
        ),
        "trl 0.20.0 to 1.16.0 trainer/sft_config.py, base_config.py `__post_init__`: bf16",
        "llama-cookbook 0.0.5.post1 finetuning.py `main`: float16 if use_fp16 else bfloat16",
        "torch 2.13.0 cuda/__init__.py `is_bf16_supported`, including_emulation",
        "lm-sys/FastChat#399, databrickslabs/dolly#11, unslothai/unsloth#2783",
    ),
    check=_check,
)
