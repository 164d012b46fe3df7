"""A small OpenID provider: its description, its keys, and tokens that it signs, right ones and wrong ones."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar


def text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*arguments: object, data: bytes | None = None) -> bytes:
    return subprocess.run(["openssl", *map(str, arguments)], input=data, capture_output=True, check=True).stdout


class Key:
    """A pair of keys in a file, for one algorithm."""

    KINDS: ClassVar[dict[str, list[str]]] = {
        "RS256": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
        "ES256": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
        "EdDSA": ["-algorithm", "ED25519"],
    }

    def __init__(self, directory: Path, algorithm: str) -> None:
        self.algorithm = algorithm
        self.path = directory / f"{algorithm}-{len(list(directory.iterdir()))}.pem"
        openssl("genpkey", *self.KINDS[algorithm], "-out", self.path)

    def public_pem(self) -> bytes:
        return openssl("pkey", "-in", self.path, "-pubout")

    def public(self, kid: str) -> dict[str, str]:
        """The key as a provider publishes it (RFC 7517). The end of the DER form is the point, or the key itself."""
        common = {"kid": kid, "use": "sig"}
        if self.algorithm == "RS256":
            modulus = openssl("rsa", "-in", self.path, "-noout", "-modulus").decode().strip().split("=")[1]
            return {**common, "kty": "RSA", "n": text_of(bytes.fromhex(modulus)), "e": "AQAB"}
        der = openssl("pkey", "-in", self.path, "-pubout", "-outform", "DER")
        if self.algorithm == "ES256":
            return {**common, "kty": "EC", "crv": "P-256", "x": text_of(der[-64:-32]), "y": text_of(der[-32:])}
        return {**common, "kty": "OKP", "crv": "Ed25519", "x": text_of(der[-32:])}

    def sign(self, data: bytes) -> bytes:
        if self.algorithm == "EdDSA":
            message = self.path.with_suffix(".message")
            message.write_bytes(data)
            return openssl("pkeyutl", "-sign", "-inkey", self.path, "-rawin", "-in", message)
        signature = openssl("dgst", "-sha256", "-sign", self.path, data=data)
        return both_numbers(signature) if self.algorithm == "ES256" else signature


def both_numbers(der: bytes) -> bytes:
    """The two numbers of a signature one after the other (RFC 7518, section 3.4), of the sequence of two integers that it is."""
    first_length = der[3]
    first, second = der[4 : 4 + first_length], der[6 + first_length :]
    return b"".join(int.from_bytes(number, "big").to_bytes(32, "big") for number in (first, second))


def signed(key: Key | bytes | None, header: dict[str, object], claims: dict[str, object]) -> str:
    """A token, signed with whatever key that is: with bytes as with a secret that both know, with None not at all."""
    message = ".".join(text_of(json.dumps(part).encode()) for part in (header, claims))
    data = message.encode()
    if key is None:
        return message + "."
    signature = hmac.new(key, data, hashlib.sha256).digest() if isinstance(key, bytes) else key.sign(data)
    return f"{message}.{text_of(signature)}"


class IdentityProvider:
    """A provider at a port of this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.keys: dict[str, Key] = {}
        self.asked: list[str] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802
                provider.asked.append(self.path)
                documents: dict[str, object] = {
                    "/.well-known/openid-configuration": {"issuer": provider.issuer, "jwks_uri": f"{provider.issuer}/keys"},
                    "/keys": {"keys": [{"kty": "what", "kid": "unknown kind"}, *(key.public(kid) for kid, key in list(provider.keys.items()))]},
                }
                found = documents.get(self.path)
                body = json.dumps(found).encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"

    def new_key(self, algorithm: str = "RS256") -> Key:
        """A pair of keys that nobody knows yet."""
        return Key(self.directory, algorithm)

    def claims(self, **changes: object) -> dict[str, object]:
        """Those of a token for Ann that is right, with changes; None takes a claim away."""
        now = int(time.time())
        claims: dict[str, object] = {"iss": self.issuer, "aud": "meridian", "exp": now + 600, "iat": now, "preferred_username": "ann", **changes}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, kid: str = "first", algorithm: str = "RS256", **changes: object) -> str:
        """A token that the key of this name signs."""
        return signed(self.keys[kid], {"alg": algorithm, "kid": kid, "typ": "JWT"}, self.claims(**changes))


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """A provider for as long as it is needed."""
    with TemporaryDirectory() as directory:
        provider = IdentityProvider(Path(directory))
        provider.keys["first"] = provider.new_key()
        thread = threading.Thread(target=provider.server.serve_forever)
        thread.start()
        try:
            yield provider
        finally:
            provider.server.shutdown()
            thread.join()
            provider.server.server_close()
