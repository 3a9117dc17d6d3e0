"""A tiny model trained by the real Trainer on CPU, by arguments as a file gives them.

Runs inside an environment that holds one release of transformers. Verb: `train`.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SAMPLES = 24


def train(question: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of `arguments`: refused, at which stage and how, or what a run of them did."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        return _run(transformers, dict(question["arguments"]), folder)


def _run(library: Any, arguments: dict[str, Any], folder: str) -> dict[str, Any]:
    where = {"output_dir": folder} if "output_dir" in arguments else {}
    surroundings = {**where, "use_cpu": True, "disable_tqdm": True}
    stage, seen = "parse", _watch(library)
    try:
        parser = library.HfArgumentParser(library.TrainingArguments)
        (held,) = parser.parse_dict({"report_to": "none", **arguments, **surroundings})
        values = {key: _plain(getattr(held, key, None)) for key in arguments}
        found = {"values": values, "greater": _plain(held.greater_is_better)}
        stage = "init"
        model, data = _model(), _samples()
        trainer = library.Trainer(
            model, held, train_dataset=data, eval_dataset=data[:8], callbacks=[seen]
        )
        before = model.layer.weight.detach().clone()
        stage = "train"
        trainer.train()
    except Exception as refusal:  # noqa: BLE001  the refusal is the answer
        return {"refused": stage, "text": f"{type(refusal).__name__}: {refusal}"}
    saved = sorted(each.name for each in Path(folder).glob("checkpoint-*"))
    changed = not bool((before == model.layer.weight).all())
    return {
        **found,
        "steps": trainer.state.global_step,
        "rates": seen.rates,
        "evaluations": seen.evaluations,
        "saved": saved,
        "changed": changed,
    }


def _watch(library: Any) -> Any:
    class Watch(library.TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rates: list[float] = []
            self.evaluations = 0

        def on_step_begin(self, *_: Any, **given: Any) -> None:
            self.rates.append(given["optimizer"].param_groups[0]["lr"])

        def on_evaluate(self, *_: Any, **__: Any) -> None:
            self.evaluations += 1

    return Watch()


def _model() -> Any:
    import torch

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x: Any = None, labels: Any = None) -> dict[str, Any]:
            out = self.layer(x)
            return {"loss": ((out - labels) ** 2).mean(), "logits": out}

    return Line()


def _samples() -> list[dict[str, Any]]:
    import torch

    return [{"x": torch.ones(2) * at, "labels": torch.ones(1)} for at in range(SAMPLES)]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value.value if hasattr(value, "value") else value
    return str(value)


VERBS = {"train": train}
