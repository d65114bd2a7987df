//! Looks for tokens behind the bounds of the walks (I9, I13), on a connection that no claim waits for.
//!
//! A token may appear where a walk has been already: its producer's transaction stayed open, or whoever had the
//! lane let go of it. A walk from the first token that ever was would find it, and step over all that died
//! meanwhile, of which a snapshot that somebody holds lets none be removed. So about once a second the worker asks
//! for the first token that is there, and walks whose bounds are past it go back to it.
//!
//! The question itself starts at a floor, under which nothing can appear any more: no token is there, and every
//! transaction that could insert one got its number after the floor. For that each look draws a number itself, and
//! remembers when. Where the server may have lost commits, which bring deleted tokens back, and
//! where its clock went back, it starts from the beginning; and now and then anyway.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lanekeeper_fault::Mutation;
use lanekeeper_postgres::claim::Bound;
use lanekeeper_postgres::first_token::{FirstToken, FirstTokens, first_tokens};
use tokio::time::{Instant, sleep, timeout};

use super::route::Route;
use super::shared::Shared;

/// Between two looks, and no less often than the poll floor.
const EVERY: Duration = Duration::from_secs(1);
/// A look takes this part of one connection's time at the most, unless it would be for longer than is good.
const SHARE: u32 = 20;
const PAUSE_LIMIT: Duration = Duration::from_secs(5);
/// What was seen is good for the pause after it, and so much longer: the next look may take a while.
const GOOD_LONGER: Duration = Duration::from_secs(3);
/// Between two looks from the beginning, and the part of the time that these take at the most.
const WHOLE_EVERY: Duration = Duration::from_secs(60);
const WHOLE_SHARE: u32 = 100;
/// A server that needs longer has other worries, and walks from the beginning would take as long.
const WITHIN: Duration = Duration::from_secs(30);
/// From the clock that a token's due time is read off to its transaction's number: one statement at the most.
const MARGIN: SignedDuration = SignedDuration::from_secs(5);
/// Looks that are remembered.
const SAMPLES: usize = 64;

/// What the last look saw.
#[derive(Debug)]
pub struct Seen {
    /// Another one for each look.
    pub number: u64,
    first: HashMap<i32, Bound>,
    floors: HashMap<i32, Timestamp>,
    /// From then on walks look for themselves.
    good_until: Instant,
}

impl Seen {
    /// The first token of a route, if there is one.
    pub fn first(&self, route: i32) -> Option<Bound> {
        self.first.get(&route).copied()
    }

    /// The routes of which is known under which time no token is there, or will be; and that.
    pub fn floors(&self) -> impl Iterator<Item = (i32, Timestamp)> {
        self.floors.iter().map(|(route, floor)| (*route, *floor))
    }

    #[cfg(test)]
    pub fn of(number: u64, first: HashMap<i32, Bound>) -> Arc<Self> {
        Arc::new(Self {
            number,
            first,
            floors: HashMap::new(),
            good_until: Instant::now() + EVERY,
        })
    }
}

/// What the last look saw, for the walks of all connections.
#[derive(Debug, Default)]
pub struct Behind(Mutex<Option<Arc<Seen>>>);

impl Behind {
    /// None where looks fail or take long.
    pub fn seen(&self) -> Option<Arc<Seen>> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone().filter(|seen| Instant::now() < seen.good_until)
    }

    fn set(
        &self,
        first: HashMap<i32, Bound>,
        floors: HashMap<i32, Timestamp>,
        good_until: Instant,
    ) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = seen.as_ref().map_or(1, |seen| seen.number + 1);
        *seen = Some(Arc::new(Seen {
            number,
            first,
            floors,
            good_until,
        }));
    }
}

/// Under which nothing can appear, for each route.
#[derive(Debug, Default)]
struct Floors {
    server: Option<String>,
    /// Transaction numbers, and a time before which each was not given yet. Ascending.
    samples: VecDeque<(Timestamp, i64)>,
    floors: HashMap<i32, Timestamp>,
}

impl Floors {
    fn of(&self, route: i32) -> Timestamp {
        self.floors
            .get(&route)
            .copied()
            .unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Raises the floors by what a look at these routes saw. False where it was not the server that they
    /// are of, or its clock went back: they begin anew then, and what was seen above them says nothing.
    fn raise(&mut self, routes: &[i32], seen: &FirstTokens) -> bool {
        let set_back = self
            .samples
            .back()
            .is_some_and(|(at, _)| *at > seen.asked_at);
        if set_back || seen.server.is_none() || seen.server != self.server {
            *self = Self {
                server: seen.server.clone(),
                ..Self::default()
            };
            return false;
        }
        self.samples
            .push_back((seen.asked_at, seen.own_transaction));
        // Whatever is open now, or begins later, had no number then.
        let counts = |(_, own): &(Timestamp, i64)| {
            *own <= seen.oldest_open || Mutation::OpenTransactionsForgotten.is_on()
        };
        // The last one that counts stays, however long something keeps newer ones from it.
        while self.samples.get(1).is_some_and(counts) {
            self.samples.pop_front();
        }
        if self.samples.len() > SAMPLES {
            self.samples.remove(1);
        }
        let none_before = self
            .samples
            .front()
            .filter(|sample| counts(sample))
            .and_then(|(at, _)| at.checked_sub(MARGIN).ok());
        let Some(none_before) = none_before else {
            return true;
        };
        for (route, token) in routes.iter().zip(&seen.tokens) {
            let floor = token.map_or(none_before, |token| token.due_at.min(none_before));
            let before = self.floors.entry(*route).or_insert(floor);
            *before = floor.max(*before);
        }
        true
    }
}

/// Looks until the worker stops.
pub async fn run(shared: Arc<Shared>) {
    let mut floors = Floors::default();
    let mut whole_at = Instant::now();
    let mut failing = false;
    while !shared.stopping.is_cancelled() {
        let whole = whole_at <= Instant::now();
        let mut took = Duration::ZERO;
        match timeout(WITHIN, look(&shared, &mut floors, whole)).await {
            Ok(Ok(time)) => {
                failing = false;
                took = time;
            }
            Ok(Err(error)) => complain(&mut failing, &*error),
            Err(late) => complain(&mut failing, &late),
        }
        if whole {
            whole_at = Instant::now() + WHOLE_EVERY.max(took * WHOLE_SHARE);
        }
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = sleep(pause(took, whole, shared.settings.poll_floor)) => {}
        }
    }
}

/// After a look that took so long. One from the beginning says nothing of the next.
fn pause(took: Duration, whole: bool, poll_floor: Duration) -> Duration {
    let every = EVERY.min(poll_floor);
    match whole {
        true => every,
        false => (took * SHARE).clamp(every, PAUSE_LIMIT),
    }
}

fn complain(failing: &mut bool, error: &(dyn std::error::Error + 'static)) {
    if !std::mem::replace(failing, true) {
        tracing::warn!(
            error,
            "the tokens behind the walks could not be looked at; claims look for themselves until it works again"
        );
    }
}

/// Looks once, from the floors or from the beginning. Returns how long the server took.
async fn look(
    shared: &Shared,
    floors: &mut Floors,
    whole: bool,
) -> Result<Duration, Box<dyn std::error::Error + Send + Sync>> {
    // One that a limit or a breaker shuts for longer is not walked.
    let soon = Instant::now() + EVERY * 2;
    let open = |route: &&Arc<Route>| route.opens_at(&shared.limiter).is_none_or(|at| at < soon);
    let routes: Vec<i32> = shared
        .routes()
        .iter()
        .filter(open)
        .map(|route| route.id())
        .collect();
    if routes.is_empty() || Mutation::NoLookBehind.is_on() {
        return Ok(Duration::ZERO);
    }
    let client = shared.pool.get().await?;
    let starts: Vec<Timestamp> = routes
        .iter()
        .map(|route| match whole {
            true => Timestamp::UNIX_EPOCH,
            false => floors.of(*route),
        })
        .collect();
    let asked = Instant::now();
    let seen = first_tokens(&client, &routes, &starts).await?;
    let took = asked.elapsed();
    if whole {
        floors.floors.retain(|route, _| !routes.contains(route));
    }
    if !floors.raise(&routes, &seen) {
        // The next look is the first one of this server, at its time: two that answer in turns are not asked
        // without a pause.
        return Ok(took);
    }
    let tokens = || {
        let found = routes.iter().zip(&seen.tokens);
        found.filter_map(|(route, token)| Some((*route, (*token)?)))
    };
    let first = tokens().map(|(route, token)| (route, token.bound()));
    let good_until = Instant::now() + pause(took, whole, shared.settings.poll_floor) + GOOD_LONGER;
    shared
        .behind
        .set(first.collect(), floors.floors.clone(), good_until);
    let held = shared.held_lanes();
    if !Mutation::NoPolls.is_on()
        && tokens().any(|(_, FirstToken { lane_id, .. })| held.binary_search(&lane_id).is_err())
    {
        shared.wake_all();
    }
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: i32 = 7;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    /// A look at `seconds` with the number `own`, no transaction before `oldest_open` being open.
    fn seen(seconds: i64, oldest_open: i64, own: i64, first: Option<i64>) -> FirstTokens {
        FirstTokens {
            tokens: vec![first.map(|due| FirstToken {
                due_at: at(due),
                token_id: 1,
                lane_id: 1,
            })],
            asked_at: at(seconds),
            oldest_open,
            own_transaction: own,
            server: Some("one".to_owned()),
        }
    }

    fn floors(looks: &[FirstTokens]) -> Floors {
        let mut floors = Floors::default();
        // The first one says which server it is.
        assert!(!floors.raise(&[ROUTE], &looks[0]));
        for look in looks {
            assert!(floors.raise(&[ROUTE], look));
        }
        floors
    }

    #[test]
    fn a_floor_follows_the_looks_where_no_transaction_is_open() {
        let floors = floors(&[seen(10, 100, 100, None), seen(20, 200, 200, None)]);
        assert_eq!(floors.of(ROUTE), at(20) - MARGIN);
    }

    #[test]
    fn a_floor_stays_under_a_token_that_is_there() {
        let floors = floors(&[seen(10, 100, 100, Some(3)), seen(20, 200, 200, Some(4))]);
        assert_eq!(floors.of(ROUTE), at(4));
    }

    #[test]
    fn a_floor_stays_under_what_an_open_transaction_may_insert() {
        // 150 began after the look at 10 and before the one at 20, and is open at 30.
        let floors = floors(&[
            seen(10, 100, 100, None),
            seen(20, 150, 200, None),
            seen(30, 150, 300, None),
        ]);
        assert_eq!(floors.of(ROUTE), at(10) - MARGIN);
    }

    #[test]
    fn a_floor_never_goes_back_and_goes_on_when_the_transaction_has_ended() {
        let mut floors = floors(&[seen(10, 100, 100, None), seen(20, 90, 200, None)]);
        assert_eq!(floors.of(ROUTE), at(10) - MARGIN);
        floors.raise(&[ROUTE], &seen(30, 250, 300, None));
        assert_eq!(floors.of(ROUTE), at(20) - MARGIN);
    }

    #[test]
    fn a_floor_stays_where_it_is_however_long_a_transaction_is_open() {
        let mut floors = floors(&[seen(10, 100, 100, None)]);
        for second in 11..1000 {
            assert!(floors.raise(&[ROUTE], &seen(second, 101, 100 + second, None)));
        }
        assert_eq!(floors.of(ROUTE), at(10) - MARGIN);
        floors.raise(&[ROUTE], &seen(1000, 1100, 1100, None));
        assert_eq!(floors.of(ROUTE), at(1000) - MARGIN);
    }

    #[test]
    fn a_clock_that_is_set_back_begins_anew() {
        let mut floors = floors(&[seen(100, 100, 100, None)]);
        let back = seen(40, 200, 200, None);
        assert!(!floors.raise(&[ROUTE], &back));
        assert_eq!(floors.of(ROUTE), Timestamp::UNIX_EPOCH);
        assert!(floors.raise(&[ROUTE], &back));
        assert_eq!(floors.of(ROUTE), at(40) - MARGIN);
    }

    #[test]
    fn another_server_begins_anew() {
        let mut floors = floors(&[seen(10, 100, 100, None)]);
        let other = FirstTokens {
            server: Some("two".to_owned()),
            ..seen(20, 200, 200, None)
        };
        assert!(!floors.raise(&[ROUTE], &other));
        assert_eq!(floors.of(ROUTE), Timestamp::UNIX_EPOCH);
        // One that cannot be told from another is another each time.
        let unknown = FirstTokens {
            server: None,
            ..seen(30, 300, 300, None)
        };
        assert!(!floors.raise(&[ROUTE], &unknown));
        assert!(!floors.raise(&[ROUTE], &unknown));
        assert_eq!(floors.of(ROUTE), Timestamp::UNIX_EPOCH);
    }
}
