# SPDX-License-Identifier: Apache-2.0
"""How a request stands among the others: ``priority``, ``service_tier``, ``user``, ``cache_salt``.

OpenAI's tiers are octavo's classes under other names; ``service_class`` gives a class by its own.
"""

from __future__ import annotations

from octavo.server.errors import shown
from octavo.server.openai.schemas import GenerationRequest
from octavo.types.errors import InvalidRequest
from octavo.types.request import ServiceClass, Standing

CLASS_OF_TIER = {
    "auto": ServiceClass.STANDARD,
    "default": ServiceClass.STANDARD,
    "scale": ServiceClass.STANDARD,
    "flex": ServiceClass.BATCH,
    "priority": ServiceClass.INTERACTIVE,
}
TIER_OF_CLASS = {
    ServiceClass.STANDARD: "default",
    ServiceClass.BATCH: "flex",
    ServiceClass.INTERACTIVE: "priority",
}


def standing(request: GenerationRequest) -> Standing:
    """Raises ``InvalidRequest``."""
    tier, name = request.service_tier, request.service_class
    if tier is not None and tier not in CLASS_OF_TIER:
        message = f"service_tier must be one of {', '.join(CLASS_OF_TIER)}; got {shown(tier)}"
        raise InvalidRequest(message, param="service_tier")
    service_class = ServiceClass.STANDARD if tier is None else CLASS_OF_TIER[tier]
    if name is not None:
        by_name = Standing(service_class=name).service_class  # type: ignore[arg-type]
        if tier not in (None, "auto") and by_name is not service_class:
            message = f"service_class {name} and service_tier {tier} disagree; give one"
            raise InvalidRequest(message, param="service_class")
        service_class = by_name
    if request.cache_salt == "":  # a client whose salt is missing must not share with everybody
        raise InvalidRequest("cache_salt must not be empty; leave it out", param="cache_salt")
    return Standing(
        priority=request.priority or 0,
        service_class=service_class,
        user=request.user or "",
        cache_salt=request.cache_salt or "",
    )


def tier_served(request: GenerationRequest) -> dict[str, object]:
    """What an answer says of its tier; nothing when the request did not."""
    if request.service_tier is None:
        return {}
    return {"service_tier": TIER_OF_CLASS[standing(request).service_class]}
