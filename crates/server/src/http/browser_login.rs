//! `/login` and `/logout`: where browsers begin and end their sessions.

use ::users::{Token, UserList};
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::response::{Html, IntoResponse};

use super::authentication::{Credentials, UserRoutes, credentials, unauthorized};
use super::browser_sessions::{PAGE, check_origin};
use super::parameters::RequestParameters;
use super::problem::Problem;
use crate::listener::Peer;
use crate::oidc;

/// Bytes of the longest form.
const LONGEST_FORM: usize = 4096;

/// Answers a request for one of the two.
pub(super) async fn answer(
    routes: &UserRoutes,
    list: &UserList,
    request: Request,
    peer: Peer,
    is_encrypted: bool,
) -> Result<Response<Body>, Problem> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    routes.names().check(method, uri, headers)?;
    // Also without a session: nobody is to be logged in as somebody else without noticing.
    check_origin(method, headers)?;
    let mut response = match (method, uri.path()) {
        (&Method::GET | &Method::HEAD, _) => Html(PAGE).into_response(),
        (&Method::POST, "/login") => {
            let headers = headers.clone();
            log_in(routes, list, request, &headers, peer, is_encrypted).await?
        }
        (&Method::POST, _) => {
            let cookie = routes.browsers().end(headers, is_encrypted).await?;
            done(headers, cookie, StatusCode::NO_CONTENT)
        }
        _ => {
            let sentence = "GET shows a page, POST logs in or out";
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, sentence));
        }
    };
    let never = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, never);
    let framing =
        HeaderValue::from_static("default-src 'none'; form-action 'self'; frame-ancestors 'none'");
    response
        .headers_mut()
        .insert(header::CONTENT_SECURITY_POLICY, framing);
    Ok(response)
}

/// Begins a session of whoever sends a name and a password, in a form or as Basic.
async fn log_in(
    routes: &UserRoutes,
    list: &UserList,
    request: Request,
    headers: &HeaderMap,
    peer: Peer,
    is_encrypted: bool,
) -> Result<Response<Body>, Problem> {
    let given = match headers.get(header::AUTHORIZATION).and_then(credentials) {
        Some(Credentials::Password(name, password)) => Some((name, password)),
        Some(Credentials::Token(_)) => return Err(no_token()),
        None => of_form(request).await?,
    };
    let Some((name, password)) = given else {
        return Err(Problem::bad(
            "give a name and a password, as the fields user (or username) and password of a form",
        ));
    };
    if Token::may_be(&password) || oidc::may_be_token(&password) {
        return Err(no_token());
    }
    let found = routes.authenticator().log_in(list, &name, &password, peer);
    let found = found.await.map_err(|error| match error.retry_after {
        Some(_) => Problem::from(error),
        None => Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.sentence),
    })?;
    let Some(user) = found.and_then(|principal| principal.user.clone()) else {
        routes
            .authenticator()
            .failed_login("http", &name, peer)
            .await;
        return Ok(unauthorized("the name or the password is not right"));
    };
    let cookie = routes.browsers().begin(&user, is_encrypted).await?;
    // Clients of the Virtual Observatory look for this status and the cookie.
    Ok(done(headers, cookie, StatusCode::OK))
}

/// A token ends when it expires or is taken back, and a session would not.
fn no_token() -> Problem {
    Problem::bad(
        "sessions are begun with a password: send a token with each request, as Authorization: Bearer",
    )
}

/// The name and the password of a form.
async fn of_form(request: Request) -> Result<Option<(String, String)>, Problem> {
    let form = to_bytes(request.into_body(), LONGEST_FORM).await;
    let form = form.map_err(|_| Problem::bad("the form cannot be read, or has more than 4 KiB"))?;
    // Not of the address, which is written into logs.
    let pairs = form_urlencoded::parse(&form).into_owned().collect();
    let given = RequestParameters::of(pairs);
    let password = given.all().iter().find(|(name, _)| name == "PASSWORD");
    // `username` is what clients of the Virtual Observatory send (SSO 2.0).
    let name = given.value("USER")?.or(given.value("USERNAME")?);
    let name = name.map(str::to_owned);
    Ok(name.zip(password.map(|(_, password)| password.clone())))
}

/// Sends a browser to the overview, and tells a program that it is done.
fn done(headers: &HeaderMap, cookie: Option<HeaderValue>, status: StatusCode) -> Response<Body> {
    let accepted = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok());
    let is_browser = accepted.is_some_and(|accepted| accepted.contains("text/html"));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    if is_browser {
        *response.status_mut() = StatusCode::SEE_OTHER;
        let overview = HeaderValue::from_static("/");
        response.headers_mut().insert(header::LOCATION, overview);
    }
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
