"""`replace` for frozen structs, with arguments that type checkers know.

`msgspec.structs.replace` takes any keyword and any value; mypy knows what `dataclasses.replace`
takes of whatever is declared by `dataclass_transform`, as msgspec's structs are.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import replace  # noqa: TID251
else:
    from msgspec.structs import replace

__all__ = ["replace"]
