//! Standard Webhooks signatures, scheme `v1`: HMAC-SHA256 over `id.timestamp.body`.
//!
//! Several keys give several signatures, so that a receiver can change its key without a gap. The
//! asymmetric scheme `v1a` is left out: it needs a second kind of secret and nobody asked for it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

/// Marks a signing secret, so that one is recognised wherever it turns up.
pub(super) const PREFIX: &str = "whsec_";

/// Bytes of a new key: as many as SHA-256 puts out.
const NEW_KEY_BYTES: usize = 32;

/// Signs with one or more keys.
pub struct Signer {
    keys: Vec<Hmac<Sha256>>,
}

/// The operating system gave no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the operating system's random number generator failed")]
pub struct RandomError;

/// Why a secret is not a signing secret. Never holds the secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    #[error("it is empty")]
    Empty,
    #[error("it does not begin with {PREFIX}")]
    Prefix,
    #[error("what follows {PREFIX} is not base64")]
    Base64,
    #[error("its key has {0} bytes; Standard Webhooks asks for 24 to 64")]
    Length(usize),
}

impl Signer {
    /// Reads `whsec_` secrets separated by white space, the current one first.
    pub fn parse(secrets: &str) -> Result<Self, KeyError> {
        let keys = secrets
            .split_whitespace()
            .map(key)
            .collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() {
            return Err(KeyError::Empty);
        }
        Ok(Self { keys })
    }

    /// A new secret, from the operating system's random number generator.
    ///
    /// # Errors
    /// Where that fails.
    pub fn new_secret() -> Result<String, RandomError> {
        let mut key = [0; NEW_KEY_BYTES];
        rustls::crypto::ring::default_provider()
            .secure_random
            .fill(&mut key)
            .map_err(|_| RandomError)?;
        Ok(format!("{PREFIX}{}", STANDARD.encode(key)))
    }

    /// Whether one of the signatures in a `webhook-signature` is that of one of the keys. Takes the same time whatever
    /// they are.
    pub fn verifies(&self, id: &str, timestamp: &str, body: &[u8], signatures: &str) -> bool {
        let signed = format!("{id}.{timestamp}.");
        let given: Vec<Vec<u8>> = signatures
            .split(' ')
            .filter_map(|signature| STANDARD.decode(signature.strip_prefix("v1,")?).ok())
            .collect();
        self.keys.iter().any(|key| {
            let mac = key.clone().chain_update(&signed).chain_update(body);
            given
                .iter()
                .any(|signature| mac.clone().verify_slice(signature).is_ok())
        })
    }

    /// The value of `webhook-signature`. `timestamp` is in seconds since 1970.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let signed = format!("{id}.{timestamp}.");
        let signatures = self.keys.iter().map(|key| {
            let mac = key.clone().chain_update(&signed).chain_update(body);
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({} keys)", self.keys.len())
    }
}

fn key(secret: &str) -> Result<Hmac<Sha256>, KeyError> {
    let encoded = secret.strip_prefix(PREFIX).ok_or(KeyError::Prefix)?;
    let key = STANDARD.decode(encoded).map_err(|_| KeyError::Base64)?;
    if !(24..=64).contains(&key.len()) {
        return Err(KeyError::Length(key.len()));
    }
    Ok(Hmac::new_from_slice(&key).expect("HMAC takes a key of any length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn sign(secrets: &str) -> String {
        Signer::parse(secrets).unwrap().sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        )
    }

    #[test]
    fn known_answer_of_the_standard_is_reproduced() {
        assert_eq!(sign(SECRET), SIGNATURE);
    }

    #[test]
    fn a_new_secret_signs_and_differs_from_the_one_before() {
        let secret = Signer::new_secret().unwrap();
        assert_eq!(
            STANDARD.decode(&secret[PREFIX.len()..]).unwrap().len(),
            NEW_KEY_BYTES
        );
        assert!(Signer::parse(&secret).is_ok());
        assert_ne!(secret, Signer::new_secret().unwrap());
    }

    #[test]
    fn one_signature_of_one_key_is_enough_and_any_other_byte_is_not() {
        let signer = Signer::parse(SECRET).unwrap();
        let (id, timestamp, body) = (
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            br#"{"test": 2432232314}"#,
        );
        let others = format!("v1a,zzz v1,AAAA {SIGNATURE} nonsense");
        assert!(signer.verifies(id, timestamp, body, &others));
        assert!(!signer.verifies("msg", timestamp, body, SIGNATURE));
        assert!(!signer.verifies(id, "1614265331", body, SIGNATURE));
        assert!(!signer.verifies(id, timestamp, b"{}", SIGNATURE));
        for signatures in ["", "v1,", "v1", &SIGNATURE[..20], &SIGNATURE[3..]] {
            assert!(
                !signer.verifies(id, timestamp, body, signatures),
                "{signatures}"
            );
        }
    }

    #[test]
    fn every_key_signs_while_secrets_are_rotated() {
        let next = format!("{PREFIX}{}", STANDARD.encode([7; 64]));
        let both = sign(&format!("{next} {SECRET}\n"));
        assert_eq!(both, format!("{} {SIGNATURE}", sign(&next)));
        assert_ne!(sign(&next), SIGNATURE);
    }

    #[test]
    fn what_is_no_signing_secret_is_refused_without_being_repeated() {
        let of = |bytes: usize| format!("{PREFIX}{}", STANDARD.encode(vec![1; bytes]));
        let refusal = |secrets: &str| Signer::parse(secrets).unwrap_err();
        assert_eq!(refusal(" "), KeyError::Empty);
        assert_eq!(refusal("hunter2"), KeyError::Prefix);
        assert_eq!(refusal("whsec_hunter2!"), KeyError::Base64);
        assert_eq!(refusal(&of(23)), KeyError::Length(23));
        assert_eq!(refusal(&of(65)), KeyError::Length(65));
        assert_eq!(refusal(&format!("{SECRET} hunter2")), KeyError::Prefix);
        assert!(!format!("{:?}", Signer::parse(SECRET).unwrap()).contains("MfKQ"));
    }
}
