"""Shell: `$(( ... ))` as bash computes it, and here-documents whose words then start a program."""

import subprocess
from shutil import which

import pytest

from tunec.compiler.frontend.shell_arithmetic import computed
from tunec.compiler.frontend.shell_script import follow
from tunec.compiler.frontend.shell_words import whole

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


READS = ("read -r -d ''", "read -rd ''", "read -d '' -r", 'read -r -d ""', "read -d ''")
TEXTS = {
    "flags": "openrlhf.cli.train_sft \\\n   --max_len 2048 \\\n   --bf16",
    "variables": "train.py --lr ${LR} --name $NAME-1",
    "quotes": 'train.py --prompt "a b" it\'s \\$5',
    "blank": "",
}


def started(text: str) -> list[list[str]]:
    return [[each.text for each in run.fields] for run in follow(whole(text)).runs]


def script(text: str, read: str = READS[0], last: str = "EOF", end: str = "") -> str:
    words = f"LR=1e-5\nNAME=a\n{read} COMMAND <<{last}{end}\n{text}\nEOF\n"
    return f"{words}printf '%s\\n' x $COMMAND\n"


@pytest.mark.skipif(which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("last", ["EOF", "'EOF'"])
@pytest.mark.parametrize("name", TEXTS)
def test_the_words_are_those_of_bash(name: str, last: str) -> None:
    text = script(TEXTS[name], last=last, end=" || true")
    told = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert [started(text)[-1][2:]] == [told.stdout.splitlines()]


@pytest.mark.parametrize("read", READS)
def test_however_the_options_are_written(read: str) -> None:
    assert started(script("train.py --a 1", read))[-1][3:] == ["train.py", "--a", "1"]


@pytest.mark.parametrize(
    "text",
    [
        "read -r COMMAND <<EOF\ntrain.py --a 1\nEOF\npython $COMMAND\n",
        "read -r -d '' COMMAND < file\npython $COMMAND\n",
        "read -r -d '' OTHER COMMAND <<EOF\ntrain.py --a 1\nEOF\npython $COMMAND\n",
    ],
)
def test_other_input_is_not_known(text: str) -> None:
    assert started(text) == [["python", "\0"]]


def test_a_flag_stands_where_the_document_has_it() -> None:
    text = "read -r -d '' C <<EOF\ntrain.py \\\n  --a 1\nEOF\npython $C\n"
    (run,) = follow(whole(text)).runs
    places = [each.place() for each in run.fields[1:]]
    assert [text[start:end] for start, end in places] == ["train.py", "--a", "1"]
