//! G1: a limit in a Redis Cluster, in a Redis with sentinels, and over TLS.

use std::sync::Arc;
use std::time::Duration;

use lanekeeper_core::bucket::Bucket;
use lanekeeper_core::fleet::Fleet;
use lanekeeper_limit::{Answer, BreakerSettings, HORIZON, Limiter, RedisSettings, inspect};
use lanekeeper_secret::Secret;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::process::plant::Plant;
use crate::support::{RedisServer, WatchedRedis, redis_cli, wait_until};
use crate::tls::server::Authority;

const LIMIT: Duration = Duration::from_secs(60);
const RATE: usize = 50;

fn settings(urls: &[String], sentinel: Option<&str>) -> RedisSettings {
    RedisSettings {
        url: Secret::new(urls.join(",")),
        sentinel: sentinel.map(str::to_owned),
        prefix: "lanekeeper".to_owned(),
        timeout: Duration::from_millis(500),
    }
}

/// One process of two that share a limit.
struct Process {
    limiter: Arc<Limiter>,
    ended: CancellationToken,
}

impl Process {
    fn start(number: u32, settings: RedisSettings) -> Self {
        let heartbeat = Duration::from_secs(60);
        let breaker = BreakerSettings::default();
        let limiter = Arc::new(Limiter::new(
            Some(settings),
            breaker,
            number.into(),
            heartbeat,
        ));
        limiter.set_fleet(Fleet {
            replicas: 2,
            rank: number,
        });
        let ended = CancellationToken::new();
        let (running, until) = (Arc::clone(&limiter), ended.clone());
        tokio::spawn(async move { running.run(until).await });
        Self { limiter, ended }
    }

    async fn is_shared(&self) {
        wait_until(LIMIT, "the limit is shared", async || {
            self.limiter.view().shared
        })
        .await;
    }

    /// How many sends it gets until then.
    async fn sends(&self, until: Instant) -> usize {
        let bucket = [Bucket {
            key: "shared".into(),
            rate: format!("{RATE}/s").parse().unwrap(),
            burst: 1,
        }];
        let (mut sends, mut slot) = (0, None);
        while Instant::now() < until {
            match self.limiter.ask(&bucket, slot.take(), HORIZON).await {
                Answer::Go => sends += 1,
                Answer::Wait { until, slot: given } => {
                    slot = given;
                    sleep_until(until).await;
                }
                Answer::Later { after, .. } | Answer::Elsewhere { again: after } => {
                    tokio::time::sleep(after).await;
                }
            }
        }
        sends
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// Both together use the limit, and no more than it.
async fn share(one: &Process, other: &Process) {
    one.is_shared().await;
    other.is_shared().await;
    let seconds = 3;
    let until = Instant::now() + Duration::from_secs(seconds);
    let (one, other) = tokio::join!(one.sends(until), other.sends(until));
    println!("{one} and {other} sends in {seconds} s at {RATE}/s");
    assert!(one > 0 && other > 0);
    // A slot at the end may be used a moment after it.
    assert!(one + other <= RATE * usize::try_from(seconds).unwrap() + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_know_different_nodes_of_a_cluster_share_one_limit() {
    let nodes: Vec<_> = (0..3)
        .map(|_| RedisServer::with(&["--cluster-enabled", "yes"]))
        .collect();
    let addresses: Vec<_> = nodes
        .iter()
        .map(|node| format!("127.0.0.1:{}", node.port()))
        .collect();
    let mut create = vec!["--cluster", "create"];
    create.extend(addresses.iter().map(String::as_str));
    create.extend(["--cluster-yes"]);
    redis_cli(&create);
    for node in &nodes {
        let settings = settings(&[node.url()], None);
        wait_until(LIMIT, "every node leads there", async || {
            inspect(&settings).await.is_ok()
        })
        .await;
    }
    let gone = "redis://127.0.0.1:1".to_owned();
    let one = Process::start(0, settings(&[nodes[0].url()], None));
    let other = Process::start(1, settings(&[gone, nodes[1].url()], None));
    share(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_goes_on_at_the_server_that_sentinels_promote() {
    let mut redis = WatchedRedis::start("limits");
    let sentinel = redis.sentinel.url();
    let settings = || settings(std::slice::from_ref(&sentinel), Some("limits"));
    let one = Process::start(0, settings());
    let other = Process::start(1, settings());
    share(&one, &other).await;

    redis.master.kill();
    let killed_at = Instant::now();
    wait_until(LIMIT, "they notice", async || {
        !one.limiter.view().shared && !other.limiter.view().shared
    })
    .await;
    one.is_shared().await;
    other.is_shared().await;
    println!(
        "shared again {:.1?} after the master died",
        killed_at.elapsed()
    );
    assert!(inspect(&settings()).await.is_ok());
    share(&one, &other).await;

    let unknown = RedisSettings {
        sentinel: Some("nobody".to_owned()),
        ..settings()
    };
    let error = inspect(&unknown).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the sentinel knows no master named \"nobody\""
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_only_a_server_with_a_trusted_certificate_is_used() {
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let authority = Authority::new();
    let [certificate, key] = authority.issue(Some("localhost"), None);
    std::fs::write(path("ca.pem"), &authority.pem).unwrap();
    std::fs::write(path("cert.pem"), certificate).unwrap();
    std::fs::write(path("key.pem"), key).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let _redis = RedisServer::with(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &path("cert.pem"),
        "--tls-key-file",
        &path("key.pem"),
        "--tls-ca-cert-file",
        &path("ca.pem"),
        "--tls-auth-clients",
        "no",
    ]);
    let url = format!("rediss://localhost:{port}");
    let authorities = path("ca.pem");
    let plant = Plant::new(Duration::ZERO).await;
    let trusting = [("REDIS_URL", url.as_str()), ("SSL_CERT_FILE", &authorities)];
    let trusting = plant.worker(&trusting).await;
    wait_until(LIMIT, "the limits are shared", async || {
        trusting.logged("limits are shared")
    })
    .await;
    let other = plant.worker(&[("REDIS_URL", &url)]).await;
    wait_until(LIMIT, "a stranger's certificate is refused", async || {
        other.logged("Redis cannot be used yet")
    })
    .await;
    assert!(!other.logged("limits are shared"));
    for worker in [trusting, other] {
        assert!(worker.stop().await.success());
    }
}
