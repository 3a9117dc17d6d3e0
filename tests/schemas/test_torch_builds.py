"""Builds of torch and their kernels, held to what torch itself says of them."""

import pytest
from packaging.version import Version

from tunec.schemas.hardware.catalogue import device, device_names
from tunec.schemas.torch_builds import BUILDS, USUAL, builds_of, newest_for

EVERY = [device(name) for name in device_names()]
DEVICES = [each for each in EVERY if each.vendor == "nvidia"]
DIGITS = 10


def test_the_builds_of_the_usual_release_have_the_kernels_that_torch_lists():
    """torch/cuda/__init__.py `PYTORCH_RELEASES_CODE_CC`, which its own warning tells."""
    cuda = pytest.importorskip("torch.cuda")
    if cuda.torch.__version__.partition("+")[0] != USUAL:
        pytest.skip(f"the interpreter has torch {cuda.torch.__version__}, and no {USUAL}")
    for build in builds_of(USUAL):
        if build.vendor != "nvidia":
            continue
        listed = cuda.PYTORCH_RELEASES_CODE_CC[f"{build.name[2:4]}.{build.name[4:]}"]["x86_64"]
        assert {DIGITS * major + minor for major, minor in build.kernels} == listed


@pytest.mark.parametrize("each", DEVICES, ids=lambda each: each.name)
def test_a_device_runs_what_torch_says_that_it_runs(each):
    cuda = pytest.importorskip("torch.cuda")
    major, minor = each.compute_capability
    for build in (build for build in BUILDS if build.vendor == "nvidia"):
        said = any(
            cuda._code_compatible_with_device(DIGITS * major + minor, DIGITS * a + b)
            for a, b in build.kernels
        )
        assert build.runs_on("nvidia", (major, minor)) == said, build.version


@pytest.mark.parametrize("each", DEVICES, ids=lambda each: each.name)
def test_every_device_of_the_catalogue_has_a_build(each):
    build = newest_for("nvidia", each.compute_capability)
    assert build is not None
    assert build.release == USUAL
    old = each.compute_capability < (7, 5)
    assert (build.name == "cu126") == old


@pytest.mark.parametrize(
    "each", [each for each in EVERY if each.form_factor == "superchip"], ids=lambda each: each.name
)
def test_superchips_have_their_kernels_on_arm_too(each):
    """torch/cuda/__init__.py `PYTORCH_RELEASES_CODE_CC`, whose lists for `aarch64` are shorter."""
    cuda = pytest.importorskip("torch.cuda")
    if cuda.torch.__version__.partition("+")[0] != USUAL:
        pytest.skip(f"the interpreter has torch {cuda.torch.__version__}, and no {USUAL}")
    build = newest_for("nvidia", each.kernels)
    listed = cuda.PYTORCH_RELEASES_CODE_CC[f"{build.name[2:4]}.{build.name[4:]}"]["aarch64"]
    major, minor = each.compute_capability
    asked = DIGITS * major + minor
    assert any(cuda._code_compatible_with_device(asked, code) for code in listed)


@pytest.mark.parametrize(
    ("name", "release", "runs"),
    [
        *(("b300", "2.6", False), ("b300", "2.7", True), ("gb10", "2.6", False)),
        *(("gb10", "2.7", True), ("rtx-pro-6000", "2.8", True), ("gb300", "2.15", True)),
        *(("mi355x", "2.6", False), ("mi355x", "2.10", True), ("mi300x", "2.6", True)),
    ],
)
def test_first_release_with_kernels_for_a_device(name, release, runs):
    each = device(name)
    assert any(build.runs_on(each.vendor, each.kernels) for build in builds_of(release)) == runs


def test_builds_are_in_order_with_one_usual_build_a_release():
    releases = list(dict.fromkeys(each.release for each in BUILDS))
    assert releases == sorted(releases, key=Version)
    for release in releases:
        usual = [each.is_usual for each in BUILDS if each.release == release]
        assert usual == [True, *(False for _ in usual[1:])]
    assert all(each.source.strip() for each in BUILDS)


def test_the_last_release_leaves_older_devices_behind():
    (newest,) = builds_of("2.15")
    assert not newest.runs_on("nvidia", (7, 0))
    assert newest.runs_on("nvidia", (8, 9))
    assert newest_for("intel", None) is None
    assert {newest_for("amd", each.gfx).name for each in EVERY if each.gfx} == {"rocm7.2"}
