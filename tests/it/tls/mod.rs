//! TLS to Postgres: each mode against a real server, by the real binary.

pub mod server;

use std::time::Duration;

use serde_json::Value;

use self::server::{Authority, Server};
use crate::command::{Ran, run};
use crate::support::{Receiver, SECRET_ENV, WorkerProcess, connect, wait_until};

const LIMIT: Duration = Duration::from_secs(30);

#[track_caller]
fn works(ran: &Ran) {
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[track_caller]
fn fails(ran: &Ran, told: &[&str]) {
    assert!(
        matches!(ran.code, Some(1 | 75)),
        "{:?}: {}",
        ran.code,
        ran.stderr
    );
    for part in told {
        assert!(
            ran.stderr.contains(part),
            "{part:?} is missing: {}",
            ran.stderr
        );
    }
    assert!(ran.stderr.contains("do: "), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mode_accepts_and_refuses_what_it_says() {
    let server = Server::start().await;
    // Before the server speaks TLS.
    works(&server.migrate("localhost", "sslmode=prefer", &[]).await);
    let ran = server.migrate("localhost", "sslmode=require", &[]).await;
    fails(&ran, &["does not offer TLS", "sslmode=disable"]);

    let (authority, other) = (Authority::new(), Authority::new());
    let shown = authority.issue(Some("localhost"), None);
    server.speak_tls(&shown, &authority.pem).await;
    let root = server.file("root.crt", &authority.pem);
    let root = format!("sslrootcert={}", root.display());
    let wrong = server.file("other.crt", &other.pem);
    let wrong = format!("sslrootcert={}", wrong.display());
    let with = async |host: &str, mode: &str, root: &str| {
        server
            .migrate(host, &format!("sslmode={mode}&{root}"), &[])
            .await
    };

    works(&with("localhost", "verify-full", &root).await);
    works(&with("127.0.0.1", "verify-ca", &root).await);
    works(&with("127.0.0.1", "require", &root).await);
    works(&with("127.0.0.1", "require", "").await);
    works(&with("127.0.0.1", "prefer", "").await);
    works(&server.migrate("localhost", "", &[]).await);

    let ran = with("127.0.0.1", "verify-full", &root).await;
    fails(
        &ran,
        &["cannot be secured", "not trusted", "subjectAltName"],
    );
    for mode in ["verify-full", "verify-ca", "require"] {
        let ran = with("localhost", mode, &wrong).await;
        fails(&ran, &["cannot be secured", "not trusted", "sslrootcert"]);
    }
    let ran = with("localhost", "verify-full", "sslrootcert=/no/such.pem").await;
    fails(&ran, &["/no/such.pem cannot be read"]);
    let empty = server.file("empty.pem", "");
    let ran = with(
        "localhost",
        "verify-full",
        &format!("sslrootcert={}", empty.display()),
    )
    .await;
    fails(&ran, &["has no root certificate"]);
    // The server demands it of this user.
    let ran = with("127.0.0.1", "disable", "").await;
    fails(
        &ran,
        &[
            "does not let user lanekeeper in",
            "no encryption",
            "sslmode",
        ],
    );

    // What the server grants this user without TLS alone.
    let plain = |mode: &str| {
        let url = server.url("127.0.0.1", &format!("sslmode={mode}"));
        let mut url = url::Url::parse(&url).unwrap();
        url.set_username("plain").unwrap();
        url
    };
    for (mode, code) in [("prefer", 0), ("disable", 0), ("require", 1)] {
        let variables = [("DATABASE_URL", plain(mode).to_string())];
        let variables = variables
            .each_ref()
            .map(|(name, url)| (*name, url.as_str()));
        let ran = run(&["migrate"], &variables, "").await;
        assert_eq!(ran.code, Some(code), "{mode}: {}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_connects_is_secured_and_a_call_that_timed_out_is_cancelled() {
    let server = Server::start().await;
    let authority = Authority::new();
    let shown = authority.issue(Some("localhost"), None);
    server.speak_tls(&shown, &authority.pem).await;
    let root = server.file("root.crt", &authority.pem);
    let url = server.url("localhost", "sslmode=verify-full");
    let secured = [
        ("DATABASE_URL", url.as_str()),
        ("PGSSLROOTCERT", root.to_str().unwrap()),
        ("LANEKEEPER_HOOK__TIMEOUT_MS", "10000"),
    ];
    let receiver = Receiver::start(Duration::ZERO).await;
    let subscription = format!(
        "[subscription.audit]\nstream = \"hooks\"\nadapter = \"webhook\"\nurl = \"{}\"\n\
         secret_env = \"{SECRET_ENV}\"\n",
        receiver.url()
    );
    works(&run(&["apply", "-f", "-"], &secured, &subscription).await);
    let worker = WorkerProcess::start(&url, &receiver, &secured[1..]).await;
    let home = tempfile::tempdir().unwrap();
    let hook = [&secured[..], &[("HOME", home.path().to_str().unwrap())]].concat();
    let stop = r#"{"session_id":"s","hook_event_name":"Stop"}"#;
    let ran = run(&["hook", "--cli", "codex"], &hook, stop).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    receiver
        .wait_until(LIMIT, "the event is delivered", |seen| {
            seen.arrivals.len() == 1
        })
        .await;

    let mut client = connect(server.postgres.url()).await;
    // The doorbell's has the worker in its name.
    let connections = "SELECT rtrim(application_name, ' 0123456789'), ssl FROM pg_stat_activity
        JOIN pg_stat_ssl USING (pid) WHERE application_name LIKE 'lanekeeper %' ORDER BY 1";
    let mut found: Vec<(String, bool)> = Vec::new();
    wait_until(
        LIMIT,
        "every connection of the worker is there",
        async || {
            let rows = client.query(connections, &[]).await.unwrap();
            found = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            ["control", "doorbell", "lanes", "listen"]
                .map(|purpose| format!("lanekeeper {purpose}"))
                .iter()
                .all(|name| found.iter().any(|(one, _)| one == name))
        },
    )
    .await;
    assert!(found.iter().all(|(_, ssl)| *ssl), "{found:?}");

    // Somebody's open transaction holds the session's append lock.
    let open = client.transaction().await.unwrap();
    let append = "SELECT lanekeeper.enqueue('hooks', 's', 'user_prompt_submit', '{}')";
    open.execute(append, &[]).await.unwrap();
    let hurried = [&hook[..], &[("LANEKEEPER_HOOK__TIMEOUT_MS", "700")]].concat();
    let ran = run(&["hook", "--cli", "codex"], &hurried, stop).await;
    assert!(
        ran.stderr.contains("did not answer in time"),
        "{}",
        ran.stderr
    );
    // On another connection: a transaction sees one state of all sessions.
    let watching = connect(server.postgres.url()).await;
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lanekeeper hook'";
    wait_until(LIMIT, "the call's backend waits no more", async || {
        watching
            .query_one(waiting, &[])
            .await
            .unwrap()
            .get::<_, i64>(0)
            == 0
    })
    .await;
    open.rollback().await.unwrap();
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_the_systems_roots_and_the_environment_are_honoured() {
    let server = Server::start().await;
    let authority = Authority::new();
    let shown = authority.issue(Some("localhost"), None);
    server.speak_tls(&shown, &authority.pem).await;
    let root = server.file("root.crt", &authority.pem);
    let root = root.to_str().unwrap();
    // Nothing of TLS in the URL.
    let ran = server
        .migrate(
            "localhost",
            "",
            &[("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", root)],
        )
        .await;
    works(&ran);
    let ran = server
        .migrate(
            "127.0.0.1",
            "",
            &[("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", root)],
        )
        .await;
    fails(&ran, &["not trusted"]);
    let ran = server
        .migrate(
            "localhost",
            "",
            &[
                ("LANEKEEPER_DATABASE__SSLROOTCERT", "system"),
                ("SSL_CERT_FILE", root),
            ],
        )
        .await;
    works(&ran);
    let ran = server.migrate("localhost", "sslrootcert=system", &[]).await;
    fails(&ran, &["not trusted"]);

    let [certificate, key] = authority.issue(None, Some("certified"));
    let certificate = server.file("client.crt", &certificate);
    let key = server.file("client.key", &key);
    let mut url = url::Url::parse(&server.url("localhost", "sslmode=require")).unwrap();
    url.set_username("certified").unwrap();
    let files = [
        ("PGSSLCERT", certificate.to_str().unwrap()),
        ("PGSSLKEY", key.to_str().unwrap()),
    ];
    let variables = [&[("DATABASE_URL", url.as_str())], &files[..]].concat();
    works(&run(&["migrate"], &variables, "").await);
    fails(
        &run(&["migrate"], &variables[..1], "").await,
        &["does not let user certified in"],
    );
    let broken = server.file("broken.key", "no key");
    let broken = [
        variables[0],
        variables[1],
        ("PGSSLKEY", broken.to_str().unwrap()),
    ];
    fails(&run(&["migrate"], &broken, "").await, &["the client's key"]);
    let ran = run(&["migrate"], &variables[..2], "").await;
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("sslcert and sslkey go together"),
        "{}",
        ran.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_self_signed_certificate_is_its_own_root_and_doctor_says_what_is_wrong_with_another() {
    let server = Server::start().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    // As `openssl req -x509` makes them.
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    server
        .speak_tls(&[pem.clone(), key.serialize_pem()], &pem)
        .await;
    let root = server.file("self.crt", &pem);
    let parameters = format!("sslmode=verify-full&sslrootcert={}", root.display());
    works(&server.migrate("localhost", &parameters, &[]).await);
    fails(
        &server.migrate("127.0.0.1", &parameters, &[]).await,
        &["not trusted"],
    );
    let url = server.url("127.0.0.1", &parameters);
    let ran = run(
        &["doctor", "--output", "json"],
        &[("DATABASE_URL", &url)],
        "",
    )
    .await;
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let check: Value = serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&check["check"], &check["status"]),
        (&"server".into(), &"fail".into())
    );
    assert!(
        check["advice"].as_str().unwrap().contains("subjectAltName"),
        "{check}"
    );
    // In a hook, an outage like any other.
    let home = tempfile::tempdir().unwrap();
    let variables = [
        ("DATABASE_URL", url.as_str()),
        ("HOME", home.path().to_str().unwrap()),
    ];
    let stop = r#"{"session_id":"s","hook_event_name":"Stop"}"#;
    let ran = run(&["hook", "--cli", "codex"], &variables, stop).await;
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.contains("kept in the spool") && ran.stderr.contains("not trusted"));
}
