//! What tests of sources share: a worker with a file, and requests to it. There is no platform here.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

use crate::api::site::{Answer, Site};
use crate::command::run;
use crate::document::{blocks, repository};

pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// Less than a signed time may be old.
const PATIENCE: Duration = Duration::from_secs(60);

/// The section of docs/sources.md that has this source.
pub(super) fn documented(name: &str) -> String {
    let text = std::fs::read_to_string(repository("docs/sources.md")).unwrap();
    let heading = format!("[source.{name}]\n");
    let mut blocks = blocks(&text, "toml").into_iter();
    let block = blocks.find(|block| format!("{block}\n").contains(&heading));
    block.expect("the page has an example").to_owned()
}

pub(super) async fn site(file: &str, secrets: &[(&str, &str)]) -> Site {
    let site = Site::open(secrets).await;
    apply(&site, file).await;
    site
}

pub(super) async fn apply(site: &Site, file: &str) {
    let url = [("DATABASE_URL", site.plant.url.as_str())];
    let ran = run(&["apply", "-f", "-", "--prune"], &url, file).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

pub(super) async fn send(site: &Site, name: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let (answer, _) = post(&site.worker.http(), name, headers, body.as_bytes()).await;
    answer
}

/// To any worker, and with any body. Also returns whether Slack is told not to repeat it. A request that a slow Postgres
/// does not answer in a platform's time is repeated.
pub(super) async fn post(
    base: &str,
    name: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> (Answer, bool) {
    let until = Instant::now() + PATIENCE;
    loop {
        let (answer, no_retry) = once(base, name, headers, body).await;
        let detail = answer.body["detail"].as_str().unwrap_or_default();
        let is_late = answer.status == 503 && detail.starts_with("Postgres");
        if !is_late || Instant::now() >= until {
            return (answer, no_retry);
        }
    }
}

/// The same, once.
pub(super) async fn once(
    base: &str,
    name: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> (Answer, bool) {
    let url = format!("{base}/v1/sources/{name}");
    let mut request = reqwest::Client::new().post(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.body(body.to_vec()).send().await.unwrap();
    let no_retry = response.headers().contains_key("x-slack-no-retry");
    (Answer::of(response).await, no_retry)
}

/// Seconds since 1970, so many seconds ago.
pub(super) fn ago(age_s: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap() - age_s
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// HMAC-SHA256 with hexadecimal digits.
pub(super) fn hmac_of(secret: &str, signed: &[u8]) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    hex(&mac.chain_update(signed).finalize().into_bytes())
}

/// The messages in the order of their sessions' names.
pub(super) async fn messages(site: &Site) -> Vec<Value> {
    let shown = "SELECT to_jsonb(m) FROM lanekeeper.inbound_message AS m ORDER BY m.session, m.seq";
    let rows = site.plant.client.query(shown, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// How many requests of a source became no message, as the worker counts.
pub(super) async fn ignored(site: &Site, source: &str) -> f64 {
    let metrics = reqwest::get(site.worker.http() + "/metrics").await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let label = format!("lanekeeper_source=\"{source}\"");
    let mut lines = metrics.lines();
    let line = lines
        .find(|line| line.starts_with("lanekeeper_source_ignored_total{") && line.contains(&label));
    line.map_or(0.0, |line| {
        let (_, value) = line.rsplit_once(' ').unwrap();
        value.parse().unwrap()
    })
}

/// From now on the session takes no message.
pub(super) async fn close(site: &Site, session: &str) {
    let url = [("DATABASE_URL", site.plant.url.as_str())];
    let closed = run(&["session", "close", "inbound", session], &url, "").await;
    assert_eq!(closed.code, Some(0), "{}", closed.stderr);
}

/// Sessions have room for one message, and nothing is delivered.
pub(super) async fn bound(site: &Site, file: &str) {
    site.plant.receiver.set_broken(true);
    let url = site.plant.receiver.url();
    let secret = crate::support::SECRET_ENV;
    let bounded = format!(
        "{file}\n[subscription.typed]\nstream = \"inbound\"\nadapter = \"webhook\"\nurl = \"{url}\"\n\
         secret_env = \"{secret}\"\nmax_pending = 1\n"
    );
    apply(site, &bounded).await;
}
