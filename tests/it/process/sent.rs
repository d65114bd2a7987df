//! C2, C12: a worker ends between a send and the mark that it was sent. Nothing is lost: what is not acknowledged is sent
//! again, and what was acknowledged meanwhile is not.

use std::time::Duration;

use uuid::Uuid;

use super::plant::{LIMIT, Plant};
use crate::support::{WorkerProcess, wait_until};

async fn ends(worker: &mut WorkerProcess) {
    wait_until(LIMIT, "the worker ends", async || worker.has_ended()).await;
}

/// The ids of this session's arrivals, in their order.
fn arrived(plant: &Plant, session: &str) -> Vec<(i64, Uuid)> {
    let arrivals = plant.receiver.seen().arrivals;
    let of_session = arrivals.iter().filter(|one| one.session == session);
    of_session.map(|one| (one.seq, one.id)).collect()
}

async fn acknowledge(plant: &Plant, id: Uuid) -> String {
    let ack = "SELECT lanekeeper.ack($1)";
    plant.client.query_one(ack, &[&id]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_and_not_marked_is_sent_again_unless_it_was_acknowledged_before() {
    let plant = Plant::new(Duration::ZERO).await;
    let required = "UPDATE lanekeeper.subscription SET ack = 'required', ack_timeout_ms = 3600000 WHERE name = 'out'";
    plant.client.batch_execute(required).await.unwrap();
    for (session, is_acknowledged) in [("acked1", true), ("silent1", false)] {
        let mut doomed = plant.worker(&[("CRASH_POINT", "delivered:1")]).await;
        plant.enqueue(session.trim_end_matches('1'), 1, 3).await;
        ends(&mut doomed).await;
        let sent = arrived(&plant, session);
        assert_eq!(sent.len(), 1, "{session}: it was sent");
        let marked = "SELECT count(*) FROM lanekeeper.progress WHERE sent IS NOT NULL";
        assert_eq!(plant.count(marked).await, 0, "and not marked");
        if is_acknowledged {
            assert_eq!(acknowledge(&plant, sent[0].1).await, "acked");
        }
        let successor = plant.worker(&[]).await;
        let first_again = usize::from(!is_acknowledged);
        for seq in 1..=3_i64 {
            if seq == 1 && is_acknowledged {
                continue;
            }
            let arrivals = usize::try_from(seq).unwrap() + first_again;
            wait_until(LIMIT, "it is sent", async || {
                arrived(&plant, session).len() == arrivals
            })
            .await;
            let (last, id) = arrived(&plant, session)[arrivals - 1];
            assert_eq!(last, seq);
            assert_eq!(acknowledge(&plant, id).await, "acked");
        }
        plant.settled().await;
        let seqs: Vec<i64> = arrived(&plant, session).iter().map(|one| one.0).collect();
        let expected: &[i64] = if is_acknowledged {
            &[1, 2, 3]
        } else {
            &[1, 1, 2, 3]
        };
        assert_eq!(seqs, expected, "{session}");
        let ids = arrived(&plant, session);
        assert_eq!(ids[0].1, ids[first_again].1, "under the same id");
        assert!(successor.stop().await.success());
    }
}
