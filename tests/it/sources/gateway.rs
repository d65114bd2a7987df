//! E7: workers that listen to Discord's gateway. Discord is a fake: [`crate::support::platform`].

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fixture::documented;
use crate::command::run;
use crate::process::plant::Plant;
use crate::support::platform::{Discord, Kind, Seen, TOKEN, Turn};
use crate::support::{Dice, TestDb, WorkerProcess, wait_until};

const LIMIT: Duration = Duration::from_secs(60);
/// Of messages: CUTS and SEED of the environment choose others.
const CUTS: u64 = 20;
const SEED: u64 = 7;
/// Nobody may see this part of the token.
const SECRET: &str = "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw";

struct Chat {
    plant: Plant,
    discord: Discord,
}

impl Chat {
    async fn new() -> Self {
        let plant = Plant::new(Duration::ZERO).await;
        let discord = Discord::start(&[]).await;
        let file = format!(
            "[source.dc]\npoll = \"discord\"\ntoken_env = \"DC_TOKEN\"\napi_url = \"{}\"\nallow_from = [77, 500]\n\
             session = \"dc-{{channel_id}}\"\ncommands = {{ \"/status\" = \"status\" }}\n",
            discord.url()
        );
        let url = [("DATABASE_URL", plant.url.as_str())];
        let ran = run(&["apply", "-f", "-"], &url, &file).await;
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        Self { plant, discord }
    }

    async fn worker(&self) -> WorkerProcess {
        self.plant.worker(&[("DC_TOKEN", TOKEN)]).await
    }

    async fn contents(&self, session: &str) -> Vec<String> {
        let read = "SELECT e.payload::jsonb ->> 'content' FROM lanekeeper.event AS e
                    JOIN lanekeeper.session AS s ON s.session_id = e.session_id WHERE s.name = $1 ORDER BY e.seq";
        let rows = self.plant.client.query(read, &[&session]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn has(&self, session: &str, expected: &[String]) {
        wait_until(LIMIT, "all messages are there", async || {
            self.contents(session).await.len() >= expected.len()
        })
        .await;
        assert_eq!(self.contents(session).await, expected);
    }

    async fn problem_is(&self, expected: &str) {
        wait_until(LIMIT, expected, async || {
            let read = "SELECT p.problem FROM lanekeeper.source_poll AS p";
            let row = self.plant.client.query_opt(read, &[]).await.unwrap();
            let problem: Option<String> = row.and_then(|row| row.get(0));
            problem.is_some_and(|problem| problem.contains(expected))
        })
        .await;
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_write_in_a_channel_becomes_a_message_and_what_programs_write_does_not() {
    let chat = Chat::new().await;
    let worker = chat.worker().await;
    let gateway = &chat.discord.gateway;
    gateway.began(1, LIMIT).await;
    gateway.text(500, 5, "and now the tests, please");
    gateway.write(
        500,
        5,
        json!({"content": "beep", "author": {"id": "5", "bot": true}}),
    );
    gateway.text(6, 5, "let me in");
    let file = json!({"url": "https://cdn.example/a.png", "filename": "a.png", "size": 3});
    gateway.write(6, 77, json!({"content": "", "attachments": [file]}));
    gateway.text(500, 77, "/status");
    gateway.text(500, 5, "the last one");
    chat.has(
        "dc-500",
        &texts(&["and now the tests, please", "the last one"]),
    )
    .await;
    chat.has("dc-6", &texts(&[""])).await;
    let read = "SELECT e.event_type, e.payload::jsonb FROM lanekeeper.event AS e
                WHERE e.payload::jsonb ->> 'source_channel_id' = '6'";
    let row = chat.plant.client.query_one(read, &[]).await.unwrap();
    let (kind, payload): (String, Value) = (row.get(0), row.get(1));
    for (field, expected) in [
        ("/origin", json!("dc")),
        ("/actor_id", json!("77")),
        ("/actor_name", json!("Ada")),
        ("/source_message_id", json!("6/1004")),
        ("/payload/url", json!("https://cdn.example/a.png")),
    ] {
        assert_eq!(payload.pointer(field), Some(&expected), "{payload}");
    }
    assert_eq!(kind, "file");
    let told = |seen: &Seen| seen.count(Kind::Typing) == 3 && seen.texts().len() == 1;
    chat.discord
        .wait_until(LIMIT, "typing, and the status", told)
        .await;
    let url = [("DATABASE_URL", chat.plant.url.as_str())];
    let status = run(&["status"], &url, "").await.stdout;
    assert!(status.contains("discord gateway"), "{status}");
    assert!(!worker.log().contains(SECRET));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_message_is_lost_or_doubled_however_connections_and_workers_end() {
    let chosen =
        |name: &str, default| std::env::var(name).map_or(default, |it| it.parse().unwrap());
    let (cuts, seed): (u64, u64) = (chosen("CUTS", CUTS), chosen("SEED", SEED));
    println!("CUTS={cuts} SEED={seed}");
    let dice = Dice::new(seed);
    let chat = Chat::new().await;
    let gateway = &chat.discord.gateway;
    let mut workers = vec![chat.worker().await, chat.worker().await];
    gateway.began(1, LIMIT).await;
    // Before that Discord's session is nobody's: a worker that dies takes it along.
    let kept = "SELECT count(*) FROM lanekeeper.source_poll WHERE resume IS NOT NULL";
    wait_until(LIMIT, "the session is kept", async || {
        chat.plant.count(kept).await == 1
    })
    .await;
    let mut written = Vec::new();
    let mut write = |count: u64| {
        for _ in 0..count {
            written.push(written.len().to_string());
            gateway.text(500, 77, &written[written.len() - 1]);
        }
    };
    // E7 asks for 10 s after the holder dies or hangs: printed, since a slow machine proves nothing wrong.
    let mut slowest = Duration::ZERO;
    for cut in 0..cuts {
        let began = gateway.identified() + gateway.resumed();
        write(1 + dice.roll(10));
        dice.pause(20).await;
        let since = Instant::now();
        let holder = "SELECT w.pid FROM lanekeeper.source_poll AS p JOIN lanekeeper.worker AS w ON w.worker_id = p.worker_id";
        let holder: i32 = chat
            .plant
            .client
            .query_one(holder, &[])
            .await
            .unwrap()
            .get(0);
        let at = workers
            .iter()
            .position(|worker| worker.pid() == holder)
            .unwrap();
        match cut % 5 {
            0 => {
                let killed = workers.remove(at);
                killed.kill().await;
            }
            1 if cut % 10 == 1 => workers[at].signal(Signal::STOP),
            1 | 2 => gateway.turn(Turn::Cut),
            3 => gateway.turn(Turn::Reconnect),
            _ => gateway.turn(Turn::Close(4_000)),
        }
        write(1 + dice.roll(10));
        gateway.began(began + 1, LIMIT).await;
        slowest = slowest.max(since.elapsed());
        write(1 + dice.roll(3));
        if cut % 5 == 0 {
            workers.push(chat.worker().await);
        } else if cut % 10 == 1 {
            workers[at].signal(Signal::CONT);
        }
    }
    assert_eq!(gateway.identified(), 1, "one session, whoever had it");
    chat.has("dc-500", &written).await;
    println!(
        "{} messages, {cuts} cuts; resumed within {slowest:?}",
        written.len()
    );
    for worker in workers {
        assert!(worker.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_discord_forgot_is_begun_anew_and_one_that_may_be_resumed_is_resumed() {
    let chat = Chat::new().await;
    let worker = chat.worker().await;
    let gateway = &chat.discord.gateway;
    gateway.began(1, LIMIT).await;
    gateway.text(500, 77, "one");
    gateway.turn(Turn::Invalid { resumable: true });
    gateway.began(2, LIMIT).await;
    gateway.text(500, 77, "two");
    chat.has("dc-500", &texts(&["one", "two"])).await;
    gateway.turn(Turn::Invalid { resumable: false });
    gateway.began(3, LIMIT).await;
    gateway.text(500, 77, "three");
    chat.has("dc-500", &texts(&["one", "two", "three"])).await;
    // Forgotten while nobody was connected.
    gateway.forget();
    gateway.began(4, LIMIT).await;
    gateway.text(500, 77, "four");
    chat.has("dc-500", &texts(&["one", "two", "three", "four"]))
        .await;
    assert_eq!((gateway.identified(), gateway.resumed()), (3, 1));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_acknowledges_no_heartbeat_is_left_and_the_session_resumed() {
    let chat = Chat::new().await;
    let worker = chat.worker().await;
    let gateway = &chat.discord.gateway;
    gateway.began(1, LIMIT).await;
    // Heartbeats are acknowledged for some intervals.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(gateway.connections(), 1);
    gateway.deafen(true);
    gateway.began(2, LIMIT).await;
    gateway.deafen(false);
    gateway.text(500, 77, "still here");
    chat.has("dc-500", &texts(&["still here"])).await;
    assert_eq!(gateway.identified(), 1);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_connection_would_not_mend_is_shown_and_not_tried_again() {
    for (code, told) in [(4_014, "Message Content Intent"), (4_004, "token is wrong")] {
        let chat = Chat::new().await;
        let gateway = &chat.discord.gateway;
        gateway.refuse(Some(code));
        let worker = chat.worker().await;
        chat.problem_is(told).await;
        let connections = gateway.connections();
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(gateway.connections(), connections);
        let url = [("DATABASE_URL", chat.plant.url.as_str())];
        let status = run(&["status"], &url, "").await.stdout;
        assert!(status.contains(told), "{status}");
        assert!(!worker.log().contains(SECRET));
        assert!(worker.stop().await.success());
    }
    // A token that Discord does not know.
    let chat = Chat::new().await;
    let worker = chat.plant.worker(&[("DC_TOKEN", "a-wrong-token")]).await;
    chat.problem_is("Discord does not know the bot").await;
    assert_eq!(chat.discord.gateway.connections(), 0);
    assert!(!worker.log().contains("a-wrong-token"));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_session_is_begun_while_discord_allows_none() {
    let chat = Chat::new().await;
    let gateway = &chat.discord.gateway;
    gateway.leave_starts(0);
    let worker = chat.worker().await;
    chat.problem_is("begin no session").await;
    assert_eq!(gateway.connections(), 0);
    gateway.leave_starts(1);
    gateway.began(1, LIMIT).await;
    gateway.text(500, 77, "at last");
    chat.has("dc-500", &texts(&["at last"])).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_session_waits_and_others_go_on() {
    let chat = Chat::new().await;
    let worker = chat.worker().await;
    let gateway = &chat.discord.gateway;
    gateway.began(1, LIMIT).await;
    gateway.text(500, 77, "one");
    chat.has("dc-500", &texts(&["one"])).await;
    let mut producer = crate::support::connect(&chat.plant.url).await;
    let open = producer.transaction().await.unwrap();
    let enqueue =
        "SELECT lanekeeper.enqueue_inbound('dc-500', 'terminal', 'of the open transaction')";
    open.execute(enqueue, &[]).await.unwrap();
    gateway.text(500, 77, "two");
    gateway.text(6, 77, "elsewhere");
    gateway.text(500, 77, "three");
    chat.has("dc-6", &texts(&["elsewhere"])).await;
    // What waits is not lost with the connection.
    gateway.turn(Turn::Cut);
    gateway.began(2, LIMIT).await;
    open.commit().await.unwrap();
    let expected = ["one", "of the open transaction", "two", "three"];
    chat.has("dc-500", &texts(&expected)).await;
    chat.has("dc-6", &texts(&["elsewhere"])).await;
    assert!(worker.stop().await.success());
}

#[tokio::test]
async fn what_a_gateway_cannot_do_is_refused_in_its_section() {
    let db = TestDb::new().await;
    let url = [("DATABASE_URL", db.url())];
    let file = documented("discord-channel");
    let ran = run(&["apply", "-f", "-"], &url, &file).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for (more, told) in [
        ("edits = true", "of Telegram only"),
        ("attachments = true", "of Telegram only"),
        ("webhook = \"discord\"", "a source either has `poll`"),
    ] {
        let ran = run(&["apply", "-f", "-"], &url, &format!("{file}\n{more}\n")).await;
        assert!(ran.stderr.contains(told), "{more}: {}", ran.stderr);
    }
    let other = file.replace("{channel_id}", "{chat_id}");
    let ran = run(&["apply", "-f", "-"], &url, &other).await;
    assert!(
        ran.stderr.contains("known are {channel_id}"),
        "{}",
        ran.stderr
    );
}
