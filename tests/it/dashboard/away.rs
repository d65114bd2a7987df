//! While Postgres is away.

use std::net::SocketAddr;
use std::time::Duration;

use super::desk::{Browser, token};
use crate::process::plant::{LIMIT, Plant};
use crate::support::{Protocol, Proxy, TestDb, Upstream, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn while_postgres_is_away_the_page_says_so_and_comes_back_by_itself() {
    let db = TestDb::new().await;
    let direct = db.url().to_owned();
    let proxy = Proxy::start(Upstream::of(&direct), Protocol::Postgres).await;
    let plant = Plant::on(direct.clone(), "runs", Duration::ZERO).await;
    let worker =
        crate::support::WorkerProcess::start(&proxy.through(&direct), &plant.receiver, &[]).await;
    let token = token(&direct, &["me", "--scope", "read"]).await;
    let mut reader = Browser::at(&worker);
    assert_eq!(reader.sign_in(&token).await.status, 303);
    wait_until(LIMIT, "the worker has reported", async || {
        reader.get("/").await.has("Nothing needs you")
    })
    .await;

    let nowhere: SocketAddr = "127.0.0.1:1".parse().unwrap();
    proxy.lead_to(Upstream::Tcp(nowhere));
    proxy.cut();
    for path in ["/", "/lanes", "/sign-in"] {
        let away = reader.get(path).await;
        away.assert_page(503, "Postgres does not answer");
        away.assert_page(503, "http-equiv=\"refresh\" content=\"5\"");
    }
    assert_eq!(reader.get("/assets/dashboard.css").await.status, 200);
    proxy.lead_to(Upstream::of(&direct));
    wait_until(
        LIMIT,
        "the page is back, with the same sign-in",
        async || reader.get("/").await.status == 200,
    )
    .await;
    drop(worker);
    drop(db);
}
