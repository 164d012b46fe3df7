"""TLS between the members of a cluster: who is let in at which port, who is not, and what both sides say of it."""

from __future__ import annotations

import http.client
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster_members import Cluster, Member, cluster_of
from meridian_cli import Meridian
from serving import Server, serving, wait_until
from small_tables import DIRECTOR, star_lines, write_lines

STATEMENTS = [
    "SELECT COUNT(*), SUM(version), AVG(ra), STDDEV(ra * `dec`) FROM Star",
    "SELECT id % 10 AS d, COUNT(*), SUM(ra) FROM Star GROUP BY d ORDER BY d",
    "SELECT COUNT(*) FROM Star a, Star b WHERE scisql_angSep(a.ra, a.`dec`, b.ra, b.`dec`) < 0.3 AND a.id < b.id",
]
FRONT_END, WORKER = "front-end.meridian.internal", "worker.meridian.internal"


def execute(server: Server, statement: str) -> list[tuple[object, ...]]:
    """The rows of a statement."""
    with server.connect(database="sky") as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with stars."""
    directory = tmp_path_factory.mktemp("archive")
    stars = write_lines(directory / "stars.csv", star_lines(8_000, 1))
    meridian.load(directory / "data", "sky", "Star", stars, **DIRECTOR)
    return directory / "data"


@pytest.fixture(scope="module")
def cluster(meridian: Meridian, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A front end and three workers that speak TLS."""
    with cluster_of(meridian, tmp_path_factory.mktemp("cluster"), data, tls=True) as cluster:
        yield cluster


@dataclass(frozen=True)
class Port:
    """A port of a member."""

    number: int
    server_name: str
    path: str

    def log(self, cluster: Cluster) -> str:
        """What its member has logged."""
        of_workers = [worker.log for worker in cluster.workers.values() if worker.port == self.number]
        return of_workers[0] if of_workers else cluster.server.log


def ports(cluster: Cluster) -> list[Port]:
    """The ports of all members."""
    front_end = Port(int(cluster.address.rsplit(":", 1)[1]), FRONT_END, "/status")
    return [front_end, *(Port(worker.port, WORKER, "/parts/1/files/0") for worker in cluster.workers.values())]


def certificates(cluster: Cluster) -> Path:
    """The directory of the cluster's authority."""
    assert cluster.certificates is not None
    return cluster.certificates


def context(authority: Path, member: Path | None = None) -> ssl.SSLContext:
    """A client that trusts an authority and shows the certificate of a member."""
    made = ssl.create_default_context(cafile=str(authority))
    if member is not None:
        made.load_cert_chain(str(member / "cert.pem"), str(member / "key.pem"))
    return made


def status(port: Port, client: ssl.SSLContext, method: str = "GET", path: str | None = None) -> int:
    """The status of a request."""
    with socket.create_connection(("127.0.0.1", port.number), timeout=10) as plain, client.wrap_socket(plain, server_hostname=port.server_name) as stream:
        head = f"{method} {path or port.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        stream.sendall(head.encode())
        return int(stream.makefile("rb").readline().split()[1])


def openssl(*words: object, directory: Path | None = None) -> str:
    """What `openssl` says."""
    command = ["openssl", *(str(word) for word in words)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=directory).stdout


def make_expired(authority: Path, directory: Path, names: list[str]) -> Path:
    """A member of the authority whose certificate was valid in 2020, made by OpenSSL."""
    directory.mkdir()
    (directory / "index").touch()
    config = directory / "config"
    alternative = ",".join(f"DNS:{name}" for name in names)
    config.write_text(
        f"[ca]\ndefault_ca=it\n[it]\ndatabase={directory}/index\nnew_certs_dir={directory}\ndefault_md=sha256\npolicy=any\nrand_serial=yes\n"
        f"x509_extensions=own\n[any]\ncommonName=supplied\n[own]\nsubjectAltName={alternative}\nextendedKeyUsage=serverAuth,clientAuth\n"
    )
    request = ("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=late", "-keyout", "key.pem", "-out", "late.csr")
    openssl(*request, directory=directory)
    period = ("-startdate", "20200101000000Z", "-enddate", "20200201000000Z")
    signer = ("-cert", authority / "ca.pem", "-keyfile", authority / "ca.key")
    openssl("ca", "-batch", "-config", config, *signer, *period, "-in", "late.csr", "-out", "cert.pem", "-notext", directory=directory)
    (directory / "ca.pem").write_bytes((authority / "ca.pem").read_bytes())
    (directory / "key.pem").chmod(0o600)
    return directory


def said(meridian: Meridian, *words: object) -> str:
    """The complaint of a call that fails."""
    outcome = meridian.run(*words)
    assert outcome.status != 0
    return outcome.complaint


# Members.


def test_answers_are_those_of_a_server_alone(meridian: Meridian, cluster: Cluster, data: Path, tmp_path: Path) -> None:
    with serving(meridian, data) as alone:
        expected = [execute(alone, statement) for statement in STATEMENTS]
    for _ in range(2):
        assert [execute(cluster.server, statement) for statement in STATEMENTS] == expected
    wait_until(lambda: sum(cluster.pieces().values()) > 0, 10, "workers have run pieces")
    # A piece of which the worker lacks a file is read by ranges from the front end.
    worker = cluster.workers["w2"]
    for path in worker.files():
        path.unlink()
    assert [execute(cluster.server, statement) for statement in STATEMENTS] == expected
    worker.end()
    cluster.start_worker("w2")
    cluster.wait_for_replicas()


def test_certificates_are_right_for_openssl(cluster: Cluster) -> None:
    authority = certificates(cluster)
    for member in ("front-end", "operator", "w0", "w1", "w2"):
        path = authority / member / "cert.pem"
        for purpose in ("sslserver", "sslclient"):
            openssl("verify", "-x509_strict", "-purpose", purpose, "-CAfile", authority / "ca.pem", path)
        text = openssl("x509", "-in", path, "-noout", "-subject", "-enddate", "-ext", "subjectAltName,keyUsage,basicConstraints")
        role = {"front-end": "front-end", "operator": "operator"}.get(member, "worker")
        assert f"DNS:{member}.{role}.meridian.internal, DNS:{role}.meridian.internal" in text
        assert "Digital Signature" in text and "CA:FALSE" in text
        key = openssl("pkey", "-in", authority / member / "key.pem", "-pubout")
        assert key == openssl("x509", "-in", path, "-noout", "-pubkey")
        assert (authority / member / "key.pem").stat().st_mode & 0o777 == 0o600
    assert (authority / "ca.key").stat().st_mode & 0o777 == 0o600


def test_a_role_is_not_another(cluster: Cluster) -> None:
    authority = certificates(cluster)
    front_end, worker, *_ = ports(cluster)
    allowed = {
        (front_end, "GET", "/status"): {"operator", "front-end"},
        (front_end, "POST", "/members/w0/drain"): {"operator", "front-end"},
        (front_end, "DELETE", "/members/w0/drain"): {"operator", "front-end"},
        (front_end, "DELETE", "/members/w0"): {"operator", "front-end"},
        (front_end, "POST", "/members/w0"): {"w0"},
        (front_end, "GET", "/parts/999999/manifest"): {"w0", "w1"},
        (front_end, "GET", "/parts/999999/files/0"): {"w0", "w1"},
        (front_end, "POST", "/repair"): {"operator", "front-end"},
        (front_end, "POST", "/rebalance"): {"operator", "front-end"},
        (front_end, "POST", "/scrub"): {"operator", "front-end"},
        (front_end, "GET", "/scrub"): {"operator", "front-end"},
        (worker, "POST", "/scrub"): {"front-end"},
        (worker, "GET", "/scrub"): {"front-end"},
        (worker, "POST", "/shares"): {"front-end"},
        (worker, "GET", "/parts/999999/files/0"): {"front-end", "w0", "w1"},
    }
    for (port, method, path), members in allowed.items():
        for member in ("front-end", "operator", "w0", "w1"):
            found = status(port, context(authority / "ca.pem", authority / member), method, path)
            assert (found != 403) == (member in members), (method, path, member, found)
    assert status(front_end, context(authority / "ca.pem", authority / "operator"), "DELETE", "/members/w0/drain") == 200
    # A name that nobody has in a certificate of this role.
    for wrong, right in ((WORKER, front_end), (FRONT_END, worker)):
        with pytest.raises(ssl.SSLCertVerificationError):
            status(Port(right.number, wrong, right.path), context(authority / "ca.pem", authority / "operator"))


# Whoever is no member.


def test_strangers_are_refused_at_every_port(meridian: Meridian, cluster: Cluster, tmp_path: Path) -> None:
    authority = certificates(cluster)
    other = tmp_path / "other"
    meridian.must("cluster", "init", "--directory", other, "w0")
    names = [f"{name}.{role}" for name, role in (("w0", WORKER), ("f", FRONT_END))]
    expired = make_expired(authority, tmp_path / "expired", [*names, WORKER, FRONT_END])
    strangers = {
        "it showed no certificate": context(authority / "ca.pem"),
        "its certificate is not of the authority that is trusted here": context(authority / "ca.pem", other / "w0"),
        "its certificate has expired": context(authority / "ca.pem", expired),
    }
    for port in ports(cluster):
        for sentence, client in strangers.items():
            for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                client.maximum_version = newest
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    status(port, client)
            wait_until(lambda sentence=sentence, port=port: sentence in port.log(cluster), 10, sentence)  # type: ignore[misc]
        secret = {"Authorization": f"Bearer {cluster.secret.read_text().strip()}"}
        with closing(http.client.HTTPConnection("127.0.0.1", port.number, timeout=10)) as plain, pytest.raises((http.client.HTTPException, OSError)):
            plain.request("GET", port.path, headers=secret)
            plain.getresponse()
        wait_until(lambda port=port: "it does not speak TLS" in port.log(cluster), 10, "plain TCP is refused")  # type: ignore[misc]
        with pytest.raises(ssl.SSLCertVerificationError):
            status(port, context(other / "ca.pem", other / "w0"))
    assert {worker["name"] for worker in cluster.status()["workers"]} == {"w0", "w1", "w2"}


def test_a_member_says_why_it_is_refused(meridian: Meridian, cluster: Cluster, tmp_path: Path) -> None:
    authority, address = certificates(cluster), ("--cluster", cluster.address)
    other = tmp_path / "other"
    meridian.must("cluster", "init", "--directory", other, "w9")
    assert "its certificate is not of the authority" in said(meridian, "cluster", "status", *address, "--cluster-tls", other / "operator")
    assert "give --cluster-tls" in said(meridian, "cluster", "status", *address, "--cluster-secret", cluster.secret)
    # One that trusts the right authority, and is of another, does not start; that its certificate ends later is known by the other side.
    assert "is that of the worker w0" in said(meridian, "cluster", "status", *address, "--cluster-tls", authority / "w0")
    serve = ("serve", "--data", cluster.data, "--mysql", "127.0.0.1:0", "--http", "off", "--cluster", "127.0.0.1:0")
    assert "is that of the worker w0" in said(meridian, *serve, "--cluster-tls", authority / "w0")
    late = make_expired(authority, tmp_path / "late", [f"w0.{WORKER}", WORKER])
    worker = ("worker", "--join", cluster.address, "--data", tmp_path / "w")
    assert "cert.pem has expired" in said(meridian, *worker, "--cluster-tls", late)
    assert "leave --name out" in said(meridian, *worker, "--cluster-tls", authority / "w0", "--name", "w1")
    assert "is that of the front end" in said(meridian, *worker, "--cluster-tls", authority / "front-end")
    assert "not both" in said(meridian, *worker, "--cluster-tls", authority / "w0", "--cluster-secret", cluster.secret)
    assert "meridian cluster init" in said(meridian, *worker)
    for joined, words in ((("--cluster-tls", other / "w9"), "not of the authority"), (("--cluster-secret", cluster.secret), "give --cluster-tls")):
        member = Member(meridian, "w9", tmp_path / "w", *joined, "--join", cluster.address, "--memory", "512M", "--cache", "64M")
        try:
            wait_until(lambda member=member, words=words: words in member.log, 30, words)  # type: ignore[misc]
        finally:
            member.end()


@contextmanager
def pretending(server: ssl.SSLContext | None) -> Iterator[int]:
    """A port where somebody listens who is no member: it speaks TLS with this certificate, or none."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                with accepted:
                    try:
                        if server is None:
                            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        else:
                            server.wrap_socket(accepted, server_side=True).recv(1)
                    except OSError:
                        pass

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


def test_a_false_front_end_learns_nothing(meridian: Meridian, cluster: Cluster, tmp_path: Path) -> None:
    authority = certificates(cluster)
    meridian.must("cluster", "init", "--directory", tmp_path / "other", "w0")
    late = make_expired(authority, tmp_path / "late", [f"f.{FRONT_END}", FRONT_END])

    def server(member: Path) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(str(member / "cert.pem"), str(member / "key.pem"))
        return made

    pretenders = {
        "its certificate is of another role": server(authority / "w0"),
        "its certificate is not of the authority": server(tmp_path / "other" / "front-end"),
        "its certificate has expired": server(late),
        "does not speak TLS": None,
    }
    for sentence, context_ in pretenders.items():
        with pretending(context_) as port:
            operator = ("--cluster", f"127.0.0.1:{port}", "--cluster-tls", authority / "operator")
            assert sentence in said(meridian, "cluster", "status", *operator)


def test_in_tls_other_machines_may_connect(meridian: Meridian, cluster: Cluster, tmp_path: Path) -> None:
    authority = certificates(cluster)
    worker = ("worker", "--join", cluster.address, "--data", tmp_path / "w", "--cluster-tls", authority / "w0", "--listen", "0.0.0.0:0")
    assert "--advertise" in said(meridian, *worker)
    # With its catalog in SQLite a data directory has one front end.
    other = Path(shutil.copytree(cluster.data, tmp_path / "other"))
    with serving(meridian, other, "--cluster", "0.0.0.0:0", "--cluster-tls", authority / "front-end") as server:
        wait_until(lambda: "Workers join at 0.0.0.0:" in "\n".join(server.said), 30, "it listens")
        assert "--cluster-tls DIR" in "\n".join(server.said)


# Certificates that are replaced.


def shown(port: Port, cluster: Cluster) -> bytes | None:
    """The certificate that a member shows now."""
    authority = certificates(cluster)
    client = context(authority / "ca.pem", authority / "operator")
    with socket.create_connection(("127.0.0.1", port.number), timeout=10) as plain, client.wrap_socket(plain, server_hostname=port.server_name) as stream:
        return stream.getpeercert(binary_form=True)


def test_new_certificates_are_taken_without_a_restart(meridian: Meridian, cluster: Cluster) -> None:
    authority = certificates(cluster)
    expected = execute(cluster.server, STATEMENTS[1])
    before = [shown(port, cluster) for port in ports(cluster)]
    outcome = meridian.run("cluster", "init", "--directory", authority, "w0")
    assert outcome.status != 0 and "--renew" in outcome.complaint
    meridian.must("cluster", "init", "--directory", authority, "--renew")
    wait_until(lambda: all(new != old for new, old in zip([shown(port, cluster) for port in ports(cluster)], before, strict=True)), 30, "all are new")
    assert all(execute(cluster.server, statement) is not None for statement in STATEMENTS)
    assert execute(cluster.server, STATEMENTS[1]) == expected
    assert {worker["state"] for worker in cluster.status()["workers"]} == {"live"}
    # What cannot be used is not taken, and said.
    for name in ("front-end", "w0"):
        (authority / name / "cert.pem").write_text("nothing")
    for port in ports(cluster)[:2]:
        wait_until(lambda port=port: shown(port, cluster) is not None and "cannot be used: the former one" in port.log(cluster), 30, "it is said")  # type: ignore[misc]
    meridian.must("cluster", "init", "--directory", authority, "--renew", "--front-end", "front-end", "w0")


def test_an_authority_makes_members_later(meridian: Meridian, cluster: Cluster, tmp_path: Path) -> None:
    authority = certificates(cluster)
    assert "name the members" in said(meridian, "cluster", "init", "--directory", authority)
    assert "lower-case" in said(meridian, "cluster", "init", "--directory", authority, "W 3")
    outcome = meridian.must("cluster", "init", "--directory", authority, "--days", 29, "w3")
    assert re.search(r"w3: worker w3, for\n  meridian worker .* --cluster-tls .*w3$", outcome.text, re.MULTILINE)
    member = Member(meridian, "w3", tmp_path / "w3", "--join", cluster.address, "--cluster-tls", authority / "w3", "--memory", "512M", "--cache", "64M")
    try:
        wait_until(lambda: "w3" in {worker["name"] for worker in cluster.status()["workers"]}, 30, "it has joined")
        assert re.search(r"the certificate of this member ends in 2[89] days", member.log)
    finally:
        member.end()
