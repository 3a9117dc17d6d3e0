"""Rules about values that Axolotl refuses."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined, nearest, quoted, shown
from tunec.compiler.lints.conditions import is_checked, items, notes, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.training_loop import configs, schemas_around
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rows import Mend, Row, found
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.caches import cached
from tunec.targets.axolotl.rules.plugins import PLUGIN_ROWS, PLUGIN_WORDS, numbers_of_plugins

Kinds = frozenset[str]

_TOLD: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
_SWITCHES: Final = frozenset(
    {"true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n"}
)
_ELSEWHERE: Final = frozenset({"datasets", "max_memory", "device_map", "deepspeed", "plugins"})
"""Keys whose values another rule checks, or Axolotl itself before it applies its schema."""


@rule("error", "parse", consumers=("axolotl",), reads=("axolotl:*",))
def type_refused(run: LintContext) -> Iterator[Finding]:
    """Axolotl's schema does not accept the type of a value."""
    for document in configs(run):
        tables = [_kinds(name) for name in schemas_around(run, document)]
        for key, at in document.found.items() if tables else ():
            if "." in key or key in _ELSEWHERE or key in document.unknown:
                continue
            kinds = [table.get(key) for table in tables]
            if all(each and not _fits(at.value, each) for each in kinds):
                yield _of_another_type(at, kinds[0] or frozenset())


@cached()
def _kinds(name: str) -> Mapping[str, Kinds]:
    read = schema(name)
    named: Mapping[str, Any] = read.get("$defs", {})
    found = {key: _of(rule, named) for key, rule in read.get("properties", {}).items()}
    return {key: kinds for key, kinds in found.items() if kinds}


def _of(rule: Mapping[str, Any], named: Mapping[str, Any]) -> Kinds:
    """The JSON types that a schema's rule accepts; empty if it accepts anything."""
    found: set[str] = set()
    for part in rule.get("anyOf", (rule,)):
        meant = named.get(str(part.get("$ref", "")).rpartition("/")[2], part)
        kind = meant.get("type") or ("string" if "enum" in meant else None)
        if kind is None:
            return frozenset()
        found |= {kind} if isinstance(kind, str) else set(kind)
    return frozenset(found)


def _fits(value: Any, kinds: Kinds) -> bool:
    """Whether pydantic, which converts leniently, accepts a value as one of the types."""
    if value is None:
        return "null" in kinds
    if isinstance(value, bool):
        return bool(kinds & {"boolean", "integer", "number"})
    if isinstance(value, int | float):
        is_whole = float(value).is_integer()
        is_switch = "boolean" in kinds and value in (0, 1)
        return is_switch or "number" in kinds or ("integer" in kinds and is_whole)
    if isinstance(value, str):
        return "string" in kinds or _reads(value.strip().lower(), kinds)
    return ("array" if isinstance(value, list) else "object") in kinds


def _reads(text: str, kinds: Kinds) -> bool:
    if "boolean" in kinds and text in _SWITCHES:
        return True
    try:
        number = float(text)
    except ValueError:
        return False
    return "number" in kinds or ("integer" in kinds and number.is_integer())


def _of_another_type(at: Place, kinds: Kinds) -> Finding:
    wanted = joined([_TOLD[each] for each in sorted(kinds) if each in _TOLD], "or")
    is_text = kinds - {"null"} == {"string"} and isinstance(at.value, int | float)
    return Finding(
        f"Axolotl takes {wanted} as {at.path}, not {shown(at.value)}",
        (at.label("refused"),),
        (),
        f"write {wanted}" if at.value is not None else f"write {wanted}, or remove the key",
        Fix((at.replaced(str(at.value)),), "unsafe") if is_text else None,
    )


_TRL: Final = "TRL 0.29 removed it"
_UNSLOTH: Final = "write lora_mlp_kernel, lora_qkv_kernel and lora_o_kernel"
_GONE: Final = (
    ("max_packed_sequence_len", "it is sequence_len with sample_packing", "remove it", ""),
    (
        *("rope_scaling", "it is a key of the model's own configuration"),
        *("write it below overrides_of_model_config", ""),
    ),
    ("save_safetensors=false", "transformers 5 writes safetensors only", "remove it", ">=0.14"),
    ("s2_attention", "shifted sparse attention was removed", "remove it", ">=0.17"),
    ("flash_attn_rms_norm", "the fused norm was removed", "remove it", ">=0.17"),
    ("rpo_alpha", _TRL, "remove it", ">=0.16"),
    ("dpo_norm_loss", _TRL, "remove it", ">=0.16"),
    ("dpo_use_logits_to_keep", _TRL, "remove it", ">=0.15"),
    ("dpo_generate_during_eval", _TRL, "remove it", ">=0.15"),
    *(
        (f"unsloth_{each}", "Axolotl has kernels of its own", _UNSLOTH, ">=0.17")
        for each in ("cross_entropy_loss", "lora_mlp", "lora_qkv", "lora_o", "rms_norm", "rope")
    ),
)
"""Condition, reason, replacement, and the releases of Axolotl that refuse it."""
_ROWS: Final = (
    *(
        Row(
            f"axolotl:{condition}",
            f"{condition.replace('=', ': ')} is refused",
            "refused",
            why,
            mended,
            Mend("unsafe", remove=True),
            since=since and f"axolotl{since}",
            files_only=True,
        )
        for condition, why, mended, since in _GONE
    ),
    Row(
        "axolotl:neftune_noise_alpha<=0",
        "neftune_noise_alpha {0.value} is not above 0",
        "refused",
        help="remove it",
        files_only=True,
    ),
)
_ATTENTION: Final = (
    *("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flash_attention_4"),
    *("flash_attention_torch", "flex_attention", "xformers", "sage", "fp8"),
)
_SHORT: Final = {"flash": "flash_attention_2", "flex": "flex_attention", "sdp": "sdpa"}
_ADAPTERS: Final = ("lora", "qlora", "llama-adapter")
_METRICS: Final = ("sacrebleu", "comet", "ter", "chrf", "perplexity")
_HEADS: Final = ("auto", "sdpa", "triton_flash")
_QAT: Final = (*("int4", "int8", "float8_e4m3fn", "nvfp4", "mxfp4", "ternary", "fp8", "float8"),)
"""axolotl 0.19.0 utils/schemas/quantization.py `validate_ao_dtype`."""
_EXCESS: Final = ("drop", "truncate", "raise")
"""axolotl 0.12.2 to 0.19.0 utils/schemas/config.py: `raise` came with 0.13.1."""
_RESIZES: Final = ("bilinear", "bicubic", "lanczos")
_INDUCTOR: Final = (
    *("coordinate_descent_tuning", "coordinate_descent_check_all_directions", "shape_padding"),
    *("epilogue_fusion", "max_autotune_gemm", "fx_graph_cache", "assume_aligned_inputs"),
    *("comprehensive_padding", "decompose_mem_bound_mm", "triton.cudagraphs"),
)
"""axolotl 0.18.0 and 0.19.0 utils/schemas/enums.py `INDUCTOR_COMPILE_OPTIONS_ALLOWLIST`."""
_MATMULS: Final = ("aten::mm", "aten::addmm", "aten::matmul", "aten::bmm")
_ALIKE: Final[Mapping[str, str]] = {
    "message_field_role": "role",
    "message_field_content": "content",
}
"""axolotl 0.8.1 to 0.19.0 utils/schemas/utils.py `handle_legacy_message_fields_logic`."""


@rule("error", "parse", consumers=("axolotl",), reads=("axolotl:*",))
def value_refused(run: LintContext) -> Iterator[Finding]:
    """Axolotl no longer accepts a value, or never did."""
    yield from found((*_ROWS, *PLUGIN_ROWS), run)
    for document in configs(run):
        yield from _words(run, document)
        yield from _sets(run, document)
        yield from _rate(document)
        yield from _reserved(document)
        yield from _compiled(run, document)
        yield from _kept(run, document)
        yield from _named_twice(document)
        yield from numbers_of_plugins(run, document)


def _words(run: LintContext, document: Document) -> Iterator[Finding]:
    is_open = bool(document.value("plugins"))
    plugins = str(document.value("plugins")).lower()
    for key, words, since, plugin in (
        ("attn_implementation", _ATTENTION, "axolotl>=0.17", ""),
        ("adapter", _ADAPTERS, "axolotl>=0.17", ""),
        ("image_resize_algorithm", _RESIZES, "", ""),
        ("large_head_attention", _HEADS, "axolotl>=0.18", ""),
        ("qat.weight_dtype", _QAT, "axolotl>=0.19", ""),
        ("qat.activation_dtype", _QAT, "axolotl>=0.19", ""),
        ("excess_length_strategy", _EXCESS[:2], "axolotl>=0.12.2,<0.13.1", ""),
        ("excess_length_strategy", _EXCESS, "axolotl>=0.13.1", ""),
        *PLUGIN_WORDS,
    ):
        at = document.get(key)
        if at is None or not isinstance(at.value, str) or at.value.lower() in ("", *words):
            continue
        if plugin not in plugins or ("<" in since and not run.runs(since)):
            continue
        if "/" in at.value or not is_checked(run, since) or (key == "adapter" and is_open):
            continue
        near = [_SHORT[at.value]] if at.value in _SHORT else nearest(at.value, words)[:1]
        yield Finding(
            f"{key} cannot be {at.value}",
            (at.label("not taken"),),
            notes(run, f"taken: {quoted(sorted(words))}", since),
            f"write {near[0]}" if near else _HELP.get(at.value.lower(), "write one of these"),
            Fix((at.replaced(near[0]),), "unsafe") if near else None,
            severity=severity(run, since),
        )


_HELP: Final = {
    "dora": "write adapter: lora and peft_use_dora: true",
    "rslora": "write adapter: lora and peft_use_rslora: true",
}


_BUILDERS: Final = {"jsonl": "json", "txt": "text", "tsv": "csv", "md": "text"}
"""File suffixes that are mistaken for builder names: axolotl 0.8.1 utils/data/shared.py, 0.19.0
utils/data/shared.py `_load_from_local_path`: load_dataset(ds_type, data_files=...)."""


def _sets(run: LintContext, document: Document) -> Iterator[Finding]:
    metrics = document.get("eval_causal_lm_metrics")
    if metrics is not None and isinstance(metrics.value, list):
        wrong = [each for each in metrics.value if each not in _METRICS]
        if wrong:
            yield Finding(
                f"eval_causal_lm_metrics cannot hold {wrong[0]}",
                (metrics.label("refused"),),
                (f"taken: {quoted(sorted(_METRICS))}",),
                "remove it",
            )
    for name, each in items(document, "datasets"):
        if name == "ds_type" and str(each.value).lower() in _BUILDERS:
            yield Finding(
                f"ds_type {each.value} is no builder of the library datasets",
                (each.label("refused"),),
                ("the file has another suffix, which needs another builder",),
                f"write ds_type: {_BUILDERS[str(each.value).lower()]}",
                consequence="init",
            )
        is_old = run.runs("axolotl<0.5") is True
        is_shared = name == "type" and str(each.value).startswith("sharegpt")
        if is_shared and isinstance(each.value, str) and not is_old:
            yield Finding(
                f"a data set is of type {each.value}",
                (each.label("refused"),),
                ("conversations are read by type chat_template",),
                "write type: chat_template, with field_messages: conversations",
                Fix((each.replaced("chat_template"),), "unsafe"),
            )


def _compiled(run: LintContext, document: Document) -> Iterator[Finding]:
    """Axolotl does not pass on some options for the compiler."""
    since, at = "axolotl>=0.18", document.get("torch_compile_options")
    given = at.value if at is not None and isinstance(at.value, dict) else {}
    wrong = sorted(set(map(str, given)) - set(_INDUCTOR))
    if at is not None and wrong and is_checked(run, since):
        near = nearest(wrong[0], _INDUCTOR)[:1]
        yield Finding(
            f"torch_compile_options cannot hold {wrong[0]}",
            (at.label("refused"),),
            notes(run, f"taken: {quoted(sorted(_INDUCTOR))}", since),
            f"write {near[0]}" if near else "remove it",
            severity=severity(run, since),
        )


def _kept(run: LintContext, document: Document) -> Iterator[Finding]:
    """Selective checkpointing keeps matrix products beside an adapter."""
    since, at = "axolotl>=0.18", document.get("selective_checkpointing.save")
    named = at.value if at is not None and isinstance(at.value, list) else []
    wrong = [each for each in named if each != "attention" and _is_product(str(each))]
    adapter = document.get("adapter")
    if at is not None and wrong and adapter is not None and is_checked(run, since):
        yield Finding(
            f"selective_checkpointing cannot keep {wrong[0]} beside adapter {adapter.value}",
            (at.label("refused"), adapter.label("", primary=False)),
            notes(run, "PEFT adds the adapter's part to what is kept, in its place", since),
            "write save: [attention]",
            severity=severity(run, since),
        )


def _is_product(name: str) -> bool:
    return any(name in each for each in _MATMULS)


def _named_twice(document: Document) -> Iterator[Finding]:
    """A message field has different names under its older and its newer key."""
    for key in ("datasets", "test_datasets"):
        every = list(items(document, key))
        for name, at in every:
            mapped = f"{at.path.rpartition('.')[0]}.message_property_mappings"
            given = next((each.value for _, each in every if each.path == mapped), None)
            other = given.get(_ALIKE.get(name)) if isinstance(given, dict) else None
            if other is not None and other != at.value:
                yield Finding(
                    f"{name} {at.value} conflicts with message_property_mappings {other}",
                    (at.label("refused"),),
                    ("both name one field of a message, and the second is its newer form",),
                    f"keep {_ALIKE[name]}: {other} and remove {name}",
                    Fix((at.removed(),), "unsafe"),
                )


def _reserved(document: Document) -> Iterator[Finding]:
    at = document.get("processor_kwargs")
    given = at.value if at is not None and isinstance(at.value, dict) else {}
    reserved = sorted({"revision", "trust_remote_code"} & set(given))
    if at is not None and reserved:
        yield Finding(
            f"processor_kwargs cannot hold {reserved[0]}",
            (at.label("refused"),),
            (),
            "write revision_of_model or trust_remote_code at the top",
        )


def _rate(document: Document) -> Iterator[Finding]:
    """The learning rate is text that is no number; text such as 2e-4 in YAML 1.1 is converted."""
    at = document.get("learning_rate")
    if at is None or not isinstance(at.value, str) or "learning_rate" in document.unknown:
        return
    try:
        float(at.value)
    except ValueError:
        yield Finding(
            f"learning_rate {at.value} is no number",
            (at.label("refused"),),
            ("could not convert string to float",),
            "write a number, such as 2.0e-4",
        )
