"""Members that are shut out of a cluster: certificates that are revoked while the cluster runs, and those that end."""

from __future__ import annotations

import json
import random
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pymysql
import pytest

from cluster_members import Cluster, Member, cluster_of
from meridian_cli import Meridian
from serving import Server, wait_until
from small_tables import DIRECTOR, star_lines, write_lines
from test_cluster_tls import STATEMENTS, Port, execute, certificates, context, openssl, ports, pretending, said, status

# What members notice by themselves takes a look at their files, which is every 2 s, and a log that is read.
SECONDS = 20.0


@pytest.fixture(scope="module")
def data(meridian: Meridian, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with stars."""
    directory = tmp_path_factory.mktemp("archive")
    stars = write_lines(directory / "stars.csv", star_lines(8_000, 1))
    meridian.load(directory / "data", "sky", "Star", stars, **DIRECTOR)
    return directory / "data"


@pytest.fixture
def cluster(meridian: Meridian, data: Path, tmp_path: Path) -> Iterator[Cluster]:
    """A front end and three workers that speak TLS."""
    with cluster_of(meridian, tmp_path / "cluster", data, tls=True) as cluster:
        yield cluster


class OpenConnection:
    """A connection that somebody holds, over which requests go one after another."""

    def __init__(self, port: Port, client: ssl.SSLContext) -> None:
        self.port = port
        plain = socket.create_connection(("127.0.0.1", port.number), timeout=10)
        self.stream = client.wrap_socket(plain, server_hostname=port.server_name)

    def is_answered(self) -> bool:
        """Whether a request is answered, whatever the answer."""
        try:
            self.stream.sendall(f"GET {self.port.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                byte = self.stream.recv(1)
                if not byte:
                    return False
                head += byte
            length = int(head.lower().split(b"content-length:")[1].split()[0])
            while length:
                length -= len(self.stream.recv(length))
        except OSError:
            return False
        return True

    def is_cut(self) -> bool:
        """Whether the other side has ended it, without a request."""
        self.stream.settimeout(0.01)
        try:
            return self.stream.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True


@contextmanager
def asking(server: Server, statement: str) -> Iterator[list[str]]:
    """Has a client ask all the time; what goes wrong is listed."""
    wrong: list[str] = []
    expected = execute(server, statement)
    stop = threading.Event()

    def client() -> None:
        chooses = random.Random(4)
        while not stop.is_set():
            try:
                rows = execute(server, f"/* {chooses.random()} */ {statement}")
            except pymysql.err.Error as error:
                wrong.append(str(error))
                continue
            if rows != expected:
                wrong.append(str(rows))

    thread = threading.Thread(target=client)
    thread.start()
    try:
        yield wrong
    finally:
        stop.set()
        thread.join(60)


def states(cluster: Cluster, operator: str = "operator") -> dict[str, str]:
    """The states of the workers, as an operator is told them."""
    credentials = ("--cluster-tls", certificates(cluster) / operator)
    outcome = cluster.meridian.must("cluster", "status", "--format", "json", "--cluster", cluster.address, *credentials)
    return {worker["name"]: worker["state"] for worker in json.loads(outcome.text)["workers"]}


def refuses(port: Port, client: ssl.SSLContext) -> bool:
    """Whether a port refuses a client, in either version of TLS."""
    for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        client.maximum_version = newest
        try:
            status(port, client)
        except (ssl.SSLError, ConnectionError, IndexError):
            continue
        return False
    return True


def test_a_revoked_member_is_cut_off_from_every_port_and_all_others_go_on(meridian: Meridian, cluster: Cluster, tmp_path: Path) -> None:
    authority = certificates(cluster)
    # Whoever has taken a copy of the directory of w2, and of that of an operator.
    stolen = {name: Path(shutil.copytree(authority / name, tmp_path / "stolen" / name)) for name in ("w2", "operator")}
    meridian.must("cluster", "init", "--directory", authority, "--operator", "second")
    others = [port for port in ports(cluster) if port.number != cluster.workers["w2"].port]
    assert len(others) == 3
    with ExitStack() as stack:
        held: list[OpenConnection] = []
        for member in ("w2", "operator", "w1"):
            for port in others:
                held.append(OpenConnection(port, context(authority / "ca.pem", authority / member)))
                stack.enter_context(closing(held[-1].stream))
        revoked, kept = held[:6], held[6:]
        assert all(connection.is_answered() for connection in held)
        with asking(cluster.server, STATEMENTS[1]) as wrong:
            outcome = meridian.must("cluster", "revoke", "w2", "operator", "--directory", authority)
            assert outcome.text.count("revoked: the certificate ") == 2 and "of the worker w2" in outcome.text
            wait_until(lambda: all(connection.is_cut() for connection in revoked), SECONDS, "connections of the revoked are cut")
            assert all(connection.is_answered() for connection in kept), "another member is cut off, too"
            for port in others:
                for name in ("w2", "operator"):
                    assert refuses(port, context(authority / "ca.pem", stolen[name])), (port, name)
                for sentence in ("is cut: the certificate of the worker w2 has been revoked", "its certificate has been revoked"):
                    wait_until(lambda sentence=sentence, port=port: sentence in port.log(cluster), SECONDS, sentence)  # type: ignore[misc]
            assert all(connection.is_answered() for connection in kept), "another member is cut off, too"
            wait_until(lambda: states(cluster, "second") == {"w0": "live", "w1": "live", "w2": "silent"}, SECONDS, "nothing is heard of the worker")
        assert not wrong, wrong[:3]
    # Whoever has the stolen files is no member, with whatever command.
    joined = ("--join", cluster.address, "--cluster-tls", stolen["w2"], "--memory", "512M", "--cache", "64M")
    thief = Member(meridian, "w2", tmp_path / "thief", *joined)
    try:
        wait_until(lambda: "not joined" in thief.log, SECONDS, "the worker is not let in")
        assert "joined the cluster" not in thief.log
    finally:
        thief.end()
    # What is said depends on when the refusal comes: `revoked_members_are_refused_by_both_sides_and_their_connections_cut` tests the sentences.
    assert cluster.address in said(meridian, "cluster", "status", "--cluster", cluster.address, "--cluster-tls", stolen["operator"])
    # With another certificate it is a member again, without a restart, and the stolen one is still of no use.
    meridian.must("cluster", "init", "--directory", authority, "w2")
    wait_until(lambda: states(cluster, "second")["w2"] == "live", SECONDS, "it is back")
    for port in ports(cluster):
        assert refuses(port, context(authority / "ca.pem", stolen["w2"])), port
    assert execute(cluster.server, STATEMENTS[0])[0][0] == 8_000


def test_a_list_that_one_member_has_comes_to_all_others(meridian: Meridian, cluster: Cluster, tmp_path: Path) -> None:
    """From a worker to the front end, and from there to the other workers. An older one takes nothing back."""
    authority = certificates(cluster)
    # The authority is not on a machine of the cluster.
    elsewhere = Path(shutil.copytree(authority, tmp_path / "elsewhere"))
    stolen = Path(shutil.copytree(authority / "w2", tmp_path / "stolen"))
    meridian.must("cluster", "revoke", "w2", "--directory", elsewhere)
    listed = (elsewhere / "crl.pem").read_bytes()
    assert not (authority / "w1" / "crl.pem").exists()
    (authority / "w1" / "crl.pem").write_bytes(listed)
    have = [authority / name / "crl.pem" for name in ("front-end", "w0")]
    wait_until(lambda: all(path.exists() and path.read_bytes().strip() == listed.strip() for path in have), SECONDS, "the others have the list")
    assert "a new list of revoked certificates is taken" in cluster.workers["w0"].log
    others = [port for port in ports(cluster) if port.number != cluster.workers["w2"].port]
    for port in others:
        wait_until(lambda port=port: refuses(port, context(authority / "ca.pem", stolen)), SECONDS, "it is used")  # type: ignore[misc]
    wait_until(lambda: states(cluster)["w2"] == "silent", SECONDS, "nothing is heard of the worker")
    assert not (authority / "w2" / "crl.pem").exists()
    # A second one revokes more; whoever gets the first one again goes on with what it has.
    meridian.must("cluster", "init", "--directory", elsewhere, "spare")
    meridian.must("cluster", "revoke", "spare", "--directory", elsewhere)
    newer = (elsewhere / "crl.pem").read_bytes()
    (authority / "front-end" / "crl.pem").write_bytes(newer)
    have = [authority / name / "crl.pem" for name in ("w0", "w1")]
    wait_until(lambda: all(path.read_bytes().strip() == newer.strip() for path in have), SECONDS, "the workers have the newer list")
    (authority / "w0" / "crl.pem").write_bytes(listed)
    wait_until(lambda: (authority / "w0" / "crl.pem").read_bytes().strip() == newer.strip(), SECONDS, "it has the newer list again")
    assert execute(cluster.server, STATEMENTS[0])[0][0] == 8_000


def test_all_certificates_of_a_name_are_revoked_and_openssl_agrees(meridian: Meridian, tmp_path: Path) -> None:
    authority = tmp_path / "tls"
    meridian.must("cluster", "init", "--directory", authority, "w0", "w1")
    first = Path(shutil.copytree(authority / "w0", tmp_path / "first"))
    meridian.must("cluster", "init", "--directory", authority, "--renew", "w0")
    second = Path(shutil.copytree(authority / "w0", tmp_path / "second"))
    assert "made no certificate for" in said(meridian, "cluster", "revoke", "w0", "nobody", "--directory", authority)
    assert not (authority / "crl.pem").exists(), "nothing is revoked where one of the names is wrong"
    outcome = meridian.must("cluster", "revoke", "w0", "--directory", authority)
    assert outcome.text.count("of the worker w0") == 2
    again = meridian.must("cluster", "revoke", "w0", "--directory", authority)
    assert "were revoked before" in again.text
    meridian.must("cluster", "init", "--directory", authority, "w0")
    listed = (authority / "crl.pem").read_bytes()
    for member in ("w0", "w1", "front-end", "operator"):
        assert (authority / member / "crl.pem").read_bytes() == listed, member
        path = authority / member / "cert.pem"
        openssl("verify", "-x509_strict", "-crl_check", "-CAfile", authority / "ca.pem", "-CRLfile", authority / "crl.pem", path)
    for copy in (first, second):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            openssl("verify", "-crl_check", "-CAfile", authority / "ca.pem", "-CRLfile", authority / "crl.pem", copy / "cert.pem")
        assert "certificate revoked" in failed.value.stderr
    text = openssl("crl", "-in", authority / "crl.pem", "-noout", "-text", "-CAfile", authority / "ca.pem")
    assert text.count("Serial Number:") == 2
    # A certificate of which the directory knows nothing any more.
    lost = tmp_path / "lost.pem"
    lost.write_bytes((authority / "w1" / "cert.pem").read_bytes())
    shutil.rmtree(authority / "w1")
    shutil.rmtree(authority / "issued")
    assert "--certificate FILE" in said(meridian, "cluster", "revoke", "w1", "--directory", authority)
    outcome = meridian.must("cluster", "revoke", "--certificate", lost, "--directory", authority)
    assert "of the worker w1" in outcome.text
    text = openssl("crl", "-in", authority / "crl.pem", "-noout", "-text")
    assert text.count("Serial Number:") == 3, "those that were revoked before stay so"
    other = tmp_path / "other"
    meridian.must("cluster", "init", "--directory", other, "w1")
    assert "is no certificate of a member that the authority" in said(
        meridian, "cluster", "revoke", "--certificate", other / "w1" / "cert.pem", "--directory", authority
    )
    assert "there is no authority" in said(meridian, "cluster", "revoke", "w1", "--directory", tmp_path)
    assert not (tmp_path / "ca.key").exists()
    # What is renewed all at once are the members that are not revoked.
    meridian.must("cluster", "revoke", "w0", "--directory", authority)
    outcome = meridian.must("cluster", "init", "--directory", authority, "--renew")
    assert "worker w0" not in outcome.text and "operator operator" in outcome.text


def test_a_revoked_front_end_is_not_spoken_to(meridian: Meridian, cluster: Cluster, tmp_path: Path) -> None:
    authority = certificates(cluster)
    meridian.must("cluster", "init", "--directory", authority, "--front-end", "fe2")
    stolen = Path(shutil.copytree(authority / "fe2", tmp_path / "fe2"))
    meridian.must("cluster", "revoke", "fe2", "--directory", authority)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(str(stolen / "cert.pem"), str(stolen / "key.pem"))
    with pretending(server) as port:
        operator = ("--cluster", f"127.0.0.1:{port}", "--cluster-tls", authority / "operator")
        assert "its certificate has been revoked" in said(meridian, "cluster", "status", *operator)
    # It does not start either, where it has the list.
    (stolen / "crl.pem").write_bytes((authority / "crl.pem").read_bytes())
    serve = ("serve", "--data", cluster.data, "--mysql", "127.0.0.1:0", "--http", "off", "--cluster", "127.0.0.1:0")
    assert "cert.pem has been revoked" in said(meridian, *serve, "--cluster-tls", stolen)


def test_lists_that_cannot_be_used_are_not_taken(meridian: Meridian, cluster: Cluster, tmp_path: Path) -> None:
    authority = certificates(cluster)
    other = tmp_path / "other"
    meridian.must("cluster", "init", "--directory", other, "w9")
    meridian.must("cluster", "revoke", "w9", "--directory", other)
    meridian.must("cluster", "init", "--directory", authority, "spare")
    stolen = Path(shutil.copytree(authority / "spare", tmp_path / "spare"))
    port = ports(cluster)[0]
    own = authority / "front-end" / "crl.pem"
    own.write_text("nothing")
    wait_until(lambda: "there is no list of revoked certificates in crl.pem" in port.log(cluster), SECONDS, "it is said")
    assert states(cluster) == {"w0": "live", "w1": "live", "w2": "live"}
    status_of = ("cluster", "status", "--cluster", cluster.address, "--cluster-tls", authority / "operator")
    meridian.must(*status_of)
    meridian.must("cluster", "revoke", "spare", "--directory", authority)
    wait_until(lambda: refuses(port, context(authority / "ca.pem", stolen)), SECONDS, "the list is used")
    # One that is gone lets nobody in again, until another member gives it; two of one authority are none.
    listed = own.read_bytes()
    own.unlink()
    while not own.exists() or own.read_bytes() != listed:
        assert refuses(port, context(authority / "ca.pem", stolen))
    own.write_bytes(listed + listed)
    wait_until(lambda: "two lists of one authority" in port.log(cluster), SECONDS, "it is said")
    assert refuses(port, context(authority / "ca.pem", stolen))
    # That of another authority says nothing of these members: it may be there, beside their own.
    used = "a new list of revoked certificates is used"
    before = port.log(cluster).count(used)
    own.write_bytes(listed + (other / "crl.pem").read_bytes())
    wait_until(lambda: port.log(cluster).count(used) > before, SECONDS, "it is used")
    assert refuses(port, context(authority / "ca.pem", stolen))
    meridian.must(*status_of)
    assert execute(cluster.server, STATEMENTS[0])[0][0] == 8_000


def test_certificates_that_end_soon_are_told(meridian: Meridian, cluster: Cluster, tmp_path: Path) -> None:
    authority = certificates(cluster)
    assert not [line for line in cluster.status()["warnings"] if "certificate" in line]
    meridian.must("cluster", "init", "--directory", authority, "--days", 12, "w3")
    meridian.must("cluster", "init", "--directory", authority, "--days", 1, "--renew", "--operator", "operator")
    joined = ("--join", cluster.address, "--cluster-tls", authority / "w3", "--memory", "512M", "--cache", "64M")
    member = Member(meridian, "w3", tmp_path / "w3", *joined)
    try:
        wait_until(lambda: "w3" in states(cluster), 30, "it has joined")
        warnings = cluster.status()["warnings"]
        assert any(re.search(r"the certificate of the worker w3 ends in 1[12] days: `meridian cluster init --renew`", line) for line in warnings), warnings
        assert any(re.search(r"the certificate of the operator ends in 2[34] h", line) for line in warnings), warnings
        assert re.search(r"the certificate of this member ends in 1[12] days", member.log)
        meridian.must("cluster", "init", "--directory", authority, "--renew", "w3", "--operator", "operator")
        wait_until(lambda: not [line for line in cluster.status()["warnings"] if "certificate" in line], SECONDS, "the new ones are used")
    finally:
        member.end()
