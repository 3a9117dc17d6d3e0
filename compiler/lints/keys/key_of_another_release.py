"""A key that the release which runs does not have, though another has."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.keys.known import known_in_other_releases
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import faults

_RENAMED: Final = {
    "evaluation_strategy": "eval_strategy",
    "no_cuda": "use_cpu",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "push_to_hub_token": "hub_token",
    "include_tokens_per_second": "include_num_input_tokens_seen",
}
_HELP: Final = {
    "warmup_ratio": "write warmup_steps: a number below 1 is a share of all steps from 5.0 on",
    "group_by_length": "write train_sampling_strategy: group_by_length",
    "adafactor": "write optim: adafactor",
    "overwrite_output_dir": "remove it: the directory is written to as it is",
    "save_safetensors": "remove it: safetensors are always written",
    "torchdynamo": "write torch_compile_backend",
    "logging_dir": "set TENSORBOARD_LOGGING_DIR instead",
    "fsdp_min_num_params": "write fsdp_config.min_num_params",
    "fsdp_transformer_layer_cls_to_wrap": "write fsdp_config.transformer_layer_cls_to_wrap",
}


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf", "sft", "dpo", "grpo"):
        for path, place in document.found.items():
            if "." not in path and not document.is_view:
                yield from _field(run, document, path, place)
    for document in run.of("deepspeed"):
        for fault in [] if document.is_view else faults(run, document):
            known = known_in_other_releases(run, "deepspeed", fault.path)
            if fault.what == "unknown" and known:
                yield _finding(run, "deepspeed", fault.path, fault.place, known)


def _field(run: Run, document: Document, path: str, place: Place) -> Iterator[Finding]:
    del document
    known = known_in_other_releases(run, "hf", path)
    if known:
        yield _finding(run, "transformers", path, place, known)


def _finding(run: Run, package: str, path: str, place: Place, known: tuple[str, ...]) -> Finding:
    release = run.release(package)
    came = known[-1].split(".") < str(release.version).split(".")
    new = _RENAMED.get(path)
    return Finding(
        f"{release} has no key `{path}`",
        (place.key_label("not in this release"),),
        (
            f"of the releases that were read, {known[0]} to {known[-1]} have it",
            *(() if release.is_named else (f"nobody names the version of {package}",)),
        ),
        f"write `{new}`" if new else _HELP.get(path, "remove it" if came else "leave it out"),
        Fix((place.renamed(new),), "safe") if new and new != "use_cpu" else None,
        severity=None if release.is_named else "warning",
        consequence="parse" if package == "transformers" else "silent",
    )


RULE = Rule(
    name="key-of-another-release",
    severity="error",
    consequence="parse",
    consumers=("transformers", "deepspeed"),
    sources=(
        "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments`: fields by release",
        "deepspeed 0.14.5 to 0.19.8: keys by release",
    ),
    check=_check,
)
