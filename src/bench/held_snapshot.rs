//! A transaction that keeps its snapshot while events come and go, against the same load without it (I9).
//!
//! No row version that dies meanwhile can be removed: what walks dead ones gets slower and slower.

use std::time::Duration;

use super::measure::median;
use super::paced::{self, Load};
use super::report::{Line, Trend, Window};
use super::steady::middle;
use super::{BenchError, Options, Scratch, progress};

const PER_SECOND: f64 = 2_000.0;
const TIME: Duration = Duration::from_secs(100);
/// Sessions that get half of the events.
const HOT: usize = 50;
/// Of the p99 in the last window to that in the first.
const TARGET: f64 = 1.25;

pub async fn measure(scratch: &Scratch, options: &Options) -> Result<Line, BenchError> {
    let hot = HOT.min(options.paced_sessions / 2);
    let load = Load {
        per_second: options.rate.unwrap_or(PER_SECOND),
        hot,
        sessions: hot + options.paced_sessions,
        time: options.seconds.map_or(TIME, Duration::from_secs_f64),
    };
    // Without a snapshot nothing piles up: half an hour of it would show no more.
    let reference = Load {
        time: load.time.min(TIME),
        ..load
    };
    let runs = options.long_runs();
    let (mut held, mut free) = (Vec::new(), Vec::new());
    for run in 1..=runs {
        progress(&format!("held-snapshot, run {run} of {runs}"));
        held.push(paced::run(scratch, options, load, true).await?.windows);
        progress(&format!("the same without a snapshot, run {run} of {runs}"));
        free.push(
            paced::run(scratch, options, reference, false)
                .await?
                .windows,
        );
    }
    let ratios = |runs: &[Vec<Window>]| runs.iter().map(|run| growth(run)).collect::<Vec<_>>();
    let (ratios, reference_ratios) = (ratios(&held), ratios(&free));
    let ratio = median(&ratios);
    let (windows, reference_windows) = (
        middle(held, |run| growth(run)),
        middle(free, |run| growth(run)),
    );
    let kept = windows.last().map_or(0.0, |last| last.delivered_per_second);
    Ok(Line::Trend(Trend {
        ratio,
        target: TARGET,
        met: ratio <= TARGET,
        reference_ratio: median(&reference_ratios),
        rate_kept: kept / load.per_second,
        bench: "held-snapshot".to_owned(),
        case: format!(
            "{:.0} events/s, half on {} sessions, half over {}, for {} s",
            load.per_second,
            load.hot,
            options.paced_sessions,
            load.time.as_secs_f64()
        ),
        asked_per_second: load.per_second,
        against: "the same without a snapshot".to_owned(),
        ratios,
        reference_ratios,
        windows,
        reference_windows,
    }))
}

/// p99 of the last window over that of the first, to the microsecond.
fn growth(windows: &[Window]) -> f64 {
    let p99 = |window: Option<&Window>| window.map_or(0.0, |w| w.p99_ms).max(0.001);
    p99(windows.last()) / p99(windows.first())
}
