"""A recipe for TRL's scripts in the words of other tools."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.keys.tools import of_unknown
from tunec.compiler.lints.kinds import own_keys
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_MEANT: Final[Mapping[str, tuple[str, str]]] = {
    "r": ("lora_r", "PEFT"),
    "target_modules": ("lora_target_modules", "PEFT"),
    "modules_to_save": ("lora_modules_to_save", "PEFT"),
    "task_type": ("lora_task_type", "PEFT"),
    "bnb_4bit_compute_dtype": ("dtype", "transformers"),
    "bnb_4bit_use_double_quant": ("use_bnb_nested_quant", "transformers"),
    "use_flash_attention_2": ("attn_implementation", "transformers"),
    "lora_rank": ("lora_r", "LLaMA-Factory"),
    "lora_target": ("lora_target_modules", "LLaMA-Factory"),
    "additional_target": ("lora_modules_to_save", "LLaMA-Factory"),
    "quantization_bit": ("load_in_4bit", "LLaMA-Factory"),
    "cutoff_len": ("max_length", "LLaMA-Factory"),
    "flash_attn": ("attn_implementation", "LLaMA-Factory"),
    "finetuning_type": ("use_peft", "LLaMA-Factory"),
    "sequence_len": ("max_length", "Axolotl"),
    "sample_packing": ("packing", "Axolotl"),
    "micro_batch_size": ("per_device_train_batch_size", "Axolotl"),
    "num_epochs": ("num_train_epochs", "Axolotl"),
    "peft_use_dora": ("use_dora", "Axolotl"),
    "peft_use_rslora": ("use_rslora", "Axolotl"),
    "flash_attention": ("attn_implementation", "Axolotl"),
    "adapter": ("use_peft", "Axolotl"),
}
"""A key, TRL's own for it, and whose it is. Those whose values are not TRL's are not renamed."""
_ALIKE: Final = frozenset(
    {
        *("r", "target_modules", "modules_to_save", "task_type", "lora_rank", "cutoff_len"),
        *("sequence_len", "sample_packing", "micro_batch_size", "num_epochs", "peft_use_dora"),
        *("peft_use_rslora", "bnb_4bit_use_double_quant"),
    }
)

_OWN: Final = (
    *("use_peft", "lora_r", "packing", "num_generations", "assistant_only_loss", "eos_token"),
    *("completion_only_loss", "use_bnb_nested_quant", "lora_task_type", "dataset_text_field"),
    *("padding_free", "chat_template_path", "max_completion_length", "desirable_weight"),
)
"""Keys by which a file is for TRL's scripts, and not for a script of one's own."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of(*TRL):
        if document.is_view or document.format == "shell" or not _is_for_scripts(document):
            continue
        consequence = of_unknown(run, document)
        for key, (meant, whose) in _MEANT.items():
            at = document.get(key)
            if at is None:
                continue
            free = key in _ALIKE and meant not in document.found
            yield Finding(
                f"`{key}` is a key of {whose}, and TRL's scripts have none such",
                (at.key_label("dropped" if consequence == "silent" else "refused"),),
                ()
                if consequence == "silent"
                else ("ValueError: Unknown arguments from config file",),
                f"write `{meant}`",
                Fix((at.renamed(meant),), "unsafe") if free else None,
                consequence=consequence,
            )


def _is_for_scripts(document: Document) -> bool:
    """Whether it says a model and data as TRL's scripts ask, and nothing that only others have."""
    says_data = any(document.get(key) for key in ("dataset_name", "datasets", "dataset_config"))
    says_trl = any(document.get(key) for key in _OWN)
    own = own_keys(document.target, document.file, document.root.fields or ())
    names_model = document.get("model_name_or_path") is not None
    return says_data and says_trl and names_model and own <= set(_MEANT)


RULE = Rule(
    name="trl-recipe-refused",
    severity="warning",
    consequence="parse",
    consumers=("trl",),
    sources=(
        (
            "trl 0.19.0 to 1.16.0 scripts/utils.py `TrlParser.parse_args_and_config`: Unknown "
            "arguments from config file; 0.18.2 drops them"
        ),
        "trl 0.8.6 to 1.16.0 trainer/model_config.py `ModelConfig`: its own names",
    ),
    check=_check,
)
