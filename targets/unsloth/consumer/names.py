"""The repository that Unsloth loads instead of the one that is named."""

import ast
import importlib.util
from collections.abc import Mapping
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

_PACKED: Final = "-bnb-4bit"


def names(_: Mapping[str, Any]) -> dict[str, list[str | None]]:
    """The repositories that are loaded in 4 bits and in 16 bits, by the name in lower case.

    None means the named one. Names that end in a 4-bit suffix are left out.
    """
    tables = _mapper()
    known = {*tables.FLOAT_TO_INT_MAPPER, *tables.INT_TO_FLOAT_MAPPER, *tables.MAP_TO_UNSLOTH_16bit}
    found = {name.lower() for name in known if not name.lower().endswith(_PACKED)}
    pairs = {name: [_other(name, True), _other(name, False)] for name in sorted(found)}
    return {name: pair for name, pair in pairs.items() if any(pair)}


def _other(name: str, in_four_bits: bool) -> str | None:
    found = loaded(name, in_four_bits=in_four_bits)
    return None if found.lower() == name else found


def loaded(name: str, *, in_four_bits: bool) -> str:
    """The repository that is loaded for a name: models/loader_utils.py `get_model_name`."""
    tables, lower = _mapper(), name.lower()
    if not in_four_bits:
        narrow = tables.INT_TO_FLOAT_MAPPER.get(lower)
        found = narrow or tables.MAP_TO_UNSLOTH_16bit.get(lower, name)
    elif lower.endswith(_PACKED):
        found = name
    else:
        found = tables.FLOAT_TO_INT_MAPPER.get(lower, name)
    return _bad().get(found.lower(), found)


@cache
def _mapper() -> Any:
    spec = importlib.util.spec_from_file_location("mapper", within("unsloth/models/mapper.py"))
    if spec is None or spec.loader is None:
        raise ImportError("mapper")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _bad() -> Mapping[str, str]:
    """`BAD_MAPPINGS`, from the source of a module whose import needs a device."""
    tree = ast.parse(within("unsloth/models/loader_utils.py").read_text("utf-8"))
    (table,) = (
        each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "BAD_MAPPINGS"
    )
    if not isinstance(table, ast.Dict):
        raise TypeError("BAD_MAPPINGS")
    keys = (_text(each) for each in table.keys if each is not None)
    return dict(zip(keys, map(_text, table.values), strict=True))


def _text(node: ast.expr) -> str:
    """The lower case of a text, since the Hub ignores case."""
    return str(ast.literal_eval(ast.unparse(node).removesuffix(".lower()"))).lower()


def within(path: str) -> Path:
    """A file of the distribution, whose packages cannot be imported without a device."""
    return Path(str(distribution("unsloth").locate_file(path)))
