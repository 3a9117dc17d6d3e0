"""The address of the first node is no name of a host."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FLAGS: Final = ("flags.master_addr", "flags.main_process_ip", "environment.MASTER_ADDR")
_FORMS: Final = (
    (re.compile(r"\w+://.*"), "it begins with a scheme"),
    (re.compile(r"[^@\s]+@\S+"), "a user stands before it"),
    (re.compile(r"[^:\s]+:\d+"), "a port stands behind it, which has a setting of its own"),
    (re.compile(r"\S+/.*"), "a path stands behind it"),
    (re.compile(r".*\s.*"), "it has a blank"),
)


def _check(run: Run) -> Iterator[Finding]:
    places = [*run.each("accelerate", "main_process_ip")]
    places += [place for flag in _FLAGS for place in run.each("launch", flag)]
    for place in places:
        why = _why(place)
        if why is not None:
            yield Finding(
                f"{place.path.rpartition('.')[2]} {place.value} is no address: {why}",
                (place.label("cannot be resolved"),),
                ("every process looks this name up to meet the others",),
                "write the host's name or number alone",
            )


def _why(place: Place) -> str | None:
    text = place.word or ""
    if "$" in text or text.count(":") > 1:  # not known, or a number of version 6
        return None
    return next((why for form, why in _FORMS if form.fullmatch(text)), None)


RULE = Rule(
    name="address-refused",
    severity="error",
    consequence="init",
    consumers=("torch",),
    sources=(
        (
            "torch 2.13.0 distributed/elastic/rendezvous/static_tcp_rendezvous.py, "
            "distributed/rendezvous.py: TCPStore(MASTER_ADDR, ...), by getaddrinfo"
        ),
        "huggingface/accelerate#1317 (main_process_ip with a user)",
    ),
    check=_check,
)
