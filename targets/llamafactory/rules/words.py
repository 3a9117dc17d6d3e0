"""Values and keys that LLaMA-Factory does not know."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.consumers.schemas import known_releases
from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.diagnostics.wording import joined, nearest, quoted
from tunec.compiler.lints.checks.keys.names import is_near
from tunec.compiler.lints.checks.keys.other_tools import foreign
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.known_keys import fields_of, keys_ever, releases_of
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.schemas.caches import cached
from tunec.targets.llamafactory.choices import LATE, choices, is_taken

_KINDS: Final = ("llamafactory", "simpletuner", "axolotl")
_LATE: Final = "a file's words are not compared with the choices: it fails where the word is used"

_USED: Final[Mapping[str, Consequence]] = {
    "finetuning_type": "parse",
    "stage": "parse",
    "mix_strategy": "init",
}
"""llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py `__post_init__`: assert, Invalid
fine-tuning method; train/tuner.py `run_exp`: Unknown task, before anything is loaded;
data/data_utils.py `merge_dataset`. Others are used while the model is loaded, except pref_loss,
which the loss uses (`preference-loss-not-computed`)."""


@rule(
    "error",
    "parse",
    consumers=("llamafactory", "simpletuner", "axolotl"),
    reads=tuple(f"{kind}:*" for kind in _KINDS),
)
def word_not_taken(run: LintContext) -> Iterator[Finding]:
    """A value that is none of the reader's choices."""
    for document in run.documents:
        if document.kind in _KINDS and document.target is not None and _is_written(document):
            yield from _of(run, document)


def _is_written(document: Document) -> bool:
    """Whether a user wrote the values; those of `config.env` also appear as flags."""
    is_flags = document.kind == "simpletuner" and document.format == "shell"
    return is_flags or not document.is_view


def _of(run: LintContext, document: Document) -> Iterator[Finding]:
    words = choices(run, document)
    for name, at in document.found.items():
        known = words.get(name.removeprefix("--"))
        if known is None or not _is_word(document, at.value):
            continue
        said = str(at.value)
        if is_taken(said, known) or _is_own(run, document, at.node.written or said):
            continue
        near = nearest(said, known)[:1]
        is_late = document.kind == "llamafactory" and document.format != "shell"
        yield Finding(
            f"{name} cannot be {at.value}",
            (at.label("not taken"),),
            (f"taken: {quoted(sorted(known))}", *((_LATE,) if is_late else ())),
            f"did you mean {quoted(near)}?" if near else "write one of these",
            Fix((at.replaced(near[0]),), "unsafe") if near else None,
            consequence=_used(run, name) if is_late else _when(run, document, name),
            severity=None if _is_as_read(run, document) else "warning",
        )


def _is_own(run: LintContext, document: Document, word: str) -> bool:
    """Whether the repository may contain the program: its source has the value.

    It does not if the command line names the release that reads the file.
    """
    release = run.release(document.kind)
    return run.own.quotes(word) and not (release.is_named and release.pin is None)


def _is_as_read(run: LintContext, document: Document) -> bool:
    """Whether the choices are those of the release: SimpleTuner before 3 had fewer, or none."""
    return document.kind != "simpletuner" or run.release("simpletuner").is_known


def _used(run: LintContext, name: str) -> Consequence:
    """The stage in which LLaMA-Factory first uses a value of its file."""
    if name == "pref_loss":
        return "step" if run.runs("llamafactory<0.9.4") else "silent"
    return _USED.get(name, "load")


def _when(run: LintContext, document: Document, name: str) -> Consequence | None:
    """A value that the reader passes on is refused by TrainingArguments."""
    is_passed = document.kind == "axolotl" and name in LATE
    return "init" if is_passed and run.runs("axolotl<0.19") is not True else None


def _is_word(document: Document, value: object) -> bool:
    """Whether a value is a choice: a text; for LLaMA-Factory true, for SimpleTuner a number."""
    if document.kind == "llamafactory" and value is True:
        return True
    if document.kind == "simpletuner" and type(value) is int:
        return True
    return isinstance(value, str) and value not in ("", "None")


@rule(
    "error",
    "parse",
    consumers=("llamafactory", "axolotl"),
    reads=("llamafactory:*", "axolotl:*"),
    unless="declared",
)
def key_of_no_release(run: LintContext) -> Iterator[Finding]:
    """A key that no class of LLaMA-Factory or Axolotl has in any release."""
    yield from _in_axolotl(run)
    if run.runs("llamafactory<0.9"):
        return
    for document in run.of("llamafactory"):
        if _ELSEWHERE & set(document.found):
            continue
        free = _known().difference(document.found)
        for path, place in document.found.items():
            if "." in path or document.is_view or path in _known():
                continue
            if is_near(path, free):
                continue
            if any(True for _ in foreign(run, document, path, place)):
                continue  # told as another tool's
            yield Finding(
                f"LLaMA-Factory has no key `{path}`",
                (place.key_label("refused"),),
                ("Some keys are not used by the HfArgumentParser: the run stops at the file",),
                "remove it",
                severity=None if _is_read(run) else "warning",
            )


def _in_axolotl(run: LintContext) -> Iterator[Finding]:
    """Keys that Axolotl drops when it reads its file; a named plugin may define further keys."""
    every = keys_ever("axolotl")
    for document in run.of("axolotl"):
        if document.is_view or run.runs("axolotl<0.8") or document.get("plugins") is not None:
            continue
        for path, place in document.found.items():
            is_off = place.value is None or place.value is False
            if "." in path or path in every or is_off or path.startswith(_PLUGINS):
                continue
            if document.format == "shell" and path in _OF_THE_COMMAND:
                continue
            if is_near(path, every) or any(True for _ in foreign(run, document, path, place)):
                continue
            yield Finding(
                f"Axolotl has no key `{path}`",
                (place.key_label("not read"),),
                ("it is silently dropped",),
                "remove it",
                severity="note" if _is_idle(document, path) else "warning",
                consequence="silent",
            )


def _is_idle(document: Document, path: str) -> bool:
    """Whether the key belongs to a setting that is left empty: `eval_table_size:`."""
    begins = path.rpartition("_")[0].rpartition("_")[0]
    off = (name for name, at in document.found.items() if at.value in (None, False, 0))
    return len(begins) > 4 and any(name.startswith(f"{begins[:10]}_") for name in off)


def _is_read(run: LintContext) -> bool:
    """Whether the release is given, and its keys are known."""
    release = run.release("llamafactory")
    return release.is_named and str(release.version) in releases_of("llamafactory")


_OF_THE_COMMAND: Final = frozenset({"launcher", "cloud", "sweep", "debug_text_only", "shard"})
"""Flags of `axolotl train` that are no keys: axolotl 0.13.2 to 0.19.0 cli/main.py `train`,
cli/args.py `TrainerCliArgs`."""
_PLUGINS: Final = ("liger_", "cut_cross_entropy", "spectrum_", "kd_")
"""Prefixes of plugins' options, which `option-without-its-plugin` reports."""


@cached()
def _known() -> frozenset[str]:
    """The fields of LLaMA-Factory's and the Trainer's classes in every known release."""
    trainers = (fields_of("training_arguments", each) for each in _trainers())
    return keys_ever("llamafactory").union(*trainers, _MEANT_FOR_THE_CLI)


@cached()
def _trainers() -> tuple[str, ...]:
    return tuple(known_releases("training_arguments"))


_ELSEWHERE: Final = frozenset(
    {
        *("use_kt", "kt_optimize_rule", "cpu_infer", "use_mca", "tensor_model_parallel_size"),
        *("pipeline_model_parallel_size", "expert_model_parallel_size", "recompute_granularity"),
    }
)
"""Files of KTransformers, in releases after 0.9.3, and of Megatron, with the variable USE_MCA."""
_MEANT_FOR_THE_CLI: Final = frozenset(
    {"config", "nproc_per_node", "predict_with_generate", "min_pixels", "max_pixels"}
)
"""Keys of Seq2SeqTrainingArguments, and of forks for Qwen's models."""


_BITS: Final = {"bnb": (4, 8), "bitsandbytes": (4, 8), "hqq": (1, 2, 3, 4, 5, 6, 8), "eetq": (8,)}
_BESIDE: Final = ("ref_model_quantization_bit", "reward_model_quantization_bit")


@rule(
    "error",
    "load",
    consumers=("llamafactory",),
    reads=keys("llamafactory", "quantization_bit", "export_quantization_bit", *_BESIDE),
)
def bits_not_offered(run: LintContext) -> Iterator[Finding]:
    """A number of bits that the quantization method does not support."""
    for document in run.of("llamafactory"):
        method = document.get("quantization_method")
        word = "bnb" if method is None else str(method.value)
        bits = document.get("quantization_bit")
        if bits is not None and isinstance(bits.value, int) and word in _BITS:
            yield from _offered_finding(bits, word, _BITS[word])
        exported = document.get("export_quantization_bit")
        if exported is not None and isinstance(exported.value, int):
            yield from _offered_finding(exported, "GPTQ", (2, 3, 4, 8))
        for key in _BESIDE:
            other = document.get(key)
            if other is not None and isinstance(other.value, int):
                yield from _offered_finding(other, "bitsandbytes", (4, 8), "parse")


def _offered_finding(
    bits: Place, method: str, offered: tuple[int, ...], when: Consequence | None = None
) -> Iterator[Finding]:
    if bits.value in offered:
        return
    words = joined([str(each) for each in offered], "or")
    yield Finding(
        f"{bits.path} is {bits.value}, and {method} quantises to {words} bits only",
        (bits.label(f"not {words}"),),
        (),
        f"write {words}",
        consequence=when,
    )


pure_bf16_refused = rows(
    "pure-bf16-refused",
    "error",
    "parse",
    consumers=("llamafactory",),
    rows=(
        Row(
            "llamafactory:fp16=true",
            "fp16 cannot scale the loss of the weights in bf16 that pure_bf16 asks for",
            "scales the loss",
            "torch's GradScaler has no kernel for gradients in bf16",
            "remove fp16",
            beside=("pure_bf16=true",),
            beside_label="weights in bf16",
            consequence="step",
        ),
        Row(
            "llamafactory:pure_bf16=true",
            "LLaMA-Factory refuses pure_bf16 under ZeRO stage 3",
            "refused",
            "LLaMA-Factory: `pure_bf16` is incompatible with DeepSpeed ZeRO-3",
            "use bf16: true; the fp32 copies of stage 3 are sharded",
            effective=("slot:zero.stage=3",),
            beside_label="stage 3",
        ),
    ),
)


_DEFAULT: Final = 2048
"""llamafactory 0.9.1 to 0.9.5 hparams/data_args.py `cutoff_len`."""
_SHORTEST: Final = 4096
"""The original context length is what matters for models whose positions are already scaled: 8192
for Llama 3.1, 4096 for DeepSeek V2 (config.json `original_max_position_embeddings`)."""


@rule("warning", "silent", consumers=("llamafactory",), reads=("llamafactory:rope_scaling",))
def rope_scaling_without_need(run: LintContext) -> Iterator[Finding]:
    """Positions are scaled for sequences that fit the model's context."""
    for document in run.of("llamafactory"):
        at, length = document.get("rope_scaling"), document.get("cutoff_len")
        if at is None or not isinstance(at.value, str) or "cutoff_len" in document.unknown:
            continue
        longest = run.model.architecture.context if run.model is not None else None
        tokens = length.value if length is not None else _DEFAULT
        if not longest or not isinstance(tokens, int) or isinstance(tokens, bool):
            continue
        if tokens > min(longest, _SHORTEST):
            continue
        yield Finding(
            f"rope_scaling {at.value} for {tokens} tokens of a model that takes {longest}",
            (at.label("left out"), *also(length)),
            ("a line of the log says so: Disabling rope scaling; the model trains as it is",),
            "remove rope_scaling, or raise cutoff_len beyond what the model takes",
            Fix((at.removed(),), "safe"),
            sum=(Term("the sequence", tokens, "tokens"), Term("the model", longest, "tokens")),
        )
