"""The hardware catalogue: files are whole, plausible and sourced; names find what they mean."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError
from tests.tables import loaded, table

from tunec.schemas import entries
from tunec.schemas.caches import clear
from tunec.schemas.hardware import catalogue
from tunec.schemas.hardware.catalogue import UnknownName, cluster, device
from tunec.schemas.hardware.profile import Accelerators, Cluster, Device, Node, unsourced
from tunec.schemas.hardware.shared_facts import completed
from tunec.schemas.hardware.silicon import Dtype
from tunec.schemas.units import GIB

TABLES = table(__file__)

DEVICES = catalogue.device_names()
CLUSTERS = catalogue.cluster_names()
NVIDIA = tuple(name for name in DEVICES if device(name).vendor == "nvidia")

# Huawei publishes neither clocks nor the bus of the 910B.
UNPUBLISHED = {"ascend-910b"}

# Blackwell Ultra gave its integer units away.
FEW_INTEGERS = {"b300", "gb300"}

PEOPLE_SAY = TABLES["PEOPLE_SAY"]


def mapping(name: str, kind: str = "devices") -> dict[str, Any]:
    file = Path(catalogue.__file__).parent / kind / f"{name}.yaml"
    found: dict[str, Any] = completed(loaded(file.read_text("utf-8")), file)
    return found


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are read whole from here on, with nothing cached."""
    read: list[str] = []
    content = entries._content

    def recording(file: Path) -> bytes:
        read.append(file.relative_to(Path(catalogue.__file__).parent).as_posix())
        return content(file)

    clear()
    monkeypatch.setattr(entries, "_content", recording)
    return read


class TestDevices:
    @pytest.mark.parametrize("name", DEVICES)
    def test_file_holds_the_device_that_its_name_says(self, name: str) -> None:
        assert device(name).name == name

    def test_every_device_is_checked_against_its_silicon(self) -> None:
        unchecked = {name for name in DEVICES if not device(name).silicon.is_whole}
        assert unchecked == UNPUBLISHED

    @pytest.mark.parametrize("name", NVIDIA)
    def test_capability_decides_the_precisions(self, name: str) -> None:
        found = device(name)
        capability = found.compute_capability
        assert capability is not None
        assert found.supports("bf16") == found.supports("tf32") == (capability >= (8, 0))
        assert found.supports("fp8") == (capability >= (8, 9))
        assert found.supports("int8") == (capability >= (7, 5))
        assert found.supports("fp16") == (capability != (6, 1))
        assert found.precisions["bf16"] != "absent"

    @pytest.mark.parametrize("name", DEVICES)
    def test_narrower_formats_are_no_slower(self, name: str) -> None:
        rates: dict[str, float] = dict(device(name).rates)
        for slow, fast in (("fp32", "tf32"), ("tf32", "bf16"), ("bf16", "fp8"), ("bf16", "int8")):
            if slow in rates and fast in rates and not (fast == "int8" and name in FEW_INTEGERS):
                assert rates[slow] <= rates[fast], (slow, fast)

    @pytest.mark.parametrize("name", NVIDIA)
    def test_half_formats_run_alike_and_every_native_format_has_a_rate(self, name: str) -> None:
        found = device(name)
        assert set(found.rates) == {each for each in get_args(Dtype) if found.supports(each)}
        if found.supports("bf16"):
            assert found.rates["bf16"] == found.rates["fp16"]

    @pytest.mark.parametrize("name", DEVICES)
    def test_every_device_has_a_rate_to_plan_with(self, name: str) -> None:
        assert set(device(name).rates) & {"fp32", "bf16", "fp16"}

    @pytest.mark.parametrize("name", DEVICES)
    def test_direct_link_beats_the_slot(self, name: str) -> None:
        found = device(name)
        if found.link and found.form_factor != "superchip":
            assert found.link.bandwidth > found.pcie_bandwidth or found.link.kind == "nvlink"
        alone = found.form_factor == "pcie" or found.shares_host_memory
        assert (found.link is not None) or alone

    @pytest.mark.parametrize(
        ("less", "more"),
        [
            ("p100-pcie-16g", "v100-pcie-16g"),
            ("v100-pcie-32g", "v100-sxm2-32g"),
            ("v100-sxm2-32g", "a100-sxm4-40g"),
            ("a100-sxm4-40g", "a100-sxm4-80g"),
            ("a100-sxm4-80g", "h100-sxm"),
            ("h100-pcie", "h100-sxm"),
            ("h100-sxm", "h200"),
            ("h200", "b200"),
            ("rtx-2080-ti", "rtx-3090"),
            ("rtx-3090", "rtx-4090"),
            ("rtx-4090", "rtx-5090"),
            ("rtx-4080", "rtx-5080"),
            ("rtx-5070-ti", "rtx-5080"),
            ("rtx-6000-ada", "rtx-pro-6000"),
            ("rtx-pro-6000-server", "rtx-pro-6000"),
            ("b200", "gb200"),
            ("mi350x", "mi355x"),
            ("l4", "l40s"),
            ("mi250x", "mi300x"),
            ("mi300x", "mi325x"),
            ("gaudi2", "gaudi3"),
        ],
    )
    def test_successor_is_no_slower(self, less: str, more: str) -> None:
        old, new = device(less), device(more)
        assert old.bandwidth <= new.bandwidth
        assert all(
            old.rates[dtype] <= new.rates[dtype] for dtype in old.rates if dtype in new.rates
        )

    @pytest.mark.parametrize("name", DEVICES)
    def test_a_device_cannot_be_changed(self, name: str) -> None:
        with pytest.raises(ValidationError):
            device(name).memory = 1


class TestDeviceRules:
    @pytest.mark.parametrize("name", DEVICES)
    def test_no_source_can_be_left_out(self, name: str) -> None:
        whole = mapping(name)
        numbers = [key for key in whole["sources"] if key.partition(".")[0] in whole]
        for key in set(numbers) - {"precisions", "gfx"}:
            if "." in key and "rates" in whole["sources"]:
                continue  # `rates` covers them; this source only says more
            sources = {k: text for k, text in whole["sources"].items() if k != key}
            with pytest.raises(ValidationError, match="no source for"):
                Device.model_validate(whole | {"sources": sources})

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"precisions": {"fp32": "native"}},
                "precisions of t4 lack bf16, fp16, fp8, int8, tf32",
            ),
            (
                {"rates": {"bf16": 1e12}},
                "rates.bf16 of t4 is given, but precisions.bf16 is emulated",
            ),
            ({"compute_capability": None}, "compute_capability of t4"),
            ({"vendor": "amd"}, "compute_capability of t4"),
            ({"gfx": "gfx942"}, "gfx of t4 is given by AMD's devices and by no others"),
            ({"shares_host_memory": True}, "no source for shares_host_memory of t4"),
            ({"rates": {"fp16": 0.0}}, "greater than 0"),
            ({"memory": "16G"}, "16G"),
            ({"memory": "17GiB"}, "memory is 18253611008, and the box says 17179869184"),
            ({"memory": "14GiB"}, "memory is 15032385536, and the box says 17179869184"),
            (
                {"bandwidth": 3.0e11},
                "bandwidth is 3e+11, and its silicon makes 256 bits x 1e+10 / 8 = 3.2e+11",
            ),
            (
                {"rates": {"fp16": 6.0e13}},
                "rates.fp16 is 6e+13, and its silicon makes 1024 x 40 x 1.59e+09 = 6.513e+13",
            ),
            (
                {"rates": {"fp32": 8.1e12}},
                "rates.fp16 is 0, and its silicon makes 1024 x 40 x 1.59e+09 = 6.513e+13",
            ),
            ({"silicon": None}, "silicon"),
            ({"machine": None}, "machine"),
            ({"bandwith": 1.0}, "Extra inputs"),
            ({"form_factor": "mxm"}, "form_factor"),
        ],
    )
    def test_a_broken_device_is_refused(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(ValidationError, match=re.escape(message)):
            Device.model_validate(mapping("t4") | change)

    def test_a_source_must_name_a_field(self) -> None:
        sources = mapping("t4")["sources"] | {"rate.fp16": "nowhere"}
        with pytest.raises(ValidationError, match=re.escape("'rate.fp16', which is no field")):
            Device.model_validate(mapping("t4") | {"sources": sources})


class TestNames:
    @pytest.mark.parametrize(("word", "name"), PEOPLE_SAY.items())
    def test_words_that_people_use(self, word: str, name: str) -> None:
        assert device(word).name == name

    @pytest.mark.parametrize("name", DEVICES)
    def test_name_aliases_and_driver_name_lead_to_the_device(self, name: str) -> None:
        found = device(name)
        assert {device(word).name for word in (*found.aliases, found.title)} <= {name}

    def test_no_two_devices_share_a_name(self) -> None:
        owners: dict[str, set[str]] = {}
        for name in DEVICES:
            for word in (name, *device(name).aliases, device(name).title):
                owners.setdefault(catalogue._spelled(word), set()).add(name)
        assert {word: who for word, who in owners.items() if len(who) > 1} == {}

    @pytest.mark.parametrize(
        ("word", "near"),
        [
            ("rtx-4091", "rtx-4090"),
            ("a100-80", "a100-80g"),
            ("mi300z", "mi300x"),
            ("gaudi", "gaudi2"),
        ],
    )
    def test_unknown_device_lists_near_ones(self, word: str, near: str) -> None:
        with pytest.raises(UnknownName) as caught:
            device(word)
        assert isinstance(caught.value, KeyError)
        assert caught.value.name == word
        assert near in caught.value.near
        assert set(caught.value.near) <= set(caught.value.known)
        assert str(caught.value) == f"{word!r} is not in the hardware catalogue"

    @pytest.mark.parametrize(
        ("word", "near"),
        [
            ("dgx-h101", "dgx-h100"),
            ("p4d.24large", "p4d.24xlarge"),
            ("a100-80g", "a100-80g-x1"),
            ("a101-80g-x8", "a100-80g-x8"),
            ("a101-80g-x8-n2", "a100-80g-x8-n2"),
            ("a100-80g-x0", "a100-80g-x1"),
            ("rtx-4085-super-x1", "rtx-4080-super-x1"),
            ("1x RTX 3050", "rtx-3090-x1"),
            ("rx-7900-gre-x2", "rx-7900-xtx-x2"),
            ("g5.3xlarge", "g5.8xlarge"),
        ],
    )
    def test_unknown_cluster_lists_near_ones(self, word: str, near: str) -> None:
        with pytest.raises(UnknownName) as caught:
            cluster(word)
        assert near in caught.value.near

    def test_only_models_of_one_number_are_near_if_there_are_any(self) -> None:
        with pytest.raises(UnknownName) as caught:
            cluster("rtx-5060-8g-x1")
        assert caught.value.device == "rtx-5060-ti-8g"
        assert all("5060" in each for each in caught.value.near)

    @pytest.mark.parametrize("name", DEVICES)
    def test_a_device_without_a_number_is_offered_by_one_and_by_eight(self, name: str) -> None:
        words = {name, *device(name).aliases, device(name).title} - set(CLUSTERS)
        for word in words:
            with pytest.raises(UnknownName, match="without a count") as caught:
                cluster(word)
            offered = [cluster(near) for near in caught.value.near]
            assert [each.device_count for each in offered] == [1, 8]
            assert {each.nodes[0].accelerators[0].device for each in offered} == {name}

    @pytest.mark.parametrize(
        ("word", "what"),
        [
            *(
                ("cpu", "a CPU"),
                ("cpu-x8", "a CPU"),
                ("mps", "Apple's GPU"),
                ("mps:0", "Apple's GPU"),
            ),
            *(("M3 Max", "Apple's GPU"), ("apple-m4-ultra", "Apple's GPU"), ("8xtpu-v4", "a TPU")),
            *(("xpu-x2-n2", "Intel's GPU"), ("neuron", "a Trainium device")),
        ],
    )
    def test_what_no_account_knows_is_not_supported(self, word: str, what: str) -> None:
        with pytest.raises(UnknownName, match="is not supported") as caught:
            cluster(word)
        assert str(caught.value).endswith(f"not of {what}")
        assert caught.value.near == ()

    @pytest.mark.parametrize("name", DEVICES)
    def test_no_device_is_taken_for_what_is_not_supported(self, name: str) -> None:
        every = (name, *device(name).aliases, device(name).title)
        assert not any(
            catalogue.unsupported(f"{word}{end}") for word in every for end in ("", "-x8")
        )

    @pytest.mark.parametrize("word", ["", "-", "x8", "-x8", "  ", "p3.16xlarge-p4d.24xlarge-n2"])
    def test_what_is_no_name_is_unknown(self, word: str) -> None:
        with pytest.raises(UnknownName):
            cluster(word)
        with pytest.raises(UnknownName):
            device(word)


class TestLaziness:
    def test_a_device_by_its_name_reads_its_own_file_only(self, opened: list[str]) -> None:
        device("P100-pcie-16g")
        assert opened == ["devices/p100-pcie-16g.yaml", "shared.yaml"]

    def test_another_name_reads_the_devices_heads_once(self, opened: list[str]) -> None:
        device("p100")
        device("4090")
        heads = [f"devices/{name}.yaml" for name in DEVICES]
        whole = ["devices/p100-pcie-16g.yaml", "shared.yaml", "devices/rtx-4090.yaml"]
        assert opened == [*heads, *whole]

    def test_a_cluster_reads_its_own_file_only(self, opened: list[str]) -> None:
        cluster("dgx-h100")
        assert opened == ["clusters/dgx-h100.yaml"]

    def test_a_built_cluster_reads_its_device_and_the_machines(self, opened: list[str]) -> None:
        cluster("h100-sxm-x8")
        known = ["families.yaml", "devices/h100-sxm.yaml", "shared.yaml", "machines.yaml"]
        assert opened == known

    def test_each_file_is_read_once(self, opened: list[str]) -> None:
        assert device("p100-pcie-16g") is device("P100-PCIE-16G")
        assert cluster("dgx-h100-n2") is cluster("dgx-h100-n2")
        assert len(opened) == len(set(opened))


class TestClusters:
    def test_there_are_enough_and_they_reach_from_one_node_to_many(self) -> None:
        sizes = {cluster(name).node_count for name in CLUSTERS}
        assert len(CLUSTERS) >= 20
        assert min(sizes) == 1
        assert max(sizes) >= 64

    @pytest.mark.parametrize("name", CLUSTERS)
    def test_file_holds_the_cluster_that_its_name_says(self, name: str) -> None:
        assert cluster(name).name == name

    @pytest.mark.parametrize("name", CLUSTERS)
    def test_every_number_has_a_source(self, name: str) -> None:
        assert unsourced(cluster(name)) == ()

    @pytest.mark.parametrize("name", CLUSTERS)
    def test_devices_exist_under_the_name_given(self, name: str) -> None:
        for node in cluster(name).nodes:
            for group in node.accelerators:
                assert device(group.device).name == group.device

    @pytest.mark.parametrize("name", CLUSTERS)
    def test_wiring_is_one_that_the_device_has(self, name: str) -> None:
        for node in cluster(name).nodes:
            if node.link is None:
                continue
            own = device(node.accelerators[0].device).link
            assert own is not None
            assert node.device_count > 1
            assert node.link.bandwidth <= own.bandwidth
            assert node.link.kind == own.kind or {node.link.kind, own.kind} == {
                "nvlink",
                "nvswitch",
            }

    @pytest.mark.parametrize("name", CLUSTERS)
    def test_modules_on_a_baseboard_are_wired(self, name: str) -> None:
        for node in cluster(name).nodes:
            model = device(node.accelerators[0].device)
            if model.form_factor in ("sxm", "oam") and node.device_count > 1:
                assert node.link is not None

    @pytest.mark.parametrize("name", CLUSTERS)
    def test_host_is_plausible(self, name: str) -> None:
        for node in cluster(name).nodes:
            host = node.host
            assert 8 * GIB <= host.memory / node.device_count <= 512 * GIB
            assert 1 <= host.cores / node.device_count <= 64
            assert host.memory_bandwidth / node.device_count >= 5e9
            assert host.memory_bandwidth <= 1.5e12
            if host.nvme:
                assert host.nvme.write <= host.nvme.read <= 1e11

    def test_mixed_ones_are_known_as_such(self) -> None:
        mixed = {name for name in CLUSTERS if cluster(name).is_mixed}
        assert mixed == {"titan-rtx-gtx-1080-ti", "p3.16xlarge-p4d.24xlarge"}
        assert cluster("titan-rtx-gtx-1080-ti").device_count == 2
        assert cluster("p3.16xlarge-p4d.24xlarge").device_count == 32


class TestBuiltClusters:
    @pytest.mark.parametrize(
        ("name", "model", "each", "nodes"),
        [
            ("a100-80g-x8", "a100-sxm4-80g", 8, 1),
            ("A100-80GB-x8-n4", "a100-sxm4-80g", 8, 4),
            ("h100-x1", "h100-sxm", 1, 1),
            ("4090-x4", "rtx-4090", 4, 1),
            ("gtx-1080-ti-x2-n2", "gtx-1080-ti", 2, 2),
            ("dgx-h100-n64", "h100-sxm", 8, 64),
            ("p4d.24xlarge-n2", "a100-sxm4-40g", 8, 2),
            ("frontier-n128", "mi250x", 8, 128),
            ("kaggle-t4-x2-n2", "t4", 2, 2),
        ],
    )
    def test_name_says_device_count_and_nodes(
        self, name: str, model: str, each: int, nodes: int
    ) -> None:
        found = cluster(name)
        assert [(group.device, group.count) for group in found.nodes[0].accelerators] == [
            (model, each)
        ]
        assert (found.node_count, found.device_count) == (nodes, nodes * each)
        assert (found.network is not None) or nodes == 1
        assert found.name == name.lower()
        assert unsourced(found) == ()

    @pytest.mark.parametrize(
        ("words", "name"),
        [
            ("8x V100 32G", "v100-32g-x8"),
            ("4x4090", "4090-x4"),
            ("1 x P100", "p100-x1"),
            ("2x RTX 3090", "rtx-3090-x2"),
            ("A100 80GB x8", "a100-80g-x8"),
            ("rtx 4090 x 2", "rtx-4090-x2"),
            ("h100 x8 n2", "h100-x8-n2"),
        ],
    )
    def test_a_number_may_stand_as_people_write_it(self, words: str, name: str) -> None:
        found, meant = cluster(words), cluster(name)
        assert found.nodes == meant.nodes

    @pytest.mark.parametrize("name", DEVICES)
    @pytest.mark.parametrize("count", [1, 2, 8])
    def test_any_device_makes_a_cluster(self, name: str, count: int) -> None:
        found = cluster(f"{name}-x{count}-n3")
        assert found.device_count == 3 * count
        if found.nodes[0].host != cluster(f"{name}-x{count}").nodes[0].host:
            pytest.fail("the host of a node depends on how many nodes there are")

    def test_host_grows_with_its_devices_and_is_said_to_be_assumed(self) -> None:
        one, eight = (cluster(f"a100-80g-x{count}") for count in (1, 8))
        assert eight.nodes[0].host.memory == 8 * one.nodes[0].host.memory
        assert eight.nodes[0].host.cores == 8 * one.nodes[0].host.cores
        assert any("host assumed" in note for note in eight.notes)
        assert eight.sources["nodes[0].host"].startswith("assumed: ")
        assert any("network assumed" in note for note in cluster("a100-80g-x8-n2").notes)
        assert not any("network" in note for note in eight.notes)

    def test_modules_are_wired_and_cards_are_not(self) -> None:
        assert cluster("a100-80g-x8").nodes[0].link == device("a100-80g").link
        assert cluster("v100-32g-x4").nodes[0].link == device("v100-32g").link
        assert cluster("a100-80g-x1").nodes[0].link is None
        assert device("rtx-a6000").link is not None
        assert cluster("rtx-a6000-x4").nodes[0].link is None

    @pytest.mark.parametrize("word", ["p100-x1", "P100-x1", "p100-16g-x1", "p100-pcie-16g-x1"])
    def test_a_file_wins_under_every_alias_of_its_device(self, word: str) -> None:
        assert cluster(word) is cluster("p100-x1")
        assert "Kaggle" in cluster(word).title
        assert cluster("p100-x2").title != cluster(word).title

    def test_nodes_of_a_file_keep_what_the_file_says(self) -> None:
        one, four = cluster("dgx-a100-80g"), cluster("dgx-a100-80g-n4")
        assert four.nodes[0].host == one.nodes[0].host
        assert four.network == one.network
        assert four.sources == one.sources
        assert cluster("dgx-a100-80g-n1") is one

    def test_price_grows_with_the_nodes(self) -> None:
        price = cluster("lambda-a6000-x4").price_per_hour
        assert price
        assert cluster("lambda-a6000-x4-n3").price_per_hour == pytest.approx(3 * price)

    def test_every_assumed_machine_is_that_of_some_device(self) -> None:
        assert {device(name).machine for name in DEVICES} == set(catalogue._machines())

    @pytest.mark.parametrize(
        "name",
        [n for n, row in catalogue._machines().items() if row.source.startswith("clusters/")],
    )
    def test_assumed_share_is_that_of_the_machine_it_names(self, name: str) -> None:
        row = catalogue._machines()[name]
        found = re.match(r"clusters/(.+)\.yaml, (?:an? )?(eighth|quarter|whole)", row.source)
        assert found is not None
        machine = cluster(found[1])
        node = machine.nodes[0]
        assert node.device_count == {"eighth": 8, "quarter": 4, "whole": 1}[found[2]]
        assert row.memory == pytest.approx(node.host.memory / node.device_count, rel=0.01)
        assert row.cores == node.host.cores // node.device_count
        assert row.memory_bandwidth * node.device_count == pytest.approx(
            node.host.memory_bandwidth, rel=0.01
        )
        if "assumed" not in row.source:
            assert row.network == machine.network


class TestClusterRules:
    NODE: dict[str, Any] = {
        "accelerators": [{"device": "t4", "count": 2}],
        "host": {"memory": "64GiB", "cores": 8},
    }

    def test_two_nodes_need_a_network(self) -> None:
        with pytest.raises(ValidationError, match="has 2 nodes, but no network joins them"):
            Cluster.model_validate({"name": "pair", "nodes": [self.NODE, self.NODE]})
        with pytest.raises(ValidationError, match="has 3 nodes"):
            Cluster.model_validate({"name": "three", "nodes": [self.NODE | {"count": 3}]})
        network = {"kind": "ethernet", "bandwidth": 1.25e9}
        pair = {"name": "pair", "nodes": [self.NODE, self.NODE], "network": network}
        assert Cluster.model_validate(pair).device_count == 4

    @pytest.mark.parametrize(
        ("uuids", "message"),
        [
            (["GPU-1"], "1 uuids are given for 2 devices 't4'"),
            (["GPU-1", "GPU-1"], "two devices 't4' have the same uuid"),
        ],
    )
    def test_uuids_fit_the_devices(self, uuids: list[str], message: str) -> None:
        with pytest.raises(ValidationError, match=re.escape(message)):
            Accelerators.model_validate({"device": "t4", "count": 2, "uuids": uuids})

    def test_counts(self) -> None:
        groups = (Accelerators(device="t4", count=2), Accelerators(device="a10g"))
        node = Node.model_validate(self.NODE).model_copy(
            update={"accelerators": groups, "count": 3}
        )
        assert node.device_count == 3
        found = Cluster(name="x", nodes=(node,), network=cluster("dgx-h100").network)
        assert (found.node_count, found.device_count, found.is_mixed) == (3, 9, True)

    def test_two_sizes_of_one_device_are_a_mixture(self) -> None:
        groups = [{"device": "t4"}, {"device": "t4", "memory": "8GiB"}]
        node = self.NODE | {"accelerators": groups}
        assert Cluster.model_validate({"name": "x", "nodes": [node]}).is_mixed
        assert not Cluster.model_validate({"name": "x", "nodes": [self.NODE]}).is_mixed

    def test_unsourced_numbers_are_named_by_their_path(self) -> None:
        bare = Cluster.model_validate({"name": "x", "nodes": [self.NODE]})
        assert unsourced(bare) == (
            "nodes[0].accelerators[0].count",
            "nodes[0].host.memory",
            "nodes[0].host.cores",
            "nodes[0].host.memory_bandwidth",
        )
        half = bare.model_copy(update={"sources": {"nodes[0].host": "dmidecode"}})
        assert unsourced(half) == ("nodes[0].accelerators[0].count",)


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 8_191_560_100},
        {"accelerators": [{"device": "a100-80g", "count": 8_191_560_100}]},
        {"accelerators": [{"device": "a100-80g", "count": 1000}] * 2},
    ],
)
def test_counts_that_no_cluster_has_are_refused(changes):
    node = {"accelerators": [{"device": "a100-80g", "count": 8}], "host": HOST, **changes}
    network = {"kind": "ethernet", "bandwidth": "100 Gbit/s"}
    with pytest.raises(ValidationError, match=r"1024|100000"):
        Cluster.model_validate({"name": "lab", "nodes": [node], "network": network})


HOST = {"memory": "500GiB", "cores": 32}
