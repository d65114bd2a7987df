//! Discord's signature: Ed25519 over timestamp and body with the application's key, whose public half we have.

use std::time::Duration;

use axum::http::HeaderMap;
use ring::signature::{ED25519, UnparsedPublicKey};

use super::{Refused, header, in_window, unhex};

const SIGNATURE: &str = "x-signature-ed25519";
const TIMESTAMP: &str = "x-signature-timestamp";

pub(in crate::sources) struct Discord {
    keys: Vec<UnparsedPublicKey<[u8; 32]>>,
    tolerance: Duration,
}

impl Discord {
    pub(super) fn new(keys: &str, tolerance: Duration) -> Result<Self, String> {
        let keys = keys.split_whitespace().map(|key| {
            // Anybody can sign for a key of zeros, which somebody may have written to fill it in later.
            let key = unhex(key).filter(|bytes: &[u8; 32]| bytes.iter().any(|byte| *byte != 0));
            Some(UnparsedPublicKey::new(&ED25519, key?))
        });
        match keys.collect::<Option<Vec<_>>>() {
            Some(keys) if !keys.is_empty() => Ok(Self { keys, tolerance }),
            _ => {
                Err("it is no public key of an application, which has 64 hexadecimal digits".into())
            }
        }
    }

    /// Returns the signature.
    pub(super) fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: u64,
    ) -> Result<String, Refused> {
        let given = header(headers, SIGNATURE)?;
        let timestamp = header(headers, TIMESTAMP)?;
        let signature: [u8; 64] = unhex(given).ok_or(Refused::Wrong)?;
        // Nothing separates the two, so digits may be moved between them. They then name a time that is long ago, or far
        // ahead. The copy is gone before another request is looked at by this thread.
        let signed = [timestamp.as_bytes(), body].concat();
        let mut keys = self.keys.iter();
        if !keys.any(|key| key.verify(&signed, &signature).is_ok()) {
            return Err(Refused::Wrong);
        }
        in_window(timestamp, self.tolerance, now)?;
        Ok(given.to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::source::Signature;
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::super::tests::{definition, headers};
    use super::super::{Key, Refused};
    use super::*;

    /// RFC 8032, section 7.1, TEST 3: a message of two bytes.
    const PUBLIC: &str = "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025";
    const OF_AF82: &str = "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac\
        18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a";
    const SIGNED_AT: u64 = 1_764_000_000;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_keys_and_signatures_are_those_of_rfc_8032() {
        let discord = Discord::new(PUBLIC, Duration::from_secs(300)).unwrap();
        let signature: [u8; 64] = unhex(OF_AF82).unwrap();
        assert!(discord.keys[0].verify(&[0xaf, 0x82], &signature).is_ok());
        assert!(discord.keys[0].verify(&[0xaf, 0x83], &signature).is_err());
    }

    #[test]
    fn a_signature_is_that_of_one_of_the_keys_over_time_and_body_inside_the_window() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let keys = format!(
            "{PUBLIC}\n{}",
            hex(pair.public_key().as_ref()).to_uppercase()
        );
        let key = Key::new(&definition(Signature::Discord), &keys).unwrap();
        let (time, body) = (SIGNED_AT.to_string(), r#"{"type":1}"#);
        let signature = hex(pair.sign(format!("{time}{body}").as_bytes()).as_ref());
        let right = [(SIGNATURE, signature.as_str()), (TIMESTAMP, time.as_str())];
        let verify = |given: &[(&'static str, &str)], body: &str, now| {
            let verified = key.verify(&headers(given), body.as_bytes(), now);
            verified.map(drop)
        };
        for now in [SIGNED_AT, SIGNED_AT + 300, SIGNED_AT - 300] {
            assert_eq!(verify(&right, body, now), Ok(()));
        }
        for now in [SIGNED_AT + 301, SIGNED_AT - 301, 0] {
            assert_eq!(verify(&right, body, now), Err(Refused::OutOfWindow));
        }
        for at in 0..right.len() {
            let mut without = right.to_vec();
            without.remove(at);
            assert_eq!(verify(&without, body, SIGNED_AT), Err(Refused::Missing));
            let twice = [&right[..], &right[at..=at]].concat();
            assert_eq!(verify(&twice, body, SIGNED_AT), Err(Refused::Missing));
        }
        for bad in [
            &signature[..126],
            "",
            &"0".repeat(128),
            &signature.replace('a', "g"),
        ] {
            let given = [(SIGNATURE, bad), right[1]];
            let expected = if bad.is_empty() {
                Refused::Missing
            } else {
                Refused::Wrong
            };
            assert_eq!(verify(&given, body, SIGNED_AT), Err(expected), "{bad}");
        }
        assert_eq!(
            verify(&right, r#"{"type":2}"#, SIGNED_AT),
            Err(Refused::Wrong)
        );
        // The same bytes, cut elsewhere: the signature is right.
        let (time, moved) = time.split_at(9);
        let given = [right[0], (TIMESTAMP, time)];
        let refused = verify(&given, &format!("{moved}{body}"), SIGNED_AT);
        assert_eq!(refused, Err(Refused::OutOfWindow));
        let time = format!("{SIGNED_AT}{{");
        let given = [right[0], (TIMESTAMP, time.as_str())];
        let refused = verify(&given, &body[1..], SIGNED_AT);
        assert_eq!(refused, Err(Refused::OutOfWindow));
    }
}
