"""Which models' chat templates mark the answers, which `assistant_only_loss` needs."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.ir.plan import Plan

_SOURCE: Final = (
    "trl 1.1.0 to 1.16.0 chat_template_utils.py `get_training_chat_template`, and "
    "chat_templates/README.md, which names the models; before 1.1 it has no variants"
)
_MARKED_SINCE: Final[Sequence[tuple[str, str]]] = (
    (r"meta-llama/meta-llama-3-\d+b-instruct", "1.1"),
    (r"qwen/qwen2\.5-[\d.]+b-instruct", "1.1"),
    (r"qwen/qwen3-[\d.]+b(-a\d+b)?", "1.1"),
    (r"openai/gpt-oss-.*", "1.1"),
    (r"deepseek-ai/deepseek-v3", "1.2"),
    (r"google/gemma-(1\.1-|2-)?\d+b-it", "1.3"),
    (r"zai-org/glm-4\.5(-air)?", "1.3"),
    (r"microsoft/phi-3-mini-.*", "1.3"),
    (r"qwen/qwen3\.6-.*", "1.3"),
    (r"google/gemma-3-.*-it", "1.4"),
    (r"qwen/qwen3-.*-instruct-2507", "1.4"),
    (r"microsoft/phi-3\.5-mini-instruct", "1.5"),
    (r"qwen/qwen3\.5-.*", "1.5"),
    (r"qwen/qwen3-vl-.*-instruct", "1.5"),
    (r"llava-hf/llava-v1\.6-mistral-7b-hf", "1.6"),
    (r"nvidia/nvidia-nemotron-3-.*", "1.6"),
    (r"qwen/qwen2(\.5)?-vl-.*-instruct", "1.6"),
    (r"huggingfacem4/idefics3-.*", "1.7"),
    (r"liquidai/lfm2-.*", "1.10"),
    (r"deepseek-ai/deepseek-r1-distill-.*", "1.11"),
)
"""Models whose own template has no marks, and the release of trl that has a variant with marks."""
_NEVER_MARKED: Final = re.compile(
    r"meta-llama/(llama-3\.[123]|llama-2)-.*|mistralai/(mistral|mixtral)-.*|google/gemma-4-.*|"
    r"microsoft/phi-4.*|huggingfaceh4/zephyr-.*"
)
"""Models whose own template has no marks (huggingface/trl#4879), and no variant in any release."""
_HELP: Final = (
    "`--set data.chat_template=plain`, or the path of a template with `{% generation %}` and "
    "`{% endgeneration %}` around an answer; or `data.loss_on=all`"
)


def marks_answers(model: str, version: Version) -> bool | None:
    """Whether trl finds the answers in conversations of a model on the Hub; None: unknown."""
    name = model.lower()
    for pattern, since in _MARKED_SINCE:
        if re.fullmatch(pattern, name):
            return version >= Version(since)
    return False if _NEVER_MARKED.fullmatch(name) else None


def answers_unmarked(plan: Plan, version: Version) -> Iterator[Diagnostic]:
    """The fault of answers that trl cannot tell from what users say; a note if that is unknown."""
    if plan.data.loss_on != "answers" or plan.data.chat_template is not None:
        return
    if plan.data.format == "prompt-completion" or version < Version("0.19"):
        return
    found = marks_answers(plan.model.path, version)
    label = (Label("by the template of its tokenizer", path="model.path"),)
    if found is False:
        yield Diagnostic(
            "E0905",
            "error",
            f"trl {version} finds answers by marks in the chat template, and that of "
            f"{plan.model.path} has none",
            label,
            (_SOURCE,),
            help=_HELP,
        )
    elif found is None:
        yield Diagnostic(
            "answer-marks-unknown",
            "note",
            f"trl {version} finds answers by marks in the chat template, and stops at the start if "
            f"that of {plan.model.path} has none",
            label,
            (_SOURCE,),
            help=f"if it has none: {_HELP}",
        )
