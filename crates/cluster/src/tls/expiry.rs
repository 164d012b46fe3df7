//! When certificates end, and what is said of those that end soon.

use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, Error};

const DAY: u64 = 86_400;
/// A certificate that ends within this is warned of.
const ENDS_SOON: u64 = 30 * DAY;
/// The last second that a certificate can name (RFC 5280, 4.1.2.5): 9999-12-31T23:59:59Z.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

/// When a certificate ends that is valid now, in seconds since 1970. `None` if it does not end.
pub(super) fn end(
    verifier: &dyn ClientCertVerifier,
    own: &CertificateDer<'static>,
    others: &[CertificateDer<'static>],
) -> Option<u64> {
    // The library tells it of a certificate that has ended.
    let at_last = UnixTime::since_unix_epoch(LAST_SECOND);
    match verifier.verify_client_cert(own, others, at_last) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(not_after.as_secs())
        }
        _ => None,
    }
}

/// What is said of a certificate that ends then, if that is soon: `ends in 12 days: ...`.
pub(crate) fn ending(ends: Option<u64>) -> Option<String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    ending_at(ends?, now.map_or(0, |it| it.as_secs()))
}

fn ending_at(ends: u64, now: u64) -> Option<String> {
    let renew = "`meridian cluster init --renew` makes another";
    match ends.checked_sub(now) {
        None => Some(format!("has expired: {renew}")),
        Some(left) if left > ENDS_SOON => None,
        Some(left) if left < 2 * DAY => Some(format!("ends in {} h: {renew}", left / 3600)),
        Some(left) => Some(format!("ends in {} days: {renew}", left / DAY)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_within_some_weeks_is_said() {
        let said = |left: i64| ending_at(1_000_000_000, (1_000_000_000 - left) as u64);
        let day = DAY as i64;
        assert_eq!(said(31 * day), None);
        assert!(said(30 * day).unwrap().starts_with("ends in 30 days: "));
        assert!(said(2 * day - 1).unwrap().starts_with("ends in 47 h: "));
        assert!(said(0).unwrap().starts_with("ends in 0 h: "));
        assert!(said(-1).unwrap().starts_with("has expired: "));
        assert_eq!(ending(None), None);
    }
}
