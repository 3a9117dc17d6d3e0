"""Settings of Unsloth's file that training ignores, or that stop it."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.targets.unsloth.refusals import leaves_the_root

setting_overridden = rows(
    "setting-overridden",
    "warning",
    "silent",
    consumers=("unsloth",),
    rows=(
        Row(
            "unsloth:training.load_in_4bit=true",
            "load_in_4bit is ignored in a full fine-tune",
            "ignored",
            "Unsloth loads the model in 16 bits",
            "remove load_in_4bit",
            beside=("training.training_type~=full",),
            beside_label="in full",
        ),
        Row(
            "unsloth:lora{}",
            "the settings for adapters are ignored in a full fine-tune",
            "ignored",
            "no adapter is made",
            "remove the section",
            beside=("training.training_type~=full",),
            beside_label="in full",
            at_key=True,
        ),
        Row(
            "unsloth:data.dataset",
            "a data set by name is not loaded beside local files",
            "not loaded",
            "the local files are loaded, and nothing else",
            "keep one of them",
            beside=("data.local_dataset",),
            beside_label="loaded",
        ),
        Row(
            "unsloth:training.num_epochs",
            "num_epochs does nothing beside max_steps",
            "not followed",
            "the run ends after {1.value} steps",
            "keep one of them",
            beside=("training.max_steps>0",),
            beside_label="ends the run",
        ),
        Row(
            "unsloth:lora.use_loftq=true",
            "use_loftq over a base in 4 bits",
            "left out",
            "a line of the log says so, and adapters start as usual",
            "remove it, or write load_in_4bit: false",
            effective=("slot:quantization.format=nf4",),
        ),
    ),
)

_TRAINS_ALL: Final = "full_finetuning=true"
loading_refused = rows(
    "unsloth-loading-at-odds",
    "error",
    "load",
    consumers=("unsloth",),
    rows=(
        Row(
            "model:fast_inference=true",
            "Unsloth refuses fast_inference with full_finetuning",
            "refused",
            "vLLM is given adapters alone, and not weights that change: NotImplementedError",
            "remove fast_inference, or train an adapter",
            beside=(_TRAINS_ALL,),
            beside_label="all weights change",
        ),
        *(
            Row(
                f"peft:{first}{others}",
                "get_peft_model has no effect with full_finetuning",
                "no adapter is made",
                "Unsloth prints a line and returns the model as it is: all its weights train",
                "remove full_finetuning, or the call of get_peft_model",
                effective=(f"model:{_TRAINS_ALL}",),
                consequence="silent",
                severity="warning",
            )
            for first, others in (("r?", ""), ("lora_alpha?", " & no r?"))
        ),
    ),
)
"""unsloth 2026.10.9 models/vision.py `from_pretrained`, models/llama.py and vision.py
`get_peft_model`."""


@rule("error", "init", consumers=("unsloth",), reads=keys("unsloth", "training.output_dir"))
def output_outside_its_root(run: LintContext) -> Iterator[Finding]:
    """A directory that Unsloth does not write to: it fails after the model was loaded."""
    for document in run.of("unsloth"):
        at = document.get("training.output_dir")
        if at is None or not isinstance(at.value, str) or not leaves_the_root(at.value):
            continue
        inside = at.value.startswith(("/", "~")) and ".." not in at.value.split("/")
        yield Finding(
            f"output_dir {at.value} is refused, unless it lies in Unsloth's own directory"
            if inside
            else f"output_dir {at.value} is refused",
            (at.label("outside"),),
            ("outputs lie in `outputs` of UNSLOTH_STUDIO_HOME, else of ~/.unsloth/studio",),
            "write a relative path, and set UNSLOTH_STUDIO_HOME where it is to be elsewhere",
            severity="warning" if inside else None,
        )
