//! Who asks for a page, and what they may do.
//!
//! | the browser has | visitor |
//! |---|---|
//! | the cookie of a sign-in whose token is still good | that token's holder, with its scopes and streams as they are now |
//! | no cookie, is on this machine, and `http.allow_unauthenticated` is on while no token exists | a developer, who may do everything |
//! | anything else | nobody: signs in first |
//!
//! A sign-in is a row (`sign_in` of the store): every worker knows it, and a revoked token ends it within two seconds.

use std::sync::Arc;

use axum::http::{HeaderMap, header};
use lanekeeper_http::access::Peer;
use lanekeeper_http::problem::Problem;
use lanekeeper_postgres::inspect;
use lanekeeper_postgres::sign_in;
use lanekeeper_postgres::subscription::{self, Subscription};
use lanekeeper_postgres::token::{Grant, Scope};
use tokio_postgres::GenericClient;

use crate::state::Dashboard;
use crate::trouble::Trouble;

/// The cookie's name, and the one that browsers accept over HTTPS alone.
const COOKIE: &str = "lanekeeper";
const SECURE_COOKIE: &str = "__Host-lanekeeper";

/// Somebody who may read.
pub(crate) struct Visitor {
    /// `None`: a developer on this machine.
    grant: Option<Arc<Grant>>,
    /// What forms of this visitor are signed with.
    pub(crate) key: String,
    may_operate: bool,
}

impl Visitor {
    /// Who sends a request with these headers.
    pub(crate) async fn of(
        dashboard: &Dashboard,
        headers: &HeaderMap,
        peer: Peer,
    ) -> Result<Self, Trouble> {
        let takes_actions = dashboard.takes_actions();
        if let Some(id) = sign_in_of(headers)
            && let Some(grant) = holder(dashboard, id).await?
            && grant.has(Scope::Read)
            // Its pages show whole streams.
            && grant.reaches_all_sessions()
        {
            dashboard.desk.access.pace(&grant).await?;
            return Ok(Self {
                may_operate: takes_actions && grant.has(Scope::Operate),
                grant: Some(grant),
                key: id.to_owned(),
            });
        }
        let access = &dashboard.desk.access;
        if access.is_open_to_browser(headers, peer).await? {
            return Ok(Self {
                grant: None,
                key: dashboard.key.clone(),
                may_operate: takes_actions,
            });
        }
        let asked_by_other_site = headers
            .get("sec-fetch-site")
            .is_some_and(|site| site == "cross-site" || site == "same-site");
        Err(Trouble::SignInFirst {
            asked_by_other_site,
        })
    }

    /// The token's id.
    pub(crate) fn token_id(&self) -> Option<i64> {
        self.grant.as_ref().map(|grant| grant.token_id)
    }

    /// The token's name.
    pub(crate) fn name(&self) -> Option<&str> {
        self.grant.as_ref().map(|grant| grant.name.as_str())
    }

    /// Whether actions are offered, on the streams that it reaches.
    pub(crate) fn may_operate(&self) -> bool {
        self.may_operate
    }

    pub(crate) fn reaches(&self, stream: &str) -> bool {
        self.grant
            .as_ref()
            .is_none_or(|grant| grant.reaches(stream))
    }

    /// Whether it sees what belongs to no stream: workers, foreign locks.
    pub(crate) fn sees_all(&self) -> bool {
        self.grant
            .as_ref()
            .is_none_or(|grant| grant.streams().is_none())
    }

    /// Refuses what is of a stream that the visitor has no business with, in the words for what does not exist.
    pub(crate) fn require_stream(&self, stream: &str) -> Result<(), Trouble> {
        match self.reaches(stream) {
            true => Ok(()),
            false => Err(Trouble::not_found(format!(
                "There is no stream {stream:?}, or your token is not for it."
            ))),
        }
    }

    pub(crate) fn require_operate(&self, stream: &str) -> Result<(), Trouble> {
        self.require_stream(stream)?;
        match self.may_operate {
            true => Ok(()),
            false => Err(Trouble::forbidden(
                "Nothing was done: this needs a token with the scope operate, and a dashboard that is not read-only.",
            )),
        }
    }

    /// A reason for the record, with who gave it.
    pub(crate) fn reason(&self, reason: Option<&str>) -> String {
        let who = self.name().unwrap_or("a developer");
        match reason {
            Some(reason) => format!("{reason} (by {who}, dashboard)"),
            None => format!("by {who}, dashboard"),
        }
    }

    /// The streams that the visitor may see, by id; `None`: all.
    pub(crate) async fn stream_ids(
        &self,
        client: &impl GenericClient,
    ) -> Result<Option<Vec<i32>>, Trouble> {
        let Some(streams) = self.grant.as_ref().and_then(|grant| grant.streams()) else {
            return Ok(None);
        };
        // A token may be made before its stream.
        Ok(Some(inspect::find_streams(client, streams).await?))
    }

    /// The subscriptions in force that the visitor may see.
    pub(crate) async fn subscriptions(
        &self,
        client: &impl GenericClient,
    ) -> Result<Vec<Subscription>, Trouble> {
        let mut all = subscription::load(client).await?;
        all.retain(|it| !it.removed && self.reaches(&it.stream));
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }
}

async fn holder(dashboard: &Dashboard, id: &str) -> Result<Option<Arc<Grant>>, Trouble> {
    let client = dashboard.pool.get().await;
    let client = client.map_err(|_| Problem::away())?;
    match sign_in::find(&**client, id).await? {
        Some(token_id) => Ok(dashboard.desk.access.signed_in(token_id).await?),
        None => Ok(None),
    }
}

/// The id of the sign-in that a browser sends.
pub(crate) fn sign_in_of(headers: &HeaderMap) -> Option<&str> {
    // The one that only HTTPS could have set stands over the other.
    [SECURE_COOKIE, COOKIE]
        .iter()
        .find_map(|name| cookie(headers, name))
        .filter(|id| sign_in::is_id(id))
}

/// A cookie's value.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(given, value)| (given == name).then_some(value))
}

/// How the cookie of a sign-in is set; without an id it is taken away.
pub(crate) fn set_cookie(dashboard: &Dashboard, headers: &HeaderMap, id: Option<&str>) -> String {
    let is_secure = dashboard.config.secure_cookie
        || headers
            .get("x-forwarded-proto")
            .is_some_and(|scheme| scheme == "https");
    let (name, secure) = match is_secure {
        true => (SECURE_COOKIE, "; Secure"),
        false => (COOKIE, ""),
    };
    let (value, lasts_s) = match id {
        Some(id) => (id, dashboard.config.sign_in_lasts().as_secs()),
        None => ("", 0),
    };
    format!("{name}={value}; Path=/; Max-Age={lasts_s}; HttpOnly; SameSite=Strict{secure}")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(cookies: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_static(cookies));
        headers
    }

    #[test]
    fn a_cookie_is_found_among_others_and_by_its_whole_name() {
        let found = headers("xlanekeeper=1; lanekeeper=2; other=a=b");
        assert_eq!(cookie(&found, "lanekeeper"), Some("2"));
        assert_eq!(cookie(&found, "other"), Some("a=b"));
        assert_eq!(cookie(&found, "lane"), None);
    }

    #[test]
    fn what_is_no_id_is_asked_of_nobody() {
        assert_eq!(sign_in_of(&headers("lanekeeper=x")), None);
        assert_eq!(sign_in_of(&headers("lanekeeper=")), None);
    }
}
