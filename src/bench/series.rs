//! The drain at ever other sizes, each beside a row queue with as many jobs: what it depends on.

use super::cost;
use super::measure::Pairs;
use super::report::{Comparison, Costs, Line};
use super::{Backlog, BenchError, Options, Scratch, drain, progress, row_queue};

/// Sessions of the ever deeper backlogs.
const SESSIONS: usize = 5_000;

/// One measurement of a series.
pub struct Case {
    bench: &'static str,
    axis: &'static str,
    at: usize,
    backlog: Backlog,
}

/// As many events over ever more sessions.
pub fn sessions(options: &Options) -> Vec<Case> {
    let case = |sessions: &usize| Case {
        bench: "sessions",
        axis: "sessions",
        at: *sessions,
        backlog: Backlog {
            sessions: *sessions,
            events: options.spread_events.div_ceil(*sessions),
        },
    };
    options.session_counts.iter().map(case).collect()
}

/// Ever more events over as many sessions.
pub fn backlogs(options: &Options) -> Vec<Case> {
    let case = |events: &usize| {
        let sessions = SESSIONS.min(*events);
        Case {
            bench: "backlog",
            axis: "events waiting",
            at: *events,
            backlog: Backlog {
                sessions,
                events: events.div_ceil(sessions),
            },
        }
    };
    options.backlogs.iter().map(case).collect()
}

pub async fn measure(
    scratch: &Scratch,
    options: &Options,
    case: Case,
) -> Result<[Line; 2], BenchError> {
    let Case {
        bench,
        axis,
        at,
        backlog,
    } = case;
    let mut pairs = Pairs::default();
    let (mut costs, mut references) = (Vec::new(), Vec::new());
    for run in 1..=options.runs() {
        progress(&format!(
            "{bench}, {backlog}, run {run} of {}",
            options.runs()
        ));
        let (value, cost) = drain::drain(scratch, options, backlog).await?.running;
        costs.push(cost);
        let drained = row_queue::drain(scratch, backlog.total(), "off").await?;
        let (reference, cost) = drained.running;
        references.push(cost);
        pairs.push(value, reference);
    }
    let comparison = Comparison::new(
        (bench, backlog.to_string()),
        "row queue without order",
        pairs,
        None,
    );
    Ok([
        Line::Comparison(comparison.at(axis, at)),
        Line::Costs(Costs {
            bench: bench.to_owned(),
            case: backlog.to_string(),
            value: cost::median(&costs),
            against: "row queue".to_owned(),
            reference: cost::median(&references),
        }),
    ])
}
