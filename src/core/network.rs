//! Networks by their address and the length of their prefix, and which private ones deliveries may reach.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Such as `10.0.0.0/8`. An address alone is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Why a text is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error(
        "{0:?} is not a network: write an address and the length of its prefix, such as 10.0.0.0/8"
    )]
    Unreadable(String),
    #[error("{given:?} has bits behind its prefix: write {meant}")]
    HostBits { given: String, meant: Network },
    /// An IPv6 address that carries an IPv4 one is judged by the latter.
    #[error("{0:?} stands for IPv4 addresses: write them as an IPv4 network")]
    Mapped(String),
}

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits())
                .checked_shr(32 - u32::from(self.prefix))
                .is_none_or(|rest| rest == 0),
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits())
                .checked_shr(128 - u32::from(self.prefix))
                .is_none_or(|rest| rest == 0),
            _ => false,
        }
    }

    /// Its first address.
    fn first(address: IpAddr, prefix: u8) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let unreadable = || NetworkError::Unreadable(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| unreadable())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            // A sign or a leading zero is no way to write a length.
            Some(text) if !text.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(unreadable());
            }
            Some(text) => text.parse().map_err(|_| unreadable())?,
            None => longest,
        };
        if prefix > longest {
            return Err(unreadable());
        }
        if matches!(address, IpAddr::V6(six) if six.to_ipv4_mapped().is_some()) {
            return Err(NetworkError::Mapped(text.to_owned()));
        }
        let first = Self::first(address, prefix);
        if first != address {
            let given = text.to_owned();
            let address = first;
            let meant = Self { address, prefix };
            return Err(NetworkError::HostBits { given, meant });
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Which loopback, private and link-local addresses deliveries may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PrivateTargets {
    #[default]
    None,
    All,
    /// Those in these networks. Never empty.
    Networks(Vec<Network>),
}

impl PrivateTargets {
    /// Whether they contain an address that is not public.
    pub fn allow(&self, address: IpAddr) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Networks(networks) => networks.iter().any(|network| network.contains(address)),
        }
    }
}

impl From<bool> for PrivateTargets {
    fn from(all: bool) -> Self {
        match all {
            true => Self::All,
            false => Self::None,
        }
    }
}

impl Serialize for PrivateTargets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_bool(false),
            Self::All => serializer.serialize_bool(true),
            Self::Networks(networks) => {
                serializer.collect_seq(networks.iter().map(ToString::to_string))
            }
        }
    }
}

impl<'de> Deserialize<'de> for PrivateTargets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Flag(bool),
            List(Vec<String>),
        }
        match Written::deserialize(deserializer)? {
            Written::Flag(true) => Ok(Self::All),
            Written::Flag(false) => Ok(Self::None),
            Written::List(list) if list.is_empty() => Ok(Self::None),
            Written::List(list) => list
                .iter()
                .map(|text| text.parse())
                .collect::<Result<_, NetworkError>>()
                .map(Self::Networks)
                .map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_contains_what_shares_its_prefix() {
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("192.168.7.4", "192.168.7.4", "192.168.7.5"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("fd00::/8", "fdff::1", "fc00::1"),
            ("::1", "::1", "127.0.0.1"),
            ("::/0", "fe80::1", "10.0.0.1"),
        ] {
            let network = network(text);
            assert!(network.contains(inside.parse().unwrap()), "{text} {inside}");
            assert!(
                !network.contains(outside.parse().unwrap()),
                "{text} {outside}"
            );
            assert_eq!(network.to_string().parse(), Ok(network));
        }
    }

    #[test]
    fn what_is_not_a_network_is_refused_with_what_to_write() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "localhost",
            "10.0/8",
            "::/129",
        ] {
            let refused = text.parse::<Network>();
            assert_eq!(refused, Err(NetworkError::Unreadable(text.to_owned())));
        }
        let error = "10.1.2.3/8".parse::<Network>().unwrap_err().to_string();
        assert!(error.ends_with("write 10.0.0.0/8"), "{error}");
        assert!(matches!(
            "::ffff:10.0.0.0/104".parse::<Network>(),
            Err(NetworkError::Mapped(_))
        ));
    }

    #[test]
    fn private_targets_are_true_false_or_networks_and_are_written_as_they_are_read() {
        for (written, allowed) in [
            ("false", [false, false]),
            ("true", [true, true]),
            ("[]", [false, false]),
            (r#"["10.0.0.0/8","fd00::/8"]"#, [true, false]),
        ] {
            let targets: PrivateTargets = serde_json::from_str(written).unwrap();
            let found = ["10.1.2.3", "169.254.169.254"];
            assert_eq!(found.map(|it| targets.allow(it.parse().unwrap())), allowed);
            let again = serde_json::to_string(&targets).unwrap();
            assert_eq!(
                serde_json::from_str::<PrivateTargets>(&again).unwrap(),
                targets
            );
        }
        let error = serde_json::from_str::<PrivateTargets>(r#"["10.0.0.1/8"]"#).unwrap_err();
        assert!(error.to_string().contains("write 10.0.0.0/8"), "{error}");
    }
}
