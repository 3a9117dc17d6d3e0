"""Prodigy on a small problem: how far it comes with a rate. Verb: `train`."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

STEPS = 60


def train(question: Mapping[str, Any]) -> dict[str, Any]:
    """The loss before and after, for a parabola that is 1 at the start."""
    import torch

    prodigy: Any = import_module("prodigyopt")

    weight = torch.nn.Parameter(torch.zeros(8))
    optimizer = prodigy.Prodigy([weight], lr=question["rate"])
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = ((weight - 1) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return {"first": losses[0], "last": losses[-1]}


VERBS = {"train": train}
