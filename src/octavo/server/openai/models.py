# SPDX-License-Identifier: Apache-2.0
"""GET /v1/models and /v1/models/{name}."""

from __future__ import annotations

from octavo.server.errors import model_not_found
from octavo.server.openai.answer import Service


def list_models(service: Service) -> dict[str, object]:
    return {"object": "list", "data": [_card(name, service) for name in service.model_names]}


def get_model(name: str, service: Service) -> dict[str, object]:
    """Raises ``ApiError`` 404. Names may hold slashes."""
    if name not in service.model_names:
        raise model_not_found(name)
    return _card(name, service)


def _card(name: str, service: Service) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "octavo",
        "root": service.model_names[0],
        "parent": None,
        "max_model_len": service.engine.admission.limits.max_model_len,
    }
