//! E4, E7: from a message in a chat to the text in the agent's terminal. Telegram is a fake; tmux and Postgres are real.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::terminal::{LIMIT, Terminal};
use crate::command::run;
use crate::process::plant::Plant;
use crate::support::platform::{TOKEN, Telegram};

const MESSAGES: usize = 40;

/// A figure of one machine: printed, with a bound that only a defect misses.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_in_a_chat_is_in_the_agents_terminal_within_milliseconds() {
    let (plant, telegram) = (Plant::new(Duration::ZERO).await, Telegram::start(&[]).await);
    let terminal = Terminal::new();
    terminal.name_pane(&terminal.start("a").await, "tg-77");
    let file = format!(
        "[source.tg]\npoll = \"telegram\"\ntoken_env = \"TG_TOKEN\"\napi_url = \"{}\"\nallow_from = [77]\n\
         session = \"tg-{{chat_id}}\"\n\
         [subscription.type]\nstream = \"inbound\"\nadapter = \"tmux\"\nsocket = \"{}\"\nhooks = false\n\
         enter_delay_ms = 0\n",
        telegram.url(),
        terminal.socket()
    );
    let url = [("DATABASE_URL", plant.url.as_str())];
    let ran = run(&["apply", "-f", "-"], &url, &file).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let worker = plant.worker(&[("TG_TOKEN", TOKEN)]).await;
    let updates = &telegram.updates;
    let mut latencies = Vec::new();
    for i in 0..=MESSAGES {
        let text = format!("message {i}.");
        let since = Instant::now();
        updates.text(77, &text);
        while !terminal.typed("a").contains(&text) {
            assert!(since.elapsed() < LIMIT, "{text}: {}", worker.log());
            sleep(Duration::from_millis(1)).await;
        }
        latencies.push(since.elapsed());
        // Until the next question is open, and the lane is idle.
        updates.confirmed(LIMIT).await;
        plant.settled().await;
    }
    // The first waited for the worker to ask.
    latencies.remove(0);
    latencies.sort();
    let (p50, slowest) = (latencies[MESSAGES / 2], latencies[MESSAGES - 1]);
    println!("from the update to the text in the pane: p50 {p50:?}, the slowest {slowest:?}");
    assert!(p50 < Duration::from_secs(1));
    assert!(worker.stop().await.success());
}
