"""An object store on this machine: moto's S3, which verifies every signature by Amazon's own library, behind a proxy that makes faults."""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import moto.settings
from moto.core.authorization import ActionAuthenticatorMixin
from moto.core.base_backend import BackendDict
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)

HERE = "127.0.0.1"
REGION = "us-east-1"
# What the machine may have settings of its own in.
SETTINGS = [
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_MAX_ATTEMPTS",
]


@dataclass
class Request:
    """What a client asks of the store, and what it gets."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int = 0
    answer: dict[str, str] = field(default_factory=dict)
    content: bytes = b""

    @property
    def key(self) -> str:
        """The name of the object, with its bucket."""
        return self.path.partition("?")[0].lstrip("/")


@dataclass
class Fault:
    """What happens to an answer instead of being sent as it is."""

    # An error in the place of the answer; the store has not seen the request.
    status: int = 0
    code: str = ""
    region: str = ""
    # So many bytes of the body are sent, and then the connection is closed.
    cut_after: int | None = None
    # The same, but the answer says that these are all.
    shortened_to: int | None = None
    # A bit of the byte at this place of the body is another.
    flipped_at: int | None = None
    # The connection is closed without an answer, after the store has done what was asked.
    is_lost: bool = False
    # Nothing is sent before this is set.
    waits_for: threading.Event | None = None
    # Headers of the answer that are others.
    headers: dict[str, str] = field(default_factory=dict)
    # What is called when the answer has been sent.
    then: Callable[[], None] | None = None


def no_faults(_request: Request) -> Fault | None:
    return None


class Proxy:
    """Passes requests on to the store, and makes the faults that it is told to make."""

    def __init__(self, port: int, certificates: Path | None = None) -> None:
        self.requests: list[Request] = []
        self.fault: Callable[[Request], Fault | None] = no_faults
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                proxy.answer(self, port)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing is shown."""

        self.server = ThreadingHTTPServer((HERE, 0), Handler)
        self.server.daemon_threads = True
        if certificates:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return self.server.server_address[1]

    def answer(self, handler: BaseHTTPRequestHandler, port: int) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        headers = dict(handler.headers.items())
        request = Request(handler.command, handler.path, headers, body)
        said = {name.lower(): value for name, value in headers.items()}.get("x-amz-content-sha256")
        assert said is None or said == hashlib.sha256(body).hexdigest()
        self.requests.append(request)
        fault = self.fault(request) or Fault()
        if fault.waits_for:
            fault.waits_for.wait()
        if fault.status:
            self.refuse(handler, request, fault)
            return
        connection = http.client.HTTPConnection(HERE, port, timeout=60)
        connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        request.status, request.content = answer.status, answer.read()
        request.answer = dict(answer.getheaders())
        connection.close()
        try:
            self.send(handler, request, fault)
        except OSError:
            # The client was killed.
            handler.close_connection = True
        if fault.then:
            fault.then()

    def refuse(self, handler: BaseHTTPRequestHandler, request: Request, fault: Fault) -> None:
        request.status = fault.status
        text = f"<Error><Code>{fault.code}</Code><Message>as the test says</Message></Error>".encode()
        handler.send_response_only(fault.status)
        if fault.region:
            handler.send_header("x-amz-bucket-region", fault.region)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        if request.method != "HEAD":
            handler.wfile.write(text)

    def send(self, handler: BaseHTTPRequestHandler, request: Request, fault: Fault) -> None:
        if fault.is_lost:
            handler.close_connection = True
            return
        content = request.content
        if fault.flipped_at is not None and fault.flipped_at < len(content):
            flipped = bytearray(content)
            flipped[fault.flipped_at] ^= 1
            content = bytes(flipped)
        handler.send_response_only(request.status)
        dropped = {"transfer-encoding", "connection", *(name.lower() for name in fault.headers)}
        if fault.shortened_to is not None:
            content = content[: fault.shortened_to]
            dropped |= {"content-length"}
        for name, value in request.answer.items():
            if name.lower() not in dropped:
                handler.send_header(name, value)
        if request.method != "HEAD" and "content-length" not in {name.lower() for name in request.answer} - dropped:
            handler.send_header("Content-Length", str(len(content)))
        for name, value in fault.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if request.method == "HEAD":
            return
        if fault.cut_after is not None and fault.cut_after < len(content):
            handler.wfile.write(content[: fault.cut_after])
            handler.close_connection = True
            return
        handler.wfile.write(content)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Store:
    """A store with one bucket, and a user who may do everything in it."""

    BUCKET = "sky-survey"

    def __init__(self, certificates: Path) -> None:
        moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")
        self.server = ThreadedMotoServer(HERE, 0, verbose=False)
        self.server.start()
        self.port = self.server.get_host_and_port()[1]
        self.proxy = Proxy(self.port)
        self.encrypted = Proxy(self.port, certificates)
        self.admin = self.client("s3", "admin", "admin")
        self.admin.create_bucket(Bucket=self.BUCKET)
        self.key, self.secret = self.add_user("astronomer", "s3:*")
        self.reader = self.add_user("reader", "s3:GetObject", "s3:HeadObject", "s3:ListBucket")
        self.stranger = self.add_user("stranger", "s3:ListAllMyBuckets")
        # From here on every request is verified, and the store's own are, too.
        ActionAuthenticatorMixin.request_count = 0
        moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
        self.admin = self.client("s3", self.key, self.secret)

    def client(self, service: str, key: str, secret: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=f"http://{HERE}:{self.port}",
            region_name=REGION,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
        )

    def add_user(self, name: str, *actions: str) -> tuple[str, str]:
        iam = self.client("iam", "admin", "admin")
        iam.create_user(UserName=name)
        allowed = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        iam.put_user_policy(UserName=name, PolicyName="may", PolicyDocument=policy)
        made = iam.create_access_key(UserName=name)["AccessKey"]
        return made["AccessKeyId"], made["SecretAccessKey"]

    def environment(self, **others: str | None) -> dict[str, str]:
        """The environment of a call; nothing of the machine's own settings."""
        variables: dict[str, str | None] = {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": f"http://{HERE}:{self.proxy.port}",
            "HOME": "/nowhere",
            **dict.fromkeys(SETTINGS),
            **others,
        }
        return {name: value or "" for name, value in variables.items()}

    @contextmanager
    def without_signatures(self) -> Iterator[None]:
        """Everybody may do everything."""
        moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")
        yield
        ActionAuthenticatorMixin.request_count = 0
        moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = 0

    @contextmanager
    def faults(self, fault: Callable[[Request], Fault | None]) -> Iterator[None]:
        """Makes faults for a while."""
        self.proxy.fault = fault
        yield
        self.proxy.fault = no_faults

    def put(self, key: str, content: bytes | Path) -> str:
        """Writes an object; returns its URL."""
        body = content.read_bytes() if isinstance(content, Path) else content
        self.admin.put_object(Bucket=self.BUCKET, Key=key, Body=body)
        return f"s3://{self.BUCKET}/{key}"

    def get(self, key: str) -> bytes:
        content: bytes = self.admin.get_object(Bucket=self.BUCKET, Key=key)["Body"].read()
        return content

    def keys(self, prefix: str = "") -> set[str]:
        pages = self.admin.get_paginator("list_objects_v2").paginate(Bucket=self.BUCKET, Prefix=prefix)
        return {found["Key"] for page in pages for found in page.get("Contents", [])}

    def since(self, count: int, method: str = "") -> list[Request]:
        """What was asked since there were so many requests."""
        return [request for request in self.proxy.requests[count:] if method in ("", request.method)]

    def close(self) -> None:
        self.proxy.close()
        self.encrypted.close()
        self.server.stop()
        moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")
        # All stores of this process have their buckets and users in one place.
        BackendDict.reset()


@contextmanager
def object_store(certificates: Path) -> Iterator[Store]:
    store = Store(certificates)
    try:
        yield store
    finally:
        store.close()


def once_each(fault: Fault, matches: Callable[[Request], bool], times: int = 1) -> Callable[[Request], Fault | None]:
    """The fault, so many times for each different request that matches. One that reads on up to the same place is the same."""
    seen: dict[tuple[str, str, str], int] = {}
    guard = threading.Lock()

    def decide(request: Request) -> Fault | None:
        if not matches(request):
            return None
        what = (request.method, request.path, request.headers.get("range", "").rpartition("-")[2])
        with guard:
            seen[what] = seen.get(what, 0) + 1
            return fault if seen[what] <= times else None

    return decide
