# SPDX-License-Identifier: Apache-2.0
"""Asking a running server, for the commands that look at one."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from typing import Annotated, Any

import typer

from octavo.types import env
from octavo.types.errors import OctavoError

URL = "http://127.0.0.1:8000"
TIMEOUT_S = 30.0  # the answer comes after the step that runs, and that may be a long prefill
LOOPBACK = ("localhost", "127.0.0.1", "::1")

Url = Annotated[
    str,
    typer.Option(
        "--url", "-u", metavar="URL", help="The server to ask, as `octavo serve` reports it."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the server gives it.")]


class NoAnswer(OctavoError):
    """A server cannot be asked, or refuses; the message says what to do."""


def fetch(url: str, path: str) -> Any:
    """The JSON document at a path of the server. Raises ``NoAnswer``."""
    base = url if "://" in url else f"http://{url}"
    if not base.startswith(("http://", "https://")):
        raise NoAnswer(f"{url!r} is no address of a server; write {URL}")
    try:
        with _opener(base).open(_request(base.rstrip("/") + path), timeout=TIMEOUT_S) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            raise NoAnswer(_refusal(base, path, error)) from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        hint = "start one with `octavo serve`, or name another with --url"
        raise NoAnswer(f"no server answers at {base}: {reason}; {hint}") from None
    except ValueError:
        raise NoAnswer(f"what answers at {base} is no octavo server") from None


def _request(url: str) -> urllib.request.Request:
    """With the key of the environment; a redirect does not get it."""
    request = urllib.request.Request(url)
    key = env.api_key()
    if key is not None:
        request.add_unredirected_header("Authorization", f"Bearer {key}")
    return request


def _opener(url: str) -> urllib.request.OpenerDirector:
    """A proxy cannot reach this machine's own loopback, so it is not asked to."""
    if urllib.parse.urlsplit(url).hostname in LOOPBACK:
        return urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener()


def _refusal(url: str, path: str, error: urllib.error.HTTPError) -> str:
    try:
        message = str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"the server at {url} answers {path} with status {error.code}; is it octavo?"
    if error.code == 401:
        return f"the server at {url} wants an API key; set OCTAVO_API_KEY"
    if error.code == 404 and message.startswith("there is no route"):
        return f"the server at {url} keeps this to itself; start it with --debug-routes"
    return message


def quote(text: str) -> str:
    """As one segment of a path."""
    return urllib.parse.quote(text, safe="")
