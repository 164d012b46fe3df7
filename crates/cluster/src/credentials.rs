//! What makes a process a member of a cluster: the secret that all members share, or a certificate of the cluster's authority.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::routing::MethodRouter;

use crate::tls::{Certificates, ListNews, MemberName, Role, in_words};
use crate::{ClusterError, Secret};

/// Where a member's credentials are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialFiles {
    /// The file with the secret that all members know. What they say is not encrypted.
    Secret(PathBuf),
    /// The directory with the member's certificate, its key, and the authority's certificate.
    Tls(PathBuf),
}

/// A member's credentials.
#[derive(Debug, Clone)]
pub(crate) enum Credentials {
    Secret(Secret),
    Tls(Arc<Certificates>),
}

impl Credentials {
    /// Reads the credentials of a member that has one of these roles.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn read(files: &CredentialFiles, roles: &[Role]) -> Result<Self, ClusterError> {
        Ok(match files {
            CredentialFiles::Secret(path) => Self::Secret(Secret::read(path)?),
            CredentialFiles::Tls(dir) => Self::Tls(Certificates::open(dir, roles)?),
        })
    }

    /// When the member's certificate ends, in seconds since 1970; none if it has none, or that does not end.
    pub fn ends(&self) -> Option<u64> {
        match self {
            Self::Secret(_) => None,
            Self::Tls(certificates) => certificates.ends(),
        }
    }

    /// What to say of the list of revoked certificates to a member that has the list of this digest, if that is known.
    pub fn news_for(&self, digest: Option<u64>) -> ListNews {
        match self {
            Self::Secret(_) => ListNews::default(),
            Self::Tls(certificates) => certificates.news_for(digest),
        }
    }

    /// Takes the list of revoked certificates that another member has, if it is one to take.
    pub fn take_news(&self, from: &str, news: &ListNews) {
        if let Self::Tls(certificates) = self {
            certificates.take_news(from, news);
        }
    }

    /// Whether what members say to each other is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

/// Who sends a request.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// One that knows the secret, which is that of all members: it may be any of them.
    KnowsSecret,
    /// The members that its certificate names.
    Certified(Arc<[MemberName]>),
}

impl Caller {
    /// Whether it may do what one of these roles may do.
    pub fn has_role(&self, roles: &[Role]) -> bool {
        match self {
            Self::KnowsSecret => true,
            Self::Certified(names) => names.iter().any(|it| roles.contains(&it.role)),
        }
    }

    /// Whether it may speak for the worker of this name.
    pub fn is_worker(&self, name: &str) -> bool {
        match self {
            Self::KnowsSecret => true,
            Self::Certified(names) => names
                .iter()
                .any(|it| it.role == Role::Worker && it.name == name),
        }
    }

    fn in_words(&self) -> String {
        match self {
            Self::KnowsSecret => "a member".to_owned(),
            Self::Certified(names) => in_words(names),
        }
    }
}

/// Notes who sends a request, and lets nobody in who is no member. In TLS the listener has noted it already.
pub(crate) async fn require_member(
    State(credentials): State<Credentials>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let is_member = match &credentials {
        Credentials::Secret(secret) => {
            request.extensions_mut().insert(Caller::KnowsSecret);
            secret.allows(request.headers())
        }
        Credentials::Tls(_) => request.extensions().get::<Caller>().is_some(),
    };
    if is_member {
        return next.run(request).await;
    }
    let told = "this is a port of a Meridian cluster: only members that know its secret are let in";
    (StatusCode::UNAUTHORIZED, told).into_response()
}

/// A route that members of these roles alone may use.
pub(crate) fn only<S>(roles: &'static [Role], route: MethodRouter<S>) -> MethodRouter<S>
where
    S: Clone + Send + Sync + 'static,
{
    let check = move |request: Request, next: Next| async move {
        let caller = request.extensions().get::<Caller>();
        if caller.is_some_and(|caller| caller.has_role(roles)) {
            return next.run(request).await;
        }
        let who = caller.map_or_else(|| "nobody".to_owned(), Caller::in_words);
        let needed = Role::any_of(roles);
        let told = format!("the certificate is that of {who}, and this needs that of {needed}");
        (StatusCode::FORBIDDEN, told).into_response()
    };
    route.route_layer(middleware::from_fn(check))
}
