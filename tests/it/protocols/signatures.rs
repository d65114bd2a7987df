//! Sources take what the platforms' own libraries sign.

use reqwest::Method;
use serde_json::{Value, json};

use super::sdk;
use crate::api::site::{Answer, Site};
use crate::command::run;

const SECRET: &str = "not-a-secret-of-anybody";
const FILE: &str = r#"
[source.slack]
signature  = "slack"
secret_env = "SLACK_SIGNING_SECRET"
session    = "s"
content    = "{/event/text}"

[source.discord]
signature  = "discord"
secret_env = "DISCORD_PUBLIC_KEY"
session    = "d"
content    = "{/data/name}"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_slacks_sdk_and_pynacl_sign_is_taken_as_slacks_and_discords() {
    let at = jiff::Timestamp::now().as_second().to_string();
    let event = json!({"type": "message", "text": "grüße & <b>"});
    let slack = json!({"type": "event_callback", "event_id": "Ev1", "event": event}).to_string();
    let discord = json!({"type": 2, "id": "1", "data": {"name": "grüße"}}).to_string();
    let asked = json!({
        "timestamp": at,
        "slack": {"secret": SECRET, "body": slack},
        "discord": {"seed": "01".repeat(32), "body": discord},
    });
    let Some(signed) = sdk::ask("signatures.py", &[], &asked) else {
        return;
    };
    let text = |name: &str| signed[name].as_str().unwrap();
    let variables = [
        ("SLACK_SIGNING_SECRET", SECRET),
        ("DISCORD_PUBLIC_KEY", text("discord_key")),
    ];
    let site = Site::open(&variables).await;
    let url = [("DATABASE_URL", site.plant.url.as_str())];
    let ran = run(&["apply", "-f", "-"], &url, FILE).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let send = async |name: &str, headers: [(&str, &str); 2], body: &str| {
        let mut request = site.request(Method::POST, &format!("/v1/sources/{name}"));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        Answer::of(request.body(body.to_owned()).send().await.unwrap()).await
    };
    let headers = [
        ("x-slack-request-timestamp", at.as_str()),
        ("x-slack-signature", text("slack")),
    ];
    assert_eq!(send("slack", headers, &slack).await.status, 201);
    assert_eq!(send("slack", headers, &discord).await.status, 401);
    let headers = [
        ("x-signature-timestamp", at.as_str()),
        ("x-signature-ed25519", text("discord")),
    ];
    let answer = send("discord", headers, &discord).await;
    assert_eq!(
        (answer.status, &answer.body["type"]),
        (200, &Value::from(4))
    );
    assert_eq!(send("discord", headers, &slack).await.status, 401);
    assert_eq!(site.logged_events().await, 2);
    assert!(site.worker.stop().await.success());
}
