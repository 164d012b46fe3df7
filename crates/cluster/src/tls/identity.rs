//! Who a member is: its role and its name, as DNS names in its certificate.
//!
//! ```text
//!   w1.worker.meridian.internal      a worker, w1
//!   worker.meridian.internal         a worker: what the other side verifies, whatever the address
//! ```

use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

/// What a member may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Sends pieces, and says what workers hold.
    FrontEnd,
    /// Holds files and runs pieces.
    Worker,
    /// Asks a front end for the state of the cluster, and drains and removes workers.
    Operator,
}

/// Characters that a name has at most: it is one label, or several, of a DNS name.
const LONGEST_NAME: usize = 100;
const LONGEST_LABEL: usize = 63;

impl Role {
    /// Every role.
    pub(crate) const ALL: [Self; 3] = [Self::FrontEnd, Self::Worker, Self::Operator];

    /// The role as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::FrontEnd => "front end",
            Self::Worker => "worker",
            Self::Operator => "operator",
        }
    }

    /// Members of these roles in words: `a worker or an operator`.
    pub(crate) fn any_of(roles: &[Self]) -> String {
        let words: Vec<String> = roles
            .iter()
            .map(|role| match role {
                Self::Operator => format!("an {}", role.name()),
                _ => format!("a {}", role.name()),
            })
            .collect();
        words.join(" or ")
    }

    /// The DNS name that every certificate of this role has.
    pub(crate) fn domain(self) -> &'static str {
        match self {
            Self::FrontEnd => "front-end.meridian.internal",
            Self::Worker => "worker.meridian.internal",
            Self::Operator => "operator.meridian.internal",
        }
    }

    /// The same as the name of a server.
    pub(crate) fn server_name(self) -> Option<ServerName<'static>> {
        ServerName::try_from(self.domain()).ok()
    }
}

/// A member as its certificate names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberName {
    pub role: Role,
    pub name: String,
}

impl MemberName {
    /// A member, if its name can be part of a DNS name.
    ///
    /// # Errors
    /// A sentence that says what names there can be.
    pub fn new(role: Role, name: &str) -> Result<Self, String> {
        let is_label = |label: &str| {
            let inside =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            !label.is_empty()
                && label.len() <= LONGEST_LABEL
                && label.bytes().all(inside)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        match name.len() <= LONGEST_NAME && name.split('.').all(is_label) {
            true => Ok(Self {
                role,
                name: name.to_owned(),
            }),
            false => Err(format!(
                "{name:?} cannot be a name in a certificate: give lower-case letters, digits, - and ., as in w1 or w1.example.org"
            )),
        }
    }

    /// The DNS names of its certificate.
    pub fn dns_names(&self) -> [String; 2] {
        let domain = self.role.domain();
        [format!("{}.{domain}", self.name), domain.to_owned()]
    }

    /// The members that a certificate names. One whose names are not all there is none.
    pub fn all_of(certificate: &CertificateDer<'_>) -> Vec<Self> {
        let Ok(certificate) = EndEntityCert::try_from(certificate) else {
            return Vec::new();
        };
        let names: Vec<String> = certificate
            .valid_dns_names()
            .map(str::to_ascii_lowercase)
            .collect();
        let of_role = |role: Role| {
            let has_role = names.iter().any(|name| name == role.domain());
            let members = names
                .iter()
                .filter(move |_| has_role)
                .filter_map(move |name| {
                    let name = name.strip_suffix(role.domain())?.strip_suffix('.')?;
                    Self::new(role, name).ok()
                });
            members.collect::<Vec<Self>>()
        };
        Role::ALL.into_iter().flat_map(of_role).collect()
    }
}

impl std::fmt::Display for MemberName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the {} {}", self.role.name(), self.name)
    }
}

/// Members in words.
pub(crate) fn in_words(members: &[MemberName]) -> String {
    match members {
        [] => "no member of a cluster".to_owned(),
        members => {
            let words: Vec<String> = members.iter().map(MemberName::to_string).collect();
            words.join(" and ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_dns_names() {
        for name in ["w1", "w1.example.org", "a-b", "0"] {
            assert!(MemberName::new(Role::Worker, name).is_ok(), "{name}");
        }
        let long = "a".repeat(64);
        for name in [
            "",
            ".",
            "a..b",
            "W1",
            "a b",
            "-a",
            "a-",
            "a_b",
            "ä",
            "*",
            long.as_str(),
        ] {
            assert!(MemberName::new(Role::Worker, name).is_err(), "{name}");
        }
    }
}
