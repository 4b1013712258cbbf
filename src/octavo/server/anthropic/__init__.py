# SPDX-License-Identifier: Apache-2.0
"""POST /v1/messages, in the wire format of Anthropic's API."""
