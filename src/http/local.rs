//! Whether a request is of this machine: for developers, who may do without an access token (`access`).

use std::net::SocketAddr;

use axum::http::{HeaderMap, header};

/// Headers that a proxy adds.
const OF_PROXIES: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// Whether a program on this machine sent the request for itself, as far as a request can show that. A request does not
/// count if a browser sent it for a web page (its headers name the page, or the host is not this machine's: DNS
/// rebinding), or if a proxy forwarded it.
pub(super) fn is_of_this_machine(peer: SocketAddr, headers: &HeaderMap) -> bool {
    is_local(peer, headers)
        && ["origin", "sec-fetch-site"]
            .iter()
            .all(|name| !headers.contains_key(*name))
}

/// The same of a browser: somebody on this machine opened a page of this listener, or such a page sent the request.
pub(super) fn is_browser_of_this_machine(peer: SocketAddr, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let own = text(header::HOST).map(|host| format!("http://{host}"));
    is_local(peer, headers)
        && text(header::ORIGIN).is_none_or(|origin| Some(origin) == own.as_deref())
        && headers
            .get("sec-fetch-site")
            .is_none_or(|site| site == "same-origin" || site == "none")
}

/// Whether the client is on this machine, asks for this machine by its name, and no proxy forwarded the request.
fn is_local(peer: SocketAddr, headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let name = host.map(|host| match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    });
    // A listener on all IPv4 and IPv6 addresses shows an IPv4 client as an IPv4-mapped IPv6 address.
    peer.ip().to_canonical().is_loopback()
        && matches!(name, Some("127.0.0.1" | "localhost" | "[::1]"))
        && OF_PROXIES.iter().all(|name| !headers.contains_key(*name))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn asks(headers: &[(&'static str, &'static str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let here = SocketAddr::from(([127, 0, 0, 1], 40_000));
        is_of_this_machine(here, &headers.collect())
    }

    #[test]
    fn a_client_of_another_machine_is_none_of_this_one_whatever_it_says() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        for (peer, is_local) in [
            ("127.0.0.1:4000", true),
            ("127.9.9.9:4000", true),
            ("[::1]:4000", true),
            ("[::ffff:127.0.0.1]:4000", true),
            ("10.0.0.1:4000", false),
            ("[::ffff:10.0.0.1]:4000", false),
            ("[fe80::1]:4000", false),
        ] {
            let found = is_of_this_machine(peer.parse().unwrap(), &headers);
            assert_eq!(found, is_local, "{peer}");
        }
    }

    #[test]
    fn a_browser_of_this_machine_is_let_in_for_our_own_pages_only() {
        let asks = |headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            });
            let here = SocketAddr::from(([127, 0, 0, 1], 40_000));
            is_browser_of_this_machine(here, &headers.collect())
        };
        let host = ("host", "localhost:8080");
        assert!(asks(&[host]));
        assert!(asks(&[host, ("sec-fetch-site", "none")]));
        let own = ("origin", "http://localhost:8080");
        assert!(asks(&[host, ("sec-fetch-site", "same-origin"), own]));
        for other in [
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "cross-site"),
            ("origin", "null"),
            ("origin", "http://localhost:3000"),
            ("origin", "https://localhost:8080"),
            ("x-forwarded-for", "10.0.0.1"),
        ] {
            assert!(!asks(&[host, other]), "{other:?}");
        }
        assert!(!asks(&[("host", "evil.example:8080")]));
    }

    #[test]
    fn only_programs_of_this_machine_ask_for_themselves() {
        for host in [
            "127.0.0.1:8080",
            "localhost",
            "localhost:8080",
            "[::1]:8080",
            "[::1]",
        ] {
            assert!(asks(&[("host", host)]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil:1",
        ] {
            assert!(!asks(&[("host", host)]), "{host}");
        }
        assert!(!asks(&[]));
        for other in [
            "origin",
            "sec-fetch-site",
            "forwarded",
            "x-forwarded-for",
            "via",
        ] {
            assert!(!asks(&[("host", "localhost"), (other, "x")]), "{other}");
        }
    }
}
