//! What went wrong in a handshake, in words for the log of the side that noticed it, and for that of the other one.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

use super::{CERTIFICATE, REVOKED};

/// What is wrong with this member's own files.
pub(super) fn of_own(error: &Error) -> String {
    match error {
        Error::InvalidCertRevocationList(_) => {
            format!("{REVOKED} is not of the authority that has made {CERTIFICATE}: {error}")
        }
        error => format!("{CERTIFICATE} {}", of_other(error)),
    }
}

/// What is wrong with a certificate.
pub(super) fn of_other(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => wrong_certificate(error),
        error => format!("cannot be used: {error}"),
    }
}

/// Why this member does not speak to one that it has connected to, or that one not to it. `None` if TLS has nothing to do with it.
pub(crate) fn of_client(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    Some(match tls_error(error)? {
        Error::InvalidCertificate(error) => format!("is not spoken to: its certificate {}", wrong_certificate(error)),
        Error::InvalidMessage(_) => {
            "does not speak TLS: it has to be started with --cluster-tls, too, and the address to be its port for members"
                .to_owned()
        }
        Error::AlertReceived(alert) => match alert {
            AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                "refuses this process: its certificate is not of the authority that is trusted there".to_owned()
            }
            AlertDescription::CertificateExpired => {
                "refuses this process: its certificate is not valid at this time: `meridian cluster init --renew` makes another"
                    .to_owned()
            }
            AlertDescription::CertificateRevoked => {
                "refuses this process: its certificate has been revoked".to_owned()
            }
            AlertDescription::CertificateRequired => "refuses this process: it showed no certificate".to_owned(),
            AlertDescription::ProtocolVersion => "speaks no version of TLS that is safe (1.2 or 1.3)".to_owned(),
            alert => format!("refuses this process: TLS alert {alert:?}"),
        },
        error => format!("does not speak TLS as it should: {error}"),
    })
}

/// Why one that has connected is refused. `None` if it has said nothing that is wrong, but gone.
pub(crate) fn of_server(error: &io::Error) -> Option<String> {
    Some(match tls_error(error)? {
        Error::NoCertificatesPresented => "it showed no certificate".to_owned(),
        Error::InvalidCertificate(error) => format!("its certificate {}", wrong_certificate(error)),
        Error::InvalidMessage(_) => {
            "it does not speak TLS: members of this cluster need --cluster-tls".to_owned()
        }
        Error::AlertReceived(alert) => {
            format!("it does not accept the certificate of this process (TLS alert {alert:?})")
        }
        Error::PeerIncompatible(_) => {
            "it speaks no version of TLS that is safe (1.2 or 1.3), or no cipher of these"
                .to_owned()
        }
        error => format!("it does not speak TLS as it should: {error}"),
    })
}

fn wrong_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired: `meridian cluster init --renew` makes another".to_owned()
        }
        CertificateError::Revoked => {
            "has been revoked: `meridian cluster init` makes another, if the member shall be one still"
                .to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet: look at the clocks of both machines".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "is not of the authority that is trusted here (ca.pem)".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "is of another role: a worker cannot stand for a front end, nor the other way round"
                .to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for servers and clients alike, as those of members are".to_owned()
        }
        error => format!("cannot be used: {error}"),
    }
}

/// The error of TLS below another one.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    if let Some(found) = error.downcast_ref::<Error>() {
        return Some(found);
    }
    // The source of an error of the system that was made of another is the source of that other.
    let inside = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    match inside {
        Some(inside) => tls_error(inside),
        None => error.source().and_then(tls_error),
    }
}
