"""Every program is asked for real in every run, once: it answers as it did when recorded."""

import json

import pytest
from tests.recording.places import Places
from tests.recording.stale import stale
from tests.recording.starts import ROOTS, starts

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import replies

STARTS = starts()
OF_ONE_FILE = {"ai_toolkit", "glm4", "minicpm_v", "musubi_tuner", "sd_scripts"}
"""Each question names files that only their repository has: their own tests obtain them and ask."""


def test_every_consumer_is_among_them():
    consumers = {each.parent.name for each in ROOTS["tunec"].glob("targets/*/consumer")}
    scripts = " ".join(STARTS)
    assert {each for each in consumers if each not in scripts} == OF_ONE_FILE


@pytest.mark.nightly
def test_no_answer_is_stale():
    told = " ".join(stale())
    assert not told, f"these ask programs for real, which takes minutes: just record {told}"


@pytest.mark.real
@pytest.mark.parametrize("script", STARTS)
def test_a_program_answers_as_recorded(script):
    recorded = STARTS[script]
    environment = prepare(recorded.pins)
    root = ROOTS[script.partition(".")[0]]
    (reply,) = replies(environment, script, [json.loads(recorded.question)], 300.0, root)
    assert Places(environment).named(json.dumps(reply, ensure_ascii=False)) == recorded.reply
