//! At which hosts and addresses a connection is tried, in which order, and for how long.
//!
//! As in libpq, hosts are tried in the order of the connection string, each at every address that its name has,
//! until one takes the connection. `load_balance_hosts=random` shuffles both. A host that starts up, has no
//! connection left, or has not the role that `target_session_attrs` asks for is passed over; one that does not let
//! the user in ends the attempt.
//!
//! Unlike in libpq, a silent host does not use up the time that all hosts have together: each gets an equal part of
//! what is left, and each of its addresses an equal part of that. `connect_timeout` of the connection string is the
//! most that a host gets. What was silent is tried last for [`SILENT_FOR`], so that of the many connections of a
//! worker whose first host vanished only the first ones wait for it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::net;
use tokio::time::Instant;
use tokio_postgres::Config;
use tokio_postgres::config::{Host as Name, LoadBalanceHosts};

/// How long a silent host or address is tried after the others.
const SILENT_FOR: Duration = Duration::from_secs(10);
const PORT: u16 = 5432;

/// A host of a connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// Its position in the connection string.
    pub index: usize,
    name: Name,
    /// What `hostaddr` says of it.
    address: Option<IpAddr>,
    port: u16,
}

impl Host {
    /// In the order in which they are tried. `None` where names, addresses and ports do not fit together, which the
    /// driver explains.
    pub fn all(driver: &Config) -> Option<Vec<Self>> {
        let (names, addresses, ports) = (
            driver.get_hosts(),
            driver.get_hostaddrs(),
            driver.get_ports(),
        );
        let fits = |others: usize| others == names.len();
        if names.is_empty()
            || !(addresses.is_empty() || fits(addresses.len()))
            || !(ports.len() <= 1 || fits(ports.len()))
        {
            return None;
        }
        let hosts = names.iter().enumerate().map(|(index, name)| Self {
            index,
            name: name.clone(),
            address: addresses.get(index).copied(),
            port: ports.get(index).or(ports.first()).copied().unwrap_or(PORT),
        });
        let mut hosts: Vec<_> = hosts.collect();
        shuffle(&mut hosts, driver);
        Some(hosts)
    }

    /// Where it is tried: `None` for what needs no address.
    pub async fn addresses(&self, driver: &Config) -> io::Result<Vec<Option<IpAddr>>> {
        let Name::Tcp(name) = &self.name else {
            return Ok(vec![None]);
        };
        if self.address.is_some() {
            return Ok(vec![self.address]);
        }
        let found = net::lookup_host((name.as_str(), self.port)).await?;
        let mut addresses: Vec<_> = found.map(|address| Some(address.ip())).collect();
        shuffle(&mut addresses, driver);
        Ok(addresses)
    }

    /// These settings for this host alone, at this address.
    pub fn settings(&self, driver: &Config, address: Option<IpAddr>, limit: Duration) -> Config {
        let mut alone = without_hosts(driver);
        match &self.name {
            Name::Tcp(name) => alone.host(name),
            Name::Unix(folder) => alone.host_path(folder),
        };
        if let Some(address) = address {
            alone.hostaddr(address);
        }
        alone.port(self.port);
        alone.connect_timeout(limit);
        alone
    }

    /// For messages.
    pub fn told(&self) -> String {
        match &self.name {
            Name::Tcp(name) => format!("{name}:{}", self.port),
            Name::Unix(folder) => format!("{}:{}", folder.display(), self.port),
        }
    }
}

/// The driver's settings cannot be changed in their hosts, only be given more of them.
fn without_hosts(driver: &Config) -> Config {
    let mut alone = Config::new();
    if let Some(user) = driver.get_user() {
        alone.user(user);
    }
    if let Some(password) = driver.get_password() {
        alone.password(password);
    }
    if let Some(database) = driver.get_dbname() {
        alone.dbname(database);
    }
    if let Some(options) = driver.get_options() {
        alone.options(options);
    }
    if let Some(name) = driver.get_application_name() {
        alone.application_name(name);
    }
    if let Some(timeout) = driver.get_tcp_user_timeout() {
        alone.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = driver.get_keepalives_interval() {
        alone.keepalives_interval(interval);
    }
    if let Some(retries) = driver.get_keepalives_retries() {
        alone.keepalives_retries(retries);
    }
    alone
        .ssl_mode(driver.get_ssl_mode())
        .ssl_negotiation(driver.get_ssl_negotiation())
        .keepalives(driver.get_keepalives())
        .keepalives_idle(driver.get_keepalives_idle())
        .target_session_attrs(driver.get_target_session_attrs())
        .channel_binding(driver.get_channel_binding())
        .load_balance_hosts(driver.get_load_balance_hosts());
    alone
}

fn shuffle<T>(all: &mut [T], driver: &Config) {
    if driver.get_load_balance_hosts() == LoadBalanceHosts::Random {
        // Each has other keys.
        all.sort_by_cached_key(|_| RandomState::new().hash_one(()));
    }
}

/// An equal part, for one of so many, of the time that is left.
pub(super) fn part(until: Instant, among: usize) -> Duration {
    let left = until.saturating_duration_since(Instant::now());
    left / u32::try_from(among).unwrap_or(u32::MAX).max(1)
}

/// A host, or one of its addresses.
pub(super) type Place = (usize, Option<IpAddr>);

/// What was silent lately.
#[derive(Debug, Default)]
pub(super) struct Silent(Mutex<HashMap<Place, Instant>>);

impl Silent {
    /// Says whether this is news.
    pub fn enter(&self, place: Place) -> bool {
        let now = Instant::now();
        let mut silent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        silent.retain(|_, since| now.duration_since(*since) < SILENT_FOR);
        silent.insert(place, now).is_none()
    }

    pub fn leave(&self, place: Place) {
        let mut silent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        silent.remove(&place);
    }

    /// Puts what was silent behind the others, and changes nothing else in the order.
    pub fn put_last<T>(&self, all: &mut [T], place: impl Fn(&T) -> Place) {
        let now = Instant::now();
        let silent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.sort_by_key(|one| {
            let since = silent.get(&place(one));
            since.is_some_and(|since| now.duration_since(*since) < SILENT_FOR)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(string: &str) -> Option<Vec<String>> {
        let hosts = Host::all(&string.parse().unwrap())?;
        Some(hosts.iter().map(Host::told).collect())
    }

    #[test]
    fn hosts_are_tried_in_the_order_of_the_connection_string_with_their_ports() {
        for (string, expected) in [
            ("postgres://a", Some(vec!["a:5432"])),
            ("postgres://a:1,b:2", Some(vec!["a:1", "b:2"])),
            ("host=a,/run/pg port=7", Some(vec!["a:7", "/run/pg:7"])),
            ("host=a,b hostaddr=127.0.0.1", None),
            ("host=a,b,c port=1,2", None),
        ] {
            let expected = expected.map(|hosts| hosts.into_iter().map(str::to_owned).collect());
            assert_eq!(told(string), expected, "{string}");
        }
    }

    #[test]
    fn random_hosts_are_all_tried_and_each_of_them_is_first_at_times() {
        let mut first = std::collections::HashSet::new();
        for _ in 0..200 {
            let mut hosts = told("host=a,b,c load_balance_hosts=random").unwrap();
            first.insert(hosts[0].clone());
            hosts.sort();
            assert_eq!(hosts, ["a:5432", "b:5432", "c:5432"]);
        }
        assert_eq!(first.len(), 3);
    }

    #[test]
    fn an_attempt_at_one_address_has_every_other_setting_of_the_connection_string() {
        let string = "host=a hostaddr=127.0.0.1 port=7 user=u password=p dbname=d options=-cx=y \
            application_name=n sslmode=require sslnegotiation=direct connect_timeout=3 tcp_user_timeout=4 \
            keepalives=0 keepalives_idle=5 keepalives_interval=6 keepalives_retries=7 \
            target_session_attrs=read-write channel_binding=require load_balance_hosts=random";
        let whole: Config = string.parse().unwrap();
        let host = &Host::all(&whole).unwrap()[0];
        let address = "127.0.0.1".parse().unwrap();
        let alone = host.settings(&whole, Some(address), Duration::from_secs(3));
        assert_eq!(alone, whole);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_silent_is_tried_last_for_a_while() {
        let silent = Silent::default();
        let order = || {
            let mut hosts = [0, 1, 2];
            silent.put_last(&mut hosts, |index| (*index, None));
            hosts
        };
        assert!(silent.enter((0, None)));
        assert!(!silent.enter((0, None)));
        assert_eq!(order(), [1, 2, 0]);
        silent.enter((1, None));
        assert_eq!(order(), [2, 0, 1]);
        silent.leave((1, None));
        assert_eq!(order(), [1, 2, 0]);
        tokio::time::advance(SILENT_FOR).await;
        assert_eq!(order(), [0, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_gets_an_equal_part_of_what_the_ones_before_it_left() {
        let until = Instant::now() + Duration::from_secs(6);
        assert_eq!(part(until, 3), Duration::from_secs(2));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(part(until, 2), Duration::from_millis(2500));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(part(until, 1), Duration::ZERO);
    }
}
