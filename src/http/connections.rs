//! Limits the number of connections, and closes one if there is no room for a new one.
//!
//! ```text
//!            a request's head is there
//! waiting ────────────────────────────► busy
//!    ▲  └──► closed for another           │
//!    └────────────────────────────────────┘
//!             its answer is written
//! ```
//!
//! A connection without a request (nothing sent yet, half a head, idle between two requests) costs its client nothing,
//! and a client may open thousands. So at the limit, the connection that has waited longest is closed, of the client
//! with the most connections. A probe sends its request at once and has one or two connections, so it is always served.
//! Requests to the API may not use all connections either.
//!
//! A live follower keeps its connection for hours. It is taken out of these numbers, and counted by itself.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// Connections that requests to the API leave for probes and metrics.
const RESERVED: usize = 16;

/// How many of all connections requests to the API may take.
pub fn of_api(most: usize) -> usize {
    most.saturating_sub(RESERVED)
}

pub struct Connections {
    most: usize,
    most_followers: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of connections, and of when they began to wait.
    next_number: u64,
    open: HashMap<u64, Open>,
    /// Those of the API under way.
    requests: usize,
    /// Those of live followers.
    followers: usize,
}

struct Open {
    peer: IpAddr,
    follows: bool,
    /// It has a request that is not answered yet.
    has_request: bool,
    /// When it began to wait for a request, as a growing number.
    waiting: Option<u64>,
    closed: CancellationToken,
}

/// An open connection, counted until this is dropped.
pub struct ConnectionPermit {
    connections: Arc<Connections>,
    number: u64,
    closed: CancellationToken,
}

/// A connection that follows live, counted until this is dropped.
pub struct Following {
    permit: Arc<ConnectionPermit>,
}

/// A connection while it has a request.
pub struct Busy {
    connections: Arc<Connections>,
    number: u64,
    is_api: bool,
}

/// Why a request is not served.
#[derive(Debug, PartialEq, Eq)]
pub enum Turned {
    /// The connection was closed for another one as the request arrived.
    GaveWay,
    /// The limit of concurrent API requests is reached.
    Full,
}

impl Connections {
    /// `most` must be more than the reserved connections.
    pub fn new(most: usize, most_followers: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_followers,
            state: Mutex::default(),
        })
    }

    /// Admits a connection, if necessary by closing another one. `None`: all connections have requests.
    pub fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionPermit> {
        let mut state = self.state();
        if state.open.len() - state.followers >= self.most {
            let victim = state.victim()?;
            if let Some(open) = state.open.remove(&victim) {
                open.closed.cancel();
            }
        }
        let number = state.number();
        let closed = CancellationToken::new();
        let open = Open {
            peer,
            follows: false,
            has_request: false,
            waiting: Some(number),
            closed: closed.clone(),
        };
        state.open.insert(number, open);
        Some(ConnectionPermit {
            connections: Arc::clone(self),
            number,
            closed,
        })
    }

    /// Closes those that wait for a request.
    pub fn close_waiting(&self) {
        self.state().open.retain(|_, open| {
            if open.waiting.is_some() {
                open.closed.cancel();
            }
            open.waiting.is_none()
        });
    }

    /// The number of waiting connections, and of those with a request.
    pub fn count(&self) -> (usize, usize) {
        let state = self.state();
        let waiting = state.open.values().filter(|open| open.waiting.is_some());
        let waiting = waiting.count();
        (waiting, state.open.len() - waiting)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Selects the connection to close. It goes over all of them, which are a few hundred.
    fn victim(&self) -> Option<u64> {
        let mut by_peer: HashMap<IpAddr, usize> = HashMap::new();
        for open in self.open.values() {
            *by_peer.entry(open.peer).or_default() += 1;
        }
        let waiting = self.open.iter().filter_map(|(number, open)| {
            let of_peer = by_peer.get(&open.peer).copied().unwrap_or_default();
            Some((std::cmp::Reverse(of_peer), open.waiting?, *number))
        });
        waiting.min().map(|(_, _, number)| number)
    }
}

impl ConnectionPermit {
    /// Resolves when the connection has to be closed.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// The request makes its connection a live follower's. `None`: there are as many as there may be.
    pub fn follow(self: &Arc<Self>) -> Option<Following> {
        let mut state = self.connections.state();
        if state.followers >= self.connections.most_followers {
            return None;
        }
        let open = state.open.get_mut(&self.number)?;
        open.follows = true;
        state.followers += 1;
        // It is no request of the API any more.
        state.requests -= 1;
        Some(Following {
            permit: Arc::clone(self),
        })
    }

    /// A request came. Kept until its answer is written.
    ///
    /// # Errors
    /// It is not to be served.
    pub fn begin(&self, is_api: bool) -> Result<Busy, Turned> {
        let mut state = self.connections.state();
        if is_api && state.requests >= of_api(self.connections.most) {
            return Err(Turned::Full);
        }
        let open = state.open.get_mut(&self.number).ok_or(Turned::GaveWay)?;
        open.waiting = None;
        open.follows = false;
        open.has_request = true;
        state.requests += usize::from(is_api);
        Ok(Busy {
            connections: Arc::clone(&self.connections),
            number: self.number,
            is_api,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.state().open.remove(&self.number);
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut state = self.permit.connections.state();
        state.followers -= 1;
        // A long poll is over, and its answer is written like any other.
        let open = state.open.get_mut(&self.permit.number);
        if let Some(open) = open.filter(|open| open.has_request) {
            open.follows = false;
            state.requests += 1;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.connections.state();
        let since = state.number();
        let open = state.open.get_mut(&self.number);
        let follows = open.is_some_and(|open| {
            open.has_request = false;
            open.waiting = (!open.follows).then_some(since);
            open.follows
        });
        state.requests -= usize::from(self.is_api && !follows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn is_closed(permit: &ConnectionPermit) -> bool {
        permit.closed.is_cancelled()
    }

    #[test]
    fn the_longest_waiting_one_of_whoever_has_most_gives_way() {
        let connections = Connections::new(4, 1);
        let of_other = connections.enter(OTHER).unwrap();
        let [first, second, third] = [(); 3].map(|()| connections.enter(CLIENT).unwrap());
        // It waits since later than the second one.
        drop(first.begin(false).unwrap());
        let probe = connections.enter(OTHER).unwrap();
        assert!(is_closed(&second) && !is_closed(&of_other));
        assert_eq!(second.begin(false).err(), Some(Turned::GaveWay));
        // Two each by now: whoever waits longest.
        let busy = of_other.begin(false).unwrap();
        let another = connections.enter(OTHER).unwrap();
        assert!(is_closed(&third) && !is_closed(&probe));
        drop((second, third, busy));
        assert_eq!(connections.count(), (4, 0));
        drop((first, of_other, probe, another));
        assert_eq!(connections.count(), (0, 0));
    }

    #[test]
    fn a_connection_with_a_request_stays_and_the_last_places_are_not_for_the_api() {
        let connections = Connections::new(RESERVED + 2, 1);
        let permits: Vec<_> = (0..RESERVED + 2)
            .map(|_| connections.enter(CLIENT).unwrap())
            .collect();
        let mut busy = vec![
            permits[0].begin(true).unwrap(),
            permits[1].begin(true).unwrap(),
        ];
        assert_eq!(permits[2].begin(true).err(), Some(Turned::Full));
        busy.extend(
            permits[2..]
                .iter()
                .map(|permit| permit.begin(false).unwrap()),
        );
        assert!(connections.enter(OTHER).is_none());
        drop(busy.pop());
        assert!(connections.enter(OTHER).is_some());
        assert!(is_closed(permits.last().unwrap()));
        drop(busy);
        assert!(permits[0].begin(true).is_ok());
    }

    #[test]
    fn at_the_end_only_what_has_a_request_stays() {
        let connections = Connections::new(20, 1);
        let [one, two] = [(); 2].map(|()| connections.enter(CLIENT).unwrap());
        let busy = one.begin(true).unwrap();
        connections.close_waiting();
        assert!(!is_closed(&one) && is_closed(&two));
        drop(busy);
        connections.close_waiting();
        assert!(is_closed(&one));
    }

    #[test]
    fn a_follower_takes_no_place_of_the_api_and_there_is_a_bounded_number() {
        let connections = Connections::new(RESERVED + 1, 1);
        let follower = Arc::new(connections.enter(CLIENT).unwrap());
        let busy = follower.begin(true).unwrap();
        let other = Arc::new(connections.enter(CLIENT).unwrap());
        assert_eq!(other.begin(true).err(), Some(Turned::Full));
        let following = follower.follow().unwrap();
        let request = other.begin(true).unwrap();
        assert!(other.follow().is_none(), "one is all");
        drop((following, busy));
        let following = other.follow().unwrap();
        // An upgraded connection: its request is answered while it still follows.
        drop(request);
        assert!(follower.follow().is_none());
        drop(following);
        assert_eq!(connections.state().requests, 0);
        assert_eq!(connections.state().followers, 0);
    }

    #[test]
    fn a_long_poll_that_is_over_is_answered_as_a_request_and_its_connection_waits_then() {
        let connections = Connections::new(RESERVED + 1, 1);
        let permit = Arc::new(connections.enter(CLIENT).unwrap());
        for _ in 0..2 {
            let busy = permit.begin(true).unwrap();
            let following = permit.follow().unwrap();
            assert_eq!(connections.state().requests, 0);
            drop(following);
            assert_eq!(connections.state().requests, 1);
            drop(busy);
            assert_eq!(connections.state().requests, 0);
            assert_eq!(connections.count(), (1, 0), "it gives way to others again");
        }
    }
}
