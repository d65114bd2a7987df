//! Refuses requests that another site sends in a visitor's name.
//!
//! Three walls, each of which holds alone: the cookie is `SameSite=Strict`; the browser says which site a request came
//! from (`Sec-Fetch-Site`, else `Origin`); and every form carries a value that only a page of this visitor could know.

use axum::http::{HeaderMap, header};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::form::Form;
use crate::trouble::Trouble;
use crate::visitor::Visitor;

/// The name of the value in forms.
pub(crate) const FIELD: &str = "form";

/// What a visitor's forms carry: it says nothing of the sign-in's id.
pub(crate) fn token(key: &str) -> String {
    sign(key, "form")
}

/// A keyed hash of a text, in hexadecimal.
pub(crate) fn sign(key: &str, text: &str) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of every length");
    mac.update(text.as_bytes());
    let bytes = mac.finalize().into_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a hash is that of the text. Takes the same time wherever they differ.
pub(crate) fn is_signed(key: &str, text: &str, given: &str) -> bool {
    sign(key, text).as_bytes().ct_eq(given.as_bytes()).into()
}

/// A form that this visitor sent from a page of ours.
pub(crate) fn check(visitor: &Visitor, headers: &HeaderMap, form: &Form) -> Result<(), Trouble> {
    check_site(headers)?;
    let given = form.raw(FIELD).unwrap_or_default();
    match is_signed(&visitor.key, "form", given) {
        true => Ok(()),
        false => Err(refused()),
    }
}

/// The request comes from a page of this server, as far as the browser says.
pub(crate) fn check_site(headers: &HeaderMap) -> Result<(), Trouble> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let is_ours = match (text("sec-fetch-site"), text("origin")) {
        (Some(site), _) => site == "same-origin",
        // Behind a proxy the host may be another one here.
        (None, Some(origin)) => {
            let host = origin.split_once("://").map(|(_, host)| host);
            let own = [text(header::HOST.as_str()), text("x-forwarded-host")];
            host.is_some() && own.contains(&host)
        }
        (None, None) => true,
    };
    match is_ours {
        true => Ok(()),
        false => Err(refused()),
    }
}

fn refused() -> Trouble {
    Trouble::forbidden(
        "Nothing was done: this form is not from a page of your sign-in. Open the page again and repeat it there.",
    )
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn is_ours(headers: &[(&'static str, &'static str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        check_site(&headers.collect()).is_ok()
    }

    #[test]
    fn a_form_of_another_site_is_none_of_ours() {
        let host = ("host", "lanes.example:8080");
        assert!(is_ours(&[host]));
        assert!(is_ours(&[
            host,
            ("sec-fetch-site", "same-origin"),
            ("origin", "null")
        ]));
        assert!(is_ours(&[host, ("origin", "https://lanes.example:8080")]));
        assert!(is_ours(&[
            ("host", "worker:8080"),
            ("x-forwarded-host", "lanes.example"),
            ("origin", "https://lanes.example"),
        ]));
        for other in [
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "none"),
            ("origin", "https://evil.example"),
            ("origin", "https://lanes.example:8080.evil.example"),
            ("origin", "null"),
        ] {
            assert!(!is_ours(&[host, other]), "{other:?}");
        }
    }

    #[test]
    fn a_forms_value_is_good_for_its_own_visitor() {
        let own = token("one");
        assert!(is_signed("one", "form", &own));
        assert!(!is_signed("other", "form", &own) && !is_signed("one", "form", ""));
        assert!(!own.contains("one"));
    }
}
