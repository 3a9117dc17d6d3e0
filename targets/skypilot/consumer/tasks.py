"""A task file through `sky.Task.from_yaml`.

SkyPilot downloads its catalogue of accelerators when it looks one up. Here the names of tunec's own
table replace it, in a home directory of the question, so that no network is needed; whether a cloud
has a device of that name is not checked.
"""

import csv
import os
import tempfile
import time
from collections.abc import Mapping
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tunec.targets.skypilot.accelerators import NAMES

Answer = dict[str, Any]

_FRESH_SECONDS: Final = 86400.0
_CATALOG: Final = "sky.catalog.common"
_CATALOG_BEFORE: Final = "sky.clouds.service_catalog.common"
"""The module in skypilot 0.9."""
_SILENT: Final = {"SKYPILOT_DISABLE_USAGE_COLLECTION": "1", "SKYPILOT_DEBUG": "0"}


def task(question: Mapping[str, Any]) -> Answer:
    """The task that SkyPilot reads from `yaml`, written back by `Task.to_yaml_config`."""
    home = Path(tempfile.mkdtemp(prefix="sky-", dir=Path.cwd()))
    os.environ.update(_SILENT, HOME=str(home))
    import sky

    common = import_module(_CATALOG if find_spec("sky.catalog") else _CATALOG_BEFORE)
    _fill(Path(common.get_catalog_path("common/accelerators.csv")), ("AcceleratorName", "Clouds"))
    path = home / "task.yaml"
    path.write_text(question["yaml"], encoding="utf-8")
    version = metadata.version("skypilot")
    try:
        held = sky.Task.from_yaml(str(path)).to_yaml_config()
    except ImportError:
        raise
    except Exception as fault:  # noqa: BLE001  whatever it raises is its answer
        said = " ".join(str(fault).split())
        return {"version": version, "values": {}, "refused": f"{type(fault).__name__}: {said}"}
    return {"version": version, "values": held, "refused": None}


def _fill(path: Path, columns: tuple[str, str]) -> None:
    """Write a catalogue that SkyPilot considers up to date."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows((name, "['AWS']") for name in sorted(set(NAMES.values())))
    soon = time.time() + _FRESH_SECONDS
    os.utime(path, (soon, soon))
