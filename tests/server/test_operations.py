# SPDX-License-Identifier: Apache-2.0
"""Certificates, web pages, header limits and the settings themselves, over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from fastapi import FastAPI
from serverkit import MODEL, ReciteEngine, connect, make_app, wait_until

from octavo.server.config import ServerConfig
from octavo.server.keys import Keyring
from octavo.server.operations import Operations
from octavo.server.rate_limits import Limits
from octavo.server.run import bind, make_server, url_of
from octavo.types.errors import InvalidConfig

TLS = Path(__file__).parents[1] / "data" / "server" / "tls"
CERTIFICATE = {"ssl_certfile": str(TLS / "cert.pem"), "ssl_keyfile": str(TLS / "key.pem")}
PAGE = "https://page.example"
COMPLETIONS = "/v1/completions"


@contextlib.contextmanager
def running(app: FastAPI, config: ServerConfig) -> Iterator[socket.socket]:
    """A real server with these settings, in a thread."""
    with bind(port=0) as sock:
        server = make_server(app, drain_s=1.0, config=config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])))
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield sock
        finally:
            server.should_exit = True
            thread.join(timeout=20)
            assert not thread.is_alive()


def test_https_is_spoken_with_the_certificate_and_nothing_else():
    config = ServerConfig(**CERTIFICATE)
    trusting = ssl.create_default_context(cafile=str(TLS / "cert.pem"))
    with running(make_app(), config) as sock:
        url = url_of(sock, "https")
        with httpx.Client(verify=trusting, trust_env=False) as client:
            body = {"prompt": "Hi", "max_tokens": 3}
            assert client.post(f"{url}{COMPLETIONS}", json=body).status_code == 200
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            httpx.get(f"{url}/health", trust_env=False)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url_of(sock)}/health", trust_env=False)


@pytest.mark.parametrize(
    ("cert", "key", "message"),
    [
        ("/no/such.pem", CERTIFICATE["ssl_keyfile"], "No such file"),
        (CERTIFICATE["ssl_certfile"], str(TLS / "other-key.pem"), "mismatch"),
        (str(Path(__file__)), CERTIFICATE["ssl_keyfile"], "cannot use the certificate"),
    ],
)
def test_a_bad_certificate_is_a_clear_error(cert, key, message):
    config = ServerConfig(ssl_certfile=cert, ssl_keyfile=key)
    with pytest.raises(InvalidConfig, match=message):
        Operations.prepare(config)


def test_a_certificate_needs_its_key():
    Operations.prepare(ServerConfig(**CERTIFICATE))
    for name in CERTIFICATE:
        with pytest.raises(InvalidConfig, match="belong together"):
            ServerConfig(**{name: CERTIFICATE[name]})


@pytest.mark.parametrize(("num_bytes", "status"), [(2000, 200), (5000, 431)])
def test_headers_have_a_limit(num_bytes, status):
    config = ServerConfig(max_header_bytes=4096)
    with running(make_app(around=Operations(config=config)), config) as sock:
        headers = {"x-large": "a" * num_bytes}
        response = httpx.get(f"{url_of(sock)}/v1/models", headers=headers, trust_env=False)
    assert response.status_code == status


def test_headers_without_end_are_not_read_to_their_end():
    config = ServerConfig(max_header_bytes=4096)
    with running(make_app(), config) as sock:
        with socket.create_connection(sock.getsockname()[:2], timeout=20) as client:
            client.sendall(b"GET / HTTP/1.1\r\nx-large: " + b"a" * 5000)
            assert client.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_large_body_is_no_large_header():
    config = ServerConfig(max_header_bytes=1024)
    with running(make_app(), config) as sock:
        body = {"prompt": [65] * 3000, "max_tokens": 1}
        response = httpx.post(f"{url_of(sock)}{COMPLETIONS}", json=body, trust_env=False)
    assert response.status_code == 200


@pytest.mark.parametrize("status", [401, 429])
def test_who_is_not_let_in_hears_why_however_much_they_send(status):
    keyring = Keyring.collect(["sk-1"], limits=Limits(requests_per_minute=1))
    with running(make_app(around=Operations(keyring=keyring)), ServerConfig()) as sock:
        url = f"{url_of(sock)}{COMPLETIONS}"
        headers = {"content-type": "application/json", "x-api-key": "sk-1"}
        if status == 401:
            headers["x-api-key"] = "sk-2"
        else:
            httpx.post(url, json={"prompt": "Hi"}, headers=headers, trust_env=False)
        # A client that, unlike httpx, does not look for an answer before it has sent all.
        connection = http.client.HTTPConnection(*sock.getsockname()[:2], timeout=20)
        with contextlib.closing(connection):
            connection.request("POST", COMPLETIONS, b" " * (7 * 2**20), headers)
            assert connection.getresponse().status == status


def test_the_official_client_knows_the_refusals():
    keyring = Keyring.collect(["sk-1"], limits=Limits(requests_per_minute=1))
    with running(make_app(around=Operations(keyring=keyring)), ServerConfig()) as sock:

        def ask(key: str) -> str:
            with openai.OpenAI(
                base_url=f"{url_of(sock)}/v1",
                api_key=key,
                max_retries=0,
                http_client=httpx.Client(trust_env=False),
            ) as client:
                return client.completions.create(model=MODEL, prompt="Hi").choices[0].text

        assert ask("sk-1")
        with pytest.raises(openai.RateLimitError, match="has used up its 1 requests") as limited:
            ask("sk-1")
        assert limited.value.code == "rate_limit_exceeded"
        with pytest.raises(openai.AuthenticationError) as unknown:
            ask("sk-2")
        assert unknown.value.code == "invalid_api_key"


def paged(*origins: str) -> FastAPI:
    config = ServerConfig(cors_origins=origins)
    return make_app(around=Operations(config=config, keyring=Keyring.collect(["sk-1"])))


ASKS = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}


@pytest.mark.anyio
async def test_pages_are_kept_out_by_default():
    async with connect(make_app()) as client:
        asked = await client.options(COMPLETIONS, headers=ASKS)
        got = await client.get("/v1/models", headers={"origin": PAGE})
    assert asked.status_code == 405
    assert not [name for name in (*asked.headers, *got.headers) if "access-control" in name]


@pytest.mark.anyio
@pytest.mark.parametrize("origin", [PAGE, "*"])
async def test_pages_from_a_named_origin_are_let_in(origin):
    async with connect(paged(origin)) as client:
        asked = await client.options(COMPLETIONS, headers=ASKS)  # a browser asks without a key
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == origin
        refused = await client.get("/v1/models", headers={"origin": PAGE})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == origin
        headers = {"origin": PAGE, "authorization": "Bearer sk-1"}
        got = await client.get("/v1/models", headers=headers)
    assert got.status_code == 200
    assert "retry-after" in got.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in got.headers


@pytest.mark.anyio
async def test_pages_from_elsewhere_are_not():
    async with connect(paged("https://other.example")) as client:
        asked = await client.options(COMPLETIONS, headers=ASKS)
        got = await client.get("/v1/models", headers={"origin": PAGE, "x-api-key": "sk-1"})
    assert asked.status_code == 400
    assert "access-control-allow-origin" not in got.headers


@pytest.mark.parametrize(
    "origin", ["page.example", "https://page.example/", "https://", "ftp://a", "null", ""]
)
def test_what_no_browser_sends_is_no_origin(origin):
    with pytest.raises(InvalidConfig, match="cors_origins must be"):
        ServerConfig(cors_origins=(origin,))


def test_limits_without_keys_are_a_mistake():
    config = ServerConfig(requests_per_minute=5)
    with pytest.raises(InvalidConfig, match="limits are those of API keys"):
        Operations.prepare(config)
    Operations.prepare(config, "sk-from-the-environment")


def test_a_configuration_does_not_show_its_keys():
    assert "sk-1" not in repr(ServerConfig(api_key=("sk-1",)))


@pytest.mark.anyio
async def test_an_observer_that_fails_fails_no_request(caplog):
    class Odd:
        def record(self, exchange, headers, *, model_name):
            raise RuntimeError("odd")

    around = Operations(tracing=Odd())  # type: ignore[arg-type]
    engine = ReciteEngine()
    async with connect(make_app(engine, around=around)) as client:
        response = await client.post(COMPLETIONS, json={"prompt": "Hi"})
    assert response.status_code == 200
    assert "cannot record request" in caplog.text
