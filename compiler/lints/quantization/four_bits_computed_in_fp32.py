"""4-bit weights are expanded into fp32 for their products."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.quantization.base import quantised
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TRL = TRL
_KEY = "bnb_4bit_compute_dtype"


def _check(run: Run) -> Iterator[Finding]:
    base = quantised(run)
    if base is None or base.form not in ("nf4", "fp4"):
        return
    if base.place.path != "load_in_4bit" or base.document.kind == "model":
        own = list(_of_transformers(base.place))
        yield from own
        if own or _computed(base.place) is not None:
            return
    compute = run.slot("quantization.compute")
    if compute is not None and compute.value == "fp32":
        place = run.place(compute)
        labels = (
            (place or base.place).label("fp32"),
            *([base.place.label("4 bits", primary=False)] if place else []),
        )
        yield _finding(labels, ())
    elif compute is None and base.document.kind in _TRL and not _says_dtype(base.place):
        yield from _by_default(run, base.place)


def _computed(bits: Place) -> Place | None:
    """What BitsAndBytesConfig is told of the products, beside the bits."""
    block, dot, _ = bits.path.rpartition(".")
    return bits.document.get(f"{block}{dot}{_KEY}")


def _of_transformers(bits: Place) -> Iterator[Finding]:
    """Of a block, or of a file with keys that only BitsAndBytesConfig has."""
    at = _computed(bits)
    if at is not None and at.value in ("float32", "float"):
        yield _finding((at.label("fp32"), bits.label("4 bits", primary=False)), ())
    is_its_own = "." in bits.path or bits.document.get("bnb_4bit_use_double_quant") is not None
    if at is None and is_its_own and bits.path.endswith("load_in_4bit"):
        yield _finding((bits.label("4 bits"),), (f"{_KEY} is float32 where nothing is said",))


def _says_dtype(place: Place) -> bool:
    return place.document.get("dtype") is not None or place.document.get("torch_dtype") is not None


def _by_default(run: Run, place: Place) -> Iterator[Finding]:
    """TRL's scripts hand `dtype` on, whose default became float32 in 0.27."""
    if run.runs("trl>=0.27") is True:
        note = f"trl {run.release('trl').version} takes float32 where `dtype` is absent"
        yield _finding((place.label("4 bits"),), (note,))


def _finding(labels: tuple[Label, ...], notes: tuple[str, ...]) -> Finding:
    return Finding(
        "4-bit weights are expanded to fp32 for every product",
        labels,
        (*notes, "fp32 products do without the 16-bit tensor cores, and take twice the memory"),
        "set the compute dtype (TRL: `dtype`) to bfloat16, or float16 on older devices",
    )


RULE = Rule(
    name="four-bits-computed-in-fp32",
    severity="warning",
    consequence="slow",
    consumers=("trl", "transformers"),
    sources=(
        (
            "transformers 5.23.0 utils/quantization_config.py `BitsAndBytesConfig`: "
            "bnb_4bit_compute_dtype, absent float32"
        ),
        (
            "trl 1.16.0 trainer/model_config.py `dtype`: float32; trainer/utils.py "
            "`get_quantization_config`: bnb_4bit_compute_dtype=model_args.dtype"
        ),
    ),
    check=_check,
)
