"""nvidia-smi's table: `nvidia-smi --query-gpu=timestamp,index,memory.used --format=csv -l 1`."""

import csv
import re
from typing import Final

from tunec.compiler.calibrate.observation import Observation
from tunec.schemas.units import MIB

_USED: Final = "memory.used"
_NUMBER: Final = re.compile(r"(\d+)(?: MiB)?")
_DAY: Final = re.compile(r"(20\d\d)/(\d\d)/(\d\d)")


def read(text: str) -> list[Observation]:
    """The most memory in use on any device; empty if the text is not such a table."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    head = next(rows, [])
    columns = [at for at, name in enumerate(head) if name.split(" ")[0] == _USED]
    if not columns:
        return []
    sizes, days = [], []
    for row in rows:
        found = _NUMBER.fullmatch(row[columns[0]].strip()) if len(row) > columns[0] else None
        if found is not None:
            sizes.append(int(found[1]) * MIB)
            days += ["-".join(day) for day in _DAY.findall(row[0])]
    if not sizes:
        return []
    return [Observation("nvidia-smi", used=max(sizes), when=max(days, default=""))]
