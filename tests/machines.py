"""A machine that the accounts of memory and time are tested on."""

from typing import Final

from tunec.compiler.analyses.time.machine import Machine

A100: Final = Machine(
    rate=312e12,
    bandwidth=2e12,
    link=300e9,
    network=0,
    pcie=25e9,
    host_bandwidth=200e9,
    nvme_read=0,
    nvme_write=0,
    nodes=1,
    per_node=1,
)
