//! Idempotent producers: what their state costs, and whom it belongs to.

use reqwest::Method;

use super::{JSON, ask, create, header, site};

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_remembers_the_thousand_producers_that_wrote_last() {
    let site = site().await;
    create(&site, "runs/r1").await;
    let send = async |id: &str, epoch: &str, seq: &str| {
        let headers = [
            JSON,
            ("producer-id", id),
            ("producer-epoch", epoch),
            ("producer-seq", seq),
        ];
        ask(&site, Method::POST, "runs/r1", &headers, "1").await
    };
    assert_eq!(send("first", "0", "0").await.status(), 200);
    site.plant
        .client
        .batch_execute(
            "INSERT INTO lanekeeper.durable_producer (session_id, producer_id, epoch, seq, used_at)
             SELECT s.session_id, 'p' || n, 0, 0, clock_timestamp() + n * interval '1 second'
             FROM lanekeeper.session AS s, generate_series(1, 1500) AS n WHERE s.name = 'r1'",
        )
        .await
        .unwrap();
    assert_eq!(send("last", "0", "0").await.status(), 200);
    assert_eq!(
        site.plant
            .count("SELECT count(*) FROM lanekeeper.durable_producer")
            .await,
        1000
    );
    assert_eq!(
        send("p1500", "0", "0").await.status(),
        204,
        "it is remembered"
    );
    assert_eq!(
        send("first", "0", "1").await.status(),
        409,
        "it begins anew"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_stream_of_an_old_name_knows_none_of_its_producers() {
    let site = site().await;
    let headers = [
        JSON,
        ("producer-id", "p"),
        ("producer-epoch", "3"),
        ("producer-seq", "0"),
    ];
    for _ in 0..2 {
        create(&site, "runs/r1").await;
        let sent = ask(&site, Method::POST, "runs/r1", &headers, "1").await;
        assert_eq!(
            (sent.status().as_u16(), header(&sent, "producer-epoch")),
            (200, "3".to_owned())
        );
        assert_eq!(
            ask(&site, Method::DELETE, "runs/r1", &[], "")
                .await
                .status(),
            204
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_that_are_idle_for_as_long_as_keys_are_kept_are_forgotten() {
    let site = site().await;
    create(&site, "runs/r1").await;
    for id in ["old", "new"] {
        let headers = [
            JSON,
            ("producer-id", id),
            ("producer-epoch", "0"),
            ("producer-seq", "0"),
        ];
        assert_eq!(
            ask(&site, Method::POST, "runs/r1", &headers, "1")
                .await
                .status(),
            200
        );
    }
    site.plant
        .client
        .batch_execute(
            "UPDATE lanekeeper.durable_producer SET used_at = now() - interval '31 days' WHERE producer_id = 'old'",
        )
        .await
        .unwrap();
    let kept = "SELECT count(*) FROM lanekeeper.durable_producer";
    let rounds = "SELECT keys_forgotten FROM lanekeeper.maintain_log(7, 30)";
    crate::support::wait_until(
        crate::process::plant::LIMIT,
        "it is forgotten",
        async || {
            site.plant.client.query(rounds, &[]).await.unwrap();
            site.plant.count(kept).await == 1
        },
    )
    .await;
    assert_eq!(
        site.plant
            .count(&format!("{kept} WHERE producer_id = 'new'"))
            .await,
        1
    );
}
