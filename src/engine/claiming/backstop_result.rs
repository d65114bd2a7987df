//! The result of the last backstop scan, for the claim scans of all connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(test)]
use std::time::Duration;

use jiff::Timestamp;
use lanekeeper_postgres::claim::ScanStart;
use tokio::time::Instant;

/// The result of the last scan.
#[derive(Debug)]
pub struct BackstopResult {
    /// Increases with each scan.
    pub number: u64,
    first: HashMap<i32, ScanStart>,
    low_water_marks: HashMap<i32, Timestamp>,
    /// After that, claim scans start from the beginning themselves.
    valid_until: Instant,
}

impl BackstopResult {
    /// The first ready entry of a route, if it has any.
    pub fn first(&self, route: i32) -> Option<ScanStart> {
        self.first.get(&route).copied()
    }

    /// The routes whose low-water mark is known, each with its mark.
    pub fn low_water_marks(&self) -> impl Iterator<Item = (i32, Timestamp)> {
        self.low_water_marks
            .iter()
            .map(|(route, mark)| (*route, *mark))
    }

    #[cfg(test)]
    pub fn of(number: u64, first: HashMap<i32, ScanStart>) -> Arc<Self> {
        Arc::new(Self {
            number,
            first,
            low_water_marks: HashMap::new(),
            valid_until: Instant::now() + Duration::from_secs(1),
        })
    }
}

/// The result of the last scan, for the claims of all connections.
#[derive(Debug, Default)]
pub struct Backstop(Mutex<Option<Arc<BackstopResult>>>);

impl Backstop {
    /// `None` if scans fail or take long.
    pub fn latest(&self) -> Option<Arc<BackstopResult>> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
            .filter(|seen| Instant::now() < seen.valid_until)
    }

    pub fn set(
        &self,
        first: HashMap<i32, ScanStart>,
        low_water_marks: HashMap<i32, Timestamp>,
        valid_until: Instant,
    ) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = seen.as_ref().map_or(1, |seen| seen.number + 1);
        *seen = Some(Arc::new(BackstopResult {
            number,
            first,
            low_water_marks,
            valid_until,
        }));
    }
}
