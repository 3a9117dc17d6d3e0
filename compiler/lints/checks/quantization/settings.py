"""Settings of a quantisation configuration, and bases that are quantised twice or merged into."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.precision import (
    BLOCKS,
    LOADERS,
    QUANTISED,
    blocks,
    published,
    quantised,
    stored_form,
)
from tunec.compiler.lints.facts.training_loop import is_number, is_whole
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.schemas.frozen import replace

_METHODS: Final = frozenset(
    {
        *("awq", "gptq", "aqlm", "quanto", "quark", "fouroversix", "fp_quant", "eetq", "higgs"),
        *("hqq", "compressed-tensors", "fbgemm_fp8", "torchao", "bitnet", "vptq", "spqr", "fp8"),
        *("nvfp4", "mxfp8", "auto-round", "mxfp4", "metal", "sinq", "gemma", "gguf"),
        *("bitsandbytes_4bit", "bitsandbytes_8bit"),
    }
)
"""transformers 4.40.2 to 5.23.0 quantizers/auto.py `AUTO_QUANTIZATION_CONFIG_MAPPING`."""
_MEANT: Final = {
    **dict.fromkeys(("bitsandbytes", "bnb", "nf4", "qlora", "4bit", "int4"), "load_in_4bit: true"),
    **dict.fromkeys(("llm_int8", "int8", "8bit"), "load_in_8bit: true"),
}


class _Setting(Struct, frozen=True):
    """A key of a block, the test for its values, and the description of those values."""

    key: str
    is_taken: Callable[[Any], bool]
    words: str


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values and type(value) is not bool


def _is_switch(value: Any) -> bool:
    return type(value) is bool


def _is_float(value: Any) -> bool:
    return isinstance(value, float)


def _is_list(value: Any) -> bool:
    return value is None or isinstance(value, list)


def _is_group(value: Any) -> bool:
    return value is None or (is_whole(value) and (value == -1 or value > 0))


def _is_damping(value: Any) -> bool:
    return is_number(value) and 0 < value < 1


_BITS: Final = _one_of(2, 3, 4, 8)
_BESIDE: Final = (
    _Setting("llm_int8_threshold", _is_float, "a number with a point, such as 6.0"),
    _Setting("llm_int8_skip_modules", _is_list, "a list"),
    _Setting("llm_int8_enable_fp32_cpu_offload", _is_switch, "true or false"),
    _Setting("llm_int8_has_fp16_weight", _is_switch, "true or false"),
    _Setting("bnb_4bit_use_double_quant", _is_switch, "true or false"),
)
"""Settings that may also stand beside the model's other settings, in a file without a block."""
_BNB: Final = (
    *_BESIDE,
    _Setting("bnb_4bit_quant_type", _one_of("nf4", "fp4"), "nf4 or fp4"),
    _Setting("load_in_4bit", _is_switch, "true or false"),
    _Setting("load_in_8bit", _is_switch, "true or false"),
)
_GPTQ: Final = (
    _Setting("bits", _BITS, "2, 3, 4 or 8"),
    _Setting("group_size", _is_group, "-1, or more than 0"),
    _Setting("damp_percent", _is_damping, "between 0 and 1"),
)
_CALIBRATED: Final = ("wikitext2", "c4", "c4-new")
_SETTINGS: Final[Mapping[str, tuple[_Setting, ...]]] = {
    "gptq": (
        *_GPTQ,
        _Setting(
            "dataset",
            lambda value: value is None or isinstance(value, list) or value in _CALIBRATED,
            "wikitext2, c4, c4-new, or a list of texts",
        ),
    ),
    "hqq": (_Setting("axis", _one_of(0, 1, None), "0 or 1"),),
    "quanto": (
        _Setting("weights", _one_of("float8", "int8", "int4", "int2"), "float8, int8, int4, int2"),
        _Setting("activations", _one_of(None, "int8", "float8"), "int8, float8, or nothing"),
    ),
    "eetq": (_Setting("weights", _one_of("int8"), "int8"),),
    "fp8": (
        _Setting("activation_scheme", _one_of("dynamic", "static"), "dynamic or static"),
        _Setting(
            "weight_block_size",
            lambda value: value is None or (isinstance(value, list) and len(value) == 2),
            "two whole numbers",
        ),
    ),
    "higgs": (
        _Setting("bits", _one_of(2, 3, 4), "2, 3 or 4"),
        _Setting("group_size", _one_of(64, 128, 256), "64, 128 or 256"),
    ),
}


@rule(
    "error",
    "load",
    consumers=("transformers",),
    reads=(*BLOCKS, *keys("model", *(each.key for each in _BESIDE))),
)
def quantization_setting_refused(run: LintContext) -> Iterator[Finding]:
    """A setting that a quantisation configuration of transformers refuses."""
    for block in blocks(run):
        is_bnb = any(block.value.get(f"load_in_{bits}bit") is True for bits in (4, 8))
        yield from _settings(block.document.get, f"{block.path}.", _BNB)
        if is_bnb:
            both = all(block.value.get(f"load_in_{bits}bit") is True for bits in (4, 8))
            yield from _both(block) if both else ()
        else:
            yield from _method(block)
            method = str(block.value.get("quant_method"))
            yield from _settings(block.document.get, f"{block.path}.", _SETTINGS.get(method, ()))
            if method == "torchao":
                yield from _of_torchao(run, block)
    for document in run.of("model"):
        if not document.is_view:
            yield from _settings(document.get, "", _BESIDE)


def _settings(
    get: Callable[[str], Place | None], prefix: str, settings: tuple[_Setting, ...]
) -> Iterator[Finding]:
    for setting in settings:
        at = get(f"{prefix}{setting.key}")
        if at is None or setting.is_taken(at.value):
            continue
        number = at.value
        point = setting.is_taken is _is_float and is_whole(number)
        yield Finding(
            f"{setting.key} is {at.value!r}, and has to be {setting.words}",
            (at.label("refused"),),
            (),
            f"write {number}.0" if point else f"write {setting.words}",
            Fix((at.replaced(float(number)),), "safe") if point else None,
        )


def _both(block: Place) -> Iterator[Finding]:
    four, eight = (block.document.get(f"{block.path}.load_in_{bits}bit") for bits in (4, 8))
    if four is not None and eight is not None:
        yield Finding(
            "`load_in_4bit` and `load_in_8bit` are both true",
            (eight.label("refused"), four.label("", primary=False)),
            ("only one can be used at the same time",),
            "keep the one that is meant",
        )


def _method(block: Place) -> Iterator[Finding]:
    """Report a `quant_method` that is unknown or missing, unless `load_in_4bit` decides."""
    at = block.document.get(f"{block.path}.quant_method")
    word = at.value if at is not None else None
    if not isinstance(word, str | None) or word in _METHODS:
        return
    if at is None and (block.path.endswith("bnb_config") or not _is_off(block)):
        return  # a script may make a configuration of it
    near = [_MEANT[word]] if word in _MEANT else nearest(str(word), _METHODS)[:1]
    yield Finding(
        f"quant_method {word} is none that transformers knows" if at else "no quant_method",
        ((at or block).label("refused"),),
        ("Unknown quantization type" if at else "the block has no `quant_method` attribute",),
        f"did you mean {quoted(near)}?" if near else "write load_in_4bit: true, or a quant_method",
    )


def _is_off(block: Place) -> bool:
    """Whether bitsandbytes' switches are set, but all of them are off."""
    said = [block.value[key] for key in ("load_in_4bit", "load_in_8bit") if key in block.value]
    return bool(said) and not any(said)


def _of_torchao(run: LintContext, block: Place) -> Iterator[Finding]:
    at = block.document.get(f"{block.path}.quant_type")
    if at is None or not isinstance(at.value, str) or run.runs("transformers<5") is True:
        return
    yield Finding(
        f"quant_type {at.value} is a word, but torchao's own object is required",
        (at.label("refused"),),
        (f"no longer supported by {run.release('transformers')}",),
        "make a TorchAoConfig(Int4WeightOnlyConfig(group_size=32)) in the script",
        severity=None if run.runs("transformers>=5.23") else "warning",
    )


_TRL: Final = ("use_bnb_nested_quant", "bnb_4bit_quant_type", "bnb_4bit_quant_storage")
_LOADED: Final = (*_TRL, "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant")
"""Keys of transformers' BitsAndBytesConfig, in a file about model loading."""
_OPTIONS: Final = {
    **dict.fromkeys(LOADERS, (_TRL, ("load_in_4bit",))),
    "model": (_LOADED, ("load_in_4bit", "quantization_config")),
    "axolotl": (("bnb_config_kwargs",), ("load_in_4bit", "load_in_8bit")),
    "llamafactory": (
        ("double_quantization", "quantization_type", "quantization_method"),
        ("quantization_bit", "export_quantization_bit"),
    ),
}
"""By kind of file: options, and the switches of the quantisation that the options configure."""
_OFF: Final = (None, False, "none", "None")


@rule(
    "note",
    "silent",
    consumers=("trl", "axolotl", "llamafactory"),
    reads=tuple(f"{kind}:{key}" for kind, (options, _) in _OPTIONS.items() for key in options),
)
def quantization_options_ignored(run: LintContext) -> Iterator[Finding]:
    """Options of a quantisation that is not turned on."""
    for document in run.of(*_OPTIONS):
        if document.is_view:
            continue
        options, switches = _OPTIONS[document.kind]
        if any(document.value(key) not in _OFF for key in switches) or _unknown(document, switches):
            continue
        said = [place for key in options if (place := document.get(key)) and place.value]
        if said:
            is_off = any(document.get(key) is not None for key in switches)
            found = _finding(said, switches)
            yield replace(found, severity="note") if is_off else found  # off on purpose


def _unknown(document: Document, keys: tuple[str, ...]) -> bool:
    return any(key in document.unknown for key in keys)


def _finding(said: list[Place], switches: tuple[str, ...]) -> Finding:
    names = ", ".join(each.path for each in said)
    return Finding(
        f"{names} without {' or '.join(switches[:1])}: nothing is quantised",
        tuple(each.key_label("does nothing", primary=at == 0) for at, each in enumerate(said)),
        ("the base is loaded in 16 or 32 bits: two to eight times the memory",),
        f"set {switches[0]}, or remove {'it' if len(said) == 1 else 'them'}",
    )


@rule(
    "error",
    "load",
    consumers=("axolotl", "llamafactory"),
    reads=("axolotl:merge_lora", "llamafactory:export_dir"),
)
def merge_into_quantised_base(run: LintContext) -> Iterator[Finding]:
    """An adapter is to be merged into a base that is loaded quantised."""
    for document in run.of("axolotl", "llamafactory"):
        is_axolotl = document.kind == "axolotl"
        found = _axolotl(document) if is_axolotl else _llamafactory(run, document)
        if found is None:
            continue
        merged, base, when = found
        yield Finding(
            "an adapter is to be merged into a quantised base",
            (merged.key_label("merges"), base.label("quantised", primary=False)),
            ("packed weights cannot take the adapter's product in",),
            "merge into the base in bf16 or fp16, and quantise the result",
            consequence=when,
        )


Merge = tuple[Place, Place, Consequence]


def _axolotl(document: Document) -> Merge | None:
    merged, adapter = document.get("merge_lora"), document.value("adapter")
    if merged is None or merged.value is not True or adapter != "qlora":
        return None
    for key in ("load_in_8bit", "gptq", "load_in_4bit"):
        base = document.get(key)
        if base is not None and base.value is True:
            return merged, base, "parse"
    return None


def _llamafactory(run: LintContext, document: Document) -> Merge | None:
    """A merge by `llamafactory-cli export` into a base that is loaded or stored quantised."""
    merged, adapter = document.get("export_dir"), document.get("adapter_name_or_path")
    if merged is None or adapter is None or not merged.value or not adapter.value:
        return None
    after = document.get("export_quantization_bit")
    if after is not None and after.value is not None:
        return merged, after, "init"
    base = document.get("quantization_bit")
    if base is not None and base.value is not None:
        return merged, base, "load"
    stored = stored_form(run)
    return None if stored is None else (merged, stored[1], "load")


_SAME = {"nf4": "bnb-4bit", "fp4": "bnb-4bit", "int8": "bnb-8bit"}
_BY_BITSANDBYTES = ("bnb-4bit", "bnb-8bit")


@rule("error", "load", consumers=("transformers", "llamafactory"), reads=QUANTISED)
def quantised_twice(run: LintContext) -> Iterator[Finding]:
    """A base that is stored quantised is quantised again."""
    base, stored = quantised(run), stored_form(run) or published(run)
    if base is None or stored is None or base.document.kind == "simpletuner":
        return
    form, name = stored
    if _SAME.get(base.form) == form or form in ("int4", "int8", "4bit", "8bit"):
        return
    ignored = base.document.kind == "llamafactory" or form in _BY_BITSANDBYTES
    yield Finding(
        f"{name.value} is stored as {form}, but requested in {base.form}",
        (base.place.label(f"{base.form}"), name.label(f"{form}", primary=False)),
        (
            "what is stored holds, and the rest is ignored"
            if ignored
            else "from_pretrained refuses a configuration of another class than the stored one",
        ),
        "name the base that is stored in 16 bits, or turn quantisation off",
        consequence="silent" if ignored else "load",
        severity="warning" if ignored else None,
    )
