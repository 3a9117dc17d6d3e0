"""Seconds in which a step waits for pictures that the host is still preparing."""

from typing import Final

from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.machine import Machine

_PIXEL: Final = 60e-9
"""Seconds of a core for each pixel: 5 ms for a JPEG of a megapixel (Pillow 13.0) and 54 ms for
scaling, normalising and patches (transformers 5.23 `Qwen2VLImageProcessorPil`; CLIP's takes 10 ms),
both measured. Texts of the same step take less than a thousandth."""


def loading(workload: Workload, layout: Layout, machine: Machine, busy: float) -> float:
    """Seconds of one optimizer step that `busy` seconds of the device do not hide.

    Loading processes work ahead while the device does; latents that were made before are read.
    """
    data = workload.data
    if workload.components and not workload.kept_components:
        return 0.0
    pixels = data.images * data.image_width * data.image_height
    samples = layout.batch.micro * layout.batch.accumulation
    workers = workload.dataloader_workers or machine.loaders
    return max(samples * pixels * _PIXEL * machine.patience / workers - busy, 0.0)
