"""A Hugging Face hub on the loopback, for tests: dataset repositories in memory, spoken to by the real huggingface_hub.

It knows the requests that pushing and downloading make: create a repository or a branch, list a tree, say how a file is to be
uploaded (always inside the commit), commit, and give a file. A commit is a digest of its files; every one is kept.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Files = dict[str, bytes]
TOKEN = "hf_loopback"  # who has it may write


class Hub:
    """``repos[name][revision]`` are files; a revision is a branch or a commit."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, Files]] = {}
        self.private: set[str] = set()
        self.messages: list[str] = []
        self.given: list[str] = []  # paths of files that were downloaded
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body in one packet

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self._send(*hub.post(urlsplit(self.path).path, body, self.headers.get("authorization", "")))

            def do_GET(self) -> None:
                self._send(*hub.get(unquote(urlsplit(self.path).path), self.headers.get("authorization", "")))

            def do_HEAD(self) -> None:
                self.do_GET()

            def _send(self, status: int, found: Any, headers: dict[str, str]) -> None:
                content = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def post(self, path: str, body: bytes, authorization: str) -> tuple[int, Any, dict[str, str]]:
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}, {}
        if authorization != f"Bearer {TOKEN}":
            return 401, {"error": "Invalid username or password."}, {}
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            fresh = name not in self.repos
            if fresh:
                self.repos[name] = {"main": {}}
                if asked.get("private") or asked.get("visibility") == "private":
                    self.private.add(name)
            return (200 if fresh else 409), {"url": f"{self.url}/datasets/{name}"}, {}
        owner, name, verb, revision = path.removeprefix("/api/datasets/").split("/", 3)
        repo = self.repos[f"{owner}/{name}"]
        if verb == "branch":
            fresh = revision not in repo
            repo.setdefault(revision, dict(repo["main"]))
            return (200 if fresh else 409), {}, {}
        if verb == "preupload":
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            return 200, {"files": files}, {}
        assert verb == "commit"
        oid = self._commit(repo, revision, [json.loads(line) for line in body.splitlines()])
        return 200, {"commitUrl": f"{self.url}/datasets/{owner}/{name}/commit/{oid}", "commitOid": oid}, {}

    def _commit(self, repo: dict[str, Files], revision: str, lines: list[dict[str, Any]]) -> str:
        files = dict(repo[revision])
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.messages.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        repo[revision] = files
        repo[commit_of(files)] = files
        return commit_of(files)

    def get(self, path: str, authorization: str) -> tuple[int, Any, dict[str, str]]:
        missing = 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
        api = path.startswith("/api/")
        owner, name, *asked = path.removeprefix("/api").removeprefix("/datasets/").split("/", 3)
        verb, rest = asked or ("revision", "main")
        repo = self.repos.get(f"{owner}/{name}")
        if repo is None or (f"{owner}/{name}" in self.private and authorization != f"Bearer {TOKEN}"):
            return missing
        revision, _, file = (rest, "", "") if api else rest.partition("/")
        if revision not in repo:
            return 404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"}
        files = repo[revision]
        if verb == "revision":
            return 200, {"id": f"{owner}/{name}", "sha": commit_of(files), "siblings": []}, {}
        if verb == "tree":
            return (
                200,
                [{"type": "file", "path": one, "size": len(files[one]), "oid": _blob(files[one])} for one in files],
                {},
            )
        assert verb == "resolve"
        self.given.append(file)
        return 200, files[file], {"ETag": f'"{_blob(files[file])}"', "X-Repo-Commit": commit_of(files)}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def commit_of(files: Files) -> str:
    return hashlib.sha1(b"".join(name.encode() + _blob(files[name]).encode() for name in sorted(files))).hexdigest()


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
