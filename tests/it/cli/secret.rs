//! The webhook adapter accepts what `lanekeeper secret new` prints.

use lanekeeper_adapters::{Environment, Webhook};
use serde_json::{Value, json};

use crate::command::run;

#[tokio::test]
async fn a_new_secret_is_one_that_the_webhook_adapter_takes() {
    let text = run(&["secret", "new"], &[], "").await;
    let lines = run(&["secret", "new", "--output", "json"], &[], "").await;
    assert_eq!((text.code, lines.code), (Some(0), Some(0)));
    let line: Value = serde_json::from_str(&lines.stdout).unwrap();
    let secrets = [text.stdout.trim_end(), line["secret"].as_str().unwrap()];
    assert_ne!(secrets[0], secrets[1]);
    for secret in secrets {
        // 32 bytes in base64.
        assert_eq!(secret.len(), "whsec_".len() + 44, "{secret}");
        let environment = Environment::with_variables(false, [("SECRET", secret)]);
        let settings = json!({"url": "https://example.com/", "secret_env": "SECRET"});
        Webhook::build("audit", &settings, &environment).unwrap();
    }
}
