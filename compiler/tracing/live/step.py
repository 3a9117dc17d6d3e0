"""The parts of a traced step that every engine shares: batches, losses, names, phases."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from tunec.compiler.analyses.memory.diffusion import given_pictures
from tunec.compiler.analyses.memory.terms.fsdp_units import runs_under_autocast
from tunec.compiler.tracing.live.answers import Answers
from tunec.compiler.tracing.live.autocast import CudaAutocast
from tunec.compiler.tracing.live.batches import Batch, image_elements
from tunec.compiler.tracing.live.bitsandbytes_layers import QuantizedLinear
from tunec.compiler.tracing.live.grpo import loss_over_answers
from tunec.compiler.tracing.live.model_builder import DTYPES
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.live.trl_loss import is_trls, loss_in_tiles, scored_places
from tunec.compiler.tracing.subject import Subject

Loss = Callable[[], torch.Tensor]
_PIXELS: Final = "pixel_values"


def answers_of(subject: Subject) -> Answers:
    """The answers for operations on a subject's batch."""
    images, asked = subject.workload.data.images > 0, subject.workload.preference
    if not is_trls(subject):
        return Answers(image_elements(subject), mixed=images)
    labels, scored = scored_places(subject)
    logs = asked is not None and asked.scored > 0
    return Answers(image_elements(subject), mixed=images, labels=labels, scored=scored, logs=logs)


def backward(loss: torch.Tensor) -> None:
    """Run the backward pass with function modes on, which `Tensor.backward` would switch off.

    Recomputation in checkpoints needs the same autocast as the forward pass.
    """
    engine = torch.autograd.Variable._execution_engine  # noqa: SLF001
    seed = torch.ones_like(loss)
    options = {"allow_unreachable": True, "accumulate_grad": True}
    engine.run_backward((loss,), (seed,), False, False, (), **options)


def enter(storages: Storages, phase: str, *, measured: bool) -> None:
    """Begin a phase; only the measured step records it under its name."""
    storages.begin(phase)
    if not measured:
        storages.recording.marks.pop()


def there_and_back(storages: Storages, loss: Loss, casts: Any, *, measured: bool) -> None:
    """One micro batch: forward, then backward, each a phase."""
    enter(storages, "forward", measured=measured)
    with casts:
        result = loss()
    gc.collect()
    enter(storages, "backward", measured=measured)
    with casts:
        backward(result)


def embeddings_of(model: torch.nn.Module) -> set[int]:
    """Identities of all embedding weights."""
    kind = torch.nn.Embedding
    return {id(each.weight) for each in model.modules() if isinstance(each, kind)}


def autocast_of(subject: Subject) -> CudaAutocast | None:
    """The autocast of a plan; None if its forward pass runs without."""
    if not runs_under_autocast(subject.workload, subject.layout.fsdp, subject.layout.states):
        return None
    return CudaAutocast(DTYPES[subject.workload.precision.compute])


def loss_of(subject: Subject, model: Any, batch: Batch, reference: Any = None) -> Loss:
    """The trainer's loss function; its other outputs are freed, as the Trainer does."""
    asked = subject.workload.preference
    if asked is not None and asked.scored:
        return loss_over_answers(subject, model, batch)
    if is_trls(subject):
        return loss_in_tiles(subject, model, batch, reference)
    if subject.workload.architecture.kind == "diffusion":
        return lambda: _painted(subject, first_tensor(model(**batch))).float().pow(2).mean()

    def loss() -> torch.Tensor:
        out: torch.Tensor = model(**batch).loss
        return out

    return loss


def _painted(subject: Subject, predicted: torch.Tensor) -> torch.Tensor:
    """The prediction of the generated image, which precedes those of the reference images.

    simpletuner 4.10.1 `helpers/models/qwen_image/model.py`, `_model_predict_edit_plus`.
    """
    beside = given_pictures(subject.workload)
    return predicted[:, : predicted.shape[1] // (1 + beside)] if beside else predicted


def first_tensor(answer: Any) -> torch.Tensor:
    """The prediction of a diffusion transformer; a list of pictures becomes one tensor."""
    while isinstance(answer, list | tuple):
        if isinstance(answer, list):
            return torch.stack([first_tensor(each) for each in answer])
        answer = answer[0]
    found: torch.Tensor = answer
    return found


def name_model(storages: Storages, model: torch.nn.Module) -> None:
    """Follow and name parameters and buffers."""
    for name, value in model.named_parameters():
        storages.follow(value, "parameter", "weights")
        storages.name(value, "weights", pattern(name))
    for name, value in model.named_buffers():
        storages.follow(value, "buffer", "buffers")
        storages.name(value, "buffers", pattern(name))
    for name, module in model.named_modules():
        if isinstance(module, QuantizedLinear) and module.scales is not None:
            storages.follow(module.scales, "scales", "weights")
            storages.name(module.scales, "weights", pattern(name))


def name_batch(storages: Storages, batch: Batch, accumulation: int = 1) -> None:
    """Follow the inputs, and the images of the step's other micro batches.

    The trainer fetches all of them together (transformers 5.23 `trainer.py`, `get_batch_samples`),
    and its loader has put each on the device; the texts among them take little memory.
    """
    for name, value in batch.items():
        if isinstance(value, torch.Tensor):
            storages.follow(value, "input", "inputs")
            storages.name(value, "inputs", name)
    pixels = batch.get(_PIXELS)
    if pixels is not None and accumulation > 1:
        rows = pixels.shape[0] * (accumulation - 1)
        storages.waiting = pixels.new_empty(rows, *pixels.shape[1:])
        storages.follow(storages.waiting, "input", "inputs")
        storages.name(storages.waiting, "inputs", f"{_PIXELS} that wait")


def pattern(name: str) -> str:
    """A dotted name in which each number is written as `{}`."""
    return ".".join("{}" if part.isdigit() else part for part in name.split("."))


def watch_gradients(storages: Storages, model: torch.nn.Module) -> None:
    """Name each gradient as soon as autograd has accumulated it."""
    for name, value in model.named_parameters():
        if value.requires_grad:
            value.register_post_accumulate_grad_hook(_naming(storages, pattern(name)))


def _naming(storages: Storages, name: str) -> Callable[[torch.Tensor], None]:
    def say(parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            storages.name(parameter.grad, "gradients", name)

    return say


@contextmanager
def fake_ranks(world: int, rank: int = 0) -> Iterator[None]:
    """A process group of any size in which collectives do nothing, seen from one of its ranks."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    group = torch.distributed
    group.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        group.destroy_process_group()
