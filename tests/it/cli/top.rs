//! `lanekeeper top` in a real tmux, 80 by 24.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use super::{append, block, lane, run, run_json, subscribed};
use crate::api::site::Site;
use crate::support::wait_until;

const LIMIT: Duration = Duration::from_secs(60);

/// A tmux server of its own with one session; ended when it is dropped.
struct Terminal {
    folder: tempfile::TempDir,
}

impl Terminal {
    fn open(variables: &[(&str, &str)], program: &[&str]) -> Self {
        let terminal = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let mut arguments = vec![
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "80",
            "-y",
            "24",
        ];
        let variables: Vec<String> = variables
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        for variable in &variables {
            arguments.extend(["-e", variable]);
        }
        arguments.push("--");
        arguments.extend(program);
        let output = terminal.tmux(&arguments);
        assert!(output.status.success(), "{output:?}");
        terminal
    }

    fn socket(&self) -> &Path {
        self.folder.path()
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command
            .env("TERM", "xterm-256color")
            .env_remove("TMUX")
            .arg("-S")
            .arg(self.socket().join("tmux"))
            .args(arguments);
        command.output().unwrap()
    }

    fn press(&self, key: &str) {
        assert!(self.tmux(&["send-keys", key]).status.success(), "{key}");
    }

    fn picture(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    async fn shows(&self, texts: &[&str]) {
        wait_until(
            LIMIT,
            &format!("the terminal shows {texts:?}"),
            async || {
                let picture = self.picture();
                texts.iter().all(|text| picture.contains(text))
            },
        )
        .await;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[tokio::test]
async fn an_operator_finds_a_blocked_lane_follows_its_session_and_skips_its_head() {
    let db = subscribed(&["audit"]).await;
    append(&db, "s", 3).await;
    let id = lane(&db, "s", "audit").await;
    block(&db, id).await;
    let terminal = Terminal::open(
        &[("DATABASE_URL", db.url())],
        &[env!("CARGO_BIN_EXE_lanekeeper"), "top"],
    );
    terminal
        .shows(&["audit", "blocked", "1 blocked", "q leave"])
        .await;

    terminal.press("Enter");
    terminal.shows(&["SEQ", "esc back"]).await;
    terminal.press("Escape");
    terminal.shows(&["TRIES"]).await;
    terminal.press("s");
    terminal
        .shows(&["skip seq 1 of lane", "Do it? y / n"])
        .await;
    terminal.press("y");
    terminal.shows(&["skip; it is"]).await;
    let id = id.to_string();
    assert_eq!(
        run_json(&db, &["lane", "show", &id]).await[0]["head_seq"],
        2
    );

    terminal.press("2");
    terminal.shows(&["OLDEST"]).await;
    terminal.press("p");
    terminal.press("y");
    terminal.shows(&["audit is paused"]).await;
    terminal.press("q");
    wait_until(LIMIT, "it has ended", async || {
        !terminal.tmux(&["has-session"]).status.success()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_access_token_it_shows_and_does_the_same_without_a_database() {
    let site = Site::open(&[]).await;
    site.plant.receiver.set_broken(true);
    site.plant.enqueue("s", 1, 3).await;
    let scopes = ["--scope", "read", "--scope", "operate"];
    let token = site.token(&[&["console"], &scopes[..]].concat()).await;
    let url = site.worker.http();
    let variables = [("LANEKEEPER_URL", &*url), ("LANEKEEPER_TOKEN", &token)];
    let terminal = Terminal::open(&variables, &[env!("CARGO_BIN_EXE_lanekeeper"), "top"]);
    terminal.shows(&["out", "blocked", "q leave"]).await;
    terminal.press("Enter");
    terminal.shows(&["SEQ", "step", "esc back"]).await;
    terminal.press("Escape");
    terminal.press("s");
    terminal
        .shows(&["skip seq 1 of lane", "Do it? y / n"])
        .await;
    terminal.press("y");
    terminal.shows(&["skip; it is"]).await;
    terminal.press("2");
    terminal.shows(&["OLDEST"]).await;
    terminal.press("q");
    let skipped = "SELECT count(*) FROM lanekeeper.operation WHERE action = 'skip' AND seq = 1
                   AND reason = 'from lanekeeper top (by console, HTTP API)'";
    assert_eq!(site.plant.count(skipped).await, 1);
}

#[tokio::test]
async fn without_a_terminal_it_says_what_to_use_instead() {
    let db = subscribed(&["audit"]).await;
    let ran = run(&db, &["top"]).await;
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("lanekeeper status"), "{ran:?}");
}
