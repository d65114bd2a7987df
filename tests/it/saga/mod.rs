//! F8: examples/saga, started by its one command, and killed at every step. Each run ends completed or wholly taken back,
//! and each of its effects happened once.

#[cfg(feature = "crash-points")]
mod killed;

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::support::TestDb;

const LIMIT: Duration = Duration::from_secs(120);

/// The program, built beside the one under test.
fn example(db: &TestDb) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_lanekeeper")).with_file_name("examples/saga");
    assert!(
        program.exists(),
        "{} is not there: cargo build --features crash-points --examples",
        program.display()
    );
    let mut command = Command::new(program);
    command
        .env("DATABASE_URL", db.url())
        .env_remove("CRASH_POINT")
        .kill_on_drop(true);
    command
}

async fn ran(command: &mut Command) -> Output {
    timeout(LIMIT, command.output())
        .await
        .expect("it ends")
        .unwrap()
}

const OVERVIEW: &str = "\
all-well      completed    WorkspaceReserved, AgentStarted, ResultVerified
no-agent      compensated  WorkspaceReserved, WorkspaceReleased
no-workspace  compensated  nothing
says-nothing  compensated  WorkspaceReserved, AgentStarted, AgentStopped, WorkspaceReleased
tests-fail    compensated  WorkspaceReserved, AgentStarted, AgentStopped, WorkspaceReleased
too-late      compensated  WorkspaceReserved, AgentStarted, AgentStopped, WorkspaceReleased
";

#[tokio::test]
async fn a_step_that_fails_or_is_too_late_has_those_before_it_taken_back_the_last_one_first() {
    let db = TestDb::new().await;
    // The second start finds what the first one did, and does none of it again.
    for _ in 0..2 {
        let ran = ran(&mut example(&db)).await;
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{said}");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), OVERVIEW, "{said}");
    }
    let client = db.connect().await;
    let held = "SELECT count(*) FROM saga.workspace WHERE run IS NOT NULL";
    let held: i64 = client.query_one(held, &[]).await.unwrap().get(0);
    assert_eq!(held, 1, "only the run that is completed has its workspace");
}
