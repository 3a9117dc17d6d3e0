"""Parts of a run with a configuration: the launch, learning rates, one optimizer step."""

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tunec.targets.simpletuner.consumer.resolve import parse
from tunec.targets.simpletuner.consumer.surroundings import (
    Answer,
    Question,
    Refused,
    attempt,
    plain,
    simpletuner,
    surroundings,
)


def _command_line() -> Any:
    """The module of `simpletuner train`: `cli.py` in 3.x, `cli/train.py` in 4.x."""
    cli = simpletuner("cli")
    return simpletuner("cli.train") if hasattr(cli, "__path__") else cli


def launch(question: Question) -> Answer:
    """The command that `simpletuner train` starts, and the variables it adds; starts nothing."""
    started: list[tuple[list[str], dict[str, str]]] = []

    def start(command: list[str], **options: Any) -> Any:
        started.append((command, options["env"]))
        return SimpleNamespace(wait=lambda: 0, poll=lambda: 0)

    nowhere = {"HOME": os.devnull, "HF_HOME": os.devnull}
    outside = dict(os.environ)
    alone = {**question, "environment": {**nowhere, **question.get("environment", {})}}
    with surroundings(alone), mock.patch("subprocess.Popen", start):
        status = _command_line().run_training(extra_args=question.get("argv", []))
    if not started:
        return {"error": {"stage": "launch", "type": "exit", "message": f"status {status}"}}
    command, variables = started[0]
    added = {name: value for name, value in variables.items() if outside.get(name) != value}
    return {"command": [Path(command[0]).name, *command[1:]], "environment": added}


def step(question: Question) -> Answer:
    """One optimizer step on the CPU with the real class and settings of `optimizer`.

    `parameter` and `gradient` are dtypes (torch lets them differ if `Tensor.grad_dtype` is None);
    `enable_adamw_bf16` is what `Trainer.init_precision` sets from the dtypes, true by default.
    """
    import torch

    optimizers = simpletuner("helpers.training.optimizer_param")
    tensor = torch.nn.Parameter(torch.ones(64, 64, dtype=getattr(torch, question["parameter"])))
    tensor.grad_dtype = None
    tensor.grad = torch.ones(64, 64, dtype=getattr(torch, question["gradient"]))
    with surroundings(question) as log:
        try:
            arguments = attempt("parse", log, lambda: parse(question))
            settings, made = optimizers.determine_optimizer_class_with_config(
                arguments,
                use_deepspeed_optimizer=False,
                is_quantized=arguments.is_quantized,
                enable_adamw_bf16=question.get("enable_adamw_bf16", True),
            )
            settings = {"lr": arguments.learning_rate, **settings}
            optimizer = attempt("step", log, lambda: made([tensor], **settings))
            attempt("step", log, optimizer.step)
        except Refused as refusal:
            return {"error": refusal.error, "log": list(log)}
    return {"class": type(optimizer).__name__, "settings": plain(settings), "log": list(log)}


def schedule(question: Question) -> Answer:
    """The learning rate before each of the first `steps` optimizer steps, from the real scheduler.

    accelerate steps a scheduler once for each rank after each optimizer step
    (`AcceleratedScheduler.step` with `split_batches` off, accelerate 1.15.0), so it is stepped
    `processes` times here.
    """
    import torch

    custom = simpletuner("helpers.training.custom_schedule")
    accelerator = SimpleNamespace(num_processes=question.get("processes", 1))
    with surroundings(question) as log:
        try:
            arguments = attempt("parse", log, lambda: parse(question))
            parameter = torch.nn.Parameter(torch.ones(1))
            optimizer = torch.optim.SGD([parameter], lr=arguments.learning_rate)
            made = attempt(
                "schedule",
                log,
                lambda: custom.get_lr_scheduler(
                    arguments, optimizer, accelerator, logging.getLogger("consumer"), global_step=0
                ),
            )
        except Refused as refusal:
            return {"error": refusal.error, "log": list(log)}
        rates = []
        for _ in range(question["steps"]):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            for _ in range(accelerator.num_processes):
                made.step()
    return {"rates": rates, "log": list(log)}
