# SPDX-License-Identifier: Apache-2.0
"""Facts about this machine: how many threads and how much memory a process here may really use.

Standard library only. Every reader takes the root of the file system it reads, so that tests can
lay out a machine in a folder.
"""

from octavo.machine.cpus import CpuBudget, cpu_budget, cpu_model
from octavo.machine.memory import MemoryBudget, memory_budget

__all__ = ["CpuBudget", "MemoryBudget", "cpu_budget", "cpu_model", "memory_budget"]
