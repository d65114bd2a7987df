//! One bot, one group, many sessions: the workers keep and share the group's limit, coalesce progress to the newest
//! version, and send every final version, in order.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, interval};

use super::ground::{Ground, LIMIT};
use crate::support::platform::{Seen, Window};

const GROUP: &str = "-1001234567890";
const SESSIONS: usize = 8;
const MESSAGES: usize = 2;
/// Versions of each message, the final one among them.
const VERSIONS: usize = 60;
/// Between two versions of a session: far more often than the group may be written to.
const EVERY: Duration = Duration::from_millis(150);

/// A group's 20 a minute, six times as fast; and the bot's 30 a second.
const LIMITS: [Window; 2] = [
    Window {
        per_chat: true,
        most: 20,
        time: Duration::from_secs(10),
    },
    Window {
        per_chat: false,
        most: 30,
        time: Duration::from_secs(1),
    },
];

/// What was shown of each session, in order.
fn shown(seen: &Seen) -> BTreeMap<String, Vec<(Instant, String)>> {
    let mut sessions: BTreeMap<String, Vec<(Instant, String)>> = BTreeMap::new();
    for message in &seen.messages {
        for (at, text) in &message.versions {
            let (session, said) = text.split_once(' ').unwrap();
            let of = sessions.entry(session.to_owned()).or_default();
            of.push((*at, said.to_owned()));
        }
    }
    for of in sessions.values_mut() {
        of.sort_by_key(|(at, _)| *at);
    }
    sessions
}

#[tokio::test(flavor = "multi_thread")]
async fn a_groups_limit_is_kept_and_shared_fairly_and_no_final_is_lost() {
    let settings = "rates = { group = \"18/10s\", chat = \"20/s\" }";
    let ground = Ground::new(&LIMITS, settings).await;
    let workers = ground.workers(2).await;
    let mut ticks = interval(EVERY);
    let started = Instant::now();
    for message in 0..MESSAGES {
        for version in 0..VERSIONS {
            ticks.tick().await;
            for session in 0..SESSIONS {
                let is_final = version + 1 == VERSIONS;
                let payload = json!({
                    "chat": GROUP,
                    "text": format!("s{session} {message}/{version:02}"),
                    "message_key": message,
                    "final": is_final,
                });
                ground.say(&format!("s{session}"), &payload).await;
            }
        }
    }
    let produced = started.elapsed();
    let contended = Instant::now();
    ground
        .telegram
        .wait_until(LIMIT, "every final is shown", |seen| {
            let last = format!("/{:02}", VERSIONS - 1);
            let finals = seen
                .messages
                .iter()
                .filter(|one| one.text().ends_with(&last));
            finals.count() == SESSIONS * MESSAGES
        })
        .await;
    ground.drained().await;
    let seen = ground.telegram.seen();
    let sessions = shown(&seen);
    let total: usize = sessions.values().map(Vec::len).sum();
    let most = seen.most_within(LIMITS[0].time, |_| true);
    let shares: Vec<usize> = sessions
        .values()
        .map(|said| said.iter().filter(|(at, _)| *at < contended).count())
        .collect();
    println!(
        "{total} requests for {} events, at most {most} in {:?}; shares in {produced:.1?}: {shares:?}",
        SESSIONS * MESSAGES * VERSIONS,
        LIMITS[0].time
    );

    assert!(most <= LIMITS[0].most, "{most} in {:?}", LIMITS[0].time);
    assert!(
        seen.calls.iter().all(|call| !call.refused),
        "a 429 of our own making"
    );
    let (least, greatest) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    assert!(*least > 0 && *greatest <= 2 * *least, "{shares:?}");
    assert_eq!(
        seen.messages.len(),
        SESSIONS * MESSAGES,
        "one message each, edited"
    );
    for (session, said) in &sessions {
        let texts: Vec<&str> = said.iter().map(|(_, text)| text.as_str()).collect();
        assert!(texts.is_sorted(), "{session}: {texts:?}");
        for message in 0..MESSAGES {
            let last = format!("{message}/{:02}", VERSIONS - 1);
            assert!(texts.contains(&last.as_str()), "{session}: {texts:?}");
        }
    }
    // What was not shown is on record as replaced by what was.
    let coalesced = "SELECT count(*) FROM lanekeeper.outcome WHERE kind = 'coalesced'";
    let all = (SESSIONS * MESSAGES * VERSIONS) as i64;
    assert_eq!(ground.count(coalesced).await + total as i64, all);
    let others = "SELECT count(*) FROM lanekeeper.outcome WHERE kind <> 'coalesced'";
    assert_eq!(ground.count(others).await, 0);
    Ground::stop(workers).await;
}
