//! The credentials with which a worker connects to Postgres and Redis.

use std::time::Duration;

use super::mounted::Mounted;
use crate::command::run;
use crate::process::plant::{LIMIT, Plant};
use crate::support::{RedisServer, Server, WorkerProcess, connect, wait_until};
use crate::tls::server::{Authority, Server as TlsServer};

/// Ends every connection of workers.
const CUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name LIKE 'lanekeeper %'";

fn with_password(url: &str, password: &str) -> String {
    let mut url = url::Url::parse(url).unwrap();
    url.set_password(Some(password)).unwrap();
    url.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_password_of_postgres_is_used_by_the_next_connections() {
    let server = Server::start().await;
    let plant = Plant::on(server.url.clone(), "runs", Duration::ZERO).await;
    let mut mounted = Mounted::new(&server.url);
    let path = mounted.path();
    let (sender, secret) = plant.receiver.new_secret();
    let variables = [("DATABASE_URL_FILE", path.as_str())];
    let worker = WorkerProcess::spawn("", sender, &secret, &variables);
    worker.serves().await;
    let delivers = async |count: i64| {
        plant.enqueue("s", 1, 1).await;
        plant.settled().await;
        assert_eq!(plant.assert_complete(1, count), 0);
    };
    delivers(1).await;

    let change = "ALTER ROLE CURRENT_USER PASSWORD 'renewed'";
    plant.client.batch_execute(change).await.unwrap();
    plant.client.batch_execute(CUT).await.unwrap();
    let refused = run(&["status"], &[("DATABASE_URL", server.url.as_str())], "").await;
    assert!(
        refused.stderr.contains("does not let user"),
        "the old one is good for nothing: {}",
        refused.stderr
    );
    let renewed = with_password(&server.url, "renewed");
    mounted.replace(&format!("{renewed}\n"));
    delivers(2).await;

    // A worker stays with its database, whatever its file says.
    let mut elsewhere = url::Url::parse(&renewed).unwrap();
    elsewhere.set_path("elsewhere");
    for (value, said) in [
        (
            elsewhere.as_str(),
            "it differs in more than user and password",
        ),
        ("renewed", "it is neither a URL nor words such as host=db"),
        ("", "it is empty"),
    ] {
        mounted.replace(value);
        plant.client.batch_execute(CUT).await.unwrap();
        wait_until(LIMIT, said, async || worker.logged(said)).await;
    }
    delivers(3).await;
    for said in ["it differs in more", "it is neither a URL", "it is empty"] {
        assert_eq!(worker.log().matches(said).count(), 1, "{said}");
    }
    assert!(!worker.log().contains("renewed@") && !worker.log().contains(":renewed"));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_root_certificate_is_what_the_next_connections_are_judged_by() {
    let server = TlsServer::start().await;
    let [old, new] = [(); 2].map(|()| Authority::new());
    let shown = old.issue(Some("localhost"), None);
    server.speak_tls(&shown, &old.pem).await;
    let url = server.url("localhost", "sslmode=verify-full");
    let mut mounted = Mounted::new(&old.pem);
    let path = mounted.path();
    let variables = [("PGSSLROOTCERT", path.as_str())];
    let worker = WorkerProcess::spawn(&url, 0, "", &variables);
    worker.serves().await;
    let ready = async || {
        let health = run(&["health", "--url", &worker.http()], &[], "").await;
        health.code == Some(0)
    };
    wait_until(LIMIT, "it is ready", ready).await;

    let client = connect(server.postgres.url()).await;
    server
        .show(&client, &new.issue(Some("localhost"), None))
        .await;
    wait_until(LIMIT, "it trusts the server no more", async || {
        client.batch_execute(CUT).await.unwrap();
        !ready().await
    })
    .await;
    mounted.replace(&new.pem);
    wait_until(LIMIT, "it is ready again", ready).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_in_a_file_of_its_own_may_be_any_text() {
    let server = Server::start().await;
    let plant = Plant::on(server.url.clone(), "runs", Duration::ZERO).await;
    let mut without = url::Url::parse(&server.url).unwrap();
    without.set_password(None).unwrap();
    let mut mounted = Mounted::new("");
    let path = mounted.path();
    for password in ["it's", r"a\b\\", "p@ss/w:rd?&#%41", r#"" $(HOME) "#, "ÄÖ"] {
        let keep = "SELECT set_config('lanekeeper_test.password', $1, false)";
        plant.client.query(keep, &[&password]).await.unwrap();
        let change = "DO $$ BEGIN EXECUTE format('ALTER ROLE CURRENT_USER PASSWORD %L', \
            current_setting('lanekeeper_test.password')); END $$";
        plant.client.batch_execute(change).await.unwrap();
        let status = async || {
            let variables = [
                ("DATABASE_URL", without.as_str()),
                ("LANEKEEPER_DATABASE__PASSWORD_FILE", path.as_str()),
            ];
            run(&["status"], &variables, "").await
        };
        mounted.replace("another");
        assert_ne!(status().await.code, Some(0), "a password is asked for");
        mounted.replace(&format!("{password}\n"));
        let ran = status().await;
        assert_eq!(ran.code, Some(0), "{password}: {}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_password_of_redis_is_used_by_the_next_connection() {
    let redis = RedisServer::start();
    let plant = Plant::new(Duration::ZERO).await;
    let with = |password: &str| with_password(&redis.url(), password);
    let client = redis::Client::open(redis.url()).unwrap();
    let mut operator = client.get_multiplexed_async_connection().await.unwrap();
    let mut demand = async |password: &str| {
        let mut change = redis::cmd("CONFIG");
        change.arg("SET").arg("requirepass").arg(password);
        change.exec_async(&mut operator).await.unwrap();
        // All connections but this one.
        let mut cut = redis::cmd("CLIENT");
        cut.arg("KILL").arg("TYPE").arg("normal");
        cut.exec_async(&mut operator).await.unwrap();
    };
    demand("first").await;
    let mut mounted = Mounted::new(&with("first"));
    let path = mounted.path();
    let worker = plant.worker(&[("REDIS_URL_FILE", &path)]).await;
    let shared = async |times: usize| {
        wait_until(LIMIT, "limits are shared", async || {
            worker.log().matches("limits are shared over Redis").count() == times
        })
        .await;
    };
    shared(1).await;
    demand("second").await;
    wait_until(LIMIT, "it comes in no more", async || {
        worker.logged("Redis cannot be used yet")
    })
    .await;
    mounted.replace("second");
    let said = "it is no address of a Redis server";
    wait_until(LIMIT, said, async || worker.logged(said)).await;
    mounted.replace(&with("second"));
    shared(2).await;
    assert!(!worker.log().contains("second@") && !worker.log().contains("first"));
    assert!(worker.stop().await.success());
}
