//! Handshakes between members, and what is said of those that fail.

use std::io;
use std::thread::sleep;

use rustls::pki_types::ServerName;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// An authority with a front end and two workers, whose certificates are valid for so many days.
pub(super) fn authority(days: u32) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::open(dir.path()).unwrap();
    assert!(authority.is_new());
    let members = [
        (Role::FrontEnd, "f"),
        (Role::Worker, "w1"),
        (Role::Worker, "w2.example.org"),
    ];
    for (role, name) in members {
        authority.make_member(role, name, days, false).unwrap();
    }
    dir
}

pub(super) fn opened(dir: &TempDir, name: &str, role: Role) -> Arc<Certificates> {
    Certificates::open(&dir.path().join(name), &[role]).unwrap()
}

/// A handshake and a byte each way: what each side says of it, and whom the server has found.
async fn shaken(
    server: &Certificates,
    client: TlsConnector,
    role: Role,
) -> (Result<Vec<MemberName>, Option<String>>, Result<(), String>) {
    let (near, far) = tokio::io::duplex(1 << 14);
    let served = async {
        let mut stream = server
            .loaded()
            .acceptor()
            .accept(near)
            .await
            .map_err(|error| of_server(&error))?;
        let names = MemberName::all_of(&stream.get_ref().1.peer_certificates().unwrap()[0]);
        let _ = stream.write_all(b"x").await;
        let _ = stream.flush().await;
        Ok(names)
    };
    let asked = async {
        let words = |error: io::Error| of_client(&error).unwrap_or_else(|| error.to_string());
        let name: ServerName<'static> = role.server_name().unwrap();
        let mut stream = client.connect(name, far).await.map_err(words)?;
        stream.read_exact(&mut [0]).await.map(drop).map_err(words)
    };
    tokio::join!(served, asked)
}

#[tokio::test]
async fn members_of_one_authority_know_each_other() {
    let dir = authority(9);
    let (front_end, worker) = (
        opened(&dir, "f", Role::FrontEnd),
        opened(&dir, "w1", Role::Worker),
    );
    let other = opened(&dir, "w2.example.org", Role::Worker);
    assert_eq!(
        certified_name(&dir.path().join("w2.example.org"), Role::Worker).unwrap(),
        "w2.example.org"
    );
    let (served, asked) = shaken(&front_end, worker.loaded().connector(), Role::FrontEnd).await;
    asked.unwrap();
    assert_eq!(
        served.unwrap(),
        [MemberName::new(Role::Worker, "w1").unwrap()]
    );
    let (served, asked) = shaken(&worker, front_end.loaded().connector(), Role::Worker).await;
    asked.unwrap();
    assert_eq!(
        served.unwrap(),
        [MemberName::new(Role::FrontEnd, "f").unwrap()]
    );
    let (served, asked) = shaken(&worker, other.loaded().connector(), Role::Worker).await;
    asked.unwrap();
    assert_eq!(served.unwrap()[0].name, "w2.example.org");
    // A worker that pretends to be the front end.
    let (_, asked) = shaken(&worker, other.loaded().connector(), Role::FrontEnd).await;
    assert!(asked.unwrap_err().contains("of another role"));
}

#[tokio::test]
async fn strangers_are_refused_and_both_sides_say_why() {
    let (dir, others) = (authority(9), authority(9));
    let worker = opened(&dir, "w1", Role::Worker);
    let stranger = opened(&others, "f", Role::FrontEnd);
    let (served, asked) = shaken(&worker, stranger.loaded().connector(), Role::Worker).await;
    assert!(
        asked
            .unwrap_err()
            .contains("is not of the authority that is trusted here")
    );
    assert!(
        served
            .unwrap_err()
            .unwrap()
            .contains("does not accept the certificate of this process")
    );
    // One that trusts the cluster, and is of another authority.
    let trusting = others.path().join("f");
    fs::copy(dir.path().join(AUTHORITY), trusting.join(AUTHORITY)).unwrap();
    let why = Certificates::open(&trusting, &[Role::FrontEnd])
        .unwrap_err()
        .to_string();
    assert!(why.contains("is not of the authority"), "{why}");
    let mut trusted = RootCertStore::empty();
    trusted
        .add(certificates(dir.path(), AUTHORITY).unwrap().remove(0))
        .unwrap();
    let builder = || {
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(trusted.clone())
    };
    let chain = certificates(&trusting, CERTIFICATE).unwrap();
    let foreign = builder().with_client_auth_cert(chain, private_key(&trusting.join(KEY)).unwrap());
    let (served, asked) = shaken(&worker, Arc::new(foreign.unwrap()).into(), Role::Worker).await;
    assert!(
        served
            .unwrap_err()
            .unwrap()
            .contains("is not of the authority")
    );
    assert!(
        asked
            .unwrap_err()
            .contains("not of the authority that is trusted there")
    );
    let (served, asked) = shaken(
        &worker,
        Arc::new(builder().with_no_client_auth()).into(),
        Role::Worker,
    )
    .await;
    assert_eq!(served.unwrap_err().unwrap(), "it showed no certificate");
    assert!(asked.unwrap_err().contains("it showed no certificate"));
}

#[test]
fn what_is_wrong_with_a_directory_is_said() {
    let dir = authority(9);
    let member = dir.path().join("w1");
    let why = |roles: &[Role]| Certificates::open(&member, roles).unwrap_err().to_string();
    let told = why(&[Role::Operator, Role::FrontEnd]);
    assert!(
        told.contains("the worker w1, and here that of an operator or a front end is needed"),
        "{told}"
    );
    fs::copy(dir.path().join("f").join(KEY), member.join(KEY)).unwrap();
    assert!(why(&[Role::Worker]).contains("cannot be used together"));
    fs::set_permissions(member.join(KEY), fs::Permissions::from_mode(0o640)).unwrap();
    assert!(why(&[Role::Worker]).contains("chmod 600"));
    fs::remove_file(member.join(KEY)).unwrap();
    assert!(why(&[Role::Worker]).contains("key.pem cannot be read"));
    fs::write(member.join(CERTIFICATE), "nothing").unwrap();
    assert!(why(&[Role::Worker]).contains("no certificate in cert.pem"));
    let short = authority(0);
    sleep(Duration::from_millis(2100));
    let told = Certificates::open(&short.path().join("w1"), &[Role::Worker]).unwrap_err();
    assert!(told.to_string().contains("has expired"), "{told}");
}

/// What is used after a look at the files.
fn looked_again(certificates: &Certificates) -> *const CredentialsDirectory {
    certificates.current.lock().unwrap().looked -= LOOK_INTERVAL;
    Arc::as_ptr(&certificates.loaded())
}

#[test]
fn a_list_that_is_gone_is_used_until_there_is_one_again() {
    let dir = authority(9);
    let authority = Authority::existing(dir.path()).unwrap();
    authority.revoke(&["w2.example.org".to_owned()]).unwrap();
    let certificates = opened(&dir, "w1", Role::Worker);
    let former = Arc::as_ptr(&certificates.loaded());
    let list = dir.path().join("w1").join(REVOKED);
    let kept = fs::read(&list).unwrap();
    fs::remove_file(&list).unwrap();
    assert_eq!(looked_again(&certificates), former);
    assert!(certificates.current.lock().unwrap().refused.is_some());
    fs::write(&list, kept).unwrap();
    assert_ne!(looked_again(&certificates), former);
    assert!(certificates.current.lock().unwrap().refused.is_none());
}

#[test]
fn new_files_are_taken_when_they_belong_together() {
    let dir = authority(9);
    let certificates = opened(&dir, "w1", Role::Worker);
    let former = Arc::as_ptr(&certificates.loaded());
    let look = || looked_again(&certificates);
    assert_eq!(look(), former);
    fs::copy(
        dir.path().join("w2.example.org").join(KEY),
        dir.path().join("w1").join(KEY),
    )
    .unwrap();
    assert_eq!(look(), former, "half of a pair");
    let authority = Authority::open(dir.path()).unwrap();
    assert!(!authority.is_new());
    assert!(authority.make_member(Role::Worker, "w1", 9, false).is_err());
    authority.make_member(Role::Worker, "w1", 9, true).unwrap();
    assert_ne!(look(), former);
    assert_eq!(authority.members().unwrap().len(), 3);
}

#[tokio::test]
async fn revoked_members_are_refused_by_both_sides_and_their_connections_cut() {
    let dir = authority(9);
    let (front_end, stolen) = (
        opened(&dir, "f", Role::FrontEnd),
        opened(&dir, "w1", Role::Worker),
    );
    let other = opened(&dir, "w2.example.org", Role::Worker);
    let until_refused = |name: &str| {
        let chain = certificates(&dir.path().join(name), CERTIFICATE).unwrap();
        let refused = Arc::clone(&front_end).until_refused(front_end.loaded(), chain);
        tokio::time::timeout(Duration::from_secs(20), refused)
    };
    let cut = until_refused("w1");
    let authority = Authority::existing(dir.path()).unwrap();
    let revoked = authority.revoke(&["w1".to_owned()]).unwrap();
    assert_eq!((revoked.len(), revoked[0].name.as_str()), (1, "w1"));
    assert!(cut.await.unwrap().starts_with("has been revoked"));
    let (served, asked) = shaken(&front_end, stolen.loaded().connector(), Role::FrontEnd).await;
    assert!(served.unwrap_err().unwrap().contains("has been revoked"));
    let told = asked.unwrap_err();
    assert!(
        told.contains("refuses this process: its certificate has been revoked"),
        "{told}"
    );
    let (_, asked) = shaken(&stolen, front_end.loaded().connector(), Role::Worker).await;
    let told = asked.unwrap_err();
    assert!(
        told.contains("is not spoken to: its certificate has been revoked"),
        "{told}"
    );
    let (served, asked) = shaken(&front_end, other.loaded().connector(), Role::FrontEnd).await;
    assert_eq!(served.unwrap()[0].name, "w2.example.org");
    asked.unwrap();
    // What it gets later is valid, though another one of its name is in the list.
    authority.make_member(Role::Worker, "w1", 9, false).unwrap();
    let renewed = opened(&dir, "w1", Role::Worker);
    let (served, _) = shaken(&front_end, renewed.loaded().connector(), Role::FrontEnd).await;
    assert_eq!(served.unwrap()[0].name, "w1");
    assert_eq!(authority.revoke(&["w1".to_owned()]).unwrap().len(), 1);
    assert!(authority.revoke(&["w1".to_owned()]).unwrap().is_empty());
    assert!(authority.revoke(&["w9".to_owned()]).is_err());
    assert_eq!(authority.members().unwrap().len(), 2);
}

#[tokio::test]
async fn whoever_waits_for_a_member_that_is_refused_is_woken() {
    let (near, _far) = tokio::io::duplex(64);
    let refused = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        "has been revoked".to_owned()
    };
    let mut stream = WatchedStream::new(near, "127.0.0.1:1", refused);
    stream.write_all(b"x").await.unwrap();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_u8());
    let error = read.await.expect("nobody is woken").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(stream.write_all(b"x").await.is_err());
}

#[test]
fn the_end_of_a_certificate_is_known() {
    let dir = authority(9);
    let ends = opened(&dir, "w1", Role::Worker).ends().unwrap();
    let left = ends - UnixTime::now().as_secs();
    assert!((9 * 86_400 - 60..=9 * 86_400).contains(&left), "{left}");
}
