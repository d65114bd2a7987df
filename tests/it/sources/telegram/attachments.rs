//! Recordings and files that people send, fetched to a folder of the worker.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::webhook::{self, HOOK};
use super::{Chat, LIMIT, SECRET};
use crate::support::platform::{Given, TOKEN};
use crate::support::{WorkerProcess, wait_until};

const FETCHES: &str = "attachments = true\nmax_file_bytes = 8192\n";

/// A worker's folder.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("files")
    }

    /// What is there of a source.
    fn of(&self, source: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path().join(source)) else {
            return Vec::new();
        };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    async fn worker(&self, chat: &Chat) -> WorkerProcess {
        let path = self.path();
        let dir = [("LANEKEEPER_WORKER__ATTACHMENTS_DIR", path.to_str().unwrap())];
        webhook::worker(chat, &dir).await
    }
}

/// The type and the payload of the messages of a session, in their order.
async fn sent(chat: &Chat, session: &str) -> Vec<Value> {
    let read = "SELECT e.payload::jsonb -> 'payload' FROM lanekeeper.event AS e
                JOIN lanekeeper.session AS s ON s.session_id = e.session_id WHERE s.name = $1 ORDER BY e.seq";
    let rows = chat.plant.client.query(read, &[&session]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

fn voice(file_id: &str) -> Value {
    json!({"caption": "listen", "voice": {"file_id": file_id, "mime_type": "audio/ogg"}})
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_lies_in_the_workers_folder_before_its_message_is_there() {
    let (chat, folder) = (Chat::with(FETCHES).await, Folder::new());
    chat.telegram.files.put("v1", b"a recording");
    let document = json!({"document": {
        "file_id": "d1", "file_name": "../../.bashrc", "mime_type": "text/x-sh",
    }});
    chat.telegram.files.put("d1", b"a file");
    let updates = &chat.telegram.updates;
    updates.write(77, 77, voice("v1"));
    updates.write(77, 77, document);
    let worker = folder.worker(&chat).await;
    updates.confirmed(LIMIT).await;
    let sent = sent(&chat, "tg-77-0").await;
    let paths: Vec<PathBuf> = sent
        .iter()
        .map(|payload| payload["path"].as_str().unwrap().into())
        .collect();
    for (path, (content, ending)) in paths
        .iter()
        .zip([("a recording", "ogg"), ("a file", "bin")])
    {
        assert_eq!(fs::read_to_string(path).unwrap(), content);
        assert_eq!(path.parent().unwrap(), folder.path().join("tg"));
        assert_eq!(path.extension().unwrap(), ending);
        assert_eq!(mode(path), 0o600);
    }
    assert_eq!(mode(&folder.path().join("tg")), 0o700);
    assert_eq!(folder.of("tg").len(), 2, "nothing partial is left");
    assert!(!worker.log().contains(SECRET));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_takes_long_holds_up_its_session_in_order_and_no_other() {
    let (chat, folder) = (Chat::with(FETCHES).await, Folder::new());
    chat.telegram.files.put("v1", b"a recording");
    chat.telegram.files.hold(true);
    let updates = &chat.telegram.updates;
    updates.text(77, "before");
    updates.write(77, 77, voice("v1"));
    updates.text(77, "after");
    updates.text(-100, "elsewhere");
    let worker = folder.worker(&chat).await;
    wait_until(LIMIT, "the others go on", async || {
        chat.contents("tg--100-0").await == ["elsewhere"]
    })
    .await;
    // Longer than a holder may give no sign of life.
    tokio::time::sleep(std::time::Duration::from_secs(7)).await;
    assert_eq!(chat.contents("tg-77-0").await, ["before"]);
    assert_eq!(updates.kept(), 3, "nothing is confirmed beyond it");
    chat.telegram.files.hold(false);
    updates.confirmed(LIMIT).await;
    assert_eq!(
        chat.contents("tg-77-0").await,
        ["before", "listen", "after"]
    );
    assert_eq!(chat.contents("tg--100-0").await, ["elsewhere"]);
    assert_eq!(chat.telegram.files.downloads(), 1);
    assert!(!worker.logged("gives no sign of life"));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_while_it_fetches_leaves_the_message_and_the_file_to_another() {
    let (chat, folder) = (Chat::with(FETCHES).await, Folder::new());
    chat.telegram.files.put("v1", b"a recording");
    chat.telegram.files.hold(true);
    let updates = &chat.telegram.updates;
    updates.write(77, 77, voice("v1"));
    let first = folder.worker(&chat).await;
    wait_until(LIMIT, "it fetches", async || {
        chat.telegram.files.downloads() == 1
    })
    .await;
    first.kill().await;
    chat.telegram.files.hold(false);
    let second = folder.worker(&chat).await;
    updates.confirmed(LIMIT).await;
    let sent = sent(&chat, "tg-77-0").await;
    assert_eq!(sent.len(), 1);
    let path = sent[0]["path"].as_str().unwrap();
    assert_eq!(fs::read(path).unwrap(), b"a recording");
    let files = folder.of("tg").into_iter();
    let whole: Vec<_> = files
        .filter(|path| path.extension().unwrap() == "ogg")
        .collect();
    assert_eq!(whole, [PathBuf::from(path)]);
    assert!(second.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_had_is_told_in_its_message() {
    let (chat, folder) = (Chat::with(FETCHES).await, Folder::new());
    let files = &chat.telegram.files;
    let elsewhere = crate::support::platform::Telegram::start(&[]).await;
    elsewhere.files.put("x", b"of another server");
    let redirect = format!("{}/file/bot{TOKEN}/files/x", elsewhere.url());
    let small = Given::Whole(b"small".to_vec());
    let cases = [
        (
            "said",
            "files/a",
            Some(2 << 30),
            small.clone(),
            "more than 8192 bytes",
        ),
        (
            "endless",
            "files/b",
            None,
            Given::Endless,
            "more than 8192 bytes",
        ),
        ("gone", "files/c", None, Given::Status(404), "answered 404"),
        (
            "cut",
            "files/d",
            None,
            Given::Cut(b"abc".to_vec()),
            "no file from",
        ),
        (
            "broken",
            "files/e",
            None,
            Given::Status(502),
            "answered 502",
        ),
        (
            "led",
            "files/f",
            None,
            Given::Redirect(redirect),
            "answered 302",
        ),
        (
            "up",
            "files/../../../etc/passwd",
            None,
            small.clone(),
            "no path to download",
        ),
        (
            "local",
            "/var/lib/telegram/g",
            None,
            small,
            "no path to download",
        ),
    ];
    let updates = &chat.telegram.updates;
    for (file_id, path, size, given, _) in &cases {
        files.put_at(file_id, path, *size, given.clone());
        updates.write(77, 77, voice(file_id));
    }
    updates.write(77, 77, voice("unknown"));
    let declared = json!({"document": {"file_id": "huge", "file_size": 2_000_000_000_u64}});
    updates.write(77, 77, declared);
    let worker = folder.worker(&chat).await;
    updates.confirmed(LIMIT).await;
    let sent = sent(&chat, "tg-77-0").await;
    let expected = cases.iter().map(|(.., told)| *told);
    let expected: Vec<&str> = expected
        .chain(["wrong file_id", "more than 8192 bytes"])
        .collect();
    assert_eq!(sent.len(), expected.len());
    for (payload, told) in sent.iter().zip(expected) {
        let error = payload["attachment_error"].as_str().unwrap_or_default();
        assert!(error.contains(told), "{told}: {payload}");
        assert!(payload["path"].is_null() && !payload.to_string().contains(SECRET));
    }
    assert_eq!(elsewhere.files.downloads(), 0);
    assert_eq!(folder.of("tg"), [""; 0].map(PathBuf::from));
    assert!(worker.logged("an attachment was not fetched; its message goes without it"));
    assert!(!worker.log().contains(SECRET));
    // A folder that everybody may write to from now on.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    files.put("v1", b"a recording");
    updates.write(-100, 5, voice("v1"));
    updates.confirmed(LIMIT).await;
    let told = self::sent(&chat, "tg--100-0").await[0]["attachment_error"].clone();
    assert!(
        told.as_str().unwrap().contains("every user may write"),
        "{told}"
    );
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_folder_leaves_the_source_to_one_that_has_one() {
    let (chat, folder) = (Chat::with(FETCHES).await, Folder::new());
    chat.telegram.files.put("v1", b"a recording");
    chat.telegram.updates.write(77, 77, voice("v1"));
    let poor = chat.worker().await;
    chat.problem_is("set worker.attachments_dir").await;
    assert_eq!(chat.telegram.updates.kept(), 1);
    let worker = folder.worker(&chat).await;
    chat.telegram.updates.confirmed(LIMIT).await;
    assert!(sent(&chat, "tg-77-0").await[0]["path"].is_string());
    for one in [poor, worker] {
        assert!(one.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_with_an_update_of_a_webhook_is_fetched_once() {
    let (chat, folder) = (Chat::new().await, Folder::new());
    let api = format!(
        "attachments = true\ntoken_env = \"TG_TOKEN\"\napi_url = \"{}\"\n",
        chat.telegram.url()
    );
    chat.apply(&(chat.section("tg") + HOOK + &api)).await;
    chat.telegram.files.put("v1", b"a recording");
    let worker = folder.worker(&chat).await;
    let update = webhook::update(1, 77, 77, voice("v1"));
    for _ in 0..2 {
        assert_eq!(webhook::send(&worker, &update).await.status, 200);
    }
    let lost = webhook::send(&worker, &webhook::update(2, 77, 77, voice("v2"))).await;
    assert_eq!(lost.status, 200, "{}", lost.body);
    let sent = sent(&chat, "hook-77-0").await;
    assert_eq!(sent.len(), 2);
    let path = sent[0]["path"].as_str().unwrap();
    assert_eq!(fs::read(path).unwrap(), b"a recording");
    assert_eq!(
        (folder.of("hook").len(), chat.telegram.files.downloads()),
        (1, 1)
    );
    let told = sent[1]["attachment_error"].as_str().unwrap();
    assert!(told.contains("wrong file_id"), "{told}");
    assert!(!worker.log().contains(SECRET));
    assert!(worker.stop().await.success());
}
