# SPDX-License-Identifier: Apache-2.0
"""The real huggingface-hub client against a hub of a few lines on this machine."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from octavo.hub.hugging_face import HuggingFace
from octavo.hub.names import HubName
from octavo.types.errors import ModelNotFound

COMMIT = "0" * 39 + "1"
FILES = {"README.md": b"# tiny", "tiny-Q4_0.gguf": b"GGUF four", "tiny-Q8_0.gguf": b"GGUF eight"}


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        self.server.paths.append(self.path)
        path = self.path.split("?")[0]
        name = path.rpartition("/")[2]
        if path.startswith("/org/tiny/resolve/") and name in FILES:
            self._send(200, FILES[name], with_body, {"X-Repo-Commit": COMMIT, "ETag": f'"{name}"'})
        elif path.startswith("/api/models/org/tiny/tree/"):
            listing = [
                {"type": "file", "path": name, "size": len(data), "oid": name}
                for name, data in FILES.items()
            ]
            self._send(200, json.dumps(listing).encode(), with_body, {})
        elif path.startswith("/api/models/org/tiny"):
            siblings = [{"rfilename": name} for name in FILES]
            body = {"id": "org/tiny", "sha": COMMIT, "siblings": siblings}
            self._send(200, json.dumps(body).encode(), with_body, {})
        else:
            code = {"X-Error-Code": "GatedRepo" if "gated" in path else "RepoNotFound"}
            self._send(403 if "gated" in path else 404, b"{}", with_body, code)

    def _send(self, status: int, body: bytes, with_body: bool, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.paths = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def client(server, tmp_path):
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    return HuggingFace(endpoint=endpoint, cache_dir=tmp_path)


def test_a_quantisation_is_downloaded_once_and_then_found_without_the_network(hub, tmp_path):
    found = client(hub, tmp_path).fetch(HubName("org/tiny", "Q8_0"))
    assert found.read_bytes() == FILES["tiny-Q8_0.gguf"]
    hub.paths.clear()
    assert client(hub, tmp_path).fetch(HubName("org/tiny", "Q8_0")) == found
    assert client(hub, tmp_path).fetch(HubName("org/tiny", "tiny-Q8_0.gguf")) == found
    assert hub.paths == []
    other = client(hub, tmp_path).fetch(HubName("org/tiny", "Q4_0"))
    assert other.read_bytes() == FILES["tiny-Q4_0.gguf"]


def test_a_repository_with_several_files_lists_them(hub, tmp_path):
    with pytest.raises(ModelNotFound, match=r"several .*tiny-Q4_0\.gguf, tiny-Q8_0\.gguf"):
        client(hub, tmp_path).fetch(HubName("org/tiny", None))


def test_a_repository_that_is_not_there_and_one_that_is_gated(hub, tmp_path):
    with pytest.raises(ModelNotFound, match=r"no model 'org/other'.*HF_TOKEN"):
        client(hub, tmp_path).fetch(HubName("org/other", None))
    with pytest.raises(ModelNotFound, match="accept its terms"):
        client(hub, tmp_path).fetch(HubName("org/gated", None))
