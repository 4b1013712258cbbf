# SPDX-License-Identifier: Apache-2.0
"""Offline use: ``LLM(model).generate(prompts)``, with vLLM's names."""

from octavo.llm.offline import LLM, Assembled

__all__ = ["LLM", "Assembled"]
