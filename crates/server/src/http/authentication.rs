//! Authentication over HTTP: who sends a request, by its header `Authorization`, and which routes serve them.
//!
//! Each user has routes of their own, over the archive and the sessions that they see, so that no handler can show them more. While there
//! are no users everybody has the same.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ::users::UserList;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::Stream;
use tower::ServiceExt;

use super::browser_sessions::{self, BrowserSessions};
use super::problem::Problem;
use super::state::HttpState;
use super::tap::FORWARDED_SCHEME;
use super::unread_body::close_after_unread_body;
use super::{AllowedHosts, ClientAddress, Encryption, browser_login};
use crate::ClientError;
use crate::audit::AuditEntry;
use crate::authenticator::{Authenticator, LoginPolicy, Principal};
use crate::listener::Peer;
use crate::oidc;

/// The name of whoever has logged in. It is taken away where it comes with a request, and given here alone.
pub(crate) const LOGGED_IN: HeaderName = HeaderName::from_static("x-meridian-user");
/// The name of whoever has logged in, for clients of the Virtual Observatory (AuthVO 1.0).
const VO_AUTHENTICATED: HeaderName = HeaderName::from_static("x-vo-authenticated");
/// What everybody may ask: whether the server is there.
const OF_EVERYBODY: [&str; 2] = ["/healthz", "/readyz"];
/// Seconds after which whoever has reached a limit of what runs at a time may try again.
const RETRY_AFTER: &str = "5";
/// The same where too many log in.
const LOGIN_RETRY_AFTER: &str = "1";
/// How programs log in at [`LOGIN`] to get a cookie: by a form with the fields `username` and `password` (SSO 2.0, AuthVO 1.0).
const WITH_PASSWORD: &str = "ivo://ivoa.net/sso#tls-with-password";
/// Where sessions begin.
const LOGIN: &str = "/login";
/// What is asked of clients that have not logged in, and then a cookie.
const CHALLENGES: [&str; 2] = [
    "Basic realm=\"Meridian\", charset=\"UTF-8\"",
    "Bearer realm=\"Meridian\"",
];

/// The routes of each user.
#[derive(Debug)]
pub(crate) struct UserRoutes {
    state: Arc<HttpState>,
    names: Arc<AllowedHosts>,
    browsers: BrowserSessions,
    /// By the user's name.
    routes: Mutex<HashMap<String, (Arc<Principal>, Router)>>,
}

impl UserRoutes {
    pub(crate) fn new(state: HttpState, names: AllowedHosts, browsers: BrowserSessions) -> Self {
        Self {
            state: Arc::new(state),
            names: Arc::new(names),
            browsers,
            routes: Mutex::default(),
        }
    }

    /// All requests, each of which goes on to the routes of its user.
    pub(crate) fn router(self) -> Router {
        Router::new()
            .fallback(audited)
            .layer(from_fn(close_after_unread_body))
            .with_state(Arc::new(self))
    }

    pub(super) fn browsers(&self) -> &BrowserSessions {
        &self.browsers
    }

    pub(super) fn names(&self) -> &AllowedHosts {
        &self.names
    }

    pub(super) fn authenticator(&self) -> &Authenticator {
        &self.state.shared.authenticator
    }

    fn routes_of(&self, principal: &Arc<Principal>) -> Router {
        let name = principal.user.as_ref().map_or("", |user| &user.name);
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        // Sessions outlive changes of groups and limits that leave what the user may read as it was.
        if let Some((known, routes)) = routes.get_mut(name)
            && Arc::ptr_eq(&known.sessions, &principal.sessions)
            && known.user == principal.user
        {
            // By its place in memory the same user is told fastest.
            *known = Arc::clone(principal);
            return routes.clone();
        }
        let state = Arc::new(self.state.seen_by(principal));
        let made = super::router(state, Arc::clone(&self.names));
        routes.insert(name.to_owned(), (Arc::clone(principal), made.clone()));
        made
    }
}

/// Serves a request and writes it into the audit log, if there is one.
async fn audited(State(user_routes): State<Arc<UserRoutes>>, request: Request) -> Response<Body> {
    let shared = Arc::clone(&user_routes.state.shared);
    let is_told = shared.authenticator.audit().is_some();
    let is_probe = OF_EVERYBODY.contains(&request.uri().path());
    if !is_told || is_probe {
        return authenticate(user_routes, request).await;
    }
    let text = format!("{} {}", request.method(), request.uri());
    let (peer, begun) = (peer_of(&request), Instant::now());
    let response = authenticate(user_routes, request).await;
    if let Some(audit) = shared.authenticator.audit() {
        let user = response.extensions().get::<RequestUser>();
        let status = response.status();
        let text = match response.extensions().get::<DoneByForm>() {
            Some(done) => format!("{text} {}", done.0),
            None => text,
        };
        audit.add(&AuditEntry {
            event: "request",
            user: user.map_or("", |user| &user.0),
            from: Some(peer),
            protocol: "http",
            id: None,
            database: None,
            text: Some(&text),
            rows: None,
            outcome: match (status.is_client_error(), status.is_server_error()) {
                (true, _) => "rejected",
                (_, true) => "failed",
                _ => "ok",
            },
            code: Some(status.as_u16()),
            seconds: begun.elapsed(),
        });
    }
    response
}

/// What the form of a request has done, for the audit log: its address does not tell.
#[derive(Debug, Clone)]
pub(super) struct DoneByForm(pub(super) String);

/// Whose request a response answers.
#[derive(Debug, Clone)]
struct RequestUser(String);

fn peer_of(request: &Request) -> Peer {
    let address = request.extensions().get::<ClientAddress>();
    address.map_or(Peer::Socket, |address| Peer::Address(address.0))
}

/// What is known of a request before its sender is.
struct RequestContext {
    list: Arc<UserList>,
    peer: Peer,
    is_clear: bool,
    /// The challenge by which a cookie is offered, where it would be given.
    cookie: Option<HeaderValue>,
}

/// Who sends a request.
struct Sender {
    principal: Arc<Principal>,
    /// Whether a cookie of a browser says so.
    has_session: bool,
    has_logged_in: bool,
}

/// Serves a request as its user, or says how to log in.
async fn authenticate(user_routes: Arc<UserRoutes>, mut request: Request) -> Response<Body> {
    request.headers_mut().remove(LOGGED_IN);
    let authenticator = &user_routes.state.shared.authenticator;
    let list = match authenticator.login_policy().await {
        Ok(LoginPolicy::Open(principal)) => return serve(&user_routes, &principal, request).await,
        Ok(LoginPolicy::Required(list)) => list,
        Err(error) => {
            return Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.sentence).into_response();
        }
    };
    let is_open =
        request.method() == Method::OPTIONS || OF_EVERYBODY.contains(&request.uri().path());
    if is_open {
        return serve(&user_routes, &authenticator.nobody(&list), request).await;
    }
    let context = match RequestContext::of(list, authenticator, &request) {
        Ok(context) => context,
        Err(problem) => return problem.into_response(),
    };
    if logs_in(&request) {
        return context.log_in(&user_routes, request).await;
    }
    let (method, headers) = (request.method(), request.headers());
    match context.sender(&user_routes, method, headers).await {
        Ok(sender) => serve_sender(&user_routes, context, sender, request).await,
        Err(response) => response,
    }
}

/// Whether a request is about the sessions of browsers.
fn logs_in(request: &Request) -> bool {
    [LOGIN, "/logout"].contains(&request.uri().path())
}

impl RequestContext {
    /// # Errors
    /// The request brings a secret where that is not taken.
    fn of(
        list: Arc<UserList>,
        authenticator: &Authenticator,
        request: &Request,
    ) -> Result<Self, Problem> {
        let peer = peer_of(request);
        let is_clear = request.extensions().get() != Some(&Encryption(true));
        let takes_secrets = !is_clear || authenticator.may_log_in_clear(peer);
        let sends_secret = logs_in(request)
            || request.headers().contains_key(header::AUTHORIZATION)
            || browser_sessions::has_cookie(request.headers(), !is_clear);
        if sends_secret && !takes_secrets {
            let sentence =
                "passwords and tokens are taken in TLS alone here: send the request to https://";
            return Err(Problem::new(StatusCode::FORBIDDEN, sentence));
        }
        let cookie = takes_secrets.then(|| cookie_challenge(request, !is_clear));
        Ok(Self {
            list,
            peer,
            is_clear,
            cookie: cookie.flatten(),
        })
    }

    /// Begins or ends the session of a browser.
    async fn log_in(self, user_routes: &UserRoutes, request: Request) -> Response<Body> {
        let (list, peer) = (&self.list, self.peer);
        let mut response = browser_login::answer(user_routes, list, request, peer, !self.is_clear)
            .await
            .unwrap_or_else(Problem::into_response);
        if response.status() == StatusCode::UNAUTHORIZED {
            add_challenges(response.headers_mut(), self.cookie);
        }
        response
    }

    /// Who sends the request, or the response to whoever is not let in.
    async fn sender(
        &self,
        user_routes: &UserRoutes,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Sender, Response<Body>> {
        let authorization = headers.get(header::AUTHORIZATION).cloned();
        let browsers = &user_routes.browsers;
        let session = match authorization {
            Some(_) => None,
            None => {
                let found = browsers.user(headers, !self.is_clear, &self.list);
                found.await.map_err(Problem::into_response)?
            }
        };
        if let Some(user) = session {
            browser_sessions::check_origin(method, headers).map_err(Problem::into_response)?;
            return Ok(Sender {
                principal: user_routes.authenticator().of_session(&self.list, user),
                has_session: true,
                has_logged_in: true,
            });
        }
        let has_logged_in = authorization.is_some();
        match log_in(user_routes, &self.list, authorization, self.peer).await {
            Ok(principal) => Ok(Sender {
                principal,
                has_session: false,
                has_logged_in,
            }),
            Err(Rejection::Denied(sentence)) => {
                let mut response = unauthorized(&sentence);
                add_challenges(response.headers_mut(), self.cookie.clone());
                Err(response)
            }
            Err(Rejection::Busy(error)) => {
                let (status, after) = match error.retry_after {
                    Some(after) => (StatusCode::TOO_MANY_REQUESTS, after.as_secs().into()),
                    None => (
                        StatusCode::SERVICE_UNAVAILABLE,
                        HeaderValue::from_static(LOGIN_RETRY_AFTER),
                    ),
                };
                let mut response = Problem::new(status, error.sentence).into_response();
                response.headers_mut().insert(header::RETRY_AFTER, after);
                Err(response)
            }
        }
    }
}

/// Serves a request as its sender, within their limits.
async fn serve_sender(
    user_routes: &UserRoutes,
    context: RequestContext,
    sender: Sender,
    mut request: Request,
) -> Response<Body> {
    let principal = sender.principal;
    let user = principal.user.as_ref();
    let name = user.and_then(|user| HeaderValue::from_str(&user.name).ok());
    let (Some(user), Some(name)) = (user, name) else {
        return Problem::bad("a user whose name is not of ASCII letters cannot log in over HTTP")
            .into_response();
    };
    let limited = principal.usage.request();
    request.headers_mut().insert(LOGGED_IN, name.clone());
    let mut response = match limited {
        Ok(()) => serve(user_routes, &principal, request).await,
        Err(error) => too_many(error),
    };
    let of_user = RequestUser(user.name.clone());
    response.extensions_mut().insert(of_user);
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        // Whoever has used up a day's processor time waits for the next day.
        let until_then = principal.usage.check_time().err();
        let until_then = until_then.and_then(|error| error.retry_after);
        let after = until_then.map_or(HeaderValue::from_static(RETRY_AFTER), |time| {
            HeaderValue::from(time.as_secs())
        });
        let headers = response.headers_mut().entry(header::RETRY_AFTER);
        headers.or_insert(after);
    }
    if sender.has_logged_in {
        response.headers_mut().insert(VO_AUTHENTICATED, name);
    } else {
        // Login is optional: this is how to.
        add_challenges(response.headers_mut(), context.cookie);
    }
    if sender.has_session {
        browser_sessions::keep_private(&mut response);
    }
    response
}

async fn serve(
    user_routes: &UserRoutes,
    principal: &Arc<Principal>,
    request: Request,
) -> Response<Body> {
    let is_head = request.method() == Method::HEAD;
    match user_routes.routes_of(principal).oneshot(request).await {
        // The length of a response that is streamed is not known; of an empty body it would be said to be 0.
        Ok(response) if is_head => response.map(|_| Body::from_stream(unknown_length())),
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn unknown_length() -> impl Stream<Item = Result<Bytes, Infallible>> {
    futures::stream::empty()
}

/// Why nobody is known to send a request.
enum Rejection {
    /// What they brought does not let them in.
    Denied(String),
    /// Too many log in at once.
    Busy(ClientError),
}

/// Who sends a request.
async fn log_in(
    user_routes: &UserRoutes,
    list: &UserList,
    authorization: Option<HeaderValue>,
    peer: Peer,
) -> Result<Arc<Principal>, Rejection> {
    let authenticator = &user_routes.state.shared.authenticator;
    let Some(value) = authorization else {
        return authenticator.anonymous(list).ok_or_else(|| {
            Rejection::Denied(
                "log in: send a name and a password, as with curl -u NAME, or a token, as Authorization: Bearer".to_owned(),
            )
        });
    };
    let (name, found) = match credentials(&value) {
        Some(Credentials::Password(name, password)) => {
            let found = authenticator.log_in(list, &name, &password, peer).await;
            (name, found.map_err(Rejection::Busy)?)
        }
        Some(Credentials::Token(token)) => {
            let found = match authenticator.of_token(list, &token) {
                None if oidc::may_be_token(&token) => {
                    match authenticator.of_provider(list, &token).await {
                        Ok(principal) => Some(principal),
                        Err(why) => {
                            authenticator.failed_login("http", "", peer).await;
                            return Err(Rejection::Denied(why));
                        }
                    }
                }
                found => found,
            };
            (String::new(), found)
        }
        None => {
            return Err(Rejection::Denied(
                "the header Authorization cannot be read: send `Basic` and the base64 of name:password, or `Bearer` and a token"
                    .to_owned(),
            ));
        }
    };
    match found {
        Some(principal) => Ok(principal),
        None => {
            authenticator.failed_login("http", &name, peer).await;
            Err(Rejection::Denied(
                "the name, the password or the token is not right, or the token has expired"
                    .to_owned(),
            ))
        }
    }
}

/// What a request brings to log in with.
pub(super) enum Credentials {
    Password(String, String),
    Token(String),
}

/// Of RFC 7617 and RFC 6750.
pub(super) fn credentials(value: &HeaderValue) -> Option<Credentials> {
    let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Credentials::Token(rest.to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some(Credentials::Password(name.to_owned(), password.to_owned()))
}

/// The response to whoever has sent as many requests as they may.
fn too_many(error: ClientError) -> Response<Body> {
    let after = error.retry_after.unwrap_or_default().as_secs_f64().ceil();
    let mut response = Problem::from(error).into_response();
    let after = HeaderValue::from(after as u64);
    response.headers_mut().insert(header::RETRY_AFTER, after);
    response
}

/// The response to whoever is not let in; the challenges are added to it.
pub(super) fn unauthorized(sentence: &str) -> Response<Body> {
    Problem::new(StatusCode::UNAUTHORIZED, sentence).into_response()
}

/// The challenge of clients of the Virtual Observatory that keep cookies: where these are given, as an address that the client can reach.
/// `None` if the request does not say what the server is called.
fn cookie_challenge(request: &Request, is_encrypted: bool) -> Option<HeaderValue> {
    let headers = request.headers();
    // HTTP/2 has it in the address.
    let host = match request.uri().authority() {
        Some(authority) => authority.as_str(),
        None => headers.get(header::HOST)?.to_str().ok()?,
    };
    // What stands in quotes is a name and a port alone.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    let forwarded = headers.get(FORWARDED_SCHEME);
    let is_https = is_encrypted || forwarded.is_some_and(|scheme| scheme == "https");
    let scheme = if is_https { "https" } else { "http" };
    let text = format!(
        "ivoa_cookie standard_id=\"{WITH_PASSWORD}\", access_url=\"{scheme}://{host}{LOGIN}\""
    );
    let is_whole = !host.is_empty() && host.chars().all(is_plain);
    is_whole
        .then(|| HeaderValue::from_str(&text).ok())
        .flatten()
}

fn add_challenges(headers: &mut HeaderMap, cookie: Option<HeaderValue>) {
    for challenge in CHALLENGES {
        headers.append(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static(challenge),
        );
    }
    if let Some(cookie) = cookie {
        headers.append(header::WWW_AUTHENTICATE, cookie);
    }
}
