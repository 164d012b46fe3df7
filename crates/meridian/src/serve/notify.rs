//! Tells systemd how far the server is, where it is a service of `Type=notify`.
//!
//! One datagram to the socket that `NOTIFY_SOCKET` names. Source: sd_notify(3).

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Clients can connect.
pub(super) const READY: &str = "READY=1";
/// It was told to end.
pub(super) const STOPPING: &str = "STOPPING=1";

/// Notifies the service manager, if there is one.
pub(super) fn tell(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else {
        return;
    };
    if let Err(error) = send(&socket, state) {
        // Without READY=1 systemd ends the service after a while: then the log has to say why.
        tracing::warn!(socket = %socket.display(), %error, state, "systemd cannot be told");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let datagram = UnixDatagram::unbound()?;
    datagram.send_to_addr(state.as_bytes(), &address(socket)?)?;
    Ok(())
}

#[cfg(target_os = "linux")]
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;

    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    }
}

#[cfg(not(target_os = "linux"))]
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    SocketAddr::from_pathname(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_reaches_a_socket_by_path_and_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let named = format!("@meridian-test-{}", std::process::id());
        for socket in [path.as_os_str(), OsStr::new(&named)] {
            let listener = UnixDatagram::bind_addr(&address(socket).unwrap()).unwrap();
            send(socket, READY).unwrap();
            let mut received = [0; 64];
            let length = listener.recv(&mut received).unwrap();
            assert_eq!(&received[..length], b"READY=1");
        }
        assert!(send(directory.path().join("nobody").as_os_str(), READY).is_err());
    }
}
