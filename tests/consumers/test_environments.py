"""Environments: built once, layered over this interpreter, honest when they cannot be had."""

import hashlib
import os
import signal
import sys
import time
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tunec.compiler.consumers import packages, prefetch, processes
from tunec.compiler.consumers.environments import EnvironmentUnavailable, prepare
from tunec.compiler.consumers.network import Network, network
from tunec.compiler.consumers.packages import Locked, link, lock
from tunec.compiler.consumers.queries import ConsumerFailed, ask
from tunec.compiler.consumers.sets import SETS, choose, releases, together
from tunec.targets.generate_lock import known_pins

pytestmark = pytest.mark.real


def wheel(folder: Path, name: str, version: str, source: str) -> None:
    """A wheel of one module, as small as the installer takes it."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place from which the installer may take anything."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    return tmp_path / "tunec"


@pytest.fixture(params=["plain", "forked"])
def way(request, monkeypatch):
    """A script is started plainly, or forked by a server: both do the same."""
    if request.param == "forked" and sys.platform != "linux":
        pytest.skip("forks are for Linux")
    servers = processes._Servers()
    servers._runs = 1
    monkeypatch.setattr(processes, "_SERVERS", servers)
    monkeypatch.setattr(processes, "CAN_FORK", request.param == "forked")
    monkeypatch.setattr(processes, "SHARED", ())  # its start is quick, all else is the same
    yield request.param
    assert (servers._server is None) == (request.param == "plain")
    servers.end()


def script(folder: Path, name: str, body: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(body, encoding="utf-8")
    return f"tunec.{name}"


@pytest.mark.usefixtures("way")
def test_pinned_packages_win_and_the_rest_is_shared(shelf, scripts, tmp_path):
    wheel(shelf, "packaging", "0.0.1", "LAYER = 'pinned'\n")
    name = script(
        scripts,
        "look",
        "import importlib.util, packaging\n"
        "def look(_):\n"
        "    return [packaging.LAYER, importlib.util.find_spec('pydantic').origin]\n"
        "VERBS = {'look': look}\n",
    )
    environment = prepare(["packaging==0.0.1"], tmp_path / "cache")
    [[layer, pydantic]] = ask(environment, name, [{"verb": "look"}], root=scripts)
    assert layer == "pinned"
    assert not Path(pydantic).is_relative_to(environment.root)


def test_what_is_there_is_not_built_again(shelf, tmp_path):
    wheel(shelf, "packaging", "0.0.1", "")
    first = prepare(["packaging==0.0.1"], tmp_path / "cache").root
    (shelf / "packaging-0.0.1-py3-none-any.whl").unlink()
    assert prepare(["packaging==0.0.1"], tmp_path / "cache").root == first


def test_nothing_is_built_before_it_is_needed(tmp_path):
    made = prepare(["packaging==0.0.1"], tmp_path / "cache")
    assert made.requirements == ("packaging==0.0.1",)
    assert not (tmp_path / "cache").exists()


def test_a_pin_is_installed_and_compiled_once_for_all(shelf, scripts, tmp_path):
    wheel(shelf, "packaging", "0.0.1", "")
    wheel(shelf, "idna", "0.0.1", "")
    name = script(
        scripts, "look", "import packaging\nVERBS = {'look': lambda _: packaging.__file__}\n"
    )
    first = prepare(["packaging==0.0.1"], tmp_path / "cache")
    assert first.root.exists()
    (shelf / "packaging-0.0.1-py3-none-any.whl").unlink()
    other = prepare(["packaging==0.0.1", "idna==0.0.1"], tmp_path / "cache")
    assert ask(first, name, [{"verb": "look"}], root=scripts) == [
        str(first.packages / "packaging/__init__.py")
    ]
    assert list((other.packages / "packaging/__pycache__").glob("__init__.*.pyc"))


def test_folders_that_several_pins_have_are_merged(tmp_path):
    """Namespaces such as `google`: each pin has its own part of them."""
    texts = {"a/space/one/x.py": "a", "b/space/two.py": "b", "c/space/one/y.py": "c"}
    for path, text in {**texts, "b/same.py": "b", "c/same.py": "c"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    into = tmp_path / "into"
    into.mkdir()
    for pin in "abc":
        link(tmp_path / pin, into)
    found = {str(each.relative_to(into)): each.read_text() for each in into.rglob("*.py")}
    assert found == {
        "space/one/x.py": "a",
        "space/two.py": "b",
        "space/one/y.py": "c",
        "same.py": "b",
    }


def test_the_order_of_pins_does_not_matter(shelf, tmp_path):
    wheel(shelf, "packaging", "0.0.1", "")
    wheel(shelf, "idna", "0.0.1", "")
    first = prepare(["packaging==0.0.1", "idna==0.0.1"], tmp_path / "cache")
    assert prepare(["idna==0.0.1", "packaging==0.0.1"], tmp_path / "cache") == first


@pytest.mark.usefixtures("shelf")
def test_a_pin_that_cannot_be_had_is_named_and_leaves_nothing(tmp_path):
    with pytest.raises(EnvironmentUnavailable) as caught:
        _ = prepare(["packaging==0.0.1"], tmp_path / "cache").root
    assert caught.value.requirement == "packaging==0.0.1"
    assert "packaging==0.0.1" in caught.value.reason
    assert list((tmp_path / "cache").iterdir()) == []


def test_two_at_once_make_one(shelf, tmp_path):
    wheel(shelf, "packaging", "0.0.1", "")
    with ThreadPoolExecutor(2) as pool:
        asked = [prepare(["packaging==0.0.1"], tmp_path / "cache") for _ in range(2)]
        made = list(pool.map(lambda each: each.root, asked))
    assert made[0] == made[1]
    names = {path.name for path in (tmp_path / "cache").iterdir()}
    assert names == {made[0].name, "packages"}


def test_what_is_fetched_at_once_holds_no_package_twice():
    pins = [pin for known in SETS.values() for pin in known.requirements]
    found = prefetch.rounds(pins)
    assert sorted(pin for each in found for pin in each) == sorted(set(pins))
    for each in found:
        names = [pin.partition("==")[0] for pin in each]
        assert len(names) == len(set(names))


def test_what_was_fetched_need_not_be_had_again(shelf, tmp_path, monkeypatch):
    wheel(shelf, "packaging", "0.0.1", "")
    monkeypatch.setattr(prefetch, "default_cache", lambda: tmp_path / "cache")
    (complaint,) = prefetch.fetch(["packaging==0.0.1", "idna==0.0.1"])
    assert "idna==0.0.1 cannot be had" in complaint
    (shelf / "packaging-0.0.1-py3-none-any.whl").unlink()
    assert prepare(["packaging==0.0.1"], tmp_path / "cache").root.exists()


def test_every_pin_that_tunec_installs_is_locked():
    assert known_pins() - lock().keys() == set()
    assert all(each.sha256 for each in lock().values())


def test_a_file_of_other_content_is_refused(shelf, tmp_path, monkeypatch):
    """A pin that is locked, and a wheel in its name that is not the published one."""
    wheel(shelf, "addict", "2.4.0", "")
    with pytest.raises(EnvironmentUnavailable) as caught:
        _ = prepare(["addict==2.4.0"], tmp_path / "cache").root
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in caught.value.reason
    digest = hashlib.sha256((shelf / "addict-2.4.0-py3-none-any.whl").read_bytes()).hexdigest()
    own = {"addict==2.4.0": Locked((digest,), is_source=False)}
    monkeypatch.setattr(packages, "lock", lambda: own)
    told = []
    with network(Network(announce=told.append)):
        assert prepare(["addict==2.4.0"], tmp_path / "cache").root.exists()
    assert told == ["fetching addict==2.4.0 from the package index"]


def test_what_is_fetched_is_said_first_and_offline_fetches_nothing(shelf, tmp_path):
    wheel(shelf, "packaging", "0.0.1", "")
    asked, told = prepare(["packaging==0.0.1"], tmp_path / "cache"), []
    with network(Network(is_offline=True)), pytest.raises(EnvironmentUnavailable) as caught:
        _ = asked.root
    assert caught.value.reason == "it is not on this machine, and --offline is set"
    with network(Network(announce=told.append)):
        _ = asked.root
    said = "fetching packaging==0.0.1 from the package index"
    assert told == [f"{said}; not checked by a digest: packaging==0.0.1"]


@pytest.fixture
def bare(tmp_path: Path):
    return prepare([], tmp_path / "cache")


@pytest.mark.usefixtures("way")
def test_the_process_sees_neither_our_environment_nor_a_gpu(bare, scripts, monkeypatch):
    monkeypatch.setenv("TUNEC_SECRET", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    name = script(
        scripts,
        "env",
        "import os\nprint('noise', flush=True)\nos.write(1, b'more noise')\n"
        "VERBS = {'get': lambda question: os.environ.get(question['name'])}\n",
    )
    names = ("TUNEC_SECRET", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "PYTHONHASHSEED")
    asked: list[Mapping[str, str]] = [{"verb": "get", "name": each} for each in names]
    assert ask(bare, name, asked, root=scripts) == [None, "", "1", "0"]


@pytest.mark.usefixtures("way")
def test_a_fault_of_the_script_is_no_answer(bare, scripts):
    name = script(scripts, "broken", "VERBS = {'fail': lambda _: {}['missing']}\n")
    with pytest.raises(ConsumerFailed, match="raised: KeyError: 'missing'"):
        ask(bare, name, [{"verb": "fail"}], root=scripts)


@pytest.mark.usefixtures("way")
def test_a_script_that_ends_the_process_is_no_answer(bare, scripts):
    name = script(scripts, "ended", "import os\nVERBS = {'end': lambda _: os._exit(3)}\n")
    with pytest.raises(ConsumerFailed, match="ended with status 3 and no answer"):
        ask(bare, name, [{"verb": "end"}], root=scripts)


def test_a_fork_is_what_a_start_would_be(shelf, scripts, tmp_path, monkeypatch):
    """Paths, interpreter, pinned packages that the server had loaded in the parent's release."""
    wheel(shelf, "packaging", "0.0.1", "LAYER = 'pinned'\n")
    name = script(
        scripts,
        "seen",
        "import os, sys, packaging, sympy, torch\n"
        "def look(_):\n"
        "    here = os.path.dirname(sys.argv[-1]) == os.getcwd()\n"
        "    return [sys.path, sys.executable, sys.prefix, sys.argv, here,\n"
        "            packaging.LAYER, sympy.__file__, torch.__file__, sorted(os.environ)]\n"
        "VERBS = {'look': look}\n",
    )
    environment = prepare(["packaging==0.0.1"], tmp_path / "cache")
    seen = []
    for runs in (0, 1):
        servers = processes._Servers()
        servers._runs = runs
        monkeypatch.setattr(processes, "_SERVERS", servers)
        [answer] = ask(environment, name, [{"verb": "look"}], root=scripts)
        assert (servers._server is None) == (runs == 0 or sys.platform != "linux")
        servers.end()
        answer[3].pop()  # a folder of its own
        seen.append(answer)
    assert seen[0] == seen[1]


@pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")
def test_a_server_that_ended_is_begun_again(bare, scripts, monkeypatch):
    servers = processes._Servers()
    servers._runs = 1
    monkeypatch.setattr(processes, "_SERVERS", servers)
    name = script(scripts, "parent", "import os\nVERBS = {'who': lambda _: os.getppid()}\n")
    [first] = ask(bare, name, [{"verb": "who"}], root=scripts)
    [same] = ask(bare, name, [{"verb": "who"}], root=scripts)
    os.kill(first, signal.SIGKILL)
    [other] = ask(bare, name, [{"verb": "who"}], root=scripts)
    servers.end()
    assert first == same
    assert other != first


@pytest.mark.usefixtures("way")
def test_a_script_that_cannot_start_is_no_answer(bare, scripts):
    name = script(scripts, "absent", "import no_such_consumer\nVERBS = {}\n")
    with pytest.raises(ConsumerFailed) as caught:
        ask(bare, name, [{"verb": "any"}], root=scripts)
    assert "no_such_consumer" in caught.value.output


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the child under /proc")
@pytest.mark.usefixtures("way")
def test_time_out_kills_the_children_too(bare, scripts, tmp_path):
    name = script(
        scripts,
        "slow",
        "import pathlib, subprocess, sys, time\n"
        "def wait(question):\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "    pathlib.Path(question['note']).write_text(str(child.pid))\n"
        "    time.sleep(600)\n"
        "VERBS = {'wait': wait}\n",
    )
    note = tmp_path / "pid"
    with pytest.raises(ConsumerFailed, match="took over 2 s"):
        ask(bare, name, [{"verb": "wait", "note": str(note)}], seconds=2, root=scripts)
    deadline = time.monotonic() + 5
    while is_alive(int(note.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(int(note.read_text()))


def is_alive(process: int) -> bool:
    """Whether a process runs; one that is dead but not yet collected does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except FileNotFoundError:
        return False
    return state[0] != "Z"


def test_a_release_may_be_given_in_part():
    assert choose("deepspeed", "0.19").version == "0.19.8"
    assert choose("transformers", "4").version == "4.57.6"
    assert choose("transformers", "4.40.2").requirements[0] == "transformers==4.40.2"


def test_an_unknown_release_is_unavailable():
    with pytest.raises(EnvironmentUnavailable, match="no set of packages is known to work"):
        choose("transformers", "4.39")


def test_every_requirement_is_an_exact_pin():
    pins = [pin for known in SETS.values() for pin in known.requirements]
    assert pins
    assert all(pin.count("==") == 1 and "*" not in pin for pin in pins)


def test_releases_are_ordered_by_version():
    assert [known.version for known in releases("transformers")][-2:] == ["5.15.1", "5.23.0"]


def test_sets_join_without_repeating():
    joined = together(choose("deepspeed", "0.16"), choose("transformers", "5.0"))
    assert joined[0] == "deepspeed==0.16.9"
    assert len(joined) == len(set(joined))
