//! A full disk under the spool: what a hook call said it kept is kept, whole and in order, and what it
//! could not keep it said so. The disk is a small tmpfs; where that may not be mounted, nothing is tried.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

use crate::support::{TestDb, lanekeeper};

const NOWHERE: &str = "postgres://nobody@127.0.0.1:1/none";
/// Room for about a dozen of the calls.
const SIZE: &str = "size=96k";
const PAYLOAD: usize = 6_000;

struct Disk {
    path: PathBuf,
    _dir: TempDir,
}

impl Disk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spool");
        std::fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", SIZE, "none"])
            .arg(&path)
            .stderr(Stdio::null())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| Self { path, _dir: dir })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.path).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.path.display());
        }
    }
}

/// What a hook call said; it exits 0 and prints nothing, whatever happens.
async fn hook(disk: &Disk, url: &str, session: &str, number: usize) -> String {
    let mut child = lanekeeper()
        .args(["hook", "--cli", "codex"])
        .env("DATABASE_URL", url)
        .env("LANEKEEPER_SPOOL__DIR", &disk.path)
        .env("LANEKEEPER_HOOK__TIMEOUT_MS", "5000")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let payload = json!({"session_id": session, "hook_event_name": "UserPromptSubmit",
                         "prompt": format!("{number} {}", "x".repeat(PAYLOAD))});
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(payload.to_string().as_bytes())
        .await
        .unwrap();
    drop(stdin);
    let ran = child.wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(
        (ran.status.code(), ran.stdout.len()),
        (Some(0), 0),
        "{said}"
    );
    said
}

#[tokio::test]
async fn what_was_kept_before_the_disk_was_full_arrives_and_what_was_not_was_said() {
    let Some(disk) = Disk::mount() else {
        println!("skipped: a tmpfs may not be mounted here");
        return;
    };
    let db = TestDb::new().await;
    let mut promised = [Vec::new(), Vec::new()];
    let mut lost = 0;
    for number in 0..30 {
        let which = number % 2;
        let said = hook(&disk, NOWHERE, ["s", "t"][which], number).await;
        if said.contains("the event is LOST") {
            lost += 1;
        } else {
            assert!(said.contains("kept in the spool"), "{said}");
            promised[which].push(number);
        }
    }
    assert!(lost > 0, "the disk is too large: nothing was refused");
    assert!(promised.iter().all(|kept| kept.len() > 1), "{promised:?}");
    // The server is back, and the disk still full: there is no room to go behind what waits.
    for (which, session) in ["s", "t"].into_iter().enumerate() {
        let said = hook(&disk, db.url(), session, 30 + which).await;
        // What was sent makes room for those that come after it.
        assert!(said.is_empty() || said.contains("stored, but"), "{said}");
        promised[which].push(30 + which);
    }
    let client = db.connect().await;
    for (which, session) in ["s", "t"].into_iter().enumerate() {
        let query = "SELECT e.seq, split_part(e.payload::jsonb ->> 'prompt', ' ', 1)::bigint
                     FROM lanekeeper.event AS e JOIN lanekeeper.session AS s USING (session_id)
                     WHERE s.name = $1 ORDER BY e.seq";
        let rows = client.query(query, &[&session]).await.unwrap();
        let seqs: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(seqs, (1..=seqs.len() as i64).collect::<Vec<_>>());
        let arrived: Vec<i64> = rows.iter().map(|row| row.get(1)).collect();
        let promised: Vec<i64> = promised[which].iter().map(|one| *one as i64).collect();
        assert_eq!(arrived, promised, "session {session}");
    }
}
