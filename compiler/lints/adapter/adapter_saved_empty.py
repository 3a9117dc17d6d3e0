"""The adapter of a checkpoint at stage 3 holds no tensors."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import has_adapter
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.gathering import ungathered


def _check(run: Run) -> Iterator[Finding]:
    if not has_adapter(run) or run.deepspeed_reader == "plain":
        return
    found = ungathered(
        run,
        "the adapter saved at stage 3 holds no tensors: the shards are not gathered on save",
        "adapters stay in shards",
        "the trainer writes an empty adapter_model.safetensors, and the shards beside it",
    )
    if found is not None:
        yield found


RULE = Rule(
    name="adapter-saved-empty",
    severity="error",
    consequence="resume",
    consumers=("transformers<5",),
    sources=(
        (
            "transformers 4.40.2 to 4.57.6 trainer.py `save_model`: on ValueError `_save` with an "
            "empty state dict, and `remove_dummy_checkpoint` takes away the model's files only; "
            "5.0.0 gathers a PeftModel's weights itself"
        ),
        "accelerate 0.30.1 to 1.15.0 accelerator.py `get_state_dict`: ValueError, Cannot get 16bit",
        "peft 0.21.2 peft_model.py `save_pretrained` with an empty state dict: seen, no tensors",
        "huggingface/peft#1328 (torch.Size([0])), deepspeedai/DeepSpeed#7436",
    ),
    check=_check,
)
