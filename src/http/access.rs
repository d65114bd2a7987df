//! Checks access: bearer tokens with scopes, and their rate limits.
//!
//! A token is looked up in Postgres and cached for two seconds, so a revoked token is refused after two seconds at
//! most. A request without a token is refused. `http.allow_unauthenticated`, for developers' machines, makes one
//! exception: as long as no token was ever created, programs on this machine need none. The exception does not cover
//! web pages in a browser on this machine, nor requests that a proxy marks as forwarded.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use deadpool_postgres::Pool;
use lanekeeper_core::bucket::Bucket;
use lanekeeper_engine::Probe;
use lanekeeper_limit::{Answer, HORIZON};
use lanekeeper_postgres::append::RESERVED_STREAM;
use lanekeeper_postgres::token::{self, Bearer, Grant, Scope};
use tokio::time::{Instant, sleep_until};

use super::local::{is_browser_of_this_machine, is_of_this_machine};
use super::problem::Problem;
use super::problem_type;

/// How long a token's lookup is cached.
const BELIEVED_FOR: Duration = Duration::from_secs(2);
/// Tokens that are cached. When there are more, the whole cache is emptied.
const REMEMBERED: usize = 4_096;
/// Requests that a token may send at once before its rate spaces them.
const BURST: u32 = 100;

/// Cached lookups of tokens, with their times. `None`: the token does not exist or was revoked.
type Found = HashMap<i64, (Instant, Option<Arc<Grant>>)>;

/// Where a request's connection comes from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// Which part of a stream a request is about.
#[derive(Clone, Copy, Debug)]
pub enum Reach<'a> {
    WholeStream,
    Sessions(&'a [&'a str]),
    /// Sessions that its body names: the handler asks for each of them with [`may_reach`].
    Named,
}

/// Checks requests.
pub struct Access {
    pool: Pool,
    probe: Probe,
    /// Whether programs on this machine need no token as long as no token exists.
    allow_unauthenticated: bool,
    found: Mutex<Found>,
    /// Whether any token exists, and when that was read.
    any: Mutex<Option<(Instant, bool)>>,
}

impl Access {
    pub fn new(pool: Pool, probe: Probe, allow_unauthenticated: bool) -> Self {
        Self {
            pool,
            probe,
            allow_unauthenticated,
            found: Mutex::default(),
            any: Mutex::default(),
        }
    }

    /// Lets a request through that may do this with all sessions of a stream, or says why not. Returns its token's grant;
    /// `None`: it may do without.
    pub async fn judge(
        &self,
        headers: &HeaderMap,
        peer: Peer,
        scope: Scope,
        stream: &str,
    ) -> Result<Option<Arc<Grant>>, Problem> {
        self.judge_reach(headers, peer, scope, stream, Reach::WholeStream)
            .await
    }

    /// As [`Self::judge`], for one session.
    pub async fn judge_session(
        &self,
        headers: &HeaderMap,
        peer: Peer,
        scope: Scope,
        stream: &str,
        session: &str,
    ) -> Result<Option<Arc<Grant>>, Problem> {
        self.judge_reach(headers, peer, scope, stream, Reach::Sessions(&[session]))
            .await
    }

    /// As [`Self::judge`], for a part of the stream.
    pub async fn judge_reach(
        &self,
        headers: &HeaderMap,
        Peer(peer): Peer,
        scope: Scope,
        stream: &str,
        reach: Reach<'_>,
    ) -> Result<Option<Arc<Grant>>, Problem> {
        // As in the database, where no role but the owner's may: a worker is the owner.
        if scope == Scope::Produce && stream == RESERVED_STREAM {
            let detail =
                format!("the engine alone appends to the stream {stream:?}: nothing was done");
            return Err(
                Problem::new(problem_type::FORBIDDEN, detail).hint("use a stream of your own")
            );
        }
        let Some(grant) = self.admit(headers, peer, scope).await? else {
            return Ok(None);
        };
        if !grant.reaches(stream) {
            let on = format!("stream {stream:?}");
            return Err(forbidden(&grant, scope, &on));
        }
        match reach {
            Reach::WholeStream if !grant.reaches_all_sessions() => {
                let on = format!("all sessions of stream {stream:?}");
                return Err(forbidden(&grant, scope, &on));
            }
            Reach::Sessions(sessions) => {
                for session in sessions {
                    may_reach(Some(&grant), scope, stream, session)?;
                }
            }
            Reach::WholeStream | Reach::Named => {}
        }
        self.pace(&grant).await?;
        Ok(Some(grant))
    }

    /// Lets a request through that may do this with some streams. Returns its token's grant, which says with which;
    /// `None`: it may do without, with all.
    pub async fn judge_any(
        &self,
        headers: &HeaderMap,
        Peer(peer): Peer,
        scope: Scope,
    ) -> Result<Option<Arc<Grant>>, Problem> {
        let Some(grant) = self.admit(headers, peer, scope).await? else {
            return Ok(None);
        };
        if !grant.reaches_all_sessions() {
            return Err(forbidden(&grant, scope, "anything but its sessions"));
        }
        self.pace(&grant).await?;
        Ok(Some(grant))
    }

    /// Lets a request through whose token has the scope. Returns its grant: whether it reaches what the request turns out to
    /// be about is for the caller to see. `None`: it may do without, with all.
    pub async fn judge_holder(
        &self,
        headers: &HeaderMap,
        Peer(peer): Peer,
        scope: Scope,
    ) -> Result<Option<Arc<Grant>>, Problem> {
        let grant = self.admit(headers, peer, scope).await?;
        if let Some(grant) = &grant {
            self.pace(grant).await?;
        }
        Ok(grant)
    }

    /// Lets a request through whose token has one of these scopes, before it is known what it is about: that is for
    /// [`Self::judge_reach`] to see, which counts it against the token's rate, too.
    ///
    /// # Errors
    /// The token has none of them, or is not valid.
    pub async fn admit_any(
        &self,
        headers: &HeaderMap,
        Peer(peer): Peer,
        scopes: &[Scope],
    ) -> Result<Option<Arc<Grant>>, Problem> {
        let mut refused = Problem::unauthorized("the request has no scope: nothing was done");
        for scope in scopes {
            match self.admit(headers, peer, *scope).await {
                Err(problem) if problem.problem_type() == problem_type::FORBIDDEN => {
                    refused = problem;
                }
                admitted => return admitted,
            }
        }
        Err(refused)
    }

    /// The grant of a request's token, which has this scope; `None` where none is needed.
    async fn admit(
        &self,
        headers: &HeaderMap,
        peer: SocketAddr,
        scope: Scope,
    ) -> Result<Option<Arc<Grant>>, Problem> {
        let Some(given) = headers.get(header::AUTHORIZATION) else {
            if is_of_this_machine(peer, headers) && self.is_open().await? {
                return Ok(None);
            }
            return Err(
                Problem::unauthorized("the request has no access token: nothing was done").hint(
                    "send Authorization: Bearer …; make a token with `lanekeeper token create`. On a \
                     developer's machine http.allow_unauthenticated lets its programs in without",
                ),
            );
        };
        let token = given
            .to_str()
            .ok()
            .and_then(|given| given.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map_or("", |(_, token)| token.trim());
        let grant = self.holder(token).await?;
        if !grant.has(scope) {
            return Err(forbidden(&grant, scope, "any stream"));
        }
        Ok(Some(grant))
    }

    /// The grant of a token that somebody shows, whatever it allows.
    ///
    /// # Errors
    /// The token is not valid, or cannot be looked up.
    pub async fn holder(&self, token: &str) -> Result<Arc<Grant>, Problem> {
        let refused =
            || Problem::unauthorized("the access token is not valid here: nothing was done");
        let bearer: Bearer = token.parse().map_err(|_| refused())?;
        let grant = self.grant(bearer.token_id()).await?;
        let grant = grant
            .filter(|grant| grant.is_of(&bearer))
            .ok_or_else(refused)?;
        // Only its holder learns that it was good once.
        if grant.has_expired {
            let detail = format!(
                "the access token {:?} has expired: nothing was done",
                grant.name
            );
            return Err(Problem::unauthorized(detail)
                .hint("revoke it, and make another with `lanekeeper token create`"));
        }
        Ok(grant)
    }

    /// The grant of a token whose holder signed in with it before, as it is now; `None` where it is not valid any more.
    ///
    /// # Errors
    /// It cannot be looked up.
    pub async fn signed_in(&self, token_id: i64) -> Result<Option<Arc<Grant>>, Problem> {
        let grant = self.grant(token_id).await?;
        Ok(grant.filter(|grant| !grant.has_expired))
    }

    /// Whether a browser on this machine needs no token for the pages of this listener: as other programs, see
    /// [`Self::judge`]. What another page sends in the browser's name does not count.
    ///
    /// # Errors
    /// It cannot be looked up whether there are tokens.
    pub async fn is_open_to_browser(
        &self,
        headers: &HeaderMap,
        Peer(peer): Peer,
    ) -> Result<bool, Problem> {
        Ok(is_browser_of_this_machine(peer, headers) && self.is_open().await?)
    }

    /// Enforces a token's rate: a request that is a little too early waits, one that is much too early is refused.
    ///
    /// # Errors
    /// It was refused.
    pub async fn pace(&self, grant: &Grant) -> Result<(), Problem> {
        let rate = match &grant.rate {
            Ok(None) => return Ok(()),
            Ok(Some(rate)) => *rate,
            // Whoever meant to bound it did not mean this: it may send nothing rather than everything.
            Err(error) => {
                let name = &grant.name;
                let detail = format!(
                    "the rate of the access token {name:?} cannot be read: nothing was done. {error}"
                );
                let hint = "revoke the token with `lanekeeper token revoke`, and make another";
                return Err(Problem::new(problem_type::FORBIDDEN, detail).hint(hint));
            }
        };
        let buckets = [Bucket {
            key: format!("token {}", grant.token_id).into(),
            rate,
            burst: rate.sends().min(BURST),
        }];
        let mut slot = None;
        loop {
            match self
                .probe
                .limiter()
                .ask(&buckets, slot.take(), HORIZON)
                .await
            {
                Answer::Go => return Ok(()),
                Answer::Wait { until, slot: given } => {
                    slot = given;
                    sleep_until(until).await;
                }
                Answer::Later { after, .. } | Answer::Elsewhere { again: after } => {
                    let detail = format!(
                        "the access token {:?} may send {rate}: nothing was done",
                        grant.name
                    );
                    let after_s = after.as_secs_f64().ceil() as u64;
                    let of = problem_type::RATE_LIMITED;
                    return Err(Problem::later(of, detail, after_s));
                }
            }
        }
    }

    async fn grant(&self, token_id: i64) -> Result<Option<Arc<Grant>>, Problem> {
        let remembered = |found: &Found| {
            let (at, grant) = found.get(&token_id)?;
            (at.elapsed() < BELIEVED_FOR).then(|| grant.clone())
        };
        if let Some(grant) = remembered(&self.found.lock().unwrap_or_else(PoisonError::into_inner))
        {
            return Ok(grant);
        }
        let client = self.pool.get().await.map_err(|_| Problem::away())?;
        let grant = token::find(&**client, token_id).await.map_err(away)?;
        let grant = grant.map(Arc::new);
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= REMEMBERED {
            found.clear();
        }
        found.insert(token_id, (Instant::now(), grant.clone()));
        Ok(grant)
    }

    /// Whether programs on this machine may do everything without a token.
    async fn is_open(&self) -> Result<bool, Problem> {
        if !self.allow_unauthenticated {
            return Ok(false);
        }
        if let Some((at, any)) = *self.any.lock().unwrap_or_else(PoisonError::into_inner)
            && (any || at.elapsed() < BELIEVED_FOR)
        {
            return Ok(!any);
        }
        let client = self.pool.get().await.map_err(|_| Problem::away())?;
        let any = token::any(&**client).await.map_err(away)?;
        *self.any.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), any));
        Ok(!any)
    }
}

/// Whether a request may do this with a session that its body names.
///
/// # Errors
/// Its token is bound to other sessions.
pub(super) fn may_reach(
    grant: Option<&Grant>,
    scope: Scope,
    stream: &str,
    session: &str,
) -> Result<(), Problem> {
    match grant.filter(|grant| !grant.reaches_session(session)) {
        None => Ok(()),
        Some(grant) => {
            let session = Problem::excerpt(session);
            let on = format!("session {session:?} of stream {stream:?}");
            Err(forbidden(grant, scope, &on))
        }
    }
}

/// A reason for the record of operators' actions, with who gave it.
pub(crate) fn reason_with_name(grant: Option<&Grant>, reason: Option<&str>) -> String {
    let who = grant.map_or("a program of this machine", |grant| grant.name.as_str());
    match reason {
        Some(reason) => format!("{reason} (by {who}, HTTP API)"),
        None => format!("by {who}, HTTP API"),
    }
}

pub(super) fn forbidden(grant: &Grant, scope: Scope, on: &str) -> Problem {
    let detail = format!(
        "the access token {:?} may not {} on {on}: nothing was done",
        grant.name,
        scope.as_str()
    );
    Problem::new(problem_type::FORBIDDEN, detail)
}

fn away(error: lanekeeper_postgres::StoreError) -> Problem {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "access tokens cannot be read"
    );
    Problem::away()
}
