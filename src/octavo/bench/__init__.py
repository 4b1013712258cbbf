# SPDX-License-Identifier: Apache-2.0
"""Load for a server or an engine, and what it took: ``octavo bench``, with vLLM's words."""
