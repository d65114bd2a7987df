//! Slack's signature: HMAC-SHA256 over `v0:{timestamp}:{body}` with the app's signing secret.

use std::time::Duration;

use axum::http::HeaderMap;
use hmac::Hmac;
use sha2::Sha256;

use super::{Refused, header, in_window, is_of, keys, unhex};

const SIGNATURE: &str = "x-slack-signature";
const TIMESTAMP: &str = "x-slack-request-timestamp";

pub(in crate::sources) struct Slack {
    keys: Vec<Hmac<Sha256>>,
    tolerance: Duration,
}

impl Slack {
    pub(super) fn new(secrets: &str, tolerance: Duration) -> Result<Self, String> {
        let keys = keys(secrets)?;
        Ok(Self { keys, tolerance })
    }

    /// Returns the signature. It names the request, not the message: a retry has another.
    pub(super) fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: u64,
    ) -> Result<String, Refused> {
        let given = header(headers, SIGNATURE)?;
        let timestamp = header(headers, TIMESTAMP)?;
        let signature = given.strip_prefix("v0=").and_then(unhex);
        let signature = signature.ok_or(Refused::Wrong)?;
        let signed = [b"v0:", timestamp.as_bytes(), b":", body];
        if !is_of(&self.keys, &signed, &signature) {
            return Err(Refused::Wrong);
        }
        in_window(timestamp, self.tolerance, now)?;
        Ok(given.to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::source::Signature;

    use super::super::tests::{definition, headers};
    use super::super::{Key, Refused};
    use super::*;

    /// docs.slack.dev/authentication/verifying-requests-from-slack
    const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
    const SIGNED_AT: u64 = 1_531_420_618;
    const BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V\
        &channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=\
        https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=\
        398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    const RIGHT: [(&str, &str); 2] = [
        (
            SIGNATURE,
            "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        ),
        (TIMESTAMP, "1531420618"),
    ];

    #[test]
    fn the_vector_of_slacks_documentation_is_taken_inside_its_window_only() {
        let secrets = format!("another-secret-of-ours {SECRET}");
        let key = Key::new(&definition(Signature::Slack), &secrets).unwrap();
        let verify = |given: &[(&'static str, &str)], body: &str, now| {
            let verified = key.verify(&headers(given), body.as_bytes(), now);
            verified.map(drop)
        };
        for now in [SIGNED_AT, SIGNED_AT + 300, SIGNED_AT - 300] {
            assert_eq!(verify(&RIGHT, BODY, now), Ok(()));
        }
        for now in [SIGNED_AT + 301, SIGNED_AT - 301, 0] {
            assert_eq!(verify(&RIGHT, BODY, now), Err(Refused::OutOfWindow));
        }
        assert_eq!(verify(&RIGHT, &BODY[1..], SIGNED_AT), Err(Refused::Wrong));
        for at in 0..RIGHT.len() {
            let mut without = RIGHT.to_vec();
            without.remove(at);
            assert_eq!(verify(&without, BODY, SIGNED_AT), Err(Refused::Missing));
            let twice = [&RIGHT[..], &RIGHT[at..=at]].concat();
            assert_eq!(verify(&twice, BODY, SIGNED_AT), Err(Refused::Missing));
        }
        for (at, other) in [
            (0, RIGHT[0].1.replace("v0=", "v1=")),
            (0, RIGHT[0].1.replace("v0=", "")),
            (0, "v0=".to_owned()),
            (0, RIGHT[0].1.replace('5', "6")),
            (1, "1531420619".to_owned()),
            (1, "1531420618x".to_owned()),
            (1, "now".to_owned()),
        ] {
            let mut given = RIGHT;
            given[at].1 = &other;
            assert_eq!(
                verify(&given, BODY, SIGNED_AT),
                Err(Refused::Wrong),
                "{other}"
            );
        }
    }

    /// The colon between them is signed, so no byte of one can pass for one of the other.
    #[test]
    fn a_signed_time_that_is_no_number_is_out_of_the_window() {
        let key = Key::new(&definition(Signature::Slack), SECRET).unwrap();
        let Key::Slack(slack) = &key else {
            unreachable!("it is Slack's");
        };
        for timestamp in ["x", "-5", "1e9", "99999999999999999999"] {
            let signed = [b"v0:", timestamp.as_bytes(), b":", b"body"];
            let mac = signed.iter().fold(slack.keys[0].clone(), |mac, piece| {
                hmac::Mac::chain_update(mac, piece)
            });
            let tag = hmac::Mac::finalize(mac).into_bytes();
            let hex: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
            let signature = format!("v0={hex}");
            let given = headers(&[(SIGNATURE, &signature), (TIMESTAMP, timestamp)]);
            let refused = key.verify(&given, b"body", SIGNED_AT);
            assert_eq!(refused, Err(Refused::OutOfWindow), "{timestamp}");
        }
    }
}
