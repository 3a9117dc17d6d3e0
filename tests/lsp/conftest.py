import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def desk(tmp_path_factory):
    """One editor with a folder of its own, and one server, for all tests of a process."""
    from editor import Editor

    root = tmp_path_factory.mktemp("project")
    (root / "pyproject.toml").touch()
    found = Editor(root)
    yield found
    assert not found.log
    assert found.leave() == 0


@pytest.fixture
def editor(desk):
    """The editor with nothing open."""
    yield desk
    for file in [*desk.texts]:
        desk.close(file)
        del desk.texts[file]
    assert not desk.log, desk.log
