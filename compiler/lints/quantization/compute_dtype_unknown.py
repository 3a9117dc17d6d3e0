"""4 bits are to be computed in a dtype that torch does not have: `auto`."""

from collections.abc import Iterator

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.preference.asked import is_started_by_trl
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of(*TRL):
        bits = where(document, "load_in_4bit=true")
        at = where(document, "dtype=auto") or where(document, "torch_dtype=auto")
        if bits is None or at is None or document.is_view:
            continue
        if document.format == "shell" and not is_started_by_trl(run, document):
            continue
        yield Finding(
            f"{at.path} auto is no dtype for the products of 4-bit weights",
            (at.label("handed on as it is"), bits.label("", primary=False)),
            ("AttributeError: module 'torch' has no attribute 'auto'",),
            f"write {at.path}: bfloat16",
        )


RULE = Rule(
    name="compute-dtype-unknown",
    severity="error",
    consequence="load",
    consumers=("trl",),
    sources=(
        (
            "trl 0.8.6 to 1.16.0 trainer/utils.py `get_quantization_config`: "
            "bnb_4bit_compute_dtype=model_args.dtype (torch_dtype until 0.24)"
        ),
        (
            "transformers 5.23.0 utils/quantization_config.py `BitsAndBytesConfig.__init__`: "
            "getattr(torch, bnb_4bit_compute_dtype); run"
        ),
    ),
    check=_check,
)
