//! S3, E4, E7: examples/chat, started by its one command: a person's message goes in, the agent's answer comes out.

use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::support::{TestDb, lanekeeper};

#[tokio::test]
async fn a_person_in_a_chat_talks_to_an_agent_in_a_terminal_and_is_answered_by_an_edited_message() {
    let db = TestDb::new().await;
    let program = lanekeeper();
    let mut example = Command::new("sh");
    example
        .arg("examples/chat/run.sh")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("DATABASE_URL", db.url())
        .env("LANEKEEPER", program.as_std().get_program())
        .env("LANEKEEPER_CONFIG", "/dev/null")
        .kill_on_drop(true);
    let ran = timeout(Duration::from_secs(120), example.output())
        .await
        .unwrap()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(ran.status.success(), "{out}\n{err}");
    assert!(out.contains("its Telegram is a fake"), "{out}");
    // Each answer is one message, which was edited.
    for versions in [
        "\nThinking … -> hello\n",
        "\nThinking … -> 5 words in 2 lines\n",
    ] {
        assert!(out.contains(versions), "{versions}: {out}\n{err}");
    }
    assert!(out.contains("Session tg-77: the agent"), "{out}");
    let client = db.connect().await;
    let typed = "SELECT string_agg(coalesce(m.typed, '-') || ' ' || m.content, ', ' ORDER BY m.seq)
                 FROM lanekeeper.inbound_message AS m";
    let typed: String = client.query_one(typed, &[]).await.unwrap().get(0);
    assert_eq!(
        typed,
        "confirmed reverse olleh, confirmed how many\nwords are these?"
    );
}
