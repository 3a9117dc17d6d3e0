"""A backend for torch.compile that nobody knows."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_BACKENDS: Final = (
    *("no", "eager", "aot_eager", "inductor", "aot_ts_nvfuser", "nvprims_nvfuser", "cudagraphs"),
    *("ofi", "fx2trt", "onnxrt", "tensorrt", "aot_torchxla_trace_once", "torchxla_trace_once"),
    *("tvm", "ipex", "hpu_backend", "neuron", "nvfuser", "aot_nvfuser", "aot_cudagraphs"),
)
_KEYS: Final[tuple[tuple[str, str, Consequence], ...]] = (
    ("trainer", "torch_compile_backend", "init"),
    ("axolotl", "torch_compile_backend", "init"),
    ("accelerate", "dynamo_config.dynamo_backend", "parse"),
)


def _check(run: Run) -> Iterator[Finding]:
    for kind, key, when in _KEYS:
        at = run.said(kind, key)
        if at is None or not isinstance(at.value, str) or not at.value:
            continue
        if at.value.lower() in _BACKENDS or _is_off(run, kind):
            continue
        near = nearest(at.value.lower(), _BACKENDS)[:1]
        yield Finding(
            f"{at.path} cannot be {at.value}",
            (at.label("not known"),),
            (f"known: {quoted(sorted(_BACKENDS))}",),
            f"did you mean {quoted(near)}?" if near else "write inductor, or leave it out",
            Fix((at.replaced(near[0]),), "unsafe") if near else None,
            consequence=when,
        )


def _is_off(run: Run, kind: str) -> bool:
    """Whether compiling is turned off beside it; a backend alone turns it on."""
    compiled = run.said(kind, "torch_compile")
    return compiled is not None and compiled.value is False and kind == "axolotl"


RULE = Rule(
    name="compile-word-unknown",
    severity="error",
    consequence="init",
    consumers=("transformers", "accelerate"),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DynamoBackend`, "
            "`TorchDynamoPlugin.__post_init__`: DynamoBackend(self.backend.upper()): ValueError"
        ),
        "transformers 4.40.2 to 5.23.0 training_args.py: ACCELERATE_DYNAMO_BACKEND",
    ),
    check=_check,
)
