"""The dispatch mode, and what stands in for a GPU's kernels, on models small enough to count."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tunec.compiler.ir.slots import Quantization  # noqa: E402
from tunec.compiler.tracing.live.autocast import FP32, LOWER, CudaAutocast  # noqa: E402
from tunec.compiler.tracing.live.bitsandbytes_layers import quantize  # noqa: E402
from tunec.compiler.tracing.live.host_units import moving_units  # noqa: E402
from tunec.compiler.tracing.live.kernels import as_on_gpu  # noqa: E402
from tunec.compiler.tracing.live.storages import Storages  # noqa: E402
from tunec.compiler.tracing.recording import traced_phases  # noqa: E402

F = torch.nn.functional


def alive(storages):
    return sum(each.bytes for each in storages.alive.values())


def kept_bytes(run, *tensors, casts=None):
    """Bytes that outlive a computation besides its inputs, as long as its result is held."""
    with as_on_gpu(casts), casts or nullcontext(), Storages() as storages:
        for each in tensors:
            storages.follow(each, "input", "inputs")
        before = alive(storages)
        result = run()
        kept = alive(storages) - before
        del result
    return kept


def meta(*shape, dtype=torch.bfloat16, grad=True):
    return torch.zeros(*shape, dtype=dtype, device="meta", requires_grad=grad)


def test_a_storage_lives_as_long_as_what_holds_it():
    with Storages() as storages:
        x = torch.empty(1000, device="meta")
        view = x.view(10, 100)
        assert alive(storages) == 4000
        del x
        assert alive(storages) == 4000
        del view
        assert alive(storages) == 0


def test_a_resized_storage_counts_as_it_is():
    with Storages() as storages, storages.resizing():
        x = torch.empty(1000)
        x.untyped_storage().resize_(0)
        assert alive(storages) == 0
        x.untyped_storage().resize_(8000)
        assert alive(storages) == 8000
        del x
    assert [change for _, change in storages.recording.events] == [4000, -4000, 8000, -8000]


def test_operations_are_named_by_the_module_that_ran_them_backward_too():
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 8, device="meta"), torch.nn.GELU(), torch.nn.Linear(8, 8, device="meta")
    )
    storages = Storages()
    storages.watch(model)
    with storages:
        storages.begin("forward")
        loss = model(meta(4, 8, dtype=torch.float32)).sum()
        storages.begin("backward")
        loss.backward()
    forward, backward = traced_phases(storages.recording)
    assert {each.module for each in forward.tensors if each.operation == "gelu.default"} == {"{}"}
    made = {(each.storage.operation, each.storage.module) for each in storages.recording.events}
    assert ("gelu_backward.default", "{}") in made
    assert backward.peak_bytes > 0


def test_flash_attention_keeps_its_inputs_and_a_number_a_row():
    q, k, v = meta(1, 8, 64, 32), meta(1, 2, 64, 32), meta(1, 2, 64, 32)
    kept = kept_bytes(
        lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), q, k, v
    )
    out, row_sums = 2 * 8 * 64 * 32, 4 * 8 * 64
    assert out + row_sums <= kept <= out + row_sums + 64  # and the random state


def test_a_mask_becomes_a_bias_of_the_queries_dtype():
    q, k, v = (meta(2, 4, 64, 32) for _ in range(3))
    mask = torch.zeros(2, 1, 64, 64, dtype=torch.bool, device="meta")
    without = kept_bytes(lambda: F.scaled_dot_product_attention(q, k, v), q, k, v)
    kept = kept_bytes(
        lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask), q, k, v, mask
    )
    assert kept - without == pytest.approx(2 * 2 * 64 * 64, abs=64)


def test_dropout_keeps_a_byte_an_element():
    x = meta(100, 100)
    assert kept_bytes(lambda: F.dropout(x, 0.1, True), x) == 100 * 100 * (2 + 1)


def test_fused_rms_norm_keeps_a_number_a_row():
    x, weight = meta(100, 64), meta(64)
    assert kept_bytes(lambda: F.rms_norm(x, (64,), weight), x, weight) == 2 * 100 * 64 + 4 * 100


def test_autocast_casts_products_and_remembers_weights():
    weight, x = meta(32, 64, dtype=torch.float32), meta(10, 64, dtype=torch.float32)
    autocast = CudaAutocast(torch.bfloat16)
    with autocast:
        out = F.linear(x, weight)
        again = F.linear(x, weight)
        assert out.dtype == again.dtype == torch.bfloat16
        assert F.layer_norm(out, (32,)).dtype == torch.float32
        assert out.sum().dtype == torch.square(out).dtype == torch.float32
    casts = {each.grad_fn.next_functions[-1][0] for each in (out, again)}
    assert len(casts) >= 1
    assert autocast.lower(weight) is autocast.lower(weight)
    autocast.forget()
    first = autocast.lower(weight)
    autocast.forget()
    assert autocast.lower(weight) is not first


@pytest.mark.parametrize(
    ("macro", "listed"),
    [
        ("LOWER_PRECISION_FP", LOWER),
        ("FP32", FP32),
        ("FP32_SET_OPT_DTYPE", FP32),
    ],
)
def test_autocast_casts_what_torch_lists(macro, listed):
    """The header that torch installs names each operator; all its Python functions are cast."""
    header = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"
    (body,) = re.findall(
        rf"#define AT_FORALL_{macro}\(_\)(.*?)\n\n", header.read_text("utf-8"), re.DOTALL
    )
    names = {each.removeprefix("linalg_") for each in re.findall(r"_\((\w+)", body)}
    places = (torch, torch.Tensor, F, torch.linalg, torch._C._nn)
    found = {(name, place): getattr(place, name, None) for name in names for place in places}
    unseen = {name for name in names if not any(found[name, place] for place in places)}
    assert unseen <= {"_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"}, "no function calls these"
    assert {key for key, function in found.items() if function and function not in listed} == set()


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda x: F.rms_norm(x, (32,)), torch.float32),
        (torch.nn.RMSNorm(32, device="meta", dtype=torch.bfloat16), torch.float32),
        (lambda x: F.interpolate(x, scale_factor=2.0), torch.float32),
        (lambda x: F.interpolate(x, size=(4, 4), mode="bilinear"), torch.float32),
        (lambda x: F.interpolate(x, size=(4, 4), mode="area"), torch.bfloat16),
        (torch.nn.Upsample(scale_factor=2.0, mode="nearest"), torch.float32),
    ],
)
def test_autocast_widens_norms_and_upsampling(function, dtype):
    autocast = CudaAutocast(torch.bfloat16)
    with as_on_gpu(autocast), autocast:
        assert function(meta(2, 3, 8, 32)).dtype == dtype
    with as_on_gpu():
        assert function(meta(2, 3, 8, 32)).dtype == torch.bfloat16


def test_under_autocast_rms_norm_keeps_an_fp32_copy_and_answers_in_fp32():
    x, casts = meta(100, 64), CudaAutocast(torch.bfloat16)
    kept = kept_bytes(lambda: F.rms_norm(x, (64,)), x, casts=casts)
    assert kept == (4 + 4) * 100 * 64 + 4 * 100


@pytest.mark.parametrize(
    ("format", "double", "stored"),
    [("nf4", True, 33808), ("nf4", False, 36864), ("int8", False, 65536 + 1024)],
)
def test_a_quantised_layer_stores_what_bitsandbytes_does(format, double, stored):
    model = torch.nn.Sequential(torch.nn.Linear(256, 256, bias=False, device="meta"))
    quantize(model, ["0"], Quantization(format, double, "bf16", None))
    assert model[0].weight.nbytes == pytest.approx(stored, abs=1)
    x = meta(4, 256, dtype=torch.float32)
    out = model(x)
    assert out.dtype == torch.float32
    out.sum().backward()
    assert x.grad.shape == x.shape


def test_a_clone_of_what_lies_on_the_host_lies_there_too():
    with Storages() as storages, moving_units(storages):
        shard = torch.zeros(1000, device="meta").to("cpu")
        copy = shard.clone()
    assert storages.overlooks(shard)
    assert storages.overlooks(copy)
    assert alive(storages) == 0


def test_the_linear_layer_of_zero_init_goes_with_its_trace():
    """It would keep the input of every frozen layer in the traces that follow."""
    pytest.importorskip("deepspeed")
    from deepspeed.runtime.zero.linear import zero3_linear_wrap

    from tunec.compiler.tracing.live.zero import _meta_accelerator

    plain = torch.nn.functional.linear
    with _meta_accelerator():
        torch.nn.functional.linear = zero3_linear_wrap  # as zero.Init does, for good
    assert torch.nn.functional.linear is plain
