//! `lanekeeper status`: the state of every subscription and every worker.
//!
//! Its cost does not depend on the backlog or on idle lanes. It reads a bounded number of the lanes that have something
//! to do; if there are more, it marks its figures as lower bounds.

use std::iter;
use std::process::ExitCode;
use std::time::Duration;

use lanekeeper_config::Config;
use lanekeeper_postgres::inspect::{
    self, Delivery, ForeignLock, Stalled, StalledState, SubscriptionStatus, WorkerStatus,
};
use lanekeeper_postgres::replay::{self as replays, Replay};
use lanekeeper_postgres::source::{self, Source};
use lanekeeper_postgres::source_poll::{self, PollStatus};
use serde::Serialize;

use super::Failure;
use super::delivery;
use super::list::LimitArgs;
use super::output::{self, Output, OutputArgs, or_dash};
use super::replay::rows;

/// Show how far subscriptions are behind, what holds them up, and the workers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Lanes are counted by state: idle (nothing to deliver), ready (waiting for a worker), held (being
delivered), blocked (tried again later), sent (acknowledgements are awaited), parked (waiting for an operator). Per subscription, 5000
lanes that have something to do are looked at and 100000 in all are counted: beyond that, + marks a
lower bound and ~ an approximate figure. BEHIND counts events that a filter will leave out too.

MESSAGES counts what became of them so far, as workers report it every five seconds: SENT are sends that
the destination took, RETRIED attempts that were followed by another one. DEEPEST is the session with
the most undelivered events, MAX how many it may have (max_pending).

STATE is what the running workers report of the subscription: delivering, refused (no worker can make
its destination), circuit open (the destination fails, and is only probed), not reported, or no
worker. The reasons stand below the table, and sessions with work that is due and made no progress
for worker.stalled_after_ms.

Examples:
  lanekeeper status
  lanekeeper status --output json | jq 'select(.kind == \"subscription\") | .behind'")]
pub struct Args {
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line<'a> {
    Subscription(&'a Reported),
    Source(&'a Receiving),
    Worker(&'a WorkerStatus),
    #[serde(rename = "foreign_lock")]
    ForeignLock(&'a ForeignLock),
    /// A lane with work that is due and makes no progress.
    Stalled(&'a Stalled),
    Replay(&'a Replay),
}

/// A source, and who asks its platform where a worker does.
#[derive(Serialize)]
struct Receiving {
    #[serde(flatten)]
    source: Source,
    #[serde(flatten)]
    poll: Option<PollStatus>,
}

/// Backends with locks that are not theirs to have: enough to see who it is.
const FOREIGN_LOCKS: i64 = 5;
/// A subscription, and what the workers say of it.
#[derive(Serialize)]
struct Reported {
    #[serde(flatten)]
    status: SubscriptionStatus,
    delivery: Delivery,
}

pub async fn run(args: Args, config: &Config) -> Result<ExitCode, Failure> {
    let mut client = super::connect(config).await?;
    let reading = inspect::begin(&mut client).await?;
    let subscriptions = inspect::status(
        &reading,
        args.limit.to_ask_for(),
        inspect::LANES_LOOKED_AT,
        iter::empty(),
    )
    .await?;
    let mut workers = inspect::workers(&reading, args.limit.to_ask_for()).await?;
    let foreign_locks = inspect::foreign_locks(&reading, FOREIGN_LOCKS).await?;
    let deliveries = inspect::deliveries(&reading, delivery::frozen_after(config)).await?;
    let mut replays = replays::list(&reading, false, args.limit.to_ask_for(), None).await?;
    let sources = source::list(&reading).await?;
    let mut polls = source_poll::list(&reading).await?;
    let mut sources: Vec<_> = sources
        .into_iter()
        .map(|source| {
            let at = polls.iter().position(|poll| poll.source_id == source.id);
            let poll = at.map(|at| polls.swap_remove(at));
            Receiving { source, poll }
        })
        .collect();
    let after = Duration::from_millis(config.worker.stalled_after_ms);
    let limit = args.limit.to_ask_for();
    let stalled = inspect::stalled(&reading, after, limit, iter::empty()).await?;
    drop(reading);
    let report = |status: SubscriptionStatus| Reported {
        delivery: deliveries.of(status.subscription_id, status.paused_at.is_some()),
        status,
    };
    let mut subscriptions: Vec<Reported> = subscriptions.into_iter().map(report).collect();
    args.limit.cut(&mut subscriptions);
    args.limit.cut(&mut workers);
    args.limit.cut(&mut replays);
    args.limit.cut(&mut sources);
    match args.output.output {
        Output::Json => {
            let subscriptions = subscriptions.iter().map(Line::Subscription);
            let mut lines = subscriptions
                .chain(sources.iter().map(Line::Source))
                .chain(workers.iter().map(Line::Worker))
                .chain(foreign_locks.iter().map(Line::ForeignLock))
                .chain(stalled.iter().map(Line::Stalled))
                .chain(replays.iter().map(Line::Replay));
            lines.try_for_each(|line| output::json_line(&line))?;
        }
        Output::Text => {
            print(&subscriptions, &sources, &workers, &stalled)?;
            if !replays.is_empty() {
                output::line("")?;
                rows(&replays)?;
            }
        }
    }
    if subscriptions.is_empty() {
        output::note("there is no subscription: add one with `lanekeeper apply`");
    }
    for foreign in &foreign_locks {
        output::note(format!(
            "{foreign}: events may wait for it; `lanekeeper doctor` says what to do"
        ));
    }
    if workers.is_empty() {
        output::note("no worker is running: events wait until one does");
    }
    Ok(ExitCode::SUCCESS)
}

fn print(
    subscriptions: &[Reported],
    sources: &[Receiving],
    workers: &[WorkerStatus],
    stalled: &[Stalled],
) -> Result<(), Failure> {
    if !subscriptions.is_empty() {
        let rows: Vec<_> = subscriptions.iter().map(subscription_row).collect();
        output::table(
            [
                "SUBSCRIPTION",
                "STREAM",
                "STATE",
                "IDLE",
                "READY",
                "HELD",
                "BLOCKED",
                "SENT",
                "PARKED",
                "BEHIND",
                "OLDEST",
                "DEAD",
            ],
            &rows,
        )?;
        let rows: Vec<_> = subscriptions.iter().map(messages_row).collect();
        output::line("")?;
        output::table(
            [
                "MESSAGES", "PENDING", "SENDING", "SENT", "ACKED", "RETRIED", "FAILED", "EXPIRED",
                "DROPPED", "DEEPEST", "MAX",
            ],
            &rows,
        )?;
        for one in subscriptions {
            for reason in one.delivery.reasons() {
                let name = &one.status.subscription;
                output::line(output::plain(&format!("{name}: {reason}")))?;
            }
        }
    }
    for one in stalled {
        output::line(output::plain(&stalled_line(one)))?;
    }
    if !sources.is_empty() {
        if !subscriptions.is_empty() {
            output::line("")?;
        }
        let rows: Vec<_> = sources.iter().map(|one| source_row(&one.source)).collect();
        output::table(["SOURCE", "KIND", "SECRET", "SESSION", "SINCE"], &rows)?;
        for one in sources {
            let problem = one.poll.as_ref().and_then(|poll| poll.problem.as_ref());
            if let Some(problem) = problem {
                let name = &one.source.name;
                output::line(output::plain(&format!("source {name}: {problem}")))?;
            }
        }
    }
    if !workers.is_empty() {
        if !subscriptions.is_empty() || !sources.is_empty() {
            output::line("")?;
        }
        let rows: Vec<_> = workers.iter().map(worker_row).collect();
        output::table(
            [
                "WORKER", "HOST", "PID", "RELEASE", "STATE", "LANES", "SINCE", "SILENT",
            ],
            &rows,
        )?;
    }
    Ok(())
}

fn stalled_line(one: &Stalled) -> String {
    let Stalled {
        subscription,
        session,
        ..
    } = one;
    let age = output::age(one.stalled_s);
    match (one.state, one.worker_id) {
        (StalledState::Held, Some(worker_id)) => {
            format!(
                "{subscription}: worker {worker_id} has held session {session} for {age} without progress"
            )
        }
        (StalledState::Held, None) => {
            format!("{subscription}: session {session} has been held for {age} without progress")
        }
        (StalledState::Due, _) => {
            format!(
                "{subscription}: session {session} has waited for {age}, and no worker has taken it"
            )
        }
    }
}

fn subscription_row(one: &Reported) -> [String; 12] {
    let status = &one.status;
    let bound = |count: i64, partial| format!("{count}{}", if partial { "+" } else { "" });
    let state = delivery::cell(&one.delivery, status.pause_reason.as_deref());
    let partial = status.partial;
    [
        status.subscription.clone(),
        status.stream.clone(),
        state,
        format!(
            "{}{}",
            if status.idle_partial { "~" } else { "" },
            status.lanes.idle
        ),
        bound(status.lanes.ready, partial),
        status.lanes.held.to_string(),
        bound(status.lanes.blocked, partial),
        bound(status.lanes.sent, partial),
        bound(status.lanes.parked, partial),
        bound(status.behind, partial),
        or_dash(status.oldest_undelivered_age_s.map(output::age)),
        status.dead_letters_text(),
    ]
}

fn messages_row(one: &Reported) -> [String; 11] {
    let status = &one.status;
    let bound = |count: i64| format!("{count}{}", if status.partial { "+" } else { "" });
    let so_far = &status.messages;
    [
        status.subscription.clone(),
        bound(status.behind),
        status.lanes.held.to_string(),
        so_far.sent.to_string(),
        so_far.acked.to_string(),
        so_far.retried.to_string(),
        so_far.failed.to_string(),
        so_far.expired.to_string(),
        so_far.dropped.to_string(),
        bound(status.deepest),
        or_dash(status.max_pending.map(|most| most.to_string())),
    ]
}

fn source_row(source: &Source) -> [String; 5] {
    let definition = &source.definition;
    [
        source.name.clone(),
        definition.kind().to_owned(),
        definition.secret_env().to_owned(),
        output::plain(definition.session()).to_string(),
        output::time(source.changed_at),
    ]
}

fn worker_row(worker: &WorkerStatus) -> [String; 8] {
    [
        worker.worker_id.to_string(),
        worker.host.clone(),
        worker.pid.to_string(),
        worker.release.clone(),
        worker.state.clone(),
        worker.held_lanes.to_string(),
        output::time(worker.started_at),
        output::age(worker.silent_s),
    ]
}
