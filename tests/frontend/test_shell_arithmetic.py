"""`$(( ... ))` as bash itself computes it."""

import subprocess
from shutil import which

import pytest

from tunec.compiler.frontend.shell_arithmetic import computed

VARIABLES = {"N": "4", "PER_NODE": "8", "NEGATIVE": "-3", "WORD": "eight", "OCTAL": "010"}
KNOWN = (
    *("N * PER_NODE", "$N*${PER_NODE}", "29500 + N % 3", "-7 / 2", "-7 % 2", "7 / -2", "7 % -2"),
    *("1 - 2 - 3", "2 * (3 + 4) * -(1)", "5--3", "NEGATIVE * NEGATIVE", "100 / 7 / 2", "0"),
)
UNKNOWN = (
    *(
        "",
        "WORD * 2",
        "N +",
        "(N",
        "N)",
        "1 / 0",
        "1 % (N - N)",
        "2 ** 3",
        "08",
        "010 + 1",
        "OCTAL + 1",
        "0x10",
    ),
    *("${N:-3}", "N++", "N > 3", "N ? 1 : 2", "$(nproc) * 2", "RANDOM % 100", "1.5 * 2"),
    *("(" * 40 + "1" + ")" * 40, "1+" * 300 + "1", "9" * 20, "999999999999 * 999999999999"),
)


@pytest.mark.skipif(which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("expression", KNOWN)
def test_a_number_is_that_of_bash(expression: str) -> None:
    asked = subprocess.run(
        ["bash", "-c", f"echo $(( {expression} ))"],
        env=VARIABLES,
        capture_output=True,
        text=True,
        check=True,
    )
    assert computed(expression, VARIABLES.get) == int(asked.stdout)


@pytest.mark.parametrize("expression", UNKNOWN)
def test_of_what_is_not_read_nothing_is_said(expression: str) -> None:
    assert computed(expression, {**VARIABLES, "WORD": "1 + 2"}.get) is None
