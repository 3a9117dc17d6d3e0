"""A configuration after parsing, checks, and completion for DeepSpeed and the data loader."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from tunec.targets.simpletuner.consumer.surroundings import (
    Answer,
    Question,
    Refused,
    attempt,
    plain,
    simpletuner,
    surroundings,
)

_WITHOUT_PIXELS: Final = frozenset(
    {"caption", "conditioning_image_embeds", "distillation_cache", "image_embeds", "text_embeds"}
)
"""Values of `dataset_type` that have no resolution (`DatasetType`)."""


def resolve(question: Question) -> Answer:
    """Load a configuration as `train.py` does; check it as the trainer does before it loads models.

    `backend` is cmd (`argv`), json (`config/config.json` among the files) or env
    (`config/config.env` there). `processes` is the number of ranks. The answer holds `parsed` (the
    parser's values), `family` (the values after the checks of the model's family, or null),
    `arguments` (after all checks), `deepspeed` (the configuration that DeepSpeed would get, or
    null), `data` (each data set's configuration, or null without the file) and `log`.
    """
    answer: Answer = {}
    with surroundings(question) as log:
        try:
            namespace = attempt("parse", log, lambda: parse(question))
            answer["parsed"] = _arguments(namespace)
            accelerator = attempt("deepspeed", log, lambda: _accelerator(namespace, question))
            attempt("safety", log, lambda: _check_safety(namespace, accelerator))
            answer["family"] = attempt("model", log, lambda: _of_family(namespace))
            attempt("average", log, lambda: _check_average(namespace))
            answer["deepspeed"] = attempt(
                "deepspeed", log, lambda: _deepspeed(namespace, accelerator)
            )
            answer["data"] = attempt("data", log, lambda: _data(namespace, accelerator))
            answer["arguments"] = _arguments(namespace)
        except Refused as refusal:
            answer["error"] = refusal.error
        answer["log"] = list(log)
    return answer


def parse(question: Question) -> argparse.Namespace:
    """The parser's values for a question's `backend`. Raises the errors of SimpleTuner."""
    if question["backend"] == "cmd":
        sys.argv.extend(question["argv"])
        parser = simpletuner("helpers.configuration.cmd_args")
        found = parser.parse_cmdline_args(exit_on_error=True)
    else:
        os.environ["SIMPLETUNER_CONFIG_BACKEND"] = question["backend"]
        found = simpletuner("helpers.configuration.loader").load_config(exit_on_error=True)
    if not isinstance(found, argparse.Namespace):
        raise TypeError(f"the loader gave {type(found).__name__}, not a Namespace")
    return found


def _accelerator(namespace: argparse.Namespace, question: Question) -> Any:
    """A stand-in for the `accelerate.Accelerator` of the checks, with a real DeepSpeed plugin."""
    import torch

    plugin = _trainer(namespace)._load_deepspeed_plugin()  # noqa: SLF001
    state = SimpleNamespace(
        deepspeed_plugin=plugin, dynamo_plugin=SimpleNamespace(backend="NO"), distributed_type="NO"
    )
    return SimpleNamespace(
        num_processes=question.get("processes", 1),
        device=torch.device("cpu"),
        is_main_process=True,
        is_local_main_process=True,
        process_index=0,
        state=state,
    )


def _trainer(namespace: argparse.Namespace) -> Any:
    """A `Trainer` that holds only a configuration: its constructor would start the run."""
    cls = simpletuner("helpers.training.trainer").Trainer
    trainer = cls.__new__(cls)
    trainer.config = namespace
    return trainer


def _check_safety(namespace: argparse.Namespace, accelerator: Any) -> None:
    """Run the safety check, with wandb available: SimpleTuner requires it (its `Requires-Dist`)."""
    module = simpletuner("helpers.training.default_settings.safety_check")
    with mock.patch.object(module, "is_wandb_available", return_value=True):
        module.safety_check(namespace, accelerator)


def _of_family(namespace: argparse.Namespace) -> Any:
    """The values after the checks that the family's code makes before it loads the model.

    None if that code cannot run without the model.
    """
    try:
        families = simpletuner("helpers.models.registry").ModelRegistry.model_families()
        model_class = families.get(namespace.model_family)
        model = model_class.__new__(model_class) if model_class is not None else None
    except (ImportError, RuntimeError, AttributeError):
        return None
    if model is None:
        return None
    model.config = argparse.Namespace(**vars(namespace))
    model.setup_model_flavour()
    try:
        model.check_user_config()
    except (ImportError, AttributeError):
        return None
    return _arguments(model.config)


def _check_average(namespace: argparse.Namespace) -> None:
    """Check the averaged weights that are given to start from, from 4.10 on."""
    trainer = _trainer(namespace)
    check = getattr(trainer, "_load_initial_lora_ema_state", None)
    if check is not None and not (namespace.init_lora and namespace.use_ema):
        check()


def _deepspeed(namespace: argparse.Namespace, accelerator: Any) -> Any:
    plugin = accelerator.state.deepspeed_plugin
    if plugin is None:
        return None
    simpletuner("helpers.training.deepspeed").prepare_model_for_deepspeed(accelerator, namespace)
    return plain(plugin.deepspeed_config)


def _data(namespace: argparse.Namespace, accelerator: Any) -> Any:
    """Each data set's configuration, and the errors of the data loader's rules; opens no data."""
    if not Path(namespace.data_backend_config).is_file():
        return None
    factory = simpletuner("helpers.data_backend.factory")
    config = simpletuner("helpers.data_backend.config")
    registry = factory.FactoryRegistry(namespace, accelerator, None, None, None)
    backends = registry.load_configuration()
    registry._prevalidate_backend_ids(backends)  # noqa: SLF001
    enabled = [each for each in backends if not (each.get("disabled") or each.get("disable"))]
    for each in enabled:
        if each.get("dataset_type") not in _WITHOUT_PIXELS:
            registry._handle_resolution_conversion(each)  # noqa: SLF001
    made = [factory.init_backend_config(each, namespace, accelerator) for each in enabled]
    for each in enabled:
        config.create_backend_config(dict(each), vars(namespace)).validate(vars(namespace))
        _check_storage(factory, registry, each)
    return {
        "backends": [plain(_without_report(each)) for each in made],
        "rules": _rules(backends, namespace),
    }


def _check_storage(factory: Any, registry: Any, each: Mapping[str, Any]) -> None:
    """Check the required keys of a data set's storage, without opening it."""
    kind, is_pictures = each.get("type"), each.get("dataset_type") not in _WITHOUT_PIXELS
    if kind == "huggingface" and is_pictures:
        factory.check_huggingface_config(dict(each))
    if each.get("metadata_backend") == "parquet" and not each.get("parquet"):
        registry._configure_metadata_backend(dict(each), {"id": each["id"]})  # noqa: SLF001
    if kind == "local" and is_pictures and not each.get("conditioning_config"):
        registry._configure_backend_by_type(dict(each), _opened(each))  # noqa: SLF001


def _opened(each: Mapping[str, Any]) -> dict[str, Any]:
    report = SimpleNamespace(set_instance_data_dir=lambda _: None)
    return {"id": each["id"], "dataset_type": each.get("dataset_type"), "bucket_report": report}


def _without_report(backend: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in backend.items() if key != "bucket_report"}


def _rules(backends: list[Any], namespace: argparse.Namespace) -> list[Answer]:
    """The errors of the validators of `data_backend/config_rules.py`."""
    simpletuner("helpers.data_backend.config_rules")
    registry = simpletuner("helpers.configuration.registry").ConfigRegistry
    config = {
        "datasets": backends,
        "caption_dropout_probability": namespace.caption_dropout_probability,
        "distillation_method": namespace.distillation_method,
    }
    found = [each for rule in registry.get_validators("dataloader") for each in rule.func(config)]
    return [
        {"field": each.field, "level": each.level, "message": each.message}
        for each in found
        if not each.passed
    ]


def _arguments(namespace: argparse.Namespace) -> dict[str, Any]:
    return {name: plain(value) for name, value in sorted(vars(namespace).items())}
