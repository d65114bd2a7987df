//! Which addresses a webhook may reach: public ones, and those private ones that the operator allows.
//!
//! A subscription's URL must not become a way into the network that the worker runs in: cloud
//! metadata, databases, other tenants. The filter checks the address of the
//! connection itself, after name resolution, so a name whose address changes between check and use (DNS rebinding)
//! gains nothing. A URL whose host is an address needs no resolution, so it is checked when the adapter is built.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use lanekeeper_core::network::PrivateTargets;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use thiserror::Error;
use url::{Host, Url};

/// Blocks of the IANA special-purpose registry that are not for the public internet, with the
/// length of their prefix.
const SPECIAL_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),        // this network, unspecified
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // carrier-grade NAT
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // public by number, but Azure's platform endpoint
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local, cloud metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // 6to4 relays
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),      // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),      // reserved, broadcast
];

/// The same inside 2000::/3, outside of which nothing is public.
const SPECIAL_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments, Teredo, benchmarks
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Whether `address` lies in the public internet. An IPv6 address that carries an IPv4 one
/// (mapped, NAT64, 6to4) leads to the latter and is judged by it.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let within = |&(block, length): &(Ipv4Addr, u32)| {
                (address.to_bits() ^ block.to_bits()) >> (32 - length) == 0
            };
            !SPECIAL_V4.iter().any(within)
        }
        IpAddr::V6(address) => match embedded(address) {
            Some(inner) => is_public(inner.into()),
            None => {
                let within = |&(block, length): &(Ipv6Addr, u32)| {
                    (address.to_bits() ^ block.to_bits()) >> (128 - length) == 0
                };
                address.segments()[0] >> 13 == 1 && !SPECIAL_V6.iter().any(within)
            }
        },
    }
}

fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some(join(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(join(high, low)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

/// Whether a delivery may go to `address`. As for [`is_public`], an IPv6 address that carries an IPv4 one is judged by the
/// latter: a network of the operator's list that contains the former says nothing.
fn may_reach(address: IpAddr, private: &PrivateTargets) -> bool {
    let reached = match address {
        IpAddr::V6(six) => embedded(six).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    is_public(reached) || private.allow(reached)
}

/// The address that the URL names literally, if it names one that may not be reached.
pub(super) fn refused_literal(url: &Url, private: &PrivateTargets) -> Option<IpAddr> {
    let address = match url.host()? {
        Host::Ipv4(address) => IpAddr::V4(address),
        Host::Ipv6(address) => IpAddr::V6(address),
        Host::Domain(_) => return None,
    };
    (!may_reach(address, private)).then_some(address)
}

/// Resolves names to those of their addresses that may be reached.
pub(super) struct FilteringResolver {
    private: Arc<PrivateTargets>,
}

impl FilteringResolver {
    pub(super) fn new(private: PrivateTargets) -> Self {
        let private = Arc::new(private);
        Self { private }
    }
}

#[derive(Debug, Error)]
#[error(
    "{host} resolves to no public address (only to {addresses:?}), and worker.allow_private_targets does not \
     allow those"
)]
pub(super) struct Refused {
    host: String,
    addresses: Vec<IpAddr>,
}

impl Resolve for FilteringResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let private = Arc::clone(&self.private);
        Box::pin(async move {
            // The port is a placeholder: the connector sets the one of the URL.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let kept = keep_reachable(name.as_str(), found, &private)?;
            Ok(Box::new(kept.into_iter()) as Addrs)
        })
    }
}

fn keep_reachable(
    host: &str,
    mut found: Vec<SocketAddr>,
    private: &PrivateTargets,
) -> Result<Vec<SocketAddr>, Refused> {
    let addresses = found.iter().map(SocketAddr::ip).collect();
    found.retain(|address| may_reach(address.ip(), private));
    if found.is_empty() {
        let host = host.to_owned();
        return Err(Refused { host, addresses });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_pass() {
        for address in "1.1.1.1 100.63.255.255 100.128.0.0 172.15.255.255 172.32.0.0 168.63.129.17 \
             198.17.255.255 198.20.0.0 223.255.255.255 2606:4700::1111 2a00:1450::1 2001:200::1 \
             2001:4860:4860::8888 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1"
            .split_whitespace()
        {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn everything_that_is_not_the_public_internet_is_refused() {
        for address in
            "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 \
             168.63.129.16 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 \
             192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 \
             224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 \
             ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1 64:ff9b::10.0.0.1 \
             64:ff9b:1::8.8.8.8 100::1 2001::1 2001:10::1 2001:db8::1 2002:7f00:1::1 \
             2002:a9fe:a9fe:: 3fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 \
             ff02::1"
                .split_whitespace()
        {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn private_hosts_are_seen_through_every_spelling_of_an_address() {
        for url in "http://127.0.0.1/ http://127.1/ http://0x7f000001/ http://2130706433/ \
             http://0177.0.0.1/ http://[::1]:8080/ http://[::ffff:10.0.0.1]/ http://0/ \
             https://１２７.0.0.1/"
            .split_whitespace()
        {
            assert!(
                refused_literal(&Url::parse(url).unwrap(), &PrivateTargets::None).is_some(),
                "{url}"
            );
        }
        for url in [
            "http://8.8.8.8/",
            "https://example.com/",
            "http://localhost/",
        ] {
            assert!(
                refused_literal(&Url::parse(url).unwrap(), &PrivateTargets::None).is_none(),
                "{url}"
            );
        }
    }

    #[test]
    fn private_answers_among_public_ones_are_dropped_and_private_ones_alone_refused() {
        let address = |text: &str| SocketAddr::new(text.parse().unwrap(), 0);
        let mixed = vec![address("10.0.0.1"), address("1.1.1.1")];
        assert_eq!(
            keep_reachable("mixed.example", mixed, &PrivateTargets::None).unwrap(),
            [address("1.1.1.1")]
        );
        let inner = vec![address("10.0.0.1")];
        let refused = keep_reachable("inner.example", inner, &PrivateTargets::None).unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("inner.example resolves to no public address")
        );
    }

    #[test]
    fn of_private_addresses_those_of_the_allowed_networks_are_reached_and_no_other() {
        let networks = ["10.20.0.0/16", "fd12::/16", "2002::/16"];
        let networks = networks.map(|text| text.parse().unwrap()).to_vec();
        let private = PrivateTargets::Networks(networks);
        for allowed in "10.20.3.4 fd12::1 ::ffff:10.20.0.1 64:ff9b::10.20.0.1 1.1.1.1".split(' ') {
            assert!(may_reach(allowed.parse().unwrap(), &private), "{allowed}");
        }
        // The last ones carry addresses that no network contains: metadata and loopback.
        for refused in "10.21.0.1 fd13::1 127.0.0.1 169.254.169.254 ::1 ::ffff:169.254.169.254 \
             2002:a9fe:a9fe:: 2002:7f00:1::1"
            .split_whitespace()
        {
            assert!(!may_reach(refused.parse().unwrap(), &private), "{refused}");
        }
        let address = |text: &str| SocketAddr::new(text.parse().unwrap(), 0);
        // A name that answers with the allowed one and another, as rebinding does.
        let found = vec![address("10.20.0.1"), address("169.254.169.254")];
        assert_eq!(
            keep_reachable("inner.example", found, &private).unwrap(),
            [address("10.20.0.1")]
        );
        let url = |text: &str| Url::parse(text).unwrap();
        assert_eq!(
            refused_literal(&url("http://10.20.1.1:8080/hooks"), &private),
            None
        );
        assert!(refused_literal(&url("http://[::ffff:127.0.0.1]/"), &private).is_some());
    }
}
