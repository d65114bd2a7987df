//! Webhook signatures, verified by an implementation that shares no code with ours.

use std::io::Write;
use std::process::{Command, Stdio};

use lanekeeper_adapters::{Environment, build};
use lanekeeper_core::adapter::Verdict;
use serde_json::json;

use super::destination::{deliver, event};
use super::http_server::{HttpServer, Reply};

/// What a receiver does, after the text of the standard: argv is id, timestamp, secret, signature.
const VERIFIER: &str = r#"
import base64, hashlib, hmac, sys
id, timestamp, secret, signature = sys.argv[1:]
signed = f"{id}.{timestamp}.".encode() + sys.stdin.buffer.read()
key = base64.b64decode(secret.removeprefix("whsec_"))
expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
candidates = [s[3:] for s in signature.split(" ") if s.startswith("v1,")]
sys.exit(0 if any(hmac.compare_digest(expected, c) for c in candidates) else 9)
"#;

/// `None` where there is no Python to ask.
fn verify(id: &str, timestamp: &str, secret: &str, signature: &str, body: &[u8]) -> Option<bool> {
    let mut python = Command::new("python3")
        .args(["-c", VERIFIER, id, timestamp, secret, signature])
        .stdin(Stdio::piped())
        .spawn()
        .ok()?;
    python.stdin.take().unwrap().write_all(body).unwrap();
    match python.wait().unwrap().code() {
        Some(0) => Some(true),
        Some(9) => Some(false),
        other => panic!("the verifier ended with {other:?}"),
    }
}

#[tokio::test]
async fn foreign_implementation_verifies_every_key_and_refuses_a_changed_body() {
    let secrets = [
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX",
    ];
    let server = HttpServer::start(|_| Reply::status("200 OK")).await;
    let settings = json!({"url": server.url("/"), "secret_env": "AUDIT_SECRET"});
    let environment = Environment::with_variables(true, [("AUDIT_SECRET", secrets.join(" "))]);
    let adapter = build("webhook", "audit", &settings, &environment).unwrap();
    let event = event("ünï", 1, r#"{"text": "漢字 \u0000", "n": 1.00}"#);
    assert_eq!(deliver(&*adapter, &event).await, Verdict::Accepted);

    let request = server.log().requests.remove(0);
    let header = |name: &str| request.headers[name].as_str();
    let signature = header("webhook-signature");
    assert_eq!(signature.split(' ').count(), secrets.len());
    let verify = |secret, body: &[u8]| {
        verify(
            header("webhook-id"),
            header("webhook-timestamp"),
            secret,
            signature,
            body,
        )
    };
    for secret in secrets {
        let Some(verified) = verify(secret, &request.body) else {
            eprintln!("no python3 here: signatures were checked against the known answer only");
            return;
        };
        assert!(verified, "{signature}");
    }
    let changed = [&request.body[..], b" "].concat();
    assert_eq!(verify(secrets[0], &changed), Some(false));
}
