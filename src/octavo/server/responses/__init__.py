# SPDX-License-Identifier: Apache-2.0
"""POST /v1/responses."""
