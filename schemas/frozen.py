"""`replace` for frozen structs, with arguments that type checkers check.

`msgspec.structs.replace` accepts any keyword and any value. mypy knows the arguments of
`dataclasses.replace` for every class declared by `dataclass_transform`, as msgspec's structs are.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import replace  # noqa: TID251
else:
    from msgspec.structs import replace

__all__ = ["replace"]
