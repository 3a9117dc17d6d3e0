"""Texts as trainers print them, shortened; and a run with so many seconds."""

from tunec.schemas.hardware.measurements import Memory, Ran, Seconds

TRAINER = """\
{'loss': '1.2', 'grad_norm': '0.3', 'learning_rate': '1e-4', 'epoch': '0.1'}
  1%|1         | 1/100 [00:09<14:51,  9.0s/it]\r 50%|#####     | 50/100 [02:36<02:30,  3.0s/it]\r
100%|##########| 100/100 [05:06<00:00,  3.00s/it]
{'train_runtime': '310.0', 'train_samples_per_second': '10.3', 'train_steps_per_second': '0.3226'}
"""
AXOLOTL = (
    "{'loss': '0.71', 'memory/max_active (GiB)': '2.98', 'memory/max_allocated (GiB)': '2.5', "
    "'memory/device_reserved (GiB)': '4.0', 'epoch': '0.13'}\n"
)
FACTORY = (
    '{"current_steps": 5, "total_steps": 93, "loss": 5.7, "elapsed_time": "0:02:03"}\n'
    '{"current_steps": 15, "total_steps": 93, "loss": 1.2, "elapsed_time": "0:06:03"}\n'
    '{"current_steps": 20, "total_steps": 9'
)
DEEPSPEED = """\
[2024-03-07 15:27:02,646] [INFO] [timer.py:260:stop] epoch=0/micro_step=99/global_step=99, \
RunningAvgSamplesPerSec=58.0, CurrSamplesPerSec=61.3, MemAllocated=6.01GB, MaxMemAllocated=19.5GB
"""
CLOCKS = """\
time (ms) | fwd_microstep: 40.00 | bwd_microstep: 80.00 | step_microstep: 10.00
time (ms) | fwd: 900.00 | bwd: 900.00 | bwd_inner: 700.00 | bwd_allreduce: 200.00 | step: 100.00
time (ms) | fwd: 40.00 | bwd: 80.00 | bwd_inner: 60.00 | bwd_allreduce: 20.00 | step: 10.00
time (ms) | fwd: 41.00 | bwd: 80.00 | bwd_inner: 60.00 | bwd_allreduce: 20.00 | step: 10.00
time (ms) | fwd: 42.00 | bwd: 80.00 | bwd_inner: 60.00 | bwd_allreduce: 20.00 | step: 10.00
"""
DRIVER = """\
timestamp, index, memory.used [MiB]
2026/11/24 10:00:00.100, 0, 100 MiB
2026/11/24 10:00:01.100, 1, 300 MiB
2026/11/24 10:00:02.100, 0, [N/A]
"""


def ran(measured=None, *, terms=None, memory=None, devices=1, parts=None) -> Ran:
    accounted = terms or {"forward": 1.0, "backward": 1.0, "gradient exchange": 1.0}
    seconds = None
    if measured is not None:
        seconds = Seconds(measured=measured, steps=1, accounted=accounted, parts=parts or {})
    return Ran(
        name="run",
        when="2026-11-24",
        files=(),
        digest=str(measured),
        tunec="0",
        devices=devices,
        seconds=seconds,
        memory=Memory(**memory) if memory else None,
    )
