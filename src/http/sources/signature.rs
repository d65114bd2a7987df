//! Verifies who sent a request. Comparisons of secrets take the same time whatever is wrong.

mod discord;
mod slack;
mod telegram;

use std::time::Duration;

use axum::http::HeaderMap;
use hmac::{Hmac, KeyInit as _, Mac};
use lanekeeper_adapters::Signer;
use lanekeeper_core::source::{Signature, SourceDefinition, TOLERANCE};
use lanekeeper_core::subscription::duration;
use sha2::Sha256;
use thiserror::Error;

use self::discord::Discord;
use self::slack::Slack;
use self::telegram::Telegram;

/// Shorter ones can be guessed from one signed request.
const SHORTEST_SECRET: usize = 16;
const GITHUB: &str = "x-hub-signature-256";

/// Why a request is not taken for its platform's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Refused {
    #[error("the request lacks a header of its signature, or repeats one")]
    Missing,
    #[error("the request's signature is not that of this source's secret")]
    Wrong,
    #[error("the request was signed too long ago, or by a clock that is ahead")]
    OutOfWindow,
}

/// What a source's requests are verified with. Several secrets hold while one is replaced.
pub(super) enum Key {
    Standard { signer: Signer, tolerance: Duration },
    Github(Vec<Hmac<Sha256>>),
    Slack(Slack),
    Discord(Discord),
    Telegram(Telegram),
}

impl Key {
    /// For updates of Telegram. The error does not repeat the secret.
    pub(super) fn of_telegram(secrets: &str) -> Result<Self, String> {
        Telegram::new(secrets).map(Self::Telegram)
    }

    /// The error does not repeat the secret.
    pub(super) fn new(definition: &SourceDefinition, secrets: &str) -> Result<Self, String> {
        let tolerance = duration::parse(definition.tolerance.as_deref().unwrap_or(TOLERANCE))?;
        match definition.signature {
            Signature::Standard => Ok(Self::Standard {
                signer: Signer::parse(secrets).map_err(|error| error.to_string())?,
                tolerance,
            }),
            Signature::Github => Ok(Self::Github(keys(secrets)?)),
            Signature::Slack => Slack::new(secrets, tolerance).map(Self::Slack),
            Signature::Discord => Discord::new(secrets, tolerance).map(Self::Discord),
        }
    }

    /// Returns what the signature covers and no other request has, which names the message unless a template does; nothing
    /// where nothing is signed. `now`: seconds since 1970.
    pub(super) fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: u64,
    ) -> Result<String, Refused> {
        match self {
            Self::Standard { signer, tolerance } => {
                let id = header(headers, "webhook-id")?;
                let timestamp = header(headers, "webhook-timestamp")?;
                let signatures = header(headers, "webhook-signature")?;
                // The signature first: who cannot sign learns nothing of the clock here.
                if !signer.verifies(id, timestamp, body, signatures) {
                    return Err(Refused::Wrong);
                }
                in_window(timestamp, *tolerance, now)?;
                Ok(id.to_owned())
            }
            Self::Slack(slack) => slack.verify(headers, body, now),
            Self::Discord(discord) => discord.verify(headers, body, now),
            Self::Telegram(telegram) => telegram.verify(headers).map(|()| String::new()),
            Self::Github(keys) => {
                let given = header(headers, GITHUB)?;
                let signature = given.strip_prefix("sha256=").and_then(unhex);
                let signature = signature.ok_or(Refused::Wrong)?;
                // Its own header with the delivery's id is not signed: whoever saw one request could repeat it with
                // another id. As small letters, so that one signature has one name.
                match is_of(keys, &[body], &signature) {
                    true => Ok(given.to_ascii_lowercase()),
                    false => Err(Refused::Wrong),
                }
            }
        }
    }
}

/// Secrets, separated by white space.
fn keys(secrets: &str) -> Result<Vec<Hmac<Sha256>>, String> {
    let secrets: Vec<_> = secrets.split_whitespace().collect();
    if secrets.is_empty() || secrets.iter().any(|key| key.len() < SHORTEST_SECRET) {
        return Err(format!("it has fewer than {SHORTEST_SECRET} bytes"));
    }
    let keys = secrets
        .into_iter()
        .map(|key| Hmac::new_from_slice(key.as_bytes()).expect("HMAC takes a key of any length"));
    Ok(keys.collect())
}

/// Whether it is the signature of one of the keys over these pieces. All are tried.
fn is_of(keys: &[Hmac<Sha256>], pieces: &[&[u8]], signature: &[u8; 32]) -> bool {
    let mut is_right = false;
    for key in keys {
        let mac = pieces.iter().fold(key.clone(), Mac::chain_update);
        is_right |= mac.verify_slice(signature).is_ok();
    }
    is_right
}

/// Seconds since 1970 as a request's header has them. To be asked after the signature.
fn in_window(timestamp: &str, tolerance: Duration, now: u64) -> Result<(), Refused> {
    let signed_at: u64 = timestamp.parse().map_err(|_| Refused::OutOfWindow)?;
    match signed_at.abs_diff(now) <= tolerance.as_secs() {
        true => Ok(()),
        false => Err(Refused::OutOfWindow),
    }
}

/// A header that is there once.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, Refused> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().and_then(|value| value.to_str().ok());
    match (value, values.next()) {
        (Some(value), None) if !value.is_empty() => Ok(value),
        _ => Err(Refused::Missing),
    }
}

/// The bytes that twice as many hexadecimal digits stand for.
fn unhex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let digits = text.as_bytes();
    let mut bytes = [0; BYTES];
    if digits.len() != 2 * BYTES {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANDARD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    /// docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    const GITHUB_SECRET: &str = "It's-a-Secret-to-Everybody";

    pub(super) fn definition(signature: Signature) -> SourceDefinition {
        SourceDefinition {
            signature,
            secret_env: "S".into(),
            session: "s".into(),
            content: "{body}".into(),
            message_id: None,
            channel_id: None,
            actor_id: None,
            actor_name: None,
            tolerance: None,
            max_bytes: 1_024,
            only: Default::default(),
            reply: None,
            deferred: false,
            commands: Default::default(),
        }
    }

    pub(super) fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_vector_of_standard_webhooks_is_taken_inside_its_window_only() {
        let key = Key::new(&definition(Signature::Standard), STANDARD).unwrap();
        let given = [
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            (
                "webhook-signature",
                "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
            ),
        ];
        let verify = |given: &[(&'static str, &str)], now| {
            key.verify(&headers(given), br#"{"test": 2432232314}"#, now)
        };
        let signed_at = 1_614_265_330;
        for now in [signed_at, signed_at + 300, signed_at - 300] {
            assert_eq!(verify(&given, now).as_deref(), Ok(given[0].1));
        }
        for now in [signed_at + 301, signed_at - 301, 0] {
            assert_eq!(verify(&given, now), Err(Refused::OutOfWindow));
        }
        for at in 0..given.len() {
            let mut without = given.to_vec();
            without.remove(at);
            assert_eq!(verify(&without, signed_at), Err(Refused::Missing));
            let twice = [&given[..], &given[at..=at]].concat();
            assert_eq!(verify(&twice, signed_at), Err(Refused::Missing));
            let mut other = given;
            other[at].1 = "1614265331";
            assert_eq!(verify(&other, signed_at), Err(Refused::Wrong));
        }
    }

    #[test]
    fn a_signature_of_github_is_that_of_one_of_the_secrets_over_the_body() {
        let secrets = format!("another-secret-of-ours {GITHUB_SECRET}");
        let key = Key::new(&definition(Signature::Github), &secrets).unwrap();
        let mac = Hmac::<Sha256>::new_from_slice(GITHUB_SECRET.as_bytes()).unwrap();
        let tag = mac.chain_update(b"Hello, World!").finalize().into_bytes();
        let hex: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
        let verify =
            |signature: &str, body: &[u8]| key.verify(&headers(&[(GITHUB, signature)]), body, 0);
        let right = format!("sha256={hex}");
        assert_eq!(verify(&right, b"Hello, World!").as_ref(), Ok(&right));
        let large = format!("sha256={}", hex.to_uppercase());
        assert_eq!(
            verify(&large, b"Hello, World!"),
            Ok(right.clone()),
            "one name"
        );
        assert_eq!(verify(&right, b"Hello, World?"), Err(Refused::Wrong));
        for bad in [
            "sha256=",
            &hex,
            &right[..70],
            "sha1=aa",
            &right.replace('=', "=é"),
        ] {
            assert_eq!(
                verify(bad, b"Hello, World!").unwrap_err(),
                if bad.is_ascii() {
                    Refused::Wrong
                } else {
                    Refused::Missing
                },
                "{bad}"
            );
        }
    }

    #[test]
    fn secrets_that_can_be_guessed_are_refused() {
        for (signature, secret) in [
            (Signature::Github, "short"),
            (Signature::Github, ""),
            (Signature::Github, "long-enough-as-it-is short"),
            (Signature::Standard, "not-a-whsec-at-all-is-it"),
            (Signature::Slack, "short"),
            (Signature::Discord, "not-a-key-at-all"),
            (Signature::Discord, ""),
            (Signature::Discord, &"0".repeat(64)),
        ] {
            let refused = Key::new(&definition(signature), secret).err().unwrap();
            assert!(secret.is_empty() || !refused.contains(secret), "{refused}");
        }
    }
}
