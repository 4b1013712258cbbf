# SPDX-License-Identifier: Apache-2.0
"""Model names to files: one ``resolve`` for every front end.

A name is an alias (``smollm2-135m``), a ``.gguf`` file, a directory, or a hub id
(``org/name``, ``org/name:file.gguf``, ``org/name:Q4_K_M``). What has to be downloaded is
downloaded once, verified, and found again by the next call without a network.
"""

from octavo.hub.aliases import ALIASES, DEFAULT_MODEL, Alias, Part
from octavo.hub.cache import CachedModel, cache_dir, cached_models
from octavo.hub.resolver import ResolvedModel, Resolver, resolve

__all__ = [
    "ALIASES",
    "DEFAULT_MODEL",
    "Alias",
    "CachedModel",
    "Part",
    "ResolvedModel",
    "Resolver",
    "cache_dir",
    "cached_models",
    "resolve",
]
