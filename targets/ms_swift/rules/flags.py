"""Keys that ms-swift refuses together or ignores, and values that flags cannot express."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import is_checked
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.training_loop import schemas_ever
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rows import Form, Row, rows
from tunec.compiler.lints.rule import Finding, of_known_release, rule

_OTHERS: Final = "attn_impl=sdpa|eager|flex_attention"
_FLAT: Final = "only that kernel keeps samples apart"
_WITHOUT: Final = "cpo|orpo|simpo|rm|ppo"


_pair: Final = Form("ms-swift", "{0.key} {0.value} cannot be combined with {1.key} {1.value}")


def _without_kernel(key: str) -> tuple[Row, Row]:
    mend = "set attn_impl: flash_attention_2"
    return (
        _pair(f"{key}=true", _OTHERS, _FLAT, mend),
        Row(
            f"ms-swift:{key}=true",
            "{0.key} requires attn_impl",
            "refused",
            (_FLAT, "by default, ms-swift does not know the model's kernel yet"),
            mend,
            beside=("no attn_impl",),
        ),
    )


_TOGETHER: Final = (
    *_without_kernel("packing"),
    *_without_kernel("padding_free"),
    _pair("packing=true", "lazy_tokenize=true", "packing counts the samples first", "remove one"),
    _pair("streaming=true", "lazy_tokenize=true", "a stream cannot be restarted", "remove one"),
    Row(
        "ms-swift:streaming=true & no max_steps>0",
        "streaming requires max_steps",
        "has no length",
        "the learning rate is planned over the steps, and a stream does not say how many there are",
        "also write max_steps",
        consequence="init",  # transformers 5.23.0 trainer.py: max_steps has to be specified
    ),
    Row(
        "ms-swift:deepspeed_autotp_size>1",
        "deepspeed_autotp_size {0.value} is refused under deepspeed {1.value}",
        "refused",
        "DeepSpeed does not support split weights at stage 3",
        "write deepspeed: zero2",
        beside=("deepspeed=zero3|zero3_offload",),
        consequence="init",  # as tensor-parallel-under-zero-3
    ),
    _pair("fsdp", "deepspeed", "each shards by itself", "remove one of the two"),
    _pair(
        "save_only_model=true",
        "fsdp=fsdp2",
        "its preset saves shards only",
        "remove save_only_model",
        consequence="init",  # transformers 5.23.0 trainer.py 912
    ),
    Row(
        "ms-swift:optimizer=muon",
        "optimizer muon fails beside deepspeed {1.value}",
        "KeyError: 'use_muon'",
        "it needs whole parameters, and DeepSpeed passes flat parts of them",
        "remove deepspeed, or use another optimizer",
        beside=("deepspeed?",),
        consequence="step",
    ),
    Row(
        "ms-swift:ref_model",
        "ref_model is refused where adapters are trained",
        "refused",
        "the base itself is the reference then",
        "remove ref_model",
        beside=("rlhf_type=dpo|kto|ppo", "no tuner_type=full"),
    ),
    _pair("ref_model", "rlhf_type=cpo|orpo|simpo", "it has no reference", "remove ref_model"),
    *(
        _pair(
            f"{key}=true",
            f"rlhf_type={_WITHOUT}",
            "the trainer of this method pads",
            f"remove {key}",
        )
        for key in ("packing", "padding_free")
    ),
    _pair(
        "sequence_parallel_size>1",
        f"rlhf_type={_WITHOUT}|kto|gkd",
        "sequences are split only in supervised training, DPO and GRPO",
        "remove sequence_parallel_size",
    ),
    _pair(
        "truncation_strategy=right|split",
        "rlhf_type=grpo",
        "it bounds the prompt, whose end must be kept",
        "set truncation_strategy: left",
    ),
    _pair(
        "cached_dataset",
        "rlhf_type=grpo",
        "answers are generated in training",
        "name the data set under dataset",
    ),
    _pair(
        "warmup_ratio>0",
        "warmup_steps>0",
        "releases of transformers differ in which of them counts",
        "remove one of the two",
        since="ms-swift>=4.6",
    ),
    Row(
        "ms-swift:warmup_ratio>=1",
        "warmup_ratio {0.value} is refused",
        "a share of the steps, below 1",
        help="write the number of steps as warmup_steps",
        since="ms-swift>=4.6",
    ),
    Row(
        "ms-swift:loss_weights & (loss_type)",
        "loss_weights are refused outside DPO",
        "refused",
        help="remove loss_weights",
        beside=("rlhf_type!=dpo",),
    ),
    Row(
        "ms-swift:loss_type",
        "several losses are refused outside DPO",
        "refused",
        help="name one loss",
        beside=("rlhf_type!=dpo", "(loss_type~, )"),
    ),
    Row(
        "ms-swift:quant_method=quanto",
        "quanto has no {1.value} bits",
        "refused",
        help="set quant_bits: 8, 4, 2 or float8",
        beside=("quant_bits!=2|4|8|float8",),
    ),
    *(
        Row(
            f"ms-swift:rope_scaling{test}",
            "rope_scaling {0.value} is refused" + told,
            "refused",
            why,
            remedy,
            beside=beside,
        )
        for test, told, why, remedy, beside in (
            (
                "!=linear|dynamic|yarn",
                "",
                "a word is one of three; settings are written as JSON",
                "write linear, dynamic or yarn",
                ("no rope_scaling~{",),
            ),
            (
                "=linear|dynamic|yarn",
                " without max_model_len",
                "the factor follows from the two lengths",
                "also write max_model_len",
                ("no max_model_len",),
            ),
        )
    ),
    Row(
        "ms-swift:swanlab_notification_method!=lark|dingtalk|email|discord|wxwork|slack",
        "swanlab_notification_method {0.value} is refused",
        "not taken",
        help="write lark, dingtalk, email, discord, wxwork or slack",
        beside=("report_to~swanlab",),
    ),
    *(
        Row(
            "ms-swift:swanlab_notification_method=email",
            f"mail requires {key}",
            "refused",
            help=f"also write {key}",
            beside=("report_to~swanlab", f"no {key}"),
        )
        for key in (
            *("swanlab_sender_email", "swanlab_receiver_email"),
            *("swanlab_smtp_server", "swanlab_smtp_port"),
        )
    ),
    Row(
        "ms-swift:quant_method=bnb|hqq|eetq|quanto",
        "quant_method {0.value} requires quant_bits",
        "refused",
        help="also write quant_bits",
        beside=("no quant_bits",),
    ),
    Row(
        "ms-swift:config",
        "swift takes its file as the first argument, and no --config",
        "refused",
        "it is left over when the flags are read: ValueError: remaining_argv",
        "write the path of the file behind `swift sft`, without --config",
        since="ms-swift>=4.1",
    ),
    Row(
        "ms-swift:quant_method=bnb",
        "bnb has no {1.value} bits",
        "refused",
        help="set quant_bits: 4 or quant_bits: 8",
        beside=("quant_bits!=4|8",),
    ),
)

_IN_VAIN: Final = "no part of the data is left for it: ms-swift sets eval_strategy to no"
_WITHOUT_DATA: Final = (
    *("no ms-swift:val_dataset", "no ms-swift:cached_val_dataset", "no ms-swift:eval_dataset"),
    "no ms-swift:load_args=true",
)
_UNSPLIT: Final = "ms-swift>=3.6"
"""ms-swift 3.6.0 to 4.0.0 data_args.py `split_dataset_ratio: float = 0.`; 3.3.0 to 3.5.0: 0.01."""
EVALUATION_WITHOUT_DATA: Final = rows(
    "evaluation-without-data",
    "warning",
    "silent",
    consumers=("ms-swift",),
    rows=(
        Row(
            "ms-swift:eval_strategy=steps|epoch",
            "{0.value} asks for evaluation, and nothing is held out to evaluate",
            "never happens",
            _IN_VAIN,
            "write split_dataset_ratio: 0.01, or name a val_dataset",
            beside=(*_WITHOUT_DATA, "no ms-swift:split_dataset_ratio>0"),
            since=_UNSPLIT,
        ),
        Row(
            "ms-swift:eval_steps>0",
            "eval_steps is not read: nothing is held out to evaluate",
            "never happens",
            _IN_VAIN,
            "write split_dataset_ratio: 0.01, name a val_dataset, or remove eval_steps",
            beside=(
                *_WITHOUT_DATA,
                "no ms-swift:split_dataset_ratio>0",
                "no ms-swift:eval_strategy",
            ),
            since=_UNSPLIT,
            severity="note",
        ),
        Row(
            "ms-swift:split_dataset_ratio>0",
            "split_dataset_ratio holds out nothing of a data set that is streamed",
            "set to 0",
            "ms-swift splits only data whose number is known, and then evaluates on nothing",
            "name a val_dataset",
            beside=("streaming=true", *_WITHOUT_DATA),
        ),
    ),
)

FLAGS_REFUSED_TOGETHER: Final = rows(
    "flags-refused-together", "error", "parse", consumers=("ms-swift",), rows=_TOGETHER
)

BITS_WITHOUT_METHOD: Final = rows(
    "bits-without-method",
    "error",
    "silent",
    consumers=("ms-swift",),
    rows=(
        Row(
            "ms-swift:quant_bits",
            "quant_bits {0.value} quantises nothing without quant_method",
            "passed over",
            "the base is loaded as it is stored",
            "also write quant_method: bnb",
            beside=("no quant_method", "no load_args=true"),
        ),
    ),
)


@rule("error", "parse", consumers=("ms-swift",), reads=("ms-swift:*",), unless="declared")
def empty_key(run: LintContext) -> Iterator[Finding]:
    """A key whose value becomes the text None, or no text."""
    for document in run.of("ms-swift"):
        if not document.is_view and document.format != "shell":
            yield from _empty(document)


def _empty(document: Document) -> Iterator[Finding]:
    for key, node in (document.root.fields or {}).items():
        place = document.get(key)
        if place is None or key == "ENV":
            continue
        if place.value is None:
            yield _finding(place, f"{key} gets the text None", "not empty")
        elif node.items is not None and not node.items:
            yield _finding(place, f"the flag {key} is given no value", "no value")


def _finding(place: Place, text: str, label: str) -> Finding:
    return Finding(
        text,
        (place.label(label),),
        ("each key becomes a flag, and its value the words behind it",),
        "remove the key",
    )


@rule("error", "parse", consumers=("ms-swift",), reads=("ms-swift:*",))
def flag_of_no_release(run: LintContext) -> Iterator[Finding]:
    """A key of `swift sft`, `pt` or `rlhf` that no known release has.

    ms-swift 4.0.4 to 4.6.0 arguments/base_args: `parse_args` raises for unknown flags, unless
    ignore_args_error is set. argparse accepts an unambiguous prefix of a flag.
    """
    for document in run.of("ms-swift"):
        ever = _ever(document)
        if document.is_view or not ever or document.value("ignore_args_error") is True:
            continue
        if is_checked(run, _KNOWN):
            unknown = [_no_argument(run, at) for at in document.found.values() if _is_no(at, ever)]
            yield from of_known_release(unknown, run, _KNOWN)


def _is_no(place: Place, ever: frozenset[str]) -> bool:
    begun = any(each.startswith(place.path) for each in ever)
    return "." not in place.path and place.path not in _OF_CLI and not begun


def _no_argument(run: LintContext, place: Place) -> Finding:
    return Finding(
        f"{place.path} is an argument of no release of ms-swift",
        (place.key_label("refused"),),
        ("swift stops at arguments that it does not know",),
        "remove it; arguments of Megatron belong to `megatron sft`",
        severity=None if run.runs(_KNOWN) else "warning",
    )


_KNOWN: Final = "ms-swift>=4.0"
_OF_CLI: Final = frozenset({"config"})
"""Arguments of the command itself: ms-swift 4.0.4 cli/main.py."""


def _ever(document: Document) -> frozenset[str]:
    """The arguments of every known release."""
    every = (schema(name)["properties"] for name in schemas_ever(document))
    return frozenset(key for each in every for key in each)
