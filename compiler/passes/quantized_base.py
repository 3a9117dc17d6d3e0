"""A base in few bits: what cannot be trained in full beside it, and how it keeps its dtype."""

import json
from shlex import quote
from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.modules import QUANTIZED_PARTS
from tunec.compiler.analyses.trainable import modules_to_save
from tunec.compiler.passes.contract import Scribe
from tunec.schemas.spec import Method

_NO_GRADIENT: Final = (
    "with transformers 5.23.0 and bitsandbytes 0.50.2, PEFT 0.21.2 was seen to end in "
    "`only Tensors of floating point dtype can require gradients`"
)
"""What trains a weight in few bits."""


def with_base(method: Method, name: str) -> str:
    """The `--set` argument for the same adapters over a base that another method stores."""
    said = method.lora or method.qlora or method.int8_lora
    options = said.model_dump(mode="json", by_alias=True, exclude_unset=True) if said else {}
    kept = {key: value for key, value in options.items() if key not in ("format", "double")}
    return f"method={{{name}: {json.dumps(kept)}}}" if kept else f"method={name}"


def in_own_dtype(method: Method) -> str:
    """The help that keeps the adapters as they are, over a base that is not quantised."""
    return f"`--set {quote(with_base(method, 'lora'))}` keeps the base in its own dtype"


def refuse_trained_in_full(scribe: Scribe, names: tuple[str, ...], at: str) -> None:
    """Report an error for modules that are trained in full, and quantised with the base."""
    method, architecture = scribe.facts.spec.method, scribe.facts.model.architecture
    if method.qlora is None and method.int8_lora is None:
        return
    plain = {architecture.head, *architecture.new}
    refused = [
        name
        for name in names
        if any(
            module.kind == "linear" and module.part in QUANTIZED_PARTS and module.path not in plain
            for module in modules_to_save(architecture, (name,))
        )
    ]
    if refused:
        place = scribe.place("adapter.also_train", f"{at}.also_train")
        scribe.error(
            "E0609",
            f"{' and '.join(refused)} cannot be trained in full: {method.name} stores these "
            "weights in few bits, which take no gradient",
            place,
            notes=(_NO_GRADIENT,),
            help=f"{in_own_dtype(method)}; or put adapters on them, as `--set {place}=[]` does",
        )


_HEADS_TOO: Final = Version("5.0")
"""The first release of transformers that keeps the last parameter by its name, which in a head with
a bias is no module's (to 5.23 quantizers/base.py `get_keys_to_not_convert`; 4.x keeps the last
module)."""


def report_head(scribe: Scribe) -> None:
    """Report a classifier's head that is quantised with its base, so that PEFT cannot train it."""
    model, running = scribe.facts.model.architecture, scribe.facts.versions.get("transformers")
    if not model.new or (running is not None and Version(running) < _HEADS_TOO):
        return
    last = model.modules[-1]
    if last.path == model.head and not last.bias:
        return
    names = sorted({path.partition(".")[0] for path in model.new})
    scribe.report(
        "head-in-few-bits",
        "warning",
        f"transformers {running or '5'} quantises the new head too ({', '.join(names)}), which "
        "PEFT then cannot train: the run ends before its first step",
        "method",
        notes=(_NO_GRADIENT,),
        help=f"give BitsAndBytesConfig `llm_int8_skip_modules={json.dumps(names)}` in the training "
        f"script; or {in_own_dtype(scribe.facts.spec.method)}",
    )
