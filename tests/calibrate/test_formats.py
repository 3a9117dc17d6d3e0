"""Each form of file that shows what a run took."""

import json
import pickle
import zipfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.calibrate import logs

from tunec.compiler.calibrate.formats import driver_table, lines, records, snapshot
from tunec.compiler.calibrate.formats.table import Unread, files_in, read_file
from tunec.compiler.calibrate.observation import together
from tunec.schemas.units import GIB, MIB


def test_the_bar_comes_before_the_mean_over_the_whole_run():
    found = together(lines.read(logs.TRAINER))
    assert (found.seconds, found.steps) == (3.0, 99)
    (mean,) = records.parse_trainer_state({"log_history": list(lines.mappings(logs.TRAINER))})
    assert mean.seconds == pytest.approx(1 / 0.3226)
    assert mean.steps == 100


def test_axolotl_logs_torch_s_memory():
    found = together(lines.read(logs.AXOLOTL))
    assert (found.allocated, found.reserved) == (2.5 * GIB, 4 * GIB)


def test_llama_factory_logs_what_passed_between_its_steps():
    (found,) = records.read_lines(logs.FACTORY)
    assert (found.seconds, found.steps) == (24.0, 10)


def test_deepspeed_logs_samples_and_gib():
    found = together(lines.read(logs.DEEPSPEED))
    assert found.seconds is None
    assert found.samples_per_second == 58.0
    assert found.allocated == 19.5 * GIB
    assert found.when == "2024-03-07"


def test_deepspeed_s_clocks_tell_the_parts_of_whole_steps():
    found = together(lines.read(logs.CLOCKS))
    assert found.seconds == pytest.approx(0.131)
    assert found.parts == pytest.approx({"exchange": 0.02, "update": 0.01, "passes": 0.101})


def test_torch_s_statistics_of_one_device_or_of_several():
    one = {"allocated_bytes.all.peak": 5, "reserved_bytes.all.peak": 7}
    two = {"allocated_bytes.all.peak": 6, "reserved_bytes.all.peak": 6}
    (found,) = records.read(json.dumps([one, two]))
    assert (found.allocated, found.reserved) == (6, 7)


def test_the_driver_s_table():
    (found,) = driver_table.read(logs.DRIVER)
    assert (found.used, found.when) == (300 * MIB, "2026-11-24")


SNAPSHOT = {
    "segments": [{"device": 0, "total_size": 100, "allocated_size": 40, "blocks": []}],
    "device_traces": [
        [
            {"action": "segment_alloc", "size": 100},
            {"action": "alloc", "size": 90},
            {"action": "free_requested", "size": 50},
            {"action": "free_completed", "size": 50},
        ]
    ],
}


def test_a_snapshot_is_followed_back_from_its_end():
    (found,) = snapshot.read(pickle.dumps(SNAPSHOT))
    assert (found.allocated, found.reserved) == (90, 100)


class Names:
    """A pickle of it names a function."""

    def __reduce__(self):
        return (print, ("run",))


def test_a_pickle_that_names_code_is_refused(tmp_path, capsys):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({**SNAPSHOT, "more": Names()}))
    with pytest.raises(Unread, match=r"builtins\.print"):
        read_file(path)
    assert capsys.readouterr().out == ""


@given(st.binary(max_size=60))
def test_a_damaged_pickle_is_a_fault_of_the_file(rest):
    whole = pickle.dumps(SNAPSHOT)
    with suppress(ValueError):
        snapshot.read(whole[:20] + rest)


@given(st.text(max_size=200) | st.sampled_from([logs.TRAINER, logs.CLOCKS, logs.DRIVER]))
def test_no_text_makes_a_reader_fail(text):
    for read in (lines.read, records.read, records.read_lines, driver_table.read):
        read(text[: len(text) * 3 // 4])


def test_a_folder_is_searched_and_other_files_say_what_is_read(tmp_path):
    for name, text in {"train.log": logs.TRAINER, "smi.csv": logs.DRIVER, "x.yaml": "a"}.items():
        (tmp_path / name).write_text(text)
    assert [each.name for each in files_in(tmp_path)] == ["smi.csv", "train.log"]
    with pytest.raises(Unread, match=r"shows time or memory of a run; what is read: trainer_state"):
        read_file(tmp_path / "x.yaml")
    (tmp_path / "trainer_state.json").write_text('{"log_history": [{"loss": 1, "step": 1}]}')
    with pytest.raises(
        Unread, match=r"as those of checkpoints, which come before its end; the log"
    ):
        read_file(tmp_path / "trainer_state.json")


@pytest.mark.parametrize("name", ["snapshot.pickle", "ckpt/training_args.bin"])
def test_an_object_under_a_huge_number_takes_no_memory(tmp_path, name):
    """Nine bytes for which CPython's reader in C takes 32 GB."""
    import resource

    from tunec.compiler.resume.pickles import objects

    file = tmp_path / "x.bin"
    bomb = b"\x80\x02}r\xff\xff\xff\x7f."
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", bomb)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if name.endswith(".bin"):
        assert objects(file) == {}
    else:
        assert snapshot.read(bomb) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("smi.csv", "timestamp, memory.used [MiB]\n" + "9" * 200_000 + ", 1 MiB\n"),
        ("a.log", "{'loss': 1, 'train_runtime': 1e308, 'train_steps_per_second': 1e308}\n"),
        ("b.log", "{'loss': 1, 'memory/max_allocated (GiB)': 1e308}\n"),
        (
            "c.log",
            "global_step=9, RunningAvgSamplesPerSec=5, CurrSamplesPerSec=5, "
            "MemAllocated=6GB, MaxMemAllocated=" + "9" * 400 + "GB\n",
        ),
    ],
)
def test_numbers_without_bounds_are_a_fault_of_the_file(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(Unread) as refused:
        read_file(tmp_path / name)
    assert len(str(refused.value)) <= 200


def test_an_event_of_no_name_is_passed_over():
    trace = [{"action": ["alloc"], "size": 1}, {"action": None}, 3]
    segments = [{"total_size": 5, "allocated_size": 2}]
    content = pickle.dumps({"segments": segments, "device_traces": [trace]})
    assert snapshot.read(content)[0].reserved == 5
