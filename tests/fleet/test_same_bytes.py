"""The same tree, to the byte, whatever builds it: processes, order, words, clock."""

import os
import subprocess
import sys
from pathlib import Path

from tests.fleet.fleets import write_fleet

SURROUNDINGS = (
    {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"},
    {"PYTHONHASHSEED": "1", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu"},
    {"PYTHONHASHSEED": "4711", "PYTHONUTF8": "0", "LANG": "de_DE.ISO-8859-1", "COLUMNS": "40"},
)


def built(folder: Path, jobs: int, surroundings: dict[str, str]) -> dict[str, bytes]:
    folder.mkdir()
    write_fleet(folder)
    bare = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "tunec", "fleet", "fleet.yaml", "-o", "build", "-j", str(jobs)],
        capture_output=True,
        cwd=folder,
        env={**bare, **surroundings},
    )
    assert done.returncode == 1, done.stderr
    tree = folder / "build"
    found = {f.relative_to(tree).as_posix(): f.read_bytes() for f in tree.rglob("*") if f.is_file()}
    return {**found, "<stdout>": done.stdout}


def test_one_tree(tmp_path):
    first, *others = [
        built(tmp_path / f"{at}", jobs, each)
        for at, (jobs, each) in enumerate(zip((1, 2, 3), SURROUNDINGS, strict=True))
    ]
    assert len(first) > 30
    for other in others:
        assert other.keys() == first.keys()
        assert [name for name in first if first[name] != other[name]] == []
