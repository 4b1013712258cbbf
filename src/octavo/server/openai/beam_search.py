# SPDX-License-Identifier: Apache-2.0
"""The fields that ask for a beam search: ``use_beam_search``, ``length_penalty``,
``early_stopping``.

``n`` answers are given, the best first. ``best_of``, where it is given, is how many the search
keeps at each step; otherwise ``n`` is.
"""

from __future__ import annotations

from octavo.server.openai.schemas import GenerationRequest
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import InvalidRequest
from octavo.types.sampling_params import SamplingParams

_IDLE = {"length_penalty": 1, "early_stopping": False}


def check(request: GenerationRequest) -> None:
    """Raise ``InvalidRequest`` where a field of the request itself does not go with a search, or
    goes with nothing else."""
    if not request.use_beam_search:
        for name, idle in _IDLE.items():
            if getattr(request, name) not in (None, idle):
                raise InvalidRequest(f"{name} needs use_beam_search to be true", param=name)
        return
    if request.stream:
        message = "stream must be false in a beam search: its answers are known at the end"
        raise InvalidRequest(message, param="stream")
    if request.temperature not in (None, 0, 1):
        message = f"temperature has no effect on a beam search, got {request.temperature!r}"
        raise InvalidRequest(f"{message}; leave it out", param="temperature")


def beam_search_params(
    request: GenerationRequest, params: SamplingParams
) -> BeamSearchParams | None:
    """The search that a request asks for, whose other fields are in ``params``; None if it asks for
    samples. Raises ``InvalidRequest``, also for what a search would not heed."""
    if not request.use_beam_search:
        return None
    try:
        return BeamSearchParams.like(
            params,
            length_penalty=1.0 if request.length_penalty is None else request.length_penalty,
            early_stopping=False if request.early_stopping is None else request.early_stopping,
        )
    except InvalidRequest as error:
        name = own_names(request).get(error.param or "")
        if name is None:
            raise
        raise InvalidRequest(str(error).replace(str(error.param), name, 1), param=name) from None


def own_names(request: GenerationRequest) -> dict[str, str]:
    """What a request calls some fields of ``BeamSearchParams``."""
    return {"beam_width": "n" if request.best_of is None else "best_of"}
