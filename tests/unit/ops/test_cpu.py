# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct

import pytest

from octavo.ops import cpu


def test_scalar_is_always_there_and_always_last() -> None:
    assert cpu.compiled_kernels()[-1] == "scalar"
    assert cpu.runnable_kernels()[-1] == "scalar"
    assert set(cpu.runnable_kernels()) <= set(cpu.compiled_kernels())


def test_the_best_table_is_taken_and_any_can_be_forced() -> None:
    assert cpu.selected_kernel() == cpu.runnable_kernels()[0]
    for name in cpu.runnable_kernels():
        assert cpu.selected_kernel(name) == name


def test_an_unknown_table_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="scalar"):
        cpu.selected_kernel("axv2")


def test_features_name_what_the_best_table_needs() -> None:
    if cpu.selected_kernel() == "avx2":
        assert {"avx2", "fma", "f16c"} <= set(cpu.cpu_features())


def test_dequantize_row_checks_its_length() -> None:
    row = struct.pack("<e32b", 0.5, *range(-16, 16))
    values = cpu.dequantize_row(8, 32, memoryview(row))
    assert values == [0.5 * code for code in range(-16, 16)]
    with pytest.raises(ValueError, match="does not fit 33 bytes"):
        cpu.dequantize_row(8, 32, memoryview(row[:-1]))
    with pytest.raises(ValueError, match="a row of 16 columns"):
        cpu.dequantize_row(8, 16, memoryview(row))
    assert cpu.is_supported_type(8)
    assert not cpu.is_supported_type(4)
