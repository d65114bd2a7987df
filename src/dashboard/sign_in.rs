//! Signing in with an access token, and out.
//!
//! The token itself is neither kept nor sent back: a random id in a cookie stands for it (`visitor`). Attempts that fail
//! are limited (`attempts`).

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse as _, Response};
use lanekeeper_http::access::Peer;
use lanekeeper_http::lease::Lease;
use lanekeeper_postgres::sign_in as store;
use lanekeeper_postgres::token::{Grant, Scope};
use maud::html;

use crate::forgery;
use crate::form::Form;
use crate::layout;
use crate::notice::{own_path, see_other};
use crate::state::Dashboard;
use crate::trouble::Trouble;
use crate::visitor::{self, Visitor};

/// In the extensions of an answer: the visitor has to sign in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignInFirst {
    pub(crate) asked_by_other_site: bool,
}

/// The page that asks for a token, at the address that was asked for.
pub(crate) fn ask(
    dashboard: &Dashboard,
    asked: Option<&Uri>,
    first: SignInFirst,
    refused: Option<&str>,
) -> Response {
    let path = asked
        .and_then(Uri::path_and_query)
        .map_or("/", |path| path.as_str());
    let next = own_path(path);
    if first.asked_by_other_site && refused.is_none() {
        // A link of another site: the browser keeps the cookie to itself, until a page of ours asks.
        let again = format!("0; url={next}");
        let body = html! { main.narrow { p { a href=(next) { "Open the page" } } } };
        let page = layout::document("Opening", Some(&again), &body);
        return (StatusCode::UNAUTHORIZED, Html(page.into_string())).into_response();
    }
    let hours = dashboard.config.sign_in_hours;
    let page = layout::bare(
        "Sign in",
        None,
        html! {
            h1 { "Sign in" }
            p { "With an access token that has the scope " code { "read" } ", and " code { "operate" } " to act." }
            @if let Some(refused) = refused { p.notice.bad role="alert" { (refused) } }
            form.sign-in method="post" action="/sign-in" {
                input type="hidden" name="next" value=(next);
                label for="token" { "Access token" }
                input #token name="token" type="password" required autocomplete="current-password" autofocus
                    spellcheck="false" maxlength="512";
                button.primary type="submit" { "Sign in" }
            }
            p.muted { "An operator makes one: " }
            pre.command { code { "lanekeeper token create me --scope read --scope operate" } }
            p.muted { "The token is not kept here. The sign-in lasts " (hours) " hours, at every worker, and ends when the token is revoked." }
        },
    );
    (StatusCode::UNAUTHORIZED, Html(page.into_string())).into_response()
}

/// `GET /sign-in`
pub(crate) async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    match Visitor::of(&dashboard, &headers, peer).await {
        Ok(_) => Ok(see_other("/")),
        Err(Trouble::SignInFirst { .. }) => {
            let first = SignInFirst {
                asked_by_other_site: false,
            };
            let mut response = ask(&dashboard, None, first, None);
            *response.status_mut() = StatusCode::OK;
            Ok(response)
        }
        Err(trouble) => Err(trouble),
    }
}

/// `POST /sign-in`
pub(crate) async fn sign_in(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Trouble> {
    forgery::check_site(&headers)?;
    let from = peer.ip().to_canonical();
    let refuse = |next: &str, status, why: &str| {
        let asked = next.parse::<Uri>().ok();
        let first = SignInFirst {
            asked_by_other_site: false,
        };
        let mut response = ask(&dashboard, asked.as_ref(), first, Some(why));
        *response.status_mut() = status;
        Ok(response)
    };
    // Before the body is read, which takes a stranger's share.
    if !dashboard.attempts.may_try(from, Instant::now()) {
        let why = "Too many attempts failed from your address. Wait a minute.";
        return refuse("/", StatusCode::TOO_MANY_REQUESTS, why);
    }
    let body = dashboard.desk.sign_in_body(body).await?;
    let form = Form::of_body(&body);
    let next = own_path(form.raw("next").unwrap_or("/"));
    let token = form.raw("token").unwrap_or_default().trim();
    let grant = match dashboard.desk.access.holder(token).await {
        Ok(grant) => grant,
        Err(problem) => {
            return match problem.problem_type().status {
                StatusCode::UNAUTHORIZED => {
                    dashboard.attempts.failed(from, Instant::now());
                    let why = "This token is not valid here, was revoked, or has expired.";
                    refuse(next, StatusCode::UNAUTHORIZED, why)
                }
                _ => Err(problem.into()),
            };
        }
    };
    if !grant.has(Scope::Read) {
        let why = "This token has no scope read: it cannot be used for the dashboard.";
        return refuse(next, StatusCode::FORBIDDEN, why);
    }
    if !grant.reaches_all_sessions() {
        let why = "This token is for some sessions only: it cannot be used for the dashboard.";
        return refuse(next, StatusCode::FORBIDDEN, why);
    }
    dashboard.desk.access.pace(&grant).await?;
    let id = remember(&dashboard, &grant).await?;
    tracing::info!(token = %grant.name, "somebody signed in at the dashboard");
    let mut response = see_other(next);
    set(&dashboard, &headers, &mut response, Some(&id));
    Ok(response)
}

async fn remember(dashboard: &Dashboard, grant: &Grant) -> Result<String, Trouble> {
    let id = store::new_id();
    let lease = Lease::take(&dashboard.pool).await?;
    let lasts = dashboard.config.sign_in_lasts();
    store::create(lease.client(), &id, grant.token_id, lasts).await?;
    lease.done();
    Ok(id)
}

/// `POST /sign-out`
pub(crate) async fn sign_out(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Trouble> {
    let visitor = Visitor::of(&dashboard, &headers, peer).await?;
    let body = dashboard.desk.small_body(visitor.token_id(), body).await?;
    forgery::check(&visitor, &headers, &Form::of_body(&body))?;
    if let Some(id) = visitor::sign_in_of(&headers) {
        let lease = Lease::take(&dashboard.pool).await?;
        store::end(lease.client(), id).await?;
        lease.done();
    }
    let mut response = see_other("/sign-in");
    set(&dashboard, &headers, &mut response, None);
    Ok(response)
}

fn set(dashboard: &Dashboard, headers: &HeaderMap, response: &mut Response, id: Option<&str>) {
    let cookie = visitor::set_cookie(dashboard, headers, id);
    let cookie = HeaderValue::from_str(&cookie).expect("an id is hexadecimal");
    response.headers_mut().append(header::SET_COOKIE, cookie);
}
