"""Bytes that arrive as they left: copies, reads past the page cache, lossless weights."""

from __future__ import annotations

import os

import pytest
from codesign.errors import RunError, UsageError

torch = pytest.importorskip("torch")

from codesign.kernels.cpu.copy import copy  # noqa: E402
from codesign.kernels.cpu.decompress import FRAME_WEIGHTS, compress, decompress  # noqa: E402
from codesign.kernels.cpu.storage_read import MIB, direct_file, storage_read  # noqa: E402
from codesign.kernels.environment import pinned  # noqa: E402


def weights(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def test_a_copy_is_the_same_bits():
    source = weights(1000)
    assert torch.equal(copy(source, torch.zeros_like(source)), source)


def test_a_copy_between_unlike_arrays_is_refused():
    with pytest.raises(UsageError, match=r"got \[3\] .*float32 and \[4\]"):
        copy(torch.zeros(3), torch.zeros(4))


@pytest.mark.parametrize("shape", [(0,), (1,), (7, 33), (FRAME_WEIGHTS + 5,), (3, FRAME_WEIGHTS)])
def test_decompressed_weights_are_the_very_bits(shape):
    original = weights(*shape)
    packed = compress(original)
    assert decompress(packed).view(torch.uint16).equal(original.view(torch.uint16))
    assert decompress(packed).shape == original.shape


def test_every_bf16_survives_infinities_nan_and_signed_zeros_included():
    everything = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    assert decompress(compress(everything)).view(torch.uint16).equal(everything.view(torch.uint16))


def test_one_thread_and_two_give_the_same_weights():
    original = weights(2 * FRAME_WEIGHTS + 3)
    packed = compress(original)
    with pinned(1):
        assert torch.equal(decompress(packed), original)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert torch.equal(decompress(packed), original)
    finally:
        torch.set_num_threads(before)


def test_exponents_of_normal_weights_take_little_more_than_their_entropy():
    packed = compress(weights(FRAME_WEIGHTS))
    assert 2.5 / 8 < packed.ratio < 0.40  # entropy of 2.5 bits of 8, zstd-1 was seen at 0.36
    assert packed.stored_bytes < 0.70 * 2 * FRAME_WEIGHTS


def test_a_torn_frame_is_refused():
    packed = compress(weights(1000))
    torn = type(packed)(packed.shape, packed.sign_mantissa_E, (packed.frames[0][:-7],))
    with pytest.raises(UsageError, match="torn"):
        decompress(torn)
    with pytest.raises(UsageError, match="0 frames of exponents, expected 1"):
        decompress(type(packed)(packed.shape, packed.sign_mantissa_E, ()))


def test_only_bf16_has_an_exponent_plane():
    with pytest.raises(UsageError, match=r"got torch\.float32"):
        compress(torch.zeros(3))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "blob"
    path.write_bytes(os.urandom(3 * MIB))
    try:
        with direct_file(path, 2 * MIB) as opened:
            yield opened, path.read_bytes()
    except RunError as refusal:
        pytest.skip(str(refusal))


@pytest.mark.parametrize("block", [4096, MIB, 4 * MIB])
def test_a_read_past_the_page_cache_gives_the_file_s_bytes(file, block):
    opened, content = file
    assert bytes(storage_read(opened, MIB, MIB + 8192, block_bytes=block)) == content[MIB : 2 * MIB + 8192]


@pytest.mark.parametrize(
    ("offset", "size", "block", "message"),
    [
        (100, MIB, MIB, "offset_bytes must be a multiple of 4096, got 100"),
        (0, 100, MIB, "size_bytes must be a multiple of 4096, got 100"),
        (0, MIB, 0, "blocks of 0"),
        (0, 3 * MIB, MIB, "the buffer 2097152"),
        (2 * MIB, 2 * MIB, MIB, "the file has 3145728"),
    ],
)
def test_reads_that_the_disk_would_refuse_are_refused_with_a_reason(file, offset, size, block, message):
    with pytest.raises(UsageError, match=message):
        storage_read(file[0], offset, size, block_bytes=block)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with (
        pytest.raises(RunError, match=r"cannot read .* past the page cache"),
        direct_file(tmp_path / "none", MIB),
    ):
        pass
