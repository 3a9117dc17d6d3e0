"""start.py: SimpleTuner behind a launcher that works in the root of the bundle.

`simpletuner train` does not change the folder: it looks for `config/` in the working directory, and
passes the package's own train.py to accelerate (simpletuner 3.1.6 cli.py, 4.10.1 cli/train.py,
`run_training`). Launchers and clusters start this file instead, which changes to its own folder
first.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.start_commands import STARTER
from tunec.compiler.target import Dialect, File, Json

_PATH: Final = f"simpletuner/{STARTER}"
_BODY: Final = """\
import os
import runpy

os.chdir(os.path.dirname(os.path.abspath(__file__)))
runpy.run_module("simpletuner.train", run_name="__main__")
"""


def entry(_: Plan, __: Dialect) -> tuple[str, ...]:
    """The file that a launcher starts, relative to the root of the bundle."""
    return (_PATH,)


def _render(_: Mapping[str, Json], header: Sequence[str]) -> str:
    return "".join(f"# {line}\n" for line in header) + _BODY


def _is_started(plan: Plan) -> bool:
    return plan.launch.script == _PATH


START_PY: Final = File(
    STARTER, "text", (), lambda _: False, when=_is_started, render=_render, parse=lambda _: {}
)
