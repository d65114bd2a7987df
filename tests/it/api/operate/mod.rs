//! What operators see and do over HTTP.

mod destinations;
mod lanes;
mod letters;
mod reach;
mod sessions;
mod subscriptions;

use reqwest::Method;
use serde_json::Value;

use super::site::{Answer, Site};
use crate::process::plant::LIMIT;
use crate::support::wait_until;

/// Somebody with a token.
struct Operator {
    token: String,
}

impl Operator {
    /// With a new token of this name, which may do what these arguments say.
    async fn with(site: &Site, arguments: &[&str]) -> Self {
        let token = site.token(arguments).await;
        Self { token }
    }

    /// Who may read and act everywhere.
    async fn of(site: &Site) -> Self {
        Self::with(site, &["console", "--scope", "read", "--scope", "operate"]).await
    }

    async fn get(&self, site: &Site, path: &str) -> Answer {
        let request = site.request(Method::GET, path).bearer_auth(&self.token);
        Answer::of(request.send().await.unwrap()).await
    }

    async fn post(&self, site: &Site, path: &str, body: &str) -> Answer {
        let request = site.request(Method::POST, path).bearer_auth(&self.token);
        Answer::of(request.body(body.to_owned()).send().await.unwrap()).await
    }

    /// The rows of all pages of a list, and how many pages there were.
    async fn pages(
        &self,
        site: &Site,
        path: &str,
        rows: &str,
        cursor: &str,
    ) -> (Vec<Value>, usize) {
        let (mut all, mut pages, mut next) = (Vec::new(), 0, String::new());
        loop {
            let answer = self.get(site, &format!("{path}{next}")).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            all.extend(answer.body[rows].as_array().unwrap().iter().cloned());
            pages += 1;
            assert!(pages < 100, "{path} has no end");
            let Some(place) = answer.body.get("next") else {
                return (all, pages);
            };
            let place = place
                .as_str()
                .map_or_else(|| place.to_string(), str::to_owned);
            next = format!("&{cursor}={place}");
        }
    }
}

/// Appends events, and waits until the first is blocked; returns its lane.
async fn block(site: &Site, session: &str, events: i32) -> i64 {
    site.plant.receiver.set_broken(true);
    append(site, session, events).await;
    wait_until(LIMIT, "its head has failed", async || {
        column(site, session, "state").await == "blocked"
    })
    .await;
    column(site, session, "lane_id").await.parse().unwrap()
}

async fn append(site: &Site, session: &str, events: i32) {
    let statement = "SELECT lanekeeper.enqueue('runs', $1, 'step', to_jsonb(n)) FROM generate_series(1, $2::int) AS n";
    let client = &site.plant.client;
    client.query(statement, &[&session, &events]).await.unwrap();
}

/// A column of the session's lane, as text.
async fn column(site: &Site, session: &str, column: &str) -> String {
    let statement = format!(
        "SELECT coalesce({column}::text, '') FROM lanekeeper.lane_status WHERE session = $1 AND subscription = 'out'"
    );
    let row = site.plant.client.query_one(&statement, &[&session]).await;
    row.unwrap().get(0)
}

/// The actions on record, with their reasons.
async fn on_record(site: &Site) -> Vec<(String, String)> {
    let statement =
        "SELECT action, coalesce(reason, '') FROM lanekeeper.operation ORDER BY operation_id";
    let rows = site.plant.client.query(statement, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Dead letters of one lane, whose events are all delivered; returns their ids.
async fn dead_letters(site: &Site, session: &str, count: i32) -> Vec<i64> {
    append(site, session, 1).await;
    site.plant.settled().await;
    let statement =
        "INSERT INTO lanekeeper.dead (lane_id, seq, message_id, event_type, payload, created_at, attempts, crashes, error)
         SELECT l.lane_id, 1, gen_random_uuid(), 'step', '{\"n\":1}', now(), 10, 0, 'status 500'
         FROM lanekeeper.lane_status AS l CROSS JOIN generate_series(1, $2::int)
         WHERE l.session = $1 AND l.subscription = 'out' RETURNING dead_id";
    let rows = site
        .plant
        .client
        .query(statement, &[&session, &count])
        .await;
    rows.unwrap().iter().map(|row| row.get(0)).collect()
}
