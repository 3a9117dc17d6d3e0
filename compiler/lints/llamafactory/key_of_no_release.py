"""A key of LLaMA-Factory's or Axolotl's file that none of its classes has in any release."""

from collections.abc import Iterator
from functools import cache
from typing import Final

from tunec.compiler.consumers.schemas import known_releases
from tunec.compiler.lints.keys.key_of_another_tool import foreign
from tunec.compiler.lints.keys.known import fields_of
from tunec.compiler.lints.keys.misspelt_key import is_near
from tunec.compiler.lints.keys.tools import keys_ever, releases_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    yield from _in_axolotl(run)
    if run.runs("llamafactory<0.9"):
        return
    for document in run.of("llamafactory"):
        if _ELSEWHERE & set(document.found):
            continue
        for path, place in document.found.items():
            if "." in path or document.is_view or path in _known():
                continue
            if is_near(path, _known() - frozenset(document.found)):
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


def _in_axolotl(run: Run) -> Iterator[Finding]:
    """Keys that Axolotl leaves where it reads its file; a plugin that is named has some too."""
    every = keys_ever("axolotl")
    for document in run.of("axolotl"):
        if document.is_view or run.runs("axolotl<0.8") or document.get("plugins") is not None:
            continue
        for path, place in document.found.items():
            is_off = place.value is None or place.value is False
            if "." in path or path in every or is_off or path.startswith(_PLUGINS):
                continue
            if is_near(path, every) or any(True for _ in foreign(run, document, path, place)):
                continue
            yield Finding(
                f"Axolotl has no key `{path}`",
                (place.key_label("not read"),),
                ("it is dropped without a word",),
                "remove it",
                severity="warning",
                consequence="silent",
            )


def _is_read(run: Run) -> bool:
    """Whether the release is named, and one of those whose keys are known."""
    release = run.release("llamafactory")
    return release.is_named and str(release.version) in releases_of("llamafactory")


_PLUGINS: Final = ("liger_", "cut_cross_entropy", "spectrum_", "kd_")
"""How the options of plugins begin that are told as theirs (`option-without-its-plugin`)."""


@cache
def _known() -> frozenset[str]:
    """The fields of its own classes and of the trainer's in every release that is known."""
    trainers = (fields_of("training_arguments", each) for each in _trainers())
    return keys_ever("llamafactory").union(*trainers, _MEANT_FOR_THE_CLI)


@cache
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
"""Also Seq2SeqTrainingArguments, and what forks for Qwen's models read."""


RULE = Rule(
    name="key-of-no-release",
    severity="error",
    consequence="parse",
    consumers=("llamafactory", "axolotl"),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 hparams/parser.py `_parse_args`: parse_yaml_file, "
            "parse_dict with allow_extra_keys false unless ALLOW_EXTRA_ARGS: ValueError"
        ),
        "hiyouga/LlamaFactory#2800, #7677",
        (
            "axolotl 0.8.1 to 0.19.0 utils/config/__init__.py `validate_config`: what the classes "
            "do not have is not in what they give back; cli/config.py `prepare_plugins`"
        ),
    ),
    check=_check,
)
