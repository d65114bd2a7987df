//! Signed links: a URL that may be followed until it expires, for browsers, which cannot send a token with EventSource.
//!
//! ```text
//! /v1/streams/runs/sessions/r1/events/live?expires=1767225600&signature=JrL3…&cursor=17.42
//! └─────────────────── signed, as it is sent ───────────────┘                └ not signed ┘
//! ```
//!
//! The signature is the HMAC-SHA256 of everything before `&signature=`, in base64url without padding. Nothing is brought into
//! a canonical form, so there is no second way to write a link. What follows the signature may say where to begin and which
//! types to send, and nothing about access.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use lanekeeper_secret::Secret;
use sha2::Sha256;
use thiserror::Error;

/// What separates the signed part from the rest.
const MARK: &str = "&signature=";
/// A shorter secret may be guessed.
const SHORTEST: usize = 16;

/// The secrets of signed links, by which of them a link may be signed.
#[derive(Clone, Debug, Default)]
pub struct Links {
    secrets: Vec<Secret>,
}

#[derive(Debug, Error)]
#[error("the secret of signed links has fewer than {SHORTEST} bytes")]
pub struct ShortSecret;

/// Why a link does not let its client in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    NoSecrets,
    Invalid,
    Expired,
}

/// A link that lets its client in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// The part of the query that was signed.
    pub signed: &'a str,
    /// The rest of it.
    pub rest: &'a str,
    pub expires_in: Duration,
}

impl Links {
    /// # Errors
    /// A secret is too short.
    pub fn new(secrets: Vec<Secret>) -> Result<Self, ShortSecret> {
        match secrets.iter().any(|s| s.expose().len() < SHORTEST) {
            true => Err(ShortSecret),
            false => Ok(Self { secrets }),
        }
    }

    fn mac(secret: &Secret, signed: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes())
            .expect("a key may have any length");
        mac.update(signed.as_bytes());
        mac
    }

    /// Signs a path with a query. `None`: there is no secret.
    pub fn sign(&self, path_and_query: &str) -> Option<String> {
        let mac = Self::mac(self.secrets.first()?, path_and_query);
        let signature = URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
        Some(format!("{path_and_query}{MARK}{signature}"))
    }

    /// Judges a request's path and query. `None`: it is no signed link.
    pub fn judge<'a>(
        &self,
        path_and_query: &'a str,
        now: SystemTime,
    ) -> Option<Result<Link<'a>, Refused>> {
        let (before, after) = path_and_query.split_once(MARK)?;
        Some(self.judge_parts(before, after, now))
    }

    fn judge_parts<'a>(
        &self,
        before: &'a str,
        after: &'a str,
        now: SystemTime,
    ) -> Result<Link<'a>, Refused> {
        if self.secrets.is_empty() {
            return Err(Refused::NoSecrets);
        }
        let (signature, rest) = after.split_once('&').unwrap_or((after, ""));
        let given = URL_SAFE_NO_PAD
            .decode(signature)
            .map_err(|_| Refused::Invalid)?;
        // In constant time for each secret, and all are tried.
        let fits = self.secrets.iter().fold(false, |fits, secret| {
            fits | Self::mac(secret, before).verify_slice(&given).is_ok()
        });
        if !fits {
            return Err(Refused::Invalid);
        }
        let (_, signed) = before.split_once('?').ok_or(Refused::Invalid)?;
        let mut expiries = url::form_urlencoded::parse(signed.as_bytes())
            .filter(|(name, _)| name == "expires")
            .map(|(_, value)| value.parse::<u64>());
        let (Some(Ok(expires)), None) = (expiries.next(), expiries.next()) else {
            return Err(Refused::Invalid);
        };
        let expires = UNIX_EPOCH
            .checked_add(Duration::from_secs(expires))
            .ok_or(Refused::Invalid)?;
        match expires.duration_since(now) {
            Ok(expires_in) if !expires_in.is_zero() => Ok(Link {
                signed,
                rest,
                expires_in,
            }),
            _ => Err(Refused::Expired),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/v1/streams/runs/sessions/r1/events/live?expires=1000";

    fn links(secrets: &[&str]) -> Links {
        Links::new(secrets.iter().map(|s| Secret::new(*s)).collect()).unwrap()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_link_is_good_until_it_expires_and_as_it_was_signed() {
        let links = links(&["0123456789abcdef"]);
        let link = links.sign(PATH).unwrap();
        let judged = links.judge(&link, at(999)).unwrap().unwrap();
        assert_eq!((judged.signed, judged.rest), ("expires=1000", ""));
        assert_eq!(judged.expires_in, Duration::from_secs(1));
        assert_eq!(links.judge(&link, at(1000)), Some(Err(Refused::Expired)));
        let more = format!("{link}&cursor=17.42");
        let judged = links.judge(&more, at(1)).unwrap().unwrap();
        assert_eq!(judged.rest, "cursor=17.42");
        assert_eq!(links.judge(PATH, at(1)), None);
    }

    #[test]
    fn whatever_is_changed_in_a_link_makes_it_invalid() {
        let links = links(&["0123456789abcdef"]);
        let link = links.sign(PATH).unwrap();
        for bad in [
            link.replace("r1", "r2"),
            link.replace("=1000", "=2000"),
            link.replace("live?", "live?session=r2&"),
            link[..link.len() - 1].to_owned(),
            format!("{PATH}&signature="),
            format!("{PATH}&signature=x&{}", link.split_once(MARK).unwrap().1),
        ] {
            assert_eq!(
                links.judge(&bad, at(1)),
                Some(Err(Refused::Invalid)),
                "{bad}"
            );
        }
        // Signed, but not for any time, or for two.
        for path in ["/v1/x?a=1", "/v1/x?expires=1&expires=9999", "/v1/x"] {
            let link = links.sign(path).unwrap();
            assert_eq!(
                links.judge(&link, at(1)),
                Some(Err(Refused::Invalid)),
                "{path}"
            );
        }
    }

    #[test]
    fn links_of_an_older_secret_are_good_as_long_as_it_is_listed() {
        let old = links(&["0123456789abcdef"]).sign(PATH).unwrap();
        let both = links(&["fedcba9876543210", "0123456789abcdef"]);
        assert!(both.judge(&old, at(1)).unwrap().is_ok());
        let new = links(&["fedcba9876543210"]);
        assert_eq!(new.judge(&old, at(1)), Some(Err(Refused::Invalid)));
        assert_eq!(links(&[]).judge(&old, at(1)), Some(Err(Refused::NoSecrets)));
        assert!(Links::new(vec![Secret::new("short")]).is_err());
    }
}
