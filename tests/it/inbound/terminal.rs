//! The fixture: a tmux server of the test's own, and agents in it that record what they are typed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::wait_until;

pub const LIMIT: Duration = Duration::from_secs(30);

pub struct Terminal {
    folder: tempfile::TempDir,
}

impl Terminal {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn socket(&self) -> String {
        self.path("socket").to_str().unwrap().to_owned()
    }

    /// Asks the server, and returns what it says.
    pub fn tmux(&self, arguments: &[&str]) -> String {
        let asked = Command::new("tmux")
            .args(["-f", "/dev/null", "-S"])
            .arg(self.path("socket"))
            .args(arguments)
            .env_remove("TMUX")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&asked.stderr);
        assert!(asked.status.success(), "{arguments:?}: {said}");
        String::from_utf8(asked.stdout).unwrap().trim().to_owned()
    }

    /// A program that asks for bracketed paste and records every byte of its terminal.
    pub fn agent(&self, name: &str) -> Vec<String> {
        let record = self.path(name);
        let script = "stty raw -echo; printf '\\033[?2004hready'; exec cat > \"$1\"";
        let words = ["sh", "-c", script, "agent", record.to_str().unwrap()];
        words.map(str::to_owned).to_vec()
    }

    /// Starts an agent in a pane of its own, and returns the pane when it is ready.
    pub async fn start(&self, name: &str) -> String {
        let agent = self.agent(name);
        let mut arguments = vec![
            "new-session",
            "-d",
            "-P",
            "-F",
            "#{pane_id}",
            "-s",
            name,
            "-x",
            "200",
            "--",
        ];
        arguments.extend(agent.iter().map(String::as_str));
        let pane = self.tmux(&arguments);
        self.ready(&pane).await;
        pane
    }

    pub async fn ready(&self, pane: &str) {
        wait_until(LIMIT, "the agent is ready", async || {
            self.tmux(&["capture-pane", "-p", "-t", pane])
                .contains("ready")
        })
        .await;
    }

    pub fn name_pane(&self, pane: &str, session: &str) {
        self.tmux(&[
            "set-option",
            "-p",
            "-t",
            pane,
            "@lanekeeper_session",
            session,
        ]);
    }

    /// What an agent was typed.
    pub fn typed(&self, name: &str) -> String {
        read(&self.path(name))
    }

    /// Waits until an agent was typed exactly this.
    pub async fn comes(&self, name: &str, expected: &str) {
        wait_until(LIMIT, "it is typed", async || {
            self.typed(name).len() >= expected.len()
        })
        .await;
        assert!(
            self.typed(name) == expected,
            "{:?}",
            self.typed(name).chars().take(300).collect::<String>()
        );
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Fails only where no server was started.
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(self.path("socket"))
            .arg("kill-server")
            .output();
    }
}

fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A bracketed paste and Enter, as a terminal sends them.
pub fn pasted(text: &str) -> String {
    format!("\u{1b}[200~{}\u{1b}[201~\r", text.replace('\n', "\r"))
}
