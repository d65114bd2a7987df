//! F2: examples/commitments, started by its one command.

use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::support::{TestDb, lanekeeper};

const OVERVIEW: &str = " agent |   state   | open | verified | failed 
-------+-----------+------+----------+--------
 anna  | working   |    0 |        1 |      1
 bert  | dismissed |    1 |        0 |      0
(2 rows)
";

#[tokio::test]
async fn agents_and_their_commitments_are_shown_as_they_are_and_again_from_the_log() {
    let db = TestDb::new().await;
    let program = lanekeeper();
    let mut example = Command::new("sh");
    example
        .arg("examples/commitments/run.sh")
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
    assert_eq!(out.matches(OVERVIEW).count(), 2, "{out}\n{err}");
    assert!(
        out.contains("board rebuilt from 10 events of 5 sessions"),
        "{out}"
    );
    let client = db.connect().await;
    client
        .batch_execute("DROP OWNED BY board_keeper; DROP ROLE board_keeper")
        .await
        .unwrap();
}
