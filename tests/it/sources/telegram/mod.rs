//! E7, E2: workers that ask Telegram for messages. Telegram is a fake: [`crate::support::platform`].

mod attachments;
mod commands;
mod fetching;
mod held_up;
mod takeover;
mod trouble;
mod webhook;

use std::time::Duration;

use crate::command::run;
use crate::process::plant::Plant;
use crate::support::platform::{TOKEN, Telegram};
use crate::support::{WorkerProcess, wait_until};

const LIMIT: Duration = Duration::from_secs(30);
/// Nobody may see this part of a bot's token.
const SECRET: &str = "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw";

/// A database with a source, and the fake that it asks.
struct Chat {
    plant: Plant,
    telegram: Telegram,
}

impl Chat {
    async fn new() -> Self {
        Self::with("").await
    }

    /// `more`: lines of the source's section, and sections behind it.
    async fn with(more: &str) -> Self {
        let plant = Plant::new(Duration::ZERO).await;
        let telegram = Telegram::start(&[]).await;
        let chat = Self { plant, telegram };
        chat.apply(&(chat.section("tg") + more)).await;
        chat
    }

    fn section(&self, name: &str) -> String {
        format!(
            "[source.{name}]\npoll = \"telegram\"\ntoken_env = \"TG_TOKEN\"\napi_url = \"{}\"\n\
             allow_from = [77, -100]\nsession = \"{name}-{{chat_id}}-{{thread_id}}\"\n",
            self.telegram.url()
        )
    }

    async fn apply(&self, file: &str) {
        let url = [("DATABASE_URL", self.plant.url.as_str())];
        let ran = run(&["apply", "-f", "-"], &url, file).await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }

    async fn worker(&self) -> WorkerProcess {
        self.worker_with(&[]).await
    }

    async fn worker_with(&self, variables: &[(&str, &str)]) -> WorkerProcess {
        let token = [("TG_TOKEN", TOKEN)];
        self.plant.worker(&[&token, variables].concat()).await
    }

    /// The contents of a session's messages, in their order.
    async fn contents(&self, session: &str) -> Vec<String> {
        let read = "SELECT e.payload::jsonb ->> 'content' FROM lanekeeper.event AS e
                    JOIN lanekeeper.session AS s ON s.session_id = e.session_id
                    JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
                    WHERE t.name = 'inbound' AND s.name = $1 ORDER BY e.seq";
        let rows = self.plant.client.query(read, &[&session]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn problem(&self) -> Option<String> {
        let read = "SELECT p.problem FROM lanekeeper.source_poll AS p
                    JOIN lanekeeper.source AS s ON s.source_id = p.source_id WHERE s.name = 'tg'";
        let row = self.plant.client.query_opt(read, &[]).await.unwrap();
        row.and_then(|row| row.get(0))
    }

    /// Waits until the source's problem has this text.
    async fn problem_is(&self, expected: &str) {
        wait_until(LIMIT, expected, async || {
            let problem = self.problem().await;
            problem.is_some_and(|problem| problem.contains(expected))
        })
        .await;
    }
}
