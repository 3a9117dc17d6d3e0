"""`tunec card`, and plans of families that no rule derives."""

import json

import pytest
from tests.tables import table

from tunec.compiler.tracing.derivation import derived
from tunec.schemas.models.catalogue import card as card_of_the_catalogue
from tunec.schemas.models.derived_card import card_name

TABLES = table(__file__)

GPT_OSS = TABLES["GPT_OSS"]


@pytest.fixture(scope="module")
def card():
    pytest.importorskip("torch")
    return derived(GPT_OSS, "nobody/gpt-oss-tiny")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A user's cache of cards of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "cache" / "tunec" / "cards"


def spec(folder, model):
    path = folder / "spec.yaml"
    path.write_text(
        f"tunec: 1\nmodel: {model}\nmethod: lora\nhardware: a100-80g-x1\n"
        "data: {train: train.jsonl, samples: 10000, sequence: 1024}\n"
    )
    return path


def test_a_card_is_made_kept_and_planned_with(tunec, tmp_path, cache, monkeypatch):
    pytest.importorskip("torch")
    (tmp_path / "config.json").write_text(json.dumps(GPT_OSS))
    found = tunec("card", tmp_path / "config.json")
    assert found.code == 0
    assert "8 experts, 2 a token, window 128" in found.out
    assert [each.name for each in cache.iterdir()] == [card_name(GPT_OSS)]
    monkeypatch.setattr("tunec.compiler.derived_cards.make", None)  # it is not made again
    assert tunec("plan", spec(tmp_path, "./config.json")).code == 0


def test_without_the_libraries_a_plan_tells_what_makes_a_card(tunec, tmp_path, monkeypatch):
    monkeypatch.setattr("tunec.compiler.derived_cards.NEEDED", ("no_such_library",))
    (tmp_path / "config.json").write_text(json.dumps({**GPT_OSS, "hidden_size": 320}))
    refused = tunec("plan", spec(tmp_path, "./config.json"))
    assert refused.code == 1
    assert "no_such_library cannot be imported" in refused.err
    assert "tunec card" in refused.err


def test_a_card_stands_for_a_config_and_names_the_weights(tunec, tmp_path, card):
    (tmp_path / "gpt.json").write_bytes(card.to_json())
    path = spec(tmp_path, "./gpt.json")
    found = tunec("plan", path, "--format", "json").json["plan"]
    assert (found["model.family"], found["model.path"]) == ("gpt_oss", "nobody/gpt-oss-tiny")
    assert tunec("compile", path, "--target", "trl", "-o", tmp_path / "out").code == 0
    written = (tmp_path / "out" / "trl" / "sft.yaml").read_text()
    assert "model_name_or_path: nobody/gpt-oss-tiny\n" in written


def test_a_model_that_sees_is_planned_for_text_alone(tunec, tmp_path, card):
    """A card knows no rule by which images become tokens."""
    seeing = json.loads(card.to_json())
    seeing["architecture"]["kind"] = "vision-language"
    (tmp_path / "gpt.json").write_text(json.dumps(seeing))
    path = spec(tmp_path, "./gpt.json")
    refused = tunec("plan", path)
    assert refused.code == 1
    assert "how many tokens an image becomes in this model is not known" in refused.err
    path.write_text(path.read_text().replace("1024}", "1024, images: {per_sample: 0}}"))
    assert tunec("plan", path).code == 0


def test_a_broken_card_is_told(tunec, tmp_path, card):
    broken = {**json.loads(card.to_json()), "tunec_card": 99}
    (tmp_path / "gpt.json").write_text(json.dumps(broken))
    refused = tunec("plan", spec(tmp_path, "./gpt.json"))
    assert refused.code == 1
    assert "its card is of version 99" in refused.err


def test_a_model_of_the_local_hub_cache_keeps_its_name(tunec, tmp_path, cache, card):
    folder = tmp_path / "hub" / "models--nobody--gpt-oss-tiny"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "snapshots" / "abc" / "config.json").write_text(json.dumps(GPT_OSS))
    cache.mkdir(parents=True)
    (cache / card_name(GPT_OSS)).write_bytes(card.to_json())
    found = tunec("plan", spec(tmp_path, "nobody/gpt-oss-tiny"), "--format", "json").json
    assert found["plan"]["model.path"] == "nobody/gpt-oss-tiny"


@pytest.mark.parametrize("part", ["transformer", "unet"])
def test_a_pipeline_of_the_local_hub_cache_is_its_denoiser(tunec, tmp_path, part):
    folder = tmp_path / "hub" / "models--nobody--painter"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc" / part).mkdir(parents=True)
    config = card_of_the_catalogue("flux.1-dev").config
    (folder / "snapshots" / "abc" / part / "config.json").write_text(json.dumps(config))
    path = tmp_path / "spec.yaml"
    path.write_text(
        "tunec: 1\nmodel: nobody/painter\nmethod: {lora: {rank: 16, targets: attention}}\n"
        "data: {train: pictures, samples: 100, resolution: 1024}\nhardware: a100-80g-x1\n"
        "batch: {global: 1}\ntrain: {steps: 1000}\n"
    )
    found = tunec("plan", path, "--format", "json").json
    assert found["plan"]["model.path"] == "nobody/painter"
    assert found["plan"]["model.family"] == "FluxTransformer2DModel"


def test_a_name_that_leads_nowhere_is_told(tunec):
    refused = tunec("card", "nobody/nothing")
    assert refused.code == 1
    assert "error[E0305]" in refused.err
    assert "give its config.json" in refused.err


def test_a_model_that_a_rule_derives_needs_no_card(tunec):
    pytest.importorskip("torch")
    refused = tunec("card", "visualglm-6b")
    assert refused.code == 1
    assert "plans need no card of it" in refused.err


REFUSED = {
    "an unknown family": ({"model_type": "no_such_family"}, "E0315", ":1:16", "no class for"),
    "no family": ({"hidden_size": 64}, "E0312", ":1:1", "names no family"),
    "an encoder": (
        {"model_type": "vit", "architectures": ["ViTModel"]},
        "E0315",
        ":1:16",
        "no class with a language model's head",
    ),
    "sides that do not fit": (
        {**GPT_OSS, "num_attention_heads": 3, "num_key_value_heads": 2},
        "E0315",
        ":1:16",
        "",
    ),
    "a word for a number": ({**GPT_OSS, "hidden_size": "wide"}, "E0315", ":1:16", ""),
    "code of its own": (
        {"model_type": "mine", "auto_map": {"AutoConfig": "a.B"}},
        "E0315",
        ":1:36",
        "its own code is run only where you trust it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_derived_is_told_with_a_code_and_a_place(tunec, tmp_path, case):
    pytest.importorskip("torch")
    config, code, place, words = REFUSED[case]
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused = tunec("card", tmp_path / "config.json", "--format", "json")
    assert refused.code == 1
    (found,) = refused.json["diagnostics"]
    assert found["id"] == code
    (label,) = found["labels"]
    assert label["file"].endswith("config.json")
    assert f":{label['line']}:{label['column']}" == place
    assert words in f"{found['message']} {found['help']} {found['notes']}"


@pytest.mark.parametrize("text", ["{", "[1]", "\ufeff{}", ""])
def test_a_file_that_is_no_config_is_told(tunec, tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    refused = tunec("card", tmp_path / "config.json")
    assert refused.code == 1
    assert "error[E" in refused.err


def test_a_card_of_an_older_version_is_made_anew(tunec, tmp_path, cache, card, monkeypatch):
    made = []

    def derive(_, into):
        made.append(into)
        into.write_bytes(card.to_json())

    monkeypatch.setattr("tunec.compiler.derived_cards._derive", derive)
    (tmp_path / "config.json").write_text(json.dumps(GPT_OSS))
    assert tunec("card", tmp_path / "config.json").code == 0
    assert tunec("card", tmp_path / "config.json").code == 0
    assert len(made) == 1
    kept = cache / card_name(GPT_OSS)
    fresh = json.loads(kept.read_text())
    for stale in (json.dumps({**fresh, "tunec_card": 0}), "no card"):
        kept.write_text(stale)
        assert tunec("card", tmp_path / "config.json").code == 0
        assert json.loads(kept.read_text()) == fresh
    assert len(made) == 3
    kept.write_text(json.dumps({**fresh, "tunec_card": 0}))
    monkeypatch.setattr("tunec.compiler.derived_cards.NEEDED", ("no_such_library",))
    refused = tunec("card", tmp_path / "config.json")
    assert refused.code == 1
    assert "its card is of version 0, and this is 1" in refused.err
    assert "pip install 'tunec[trace]' && tunec card" in refused.err


REMOTE = TABLES["REMOTE"]


def test_code_of_the_repository_is_run_where_it_is_trusted(tunec, tmp_path):
    pytest.importorskip("torch")
    for name, text in REMOTE.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "modeling_mine.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w').close()\n" + REMOTE["modeling_mine.py"]
    )
    assert tunec("plan", spec(tmp_path, "./config.json")).code == 1
    assert not (tmp_path / "ran").exists()
    made = tunec("card", "--trust-remote-code", tmp_path / "config.json")
    assert made.code == 0, made.err
    assert (tmp_path / "ran").exists()
    found = tunec("plan", spec(tmp_path, "./config.json"), "--format", "json").json["plan"]
    assert found["model.trust_remote_code"] is True
    llama = {**json.loads(REMOTE["config.json"]), "model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(llama))
    same = tunec("plan", spec(tmp_path, "./config.json"), "--format", "json").json["plan"]
    assert found["model.parameters"] == same["model.parameters"]
