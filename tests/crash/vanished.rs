//! A6: a node that vanishes with what it holds. The server has to find that out by itself.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use tokio::time::sleep;

use crate::ground::Ground;
use crate::ledger::Ledger;
use crate::monitor::Monitor;
use crate::node::{LISTEN, NETWORK, Node};
use crate::oracle::Case;
use crate::plan::Fault;
use crate::receiver::Receiver;
use crate::scene::{SUBSCRIPTIONS, apply, lanes, log};
use crate::support::{
    Dice, Line, Protocol, Proxy, Server, Upstream, WorkerProcess, connect, lanekeeper,
    lanekeeper_by, wait_until,
};
use crate::timeline::{Strike, now_ms, recovery_ms};
use crate::workload::Producers;

const LIMIT: Duration = Duration::from_secs(60);
const DELIVERY: Duration = Duration::from_millis(15);

/// Milliseconds until each lane of a worker whose node vanished came from another, at the default
/// settings; `None` where a node cannot be made.
pub async fn vanish(seed: u64) -> Option<Vec<i64>> {
    let node = Node::new()?;
    let server = Server::start().await;
    let hba = server.path().join("server/postgres/pg_hba.conf");
    let mut hba = OpenOptions::new().append(true).open(hba).unwrap();
    writeln!(hba, "host all all {NETWORK} scram-sha-256").unwrap();
    let ground = Ground::own(server, seed).await;
    let client = connect(ground.url()).await;
    client
        .query_one("SELECT pg_reload_conf()", &[])
        .await
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (mut receiver, port) = Receiver::start(dir.path()).await;
    let upstream = Upstream::Tcp(([127, 0, 0, 1], port).into());
    let proxy = Proxy::start(upstream, Protocol::Http).await;
    proxy.set(Line {
        delay: DELIVERY,
        ..Line::default()
    });
    apply(ground.url(), proxy.port(), false, false).await;
    let secrets = [receiver.new_secret(), receiver.new_secret()];
    let start = |program, (sender, secret): &(usize, String), variables: &[(&str, &str)]| {
        WorkerProcess::spawn_as(program, ground.url(), *sender, secret, variables)
    };
    let victim = start(
        lanekeeper_by(&node.starter()),
        &secrets[0],
        &[("LANEKEEPER_HTTP__LISTEN", LISTEN)],
    );
    victim.serves().await;
    let ledger = Ledger::default();
    let producers = Producers::start(ground.url(), &Dice::new(seed), &ledger, 60);
    for _ in 0..3 {
        producers.bursts().ask();
    }
    let monitor = Monitor::start(ground.url(), receiver.reader());
    let held = async || {
        let query = "SELECT s.subscription, s.session FROM lanekeeper.lane_status AS s
                     JOIN lanekeeper.worker AS w ON w.worker_id = s.held_by
                     WHERE w.pid = $1 AND s.head_seq IS NOT NULL";
        let rows = client.query(query, &[&victim.pid()]).await.unwrap();
        let name = |row: &tokio_postgres::Row| (row.get(0), row.get(1));
        rows.iter().map(name).collect::<Vec<_>>()
    };
    wait_until(LIMIT, "the victim is busy", async || {
        held().await.len() > 10
    })
    .await;
    let survivor = start(lanekeeper(), &secrets[1], &[]);
    survivor.serves().await;
    producers.bursts().ask();
    wait_until(LIMIT, "the victim is busy", async || {
        held().await.len() > 10
    })
    .await;
    let strike = Strike {
        fault: Fault::SilenceWorker,
        at_ms: now_ms(),
        sender: victim.sender,
        held: held().await,
        thawed_ms: None,
    };
    node.vanish();
    wait_until(LIMIT, "the survivor takes over", async || {
        survivor.logged("took over")
    })
    .await;
    producers.stop().await;
    wait_until(LIMIT, "everything is settled", async || {
        let left = "SELECT count(*) FROM lanekeeper.lane_status WHERE head_seq IS NOT NULL";
        client.query_one(left, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    let lanes = lanes(&client).await.unwrap();
    node.return_to_the_world();
    wait_until(LIMIT, "the node is back at work", async || {
        let open = "SELECT count(*) FROM lanekeeper.lane_connection AS c
                    JOIN lanekeeper.worker AS w USING (worker_id)
                    JOIN pg_stat_activity AS a ON a.pid = c.backend_pid AND a.backend_start = c.backend_start
                    WHERE w.pid = $1";
        let open = client.query_one(open, &[&victim.pid()]).await.unwrap();
        open.get::<_, i64>(0) >= 2
    })
    .await;
    // What it had in flight has arrived by now, if at all.
    sleep(2 * DELIVERY).await;
    let mut wrong = monitor.stop().await;
    let case = Case {
        subscriptions: SUBSCRIPTIONS.to_vec(),
        ledger: ledger.entries(),
        log: log(&client).await.unwrap(),
        lanes,
        arrivals: receiver.reader().more(),
        // Its deliveries are given up, and its settlements are lost.
        causes: 2,
        rounds: Vec::new(),
        acks: None,
        limited: None,
    };
    wrong.extend(case.judge().iter().map(ToString::to_string));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(victim.stop().await.code(), Some(0));
    assert_eq!(survivor.stop().await.code(), Some(0));
    let recovery = recovery_ms(&strike, &case.arrivals);
    if let Some(server) = ground.clear().await {
        server.stop().await;
    }
    assert!(!recovery.is_empty(), "nothing was taken over");
    Some(recovery)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lanes_of_a_node_that_vanished_are_delivered_by_another_within_20_s() {
    let Some(recovery_ms) = vanish(1).await else {
        println!("skipped: a network namespace takes root and `ip`");
        return;
    };
    println!("recovery after a vanished node: {recovery_ms:?} ms");
    assert!(recovery_ms.iter().all(|ms| *ms < 20_000), "{recovery_ms:?}");
}
