"""The memory of the host."""

from typing import Any

import pytest
from workload_builders import LLAMA_3_8B, MIXED, full, layout, lora, matching, model, nf4

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.terms.host import HostAccount, host_account
from tunec.compiler.analyses.memory.workload import USUAL_FSDP, Workload
from tunec.schemas.frozen import replace

MODEL = model(LLAMA_3_8B)
FULL = full(MODEL)


def host(workload: Workload = FULL, **changes: Any) -> HostAccount:
    settings = {"engine": "deepspeed", "world": 8, "stage": 2} | MIXED | changes
    return account(workload, layout(**settings)).host


def offloaded(found: HostAccount) -> float:
    terms = found.phases["training"]
    return sum(size for name, size in terms.items() if name.startswith("offloaded"))


@pytest.mark.parametrize(
    ("stage", "param", "bytes_an_element"), [(2, "none", 16), (3, "none", 16), (3, "cpu", 18)]
)
def test_offload_takes_what_deepspeeds_estimator_says(
    stage: int, param: str, bytes_an_element: int
) -> None:
    found = host(stage=stage, offload_optimizer="cpu", offload_param=param)
    assert offloaded(found) == pytest.approx(1.5 * bytes_an_element * MODEL.parameters, rel=1e-6)


def test_the_estimator_of_the_installed_deepspeed_agrees() -> None:
    stage3 = pytest.importorskip("deepspeed.runtime.zero.stage3")
    estimated, *_ = stage3.estimate_zero3_model_states_mem_needs(
        MODEL.parameters, 1, num_gpus_per_node=8, num_nodes=1
    )
    found = host(stage=3, offload_optimizer="cpu", offload_param="cpu")
    assert offloaded(found) == pytest.approx(estimated, rel=1e-6)


def test_a_node_holds_its_own_ranks_share() -> None:
    one = host(offload_optimizer="cpu", world=16)
    two = host(offload_optimizer="cpu", world=16, nodes=2)
    assert offloaded(two) == pytest.approx(offloaded(one) / 2, rel=1e-6)


def test_a_published_failure_is_foreseen() -> None:
    """9.4e9 parameters, ZeRO-3 with both offloads, 252 GB of RAM: the run was killed."""
    glm = full(model(LLAMA_3_8B | {"num_hidden_layers": 38}))
    found = host(glm, stage=3, offload_optimizer="cpu", offload_param="cpu")
    assert glm.architecture.parameters == pytest.approx(9.4e9, rel=0.01)
    assert found.peak_bytes > 252e9


def test_every_rank_loads_a_whole_model_below_stage_3() -> None:
    whole = 2 * MODEL.parameters
    assert host(stage=2).phases["loading"]["weights while loading"] == 8 * whole
    assert host(stage=3).phases["loading"]["weights while loading"] == whole


def test_quantised_weights_pass_one_by_one() -> None:
    found = host(lora(MODEL, quantization=nf4()), stage=2)
    assert found.phases["loading"]["weights while loading"] == 8 * 2 * MODEL.vocab * MODEL.hidden


def test_saving_at_stage_3_gathers_on_rank_0() -> None:
    gathered = host(stage=3).phases["saving"]["gathered weights"]
    assert gathered == 2 * MODEL.parameters
    assert "gathered weights" not in host(stage=3, gather_on_save=False).phases["saving"]


def test_checkpoint_files_grew_in_transformers_5() -> None:
    old = full(MODEL, versions=(("transformers", "4.57.1"),))
    plan = layout(engine="ddp", world=8, **MIXED)
    files = [host_account(each, plan).phases["saving"]["checkpoint file"] for each in (old, FULL)]
    assert files == [5 * 10**9, 2 * MODEL.parameters]


def test_every_rank_copies_its_weights_below_stage_3() -> None:
    assert host(stage=2).phases["saving"]["copied weights"] == 8 * 2 * MODEL.parameters
    adapters = lora(MODEL, adapted=matching(MODEL, ("q_proj", "v_proj")))
    base = 8 * 2 * MODEL.parameters
    assert host(adapters, stage=1).phases["saving"]["copied weights"] > base


def test_a_tied_weight_is_copied_by_each_of_its_names() -> None:
    tied = model(LLAMA_3_8B, tie_word_embeddings=True)
    saved = tied.parameters + tied.vocab * tied.hidden
    assert host(full(tied), stage=2).phases["saving"]["copied weights"] == 8 * 2 * saved
    adapted = matching(tied, ("q_proj", "v_proj"))
    copied = host(lora(tied, adapted=adapted), stage=1).phases["saving"]["copied weights"]
    assert 8 * 2 * saved < copied < 8 * 2 * 1.01 * saved


def test_adapters_alone_are_gathered_since_transformers_5() -> None:
    adapted = matching(MODEL, ("q_proj", "v_proj"))
    new = lora(MODEL, adapted=adapted)
    old = lora(MODEL, adapted=adapted, versions=(("transformers", "4.57.6"),))
    assert host(new, stage=3).phases["saving"]["gathered weights"] < MODEL.parameters / 10
    assert host(old, stage=3).phases["saving"]["gathered weights"] > 2 * MODEL.parameters


def test_nvme_takes_buffers_instead_of_states() -> None:
    cpu = host(stage=3, offload_optimizer="cpu")
    nvme = host(stage=3, offload_optimizer="nvme", sub_group_size=10**8)
    assert offloaded(nvme) < offloaded(cpu)
    assert nvme.phases["training"]["NVMe optimizer buffers"] == 8 * 4 * 4 * 10**8


SHARED = replace(FULL, shares_host_memory=True)


def test_what_the_host_of_a_shared_memory_holds_is_the_devices() -> None:
    settings = {"engine": "none", "world": 1} | MIXED
    apart, together = (account(each, layout(**settings)) for each in (FULL, SHARED))
    of_host = {f"host: {name}": size for name, size in apart.host.phases["training"].items()}
    assert together.terms == apart.terms | of_host
    assert together.peak_bytes == apart.peak_bytes + sum(of_host.values())


def test_weights_on_their_way_and_checkpoints_lie_in_the_shared_memory() -> None:
    settings = {"engine": "none", "world": 1} | MIXED
    together = account(SHARED, layout(**settings))
    loading, saving = together.phases["loading"], together.phases["saving"]
    assert loading["host: weights while loading"] == 2 * MODEL.parameters
    assert not {"optimizer states", "trained weights"} & set(loading)
    assert {"optimizer states", "trained weights"} <= set(saving)


@pytest.mark.parametrize("where", ["none", "cpu"])
def test_offloading_frees_nothing_of_a_shared_memory(where: str) -> None:
    settings = {"engine": "deepspeed", "world": 1, "stage": 2, "offload_optimizer": where} | MIXED
    together = account(SHARED, layout(**settings))
    states = sum(size for name, size in together.terms.items() if "optimizer states" in name)
    assert states >= 8 * MODEL.parameters


def test_each_device_of_a_shared_memory_has_its_part_of_the_host() -> None:
    settings = {"engine": "ddp", "world": 2} | MIXED
    found = account(SHARED, layout(**settings))
    assert found.terms["host: processes"] == found.host.phases["training"]["processes"] / 2


def test_workers_and_images_take_memory() -> None:
    plain, busy = host(), host(full(MODEL, dataloader_workers=4))
    processes = busy.phases["training"]["data loading processes"]
    assert processes > 0
    assert "data loading processes" not in plain.phases["training"]
    pictures = host(full(MODEL, images=2, image_width=1024, image_height=1024))
    assert pictures.phases["training"]["decoded batches"] > 8 * 2 * 1024 * 1024 * 3 * 4


def test_the_peak_is_the_largest_phase() -> None:
    found = host(stage=3, offload_optimizer="cpu", offload_param="cpu")
    assert found.peak_bytes == max(sum(terms.values()) for terms in found.phases.values())
    assert sum(found.terms.values()) == found.peak_bytes


def test_a_full_checkpoint_of_fsdp_holds_all_moments_on_rank_0() -> None:
    shards = replace(USUAL_FSDP, state_dict="full")
    states = {"trainable": "fp32", "gradients": "fp32", "optimizer": "fp32", "autocast": True}
    found = account(FULL, layout(engine="fsdp", world=8, fsdp=shards, **states)).host
    assert found.phases["saving states"]["gathered optimizer states"] == 8 * MODEL.parameters
    assert found.peak_phase == "saving states"


def test_deepspeed_writes_one_storage_of_each_rank_at_a_time() -> None:
    name = "states on their way to a file"
    whole = host(stage=2).phases["saving states"]
    assert whole[name] == pytest.approx(4 * MODEL.parameters, rel=1e-6)
    pieces = host(stage=3, sub_group_size=100_000_000).phases["saving states"]
    assert pieces[name] == 8 * 4 * 100_000_000
    assert "saving states" not in host(stage=3, offload_optimizer="cpu").phases
