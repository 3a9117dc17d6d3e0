"""Peaks from events, without torch."""

from tunec.compiler.tracing.recording import Event, Recording, Storage, traced_phases


def storage(size: int, category: str = "activations", module: str = "a") -> Storage:
    return Storage(size, category, module, "mm", (size,), "bfloat16")


def test_the_peak_of_a_phase_is_its_highest_moment():
    kept, brief = storage(100), storage(50, "temporaries")
    recording = Recording([Event(kept, 100)])
    recording.begin("forward")
    recording.events += [Event(brief, 50), Event(brief, -50)]
    recording.begin("backward")
    recording.events.append(Event(kept, -100))
    forward, backward = traced_phases(recording)
    assert (forward.name, forward.peak_bytes) == ("forward", 150)
    assert forward.terms == {"activations": 100, "temporaries": 50}
    assert (backward.name, backward.peak_bytes, dict(backward.terms)) == ("backward", 0, {})


def test_what_precedes_the_first_phase_counts_and_has_none_of_its_own():
    recording = Recording([Event(storage(7, "weights"), 7)])
    recording.begin("forward")
    recording.events.append(Event(storage(1), 1))
    (only,) = traced_phases(recording)
    assert only.peak_bytes == 8


def test_equal_tensors_are_one_group():
    recording = Recording()
    recording.begin("forward")
    recording.events += [Event(storage(10), 10), Event(storage(10), 10), Event(storage(5), 5)]
    (phase,) = traced_phases(recording)
    assert [(each.count, each.bytes) for each in phase.tensors] == [(2, 20), (1, 5)]


def test_a_storage_that_shrank_counts_as_it_is_then():
    recording = Recording()
    recording.begin("forward")
    sharded = storage(80, "weights")
    recording.events += [Event(sharded, 80), Event(sharded, -70), Event(storage(75), 75)]
    (phase,) = traced_phases(recording)
    assert phase.peak_bytes == 85
    assert phase.terms == {"weights": 10, "activations": 75}
