# SPDX-License-Identifier: Apache-2.0
"""The golden tests can fail: each plants one error of the kind that they are there to catch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from test_golden import PERPLEXITY_TOLERANCE, disagreements, perplexity

from modelkit import settings
from octavo.assemble import Assembled, start_engine
from octavo.formats.gguf import GgufFile
from octavo.models import registry
from octavo.types.decoder_spec import DecoderSpec, RopePairing

pytestmark = pytest.mark.model

OTHER_PAIRING = {
    RopePairing.HALVES: RopePairing.INTERLEAVED,
    RopePairing.INTERLEAVED: RopePairing.HALVES,
}
MODELS = ("smollm2", "gemma3")


def swap_rope_pairing(spec: DecoderSpec) -> DecoderSpec:
    ropes = tuple(replace(rope, pairing=OTHER_PAIRING[rope.pairing]) for rope in spec.ropes)
    return replace(spec, ropes=ropes)


def scale_attention(spec: DecoderSpec) -> DecoderSpec:
    """Off by a fifth, as when the square root of another dimension is taken."""
    layers = tuple(replace(layer, attn_scale=1.2 * layer.attn_scale) for layer in spec.layers)
    return replace(spec, layers=layers)


def caught(assembled: Assembled, golden: dict[str, object]) -> tuple[bool, bool]:
    """Which of the two oracles fails: (tokens, perplexity)."""
    ratio = perplexity(assembled, golden) / float(str(golden["ppl"]))
    return bool(disagreements(assembled, golden)), abs(ratio - 1) >= PERPLEXITY_TOLERANCE


@pytest.mark.parametrize("plant", [swap_rope_pairing, scale_attention])
@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_specification_fails_both_oracles(
    request: pytest.FixtureRequest,
    data_dir: Path,
    name: str,
    plant: Callable[[DecoderSpec], DecoderSpec],
):
    golden = json.loads((data_dir / "golden" / f"{name}.json").read_text())
    file = GgufFile.open(request.getfixturevalue(f"{name}_path"))
    spec, _ = registry.spec_for(file)
    assembled = start_engine(file, settings(), model_name=name, spec=plant(spec))
    try:
        assert caught(assembled, golden) == (True, True)
    finally:
        assembled.close()


def test_one_tensor_with_wrong_scales_fails(smollm2_path: Path, data_dir: Path):
    """One of 272 tensors: every block scale of a value matrix doubled in a copy of the file."""
    golden = json.loads((data_dir / "golden" / "smollm2.json").read_text())
    data = bytearray(smollm2_path.read_bytes())
    info = GgufFile("probe", memoryview(data)).tensors["blk.10.attn_v.weight"]
    block_bytes = 20  # Q4_1: scale and minimum, float16 each, then 16 bytes of nibbles
    for block in range(info.offset, info.offset + info.num_bytes, block_bytes):
        for exponent in (block + 1, block + 3):  # the high bytes; + 4 adds one to the exponent
            data[exponent] += 4
    file = GgufFile("planted", memoryview(data))
    assembled = start_engine(file, settings(), model_name="planted")
    try:
        assert any(caught(assembled, golden))
    finally:
        assembled.close()
