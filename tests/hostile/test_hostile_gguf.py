# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile files, through everything that reads one before weights reach the core.

Whatever the bytes: either the file is accepted, or ``BadCheckpoint`` or ``UnsupportedModel`` comes
out, with one line that names the file and a field. Never another exception, never much memory.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest

from gguf_writer import GgufWriter
from octavo.formats.gguf import GgufFile
from octavo.loaders.gguf import load_gguf
from octavo.models.registry import describe, spec_for
from octavo.tokenizer.gguf_vocab import tokenizer_from_gguf
from octavo.types.errors import BadCheckpoint, InvalidRequest, ModelError, UnsupportedModel
from tiny_gguf import Q8_0, tiny_gemma3, tiny_llama
from weight_sink import RecordingSink

SPARE_BYTES = 64 * 2**20  # what reading may allocate beside the file's own size
FUZZ_SEED = 20
FUZZ_CASES = 2_000
INTERESTING = (0, 1, 2, 8, 9, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def read_everything(data: bytes) -> None:
    file = GgufFile("tiny.gguf", memoryview(data))
    card = describe(file)  # never raises once a file is open
    for problem in card.problems:
        assert_one_line(problem)
    for key in file.metadata:
        value = file.metadata[key]
        assert value is not None
    spec, tensors = spec_for(file)
    assert spec.layers
    load_gguf(file, tensors, RecordingSink())
    tokenizer = tokenizer_from_gguf(file.metadata)
    with suppress(InvalidRequest):  # a damaged vocabulary may be unable to say it
        assert tokenizer.decode(tokenizer.encode("to to bed")) is not None


def assert_one_line(message: str) -> None:
    assert message.startswith("tiny.gguf: ")
    assert len(message.split(": ")) >= 3, f"no field: {message}"
    assert message.isprintable(), f"not one printable line: {message!r}"
    assert len(message) < 700


def outcome(data: bytes) -> ModelError | None:
    """The refusal, or None for a file that is accepted. Any other exception passes through."""
    try:
        read_everything(data)
    except (BadCheckpoint, UnsupportedModel) as error:
        assert_one_line(str(error))
        return error
    return None


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
def test_truncation_at_every_section_is_refused(make):
    sections = make(matrix_type=Q8_0).sections()
    whole = b"".join(section for _, section in sections)
    assert outcome(whole) is None
    end = 0
    for name, section in sections:
        for cut in {end, end + 1, end + len(section) // 2, end + len(section) - 1}:
            if cut < len(whole):
                assert isinstance(outcome(whole[:cut]), BadCheckpoint), f"cut at {cut} in {name}"
        end += len(section)


def test_truncation_anywhere_is_refused():
    whole = tiny_llama(matrix_type=Q8_0).build()
    for cut in random.Random(1).sample(range(len(whole)), 400):
        assert isinstance(outcome(whole[:cut]), BadCheckpoint), f"cut at {cut}"


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
def test_every_key_with_another_type_is_refused_or_harmless(make):
    for key, good in make(matrix_type=Q8_0).metadata.items():
        for bad in ("text", -1.0, True, [1], ["x"], [0.5], 2**32 - 1):
            if type(bad) is not type(good):
                writer = make(matrix_type=Q8_0)
                writer.metadata[key] = bad
                error = outcome(writer.build())
                if key == "general.name":
                    assert error is None
                else:
                    assert isinstance(error, ModelError), f"{key} = {bad!r} was accepted"
                    assert key in str(error)


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
def test_every_missing_key_is_refused_or_has_a_default(make):
    with_default = {"general.name", "rope.freq_base", "key_length", "bos_token_id", "eos_token_id"}
    for key in make(matrix_type=Q8_0).metadata:
        writer = make(matrix_type=Q8_0)
        del writer.metadata[key]
        error = outcome(writer.build())
        if error is None:
            assert any(key.endswith(name) for name in with_default), f"{key} was not missed"
        else:
            # head_count_kv has a default, but then the k matrix must have as many rows as q
            assert key in str(error) or "attn_k.weight" in str(error)


def test_every_integer_of_the_header_made_absurd():
    whole = tiny_llama(matrix_type=Q8_0).build()
    header = whole.index(b"blk.1.ffn_down.weight") + 60
    for at in range(0, header, 4):
        for value in (0xFFFFFFFF, 0x7FFFFFFF, 0x80000000):
            outcome(whole[:at] + struct.pack("<I", value) + whole[at + 4 :])


def mutate(rng: random.Random, data: bytes) -> bytes:
    """One to four damages; most in the header, which is where the numbers are."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(min(len(damaged), 4096) if rng.random() < 0.9 else len(damaged))
        kind = rng.randrange(6)
        if kind == 0:
            damaged[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            damaged[at] = rng.randrange(256)
        elif kind == 2:
            damaged[at : at + 4] = struct.pack("<I", rng.choice(INTERESTING) & 0xFFFFFFFF)
        elif kind == 3:
            damaged[at : at + 8] = struct.pack("<Q", rng.choice(INTERESTING))
        elif kind == 4:
            del damaged[at : at + rng.randint(1, 64)]
        else:
            source = rng.randrange(len(damaged))
            damaged[at:at] = damaged[source : source + rng.randint(1, 64)]
        if not damaged:
            break
    return bytes(damaged)


def test_fuzz():
    originals = [tiny_llama(matrix_type=Q8_0).build(), tiny_gemma3(matrix_type=Q8_0).build()]
    refused = 0
    for case in range(FUZZ_CASES):
        data = mutate(random.Random(FUZZ_SEED * 1_000_000 + case), originals[case % 2])
        try:
            refused += outcome(data) is not None
        except BaseException as error:
            error.add_note(f"seed={FUZZ_SEED} case={case}")
            raise
    # A fuzzer that is refused at the door or that breaks nothing tests nothing.
    assert FUZZ_CASES // 4 < refused < FUZZ_CASES


def peak_bytes(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def many_keys() -> bytes:
    """As many keys as the format's reader takes, each as small as can be."""
    keys = [(f"{idx:x}".encode(), struct.pack("<IB", 0, 1)) for idx in range(2**16)]
    return GgufWriter(raw_keys=keys).build()


def many_tensors() -> bytes:
    """As many tensors as the reader takes, all of one element."""
    directory = b"".join(
        struct.pack("<Q", 4) + f"{idx:04x}".encode() + struct.pack("<IQIQ", 1, 1, 0, 32 * idx)
        for idx in range(2**15)
    )
    header = b"GGUF" + struct.pack("<IQQ", 3, 2**15, 0) + directory
    return header + bytes(-len(header) % 32) + bytes(32 * 2**15)


def array_file(element: int, count: int, body: bytes) -> bytes:
    value = struct.pack("<IIQ", 9, element, count) + body
    return GgufWriter(raw_keys=[(b"tokenizer.ggml.tokens", value)]).build()


@pytest.mark.parametrize(
    "make",
    [
        many_keys,
        many_tensors,
        lambda: array_file(8, 2**18, bytes(8 * 2**18)),  # empty strings
        lambda: array_file(0, 2**22, bytes(2**22)),
        lambda: array_file(9, 2**15, struct.pack("<IQ", 9, 0) * 2**15),  # empty arrays
        lambda: array_file(9, 2**62, b""),
        lambda: array_file(0, 2**64 - 1, b""),
        lambda: GgufWriter(num_tensors=2**62).build(),
        lambda: GgufWriter(num_keys=2**64 - 1).build(),
        lambda: tiny_llama().build(),
    ],
)
def test_memory_stays_below_the_file_and_a_spare(make):
    data = make()
    peak = peak_bytes(lambda: outcome(data))
    assert peak <= len(data) + SPARE_BYTES, f"{peak} bytes for a file of {len(data)}"


def test_the_memory_check_sees_an_allocation():
    assert peak_bytes(lambda: bytes(SPARE_BYTES + 1)) > SPARE_BYTES
