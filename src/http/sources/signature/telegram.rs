//! Telegram's secret token: it signs nothing, and shows with each update what `setWebhook` was told.

use axum::http::HeaderMap;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use super::{Refused, SHORTEST_SECRET, header};

const TOKEN: &str = "x-telegram-bot-api-secret-token";
/// Telegram takes no longer one.
const LONGEST_SECRET: usize = 256;

/// Hashes, so that a comparison takes the same time whatever was given.
pub(in crate::sources) struct Telegram(Vec<[u8; 32]>);

impl Telegram {
    pub(super) fn new(secrets: &str) -> Result<Self, String> {
        let is_usable = |secret: &&str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            (SHORTEST_SECRET..=LONGEST_SECRET).contains(&secret.len())
                && secret.bytes().all(is_allowed)
        };
        let secrets: Vec<_> = secrets.split_whitespace().collect();
        if secrets.is_empty() || !secrets.iter().all(is_usable) {
            return Err(format!(
                "Telegram takes secret tokens of A-Z, a-z, 0-9, _ and -, and it must have {SHORTEST_SECRET} to \
                 {LONGEST_SECRET} of them"
            ));
        }
        Ok(Self(secrets.into_iter().map(hash).collect()))
    }

    pub(super) fn verify(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let given = hash(header(headers, TOKEN)?);
        // All are compared.
        let is_right = self.0.iter().fold(Choice::from(0), |is_right, known| {
            is_right | known.ct_eq(&given)
        });
        match bool::from(is_right) {
            true => Ok(()),
            false => Err(Refused::Wrong),
        }
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::super::tests::headers;
    use super::*;

    #[test]
    fn an_update_shows_one_of_the_secrets_whole_and_once() {
        let (old, new) = ("an-old_secret-of-ours", "a-new_secret-of-ours");
        let tokens = Telegram::new(&format!("{old} {new}")).unwrap();
        let verify = |given: &[(&'static str, &str)]| tokens.verify(&headers(given));
        for right in [old, new] {
            assert_eq!(verify(&[(TOKEN, right)]), Ok(()));
        }
        for wrong in [&old[1..], &new[..19], "an-old_secret-of-ours a", "x"] {
            assert_eq!(verify(&[(TOKEN, wrong)]), Err(Refused::Wrong), "{wrong}");
        }
        assert_eq!(verify(&[]), Err(Refused::Missing));
        assert_eq!(verify(&[(TOKEN, "")]), Err(Refused::Missing));
        let twice = [(TOKEN, old), (TOKEN, old)];
        assert_eq!(verify(&twice), Err(Refused::Missing));
    }

    #[test]
    fn a_secret_that_can_be_guessed_or_that_telegram_refuses_is_none() {
        let long = "x".repeat(257);
        for bad in [
            "",
            "short",
            "long-enough-as-it-is short",
            "letters-beyond-äscii",
            &long,
        ] {
            let refused = Telegram::new(bad).err().unwrap();
            assert!(bad.is_empty() || !refused.contains(bad), "{refused}");
        }
    }
}
