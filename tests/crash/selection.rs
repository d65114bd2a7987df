//! What `make test` runs: every fault at least once, with seeds that stay.

use crate::ground::Ground;
use crate::plan::{Fault, Plan};
use crate::run::{Report, run};
use crate::support::Server;

async fn one(seed: u64, faults: &[Fault]) -> Report {
    carry_out(Plan::only(seed, faults)).await
}

/// With an operator who has dead letters delivered again.
async fn requeueing(seed: u64, faults: &[Fault]) -> Report {
    let report = carry_out(Plan::requeueing(seed, faults)).await;
    assert!(report.redelivered > 0, "{report:?}");
    report
}

/// With a consumer who acknowledges what comes to one subscription.
async fn acknowledging(seed: u64, faults: &[Fault]) {
    let report = carry_out(Plan::acknowledging(seed, faults)).await;
    assert!(report.acknowledged > 20, "{report:?}");
}

async fn carry_out(plan: Plan) -> Report {
    let ground = if plan.faults().any(Fault::takes_the_server) {
        Ground::own(Server::start().await, plan.seed).await
    } else {
        Ground::shared().await
    };
    let (report, server) = run(&plan, ground).await;
    if let Some(server) = server {
        server.stop().await;
    }
    assert!(report.deliveries > 50, "no load: {report:?}");
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fault_everything_comes_once() {
    let report = one(1, &[]).await;
    assert_eq!((report.duplicates, report.outcomes), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_killed() {
    let report = one(2, &[Fault::KillWorker; 3]).await;
    let mut times = report.kill_recovery_ms;
    times.sort_unstable();
    assert!(!times.is_empty(), "nothing was taken over");
    // The target is 2 s, and `make crash` measures it. Here it ends what waits for a frozen worker's
    // time-out, 30 s, instead of for the death.
    assert!(times.iter().all(|ms| *ms < 20_000), "{times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_freezes_and_thaws() {
    one(3, &[Fault::FreezeWorker]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_told_to_stop_under_load() {
    let report = one(4, &[Fault::StopWorker; 3]).await;
    assert_eq!(report.duplicates, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_are_terminated() {
    one(5, &[Fault::TerminateBackend; 6]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_restarts_immediately_and_has_no_connection_left() {
    one(6, &[Fault::RestartServer, Fault::ExhaustConnections]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_promoted() {
    one(13, &[Fault::FailOver, Fault::KillWorker]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_cut_delayed_and_throttled() {
    use Fault::*;
    one(
        7,
        &[
            DelayWorker,
            CutWorker,
            CutProducers,
            ThrottleWorker,
            CutWorker,
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_falls_silent() {
    one(8, &[Fault::SilenceWorker]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_cut_after_what_commits() {
    use Fault::*;
    let faults = [
        CutAfterCommit,
        CutAfterSettlement,
        CutAfterClaim,
        CutAfterCommit,
        CutAfterSettlement,
    ];
    one(9, &faults).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receiver_is_slow_flapping_half_answering_and_killed() {
    use Fault::*;
    one(
        10,
        &[SlowReceiver, FlapReceiver, HalveAnswers, KillReceiver],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_jumps_by_minutes() {
    let report = one(11, &[Fault::JumpClock; 3]).await;
    assert_eq!(report.duplicates, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_killed_and_stands_still_under_a_shared_limit() {
    use Fault::*;
    let report = one(14, &[KillRedis, FreezeRedis, StopWorker, KillRedis]).await;
    assert_eq!(report.duplicates, 0);
    one(15, &[FreezeRedis, KillWorker, KillRedis]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worker_loses_redis_and_others_reach_it() {
    use Fault::*;
    let report = one(19, &[CutRedis, SilenceRedis, DelayRedis, CutRedis]).await;
    assert_eq!(report.duplicates, 0);
    one(20, &[SilenceRedis, KillWorker, CutRedis, KillRedis]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_comes_no_more_and_nothing_else_is_passed() {
    acknowledging(20, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_hold_while_workers_die_and_connections_are_cut() {
    use Fault::*;
    let faults = [
        KillWorker,
        CutAfterSettlement,
        CutWorker,
        CutAfterClaim,
        TerminateBackend,
        KillReceiver,
    ];
    acknowledging(21, &faults).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_hold_while_the_server_restarts_and_fails_over() {
    use Fault::*;
    acknowledging(22, &[RestartServer, CutWorker, FailOver]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_requeued() {
    let report = requeueing(16, &[Fault::StopWorker, Fault::CutAfterCommit]).await;
    assert_eq!(report.duplicates, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_requeued_while_workers_die_and_connections_are_cut() {
    use Fault::*;
    let faults = [
        KillWorker,
        CutAfterClaim,
        TerminateBackend,
        CutAfterSettlement,
        FlapReceiver,
        KillWorker,
    ];
    requeueing(17, &faults).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_requeued_while_the_server_restarts_and_fails_over() {
    use Fault::*;
    requeueing(18, &[RestartServer, CutWorker, FailOver]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_at_once() {
    use Fault::*;
    let faults = [
        KillWorker,
        CutAfterSettlement,
        RestartServer,
        HalveAnswers,
        StopWorker,
        KillWorker,
    ];
    one(12, &faults).await;
}
