"""Logging in over HTTP with a browser's cookie, and with tokens of an identity provider."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pymysql
import pytest
import pyvo
import requests

from identity_provider import IdentityProvider, identity_provider, signed
from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import load_stars_and_bands
from test_users import PASSWORD, must

OTHER_PASSWORD = "another one"


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: object) -> None:
        return None


OPENER = urllib.request.build_opener(NoRedirect)


def send(server: Server, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, str, Message]:
    """Status, body and headers of a request, which is not redirected."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(server.url(path), data=body, method=method, headers=named)
    try:
        with OPENER.open(request, timeout=60) as response:
            return response.status, response.read().decode(), response.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = load_stars_and_bands(meridian, tmp_path_factory.mktemp("logins"), 50)
    must(meridian, data, "add", "boss", "--admin", password=PASSWORD)
    for name in ("ann", "bob"):
        must(meridian, data, "add", name, password=PASSWORD)
    must(meridian, data, "group", "create", "survey")
    must(meridian, data, "group", "create", "other")
    must(meridian, data, "grant", "survey", "--read", "sky")
    return data


@pytest.fixture(scope="module")
def server(meridian: Meridian, data: Path, provider: IdentityProvider) -> Iterator[Server]:
    options = ["--oidc-issuer", provider.issuer, "--oidc-audience", "meridian", "--oidc-groups", "survey,none", "--oidc-groups-claim", "realm.roles"]
    with serving(meridian, data, *options) as server:
        yield server


def form(name: str, password: str) -> bytes:
    return f"user={name}&password={password}".encode()


def cookie_of(headers: Message) -> str:
    """The cookie that an answer gives, as a browser sends it back."""
    given = headers["Set-Cookie"]
    assert "HttpOnly" in given and "SameSite=Strict" in given and "Path=/" in given
    return str(given.split(";")[0])


def who(server: Server, **headers: str) -> str | None:
    status, text, _ = send(server, "/me", **headers)
    return json.loads(text)["user"] if status == 200 else None


# --- cookies --------------------------------------------------------------------------------------------------------------------------


def test_a_browser_logs_in_and_out(server: Server) -> None:
    status, page, headers = send(server, "/login")
    assert status == 200 and 'action="/login"' in page and headers["Cache-Control"] == "no-store"
    status, _, headers = send(server, "/login", "POST", form("ann", "p%3A+ss%27w0rd"), Accept="text/html,*/*")
    assert status == 303 and headers["Location"] == "/"
    cookie = cookie_of(headers)
    status, text, headers = send(server, "/me", Cookie=f"theme=dark; {cookie}")
    assert status == 200 and json.loads(text)["user"] == "ann"
    assert headers["X-VO-Authenticated"] == "ann" and "Cookie" in headers.get_all("Vary", [])
    # What the server keeps is no cookie, and another one is none.
    assert who(server, Cookie=cookie[:-1] + ("A" if cookie[-1] != "A" else "B")) is None
    # A header counts before a cookie, and a wrong one is never overlooked.
    assert send(server, "/me", Cookie=cookie, Authorization="Bearer mrd_wrong")[0] == 401
    status, _, headers = send(server, "/logout", "POST", b"", Cookie=cookie)
    assert status == 204 and "Max-Age=0" in headers["Set-Cookie"]
    assert who(server, Cookie=cookie) is None


def test_clients_of_the_virtual_observatory_find_the_login(meridian: Meridian, data: Path, server: Server) -> None:
    """AuthVO's challenge ivoa_cookie was missing: it names where a name and a password are exchanged for a cookie."""
    status, _, headers = send(server, "/tap/capabilities")
    challenges = headers.get_all("WWW-Authenticate", [])
    assert status == 401 and [challenge.split()[0] for challenge in challenges] == ["Basic", "Bearer", "ivoa_cookie"]
    parameters = dict(re.findall(r'(\w+)="([^"]*)"', challenges[2]))
    assert parameters == {"standard_id": "ivo://ivoa.net/sso#tls-with-password", "access_url": server.url("/login")}
    # As pyvo keeps the session of requests.
    session = requests.Session()
    wrong = session.post(parameters["access_url"], data={"username": "ann", "password": "wrong"}, timeout=60)
    assert wrong.status_code == 401 and "ivoa_cookie" in wrong.headers["WWW-Authenticate"] and not session.cookies
    answered = session.post(parameters["access_url"], data={"username": "ann", "password": PASSWORD}, timeout=60)
    assert answered.status_code == 200 and len(session.cookies) == 1
    must(meridian, data, "grant", "ann", "--read", "sky")
    try:
        service = pyvo.dal.TAPService(server.url("/tap"), session=session)
        assert service.search("SELECT COUNT(*) AS n FROM sky.Star")["n"][0] == 50
        assert "sky.Star" in service.tables.keys()
        job = service.run_async("SELECT TOP 3 id FROM sky.Star")
        assert len(job) == 3
    finally:
        must(meridian, data, "revoke", "ann", "--read", "sky")
    told = session.get(server.url("/tap/capabilities"), timeout=60)
    assert told.status_code == 200 and told.headers["X-VO-Authenticated"] == "ann" and "WWW-Authenticate" not in told.headers


@pytest.mark.parametrize(
    ("sent", "address"),
    [
        ({"Host": "127.0.0.1:8080"}, "http://127.0.0.1:8080/login"),
        ({"X-Forwarded-Proto": "https"}, None),
        ({"Host": "localhost"}, "http://localhost/login"),
    ],
)  # fmt: skip
def test_the_login_has_the_address_that_the_client_knows(server: Server, sent: dict[str, str], address: str | None) -> None:
    challenge = send(server, "/me", **sent)[2].get_all("WWW-Authenticate", [])[2]
    assert f'access_url="{address or server.url("/login").replace("http:", "https:")}"' in challenge


def test_wrong_passwords_and_tokens_begin_no_session(meridian: Meridian, data: Path, server: Server) -> None:
    for name, password in (("ann", "wrong"), ("nobody", PASSWORD), ("ann", "")):
        status, _, headers = send(server, "/login", "POST", form(name, password))
        assert status == 401 and "Set-Cookie" not in headers
    token = must(meridian, data, "token", "ann").strip()
    assert send(server, "/login", "POST", form("ann", token))[0] == 400
    assert send(server, "/login", "POST", b"user=ann")[0] == 400
    assert send(server, "/login", "POST", b"username=ann")[0] == 400
    assert send(server, "/login", "POST", b"x" * 10_000)[0] == 400
    # Passwords in addresses would be in logs.
    assert send(server, "/login?user=ann&password=p%3A+ss%27w0rd", "POST", b"")[0] == 400
    assert send(server, "/login", "DELETE")[0] == 405


def test_a_session_ends_with_the_password_and_the_user(meridian: Meridian, data: Path, server: Server) -> None:
    must(meridian, data, "add", "carl", password=PASSWORD)
    cookie = cookie_of(send(server, "/login", "POST", form("carl", "p%3A+ss%27w0rd"))[2])
    assert who(server, Cookie=cookie) == "carl"
    must(meridian, data, "passwd", "carl", password=OTHER_PASSWORD)
    assert who(server, Cookie=cookie) is None
    cookie = cookie_of(send(server, "/login", "POST", form("carl", "another+one"))[2])
    assert who(server, Cookie=cookie) == "carl"
    must(meridian, data, "remove", "carl")
    assert who(server, Cookie=cookie) is None


def test_pages_of_other_origins_do_nothing_with_a_session(server: Server) -> None:
    """A page of another port of this machine is of the same site: browsers send it the cookie."""
    own = f"http://127.0.0.1:{server.http_port}"
    cookie = cookie_of(send(server, "/login", "POST", form("ann", "p%3A+ss%27w0rd"), Origin=own)[2])
    rows = b"id\n1\n"
    for sent, status in (
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "https://example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": own, "Sec-Fetch-Site": "same-origin"}, 201),
    ):
        assert send(server, "/tables/ann.t", "PUT", rows, Cookie=cookie, **sent)[0] == status, sent
    for path, body in (("/logout", b""), ("/login", form("bob", "p%3A+ss%27w0rd"))):
        answered, _, headers = send(server, path, "POST", body, Cookie=cookie, Origin="http://127.0.0.1:1")
        assert answered == 403 and "Set-Cookie" not in headers
    assert send(server, "/tables/ann.t", "DELETE", Cookie=cookie)[0] == 204


# --- tokens of an identity provider ---------------------------------------------------------------------------------------------------


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_tokens_of_the_provider_let_in(server: Server, provider: IdentityProvider) -> None:
    assert who(server, **bearer(provider.token())) == "ann"
    assert who(server, **bearer(provider.token(aud=["other", "meridian"]))) == "ann"
    for algorithm in ("ES256", "EdDSA"):
        provider.keys[algorithm] = provider.new_key(algorithm)
    wait_until(lambda: who(server, **bearer(provider.token("ES256", "ES256"))) == "ann", 60, "new keys are known after some seconds")
    assert who(server, **bearer(provider.token("EdDSA", "EdDSA"))) == "ann"
    # As a password, too, for clients that know nothing else.
    cursor = pymysql.connect(host="127.0.0.1", port=server.port, user="ann", password=PASSWORD).cursor()
    assert cursor.execute("SELECT 1") == 1


def test_keys_that_are_withdrawn_or_not_known(server: Server, provider: IdentityProvider) -> None:
    assert who(server, **bearer(provider.token())) == "ann"
    stranger = provider.new_key()
    asked = len(provider.asked)
    for _ in range(10):
        status, text, headers = send(server, "/me", **bearer(signed(stranger, {"alg": "RS256", "kid": "stranger"}, provider.claims())))
        assert status == 401 and "key that the provider does not have" in text and "Bearer" in str(headers.get_all("WWW-Authenticate"))
    # Each of them took half a second: the provider is asked every five seconds at most, by two requests.
    assert len(provider.asked) - asked <= 40
    # Of the provider's name, but not with its key.
    assert send(server, "/me", **bearer(signed(stranger, {"alg": "RS256", "kid": "first"}, provider.claims())))[0] == 401


def test_tokens_that_let_nobody_in(server: Server, provider: IdentityProvider) -> None:
    first = provider.keys["first"]
    pem = first.public_pem()
    claims = provider.claims()
    wrong: dict[str, str] = {
        "alg none": signed(None, {"alg": "none", "kid": "first"}, claims),
        "alg None": signed(None, {"alg": "None", "kid": "first"}, claims),
        "no signature": provider.token().rsplit(".", 1)[0] + ".",
        "signed with the public key as a secret": signed(pem, {"alg": "HS256", "kid": "first"}, claims),
        "a key of another kind": signed(first, {"alg": "ES256", "kid": "first"}, claims),
        "a key in the token": signed(provider.new_key(), {"alg": "RS256", "kid": "first", "jwk": {"kty": "RSA"}}, claims),
        "another audience": provider.token(aud="another"),
        "no audience": provider.token(aud=None),
        "another issuer": provider.token(iss=provider.issuer + "/"),
        "expired": provider.token(exp=1),
        "no expiry": provider.token(exp=None),
        "an expiry that is a text": provider.token(exp="9999999999"),
        "not yet valid": provider.token(nbf=9_999_999_999),
        "nobody": provider.token(preferred_username="nobody"),
        "no name": provider.token(preferred_username=None),
        "cut": provider.token()[:-8],
        "two parts": provider.token().rsplit(".", 1)[0],
    }
    for what, token in wrong.items():
        assert send(server, "/me", **bearer(token))[0] == 401, what
    changed = provider.token().split(".")
    changed[1] = provider.token(preferred_username="boss").split(".")[1]
    assert send(server, "/me", **bearer(".".join(changed)))[0] == 401


def test_groups_follow_the_provider(server: Server, provider: IdentityProvider, meridian: Meridian, data: Path) -> None:
    """Those that are configured alone; also for statements that come without a token."""
    must(meridian, data, "group", "members", "other", "--add", "bob")

    def groups(**changes: object) -> list[str]:
        token = provider.token(preferred_username="bob", **changes)
        return list(json.loads(send(server, "/me", **bearer(token))[1])["groups"])

    assert groups() == ["other"]
    assert groups(realm={"roles": ["survey", "boss", "none"]}) == ["other", "survey"]
    with pymysql.connect(host="127.0.0.1", port=server.port, user="bob", password=PASSWORD) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM sky.Star")
        # A token that was made before does not change anything back.
        assert groups(iat=1) == ["other", "survey"]
        assert groups(realm={"roles": []}) == ["other"]
        with pytest.raises(pymysql.err.MySQLError):
            cursor.execute("SELECT COUNT(*) FROM sky.Star")


def test_mistakes_of_configuration(meridian: Meridian, data: Path) -> None:
    for options, sentence in (
        (["--oidc-issuer", "http://example.org", "--oidc-audience", "x"], "https://"),
        (["--oidc-issuer", "https://example.org"], "--oidc-audience"),
        (["--oidc-audience", "x"], "--oidc-issuer"),
    ):
        outcome = meridian.run("serve", "--data", data, "--mysql", "127.0.0.1:0", "--http", "off", *options)
        assert outcome.status != 0 and sentence in outcome.complaint, outcome.complaint
