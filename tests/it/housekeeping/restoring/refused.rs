//! What is not restored, and that nothing is changed then.

use std::fs;

use super::*;

/// Why it is refused, with nothing restored.
async fn refusal(bed: &Bed, file: &Path) -> String {
    let refused = try_to(bed, file).await.unwrap_err();
    let left = (bed.count(RESTORED).await, bed.count(PARTITIONS).await);
    assert_eq!(left, (0, 0), "{refused}");
    let files = "SELECT count(*) FROM lanekeeper.restored_file";
    assert_eq!(bed.count(files).await, 0);
    let said = match &refused {
        RestoreError::Store(error) => error.refusal().expect("a refusal").message,
        refused => refused.to_string(),
    };
    assert!(
        said.to_lowercase().contains("nothing was restored"),
        "{said}"
    );
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_cut_off_altered_or_of_another_database_is_refused() {
    let archived = Archived::with("").await;
    let bed = &archived.bed;
    let whole = fs::read(archived.file()).unwrap();
    let name = archived.file().file_name().unwrap().to_owned();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join(&name);
    for end in [0, 10, whole.len() / 2, whole.len() - 1] {
        fs::write(&file, &whole[..end]).unwrap();
        let said = refusal(bed, &file).await;
        let expected = format!("is cut off: it has {end} bytes of {}", whole.len());
        assert!(said.contains(&expected), "{said}");
    }
    let mut altered = whole.clone();
    let middle = altered.len() / 2;
    altered[middle] ^= 1;
    fs::write(&file, &altered).unwrap();
    assert!(refusal(bed, &file).await.contains("it was altered"));
    let longer = [&whole[..], &whole[..]].concat();
    fs::write(&file, longer).unwrap();
    assert!(refusal(bed, &file).await.contains("it was altered"));
    let other = elsewhere.path().join("events-2020-01-01.jsonl.gz");
    fs::write(&other, &altered).unwrap();
    assert!(refusal(bed, &other).await.contains("no record of"));
    let missing = elsewhere.path().join("none");
    assert!(refusal(bed, &missing).await.contains("cannot read"));
    // Under another name it is the same file.
    fs::write(&other, &whole).unwrap();
    assert_eq!(try_to(bed, &other).await.unwrap().events, 3 * OLD);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_another_database_is_refused() {
    let (here, there) = (Archived::with("").await, Archived::with("").await);
    let said = refusal(&here.bed, &there.file()).await;
    assert!(said.contains("another database wrote it"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_that_the_log_has_is_refused_and_so_is_one_that_is_restored() {
    let archived = Archived::with("").await;
    let bed = &archived.bed;
    let in_log = "UPDATE lanekeeper.archived_day SET dropped_at = NULL";
    bed.client.batch_execute(in_log).await.unwrap();
    let said = refusal(bed, &archived.file()).await;
    assert!(said.contains("is still in the log"), "{said}");
    let dropped = "UPDATE lanekeeper.archived_day SET dropped_at = clock_timestamp()";
    bed.client.batch_execute(dropped).await.unwrap();
    archived.restore().await;
    let twice = try_to(bed, &archived.file()).await.unwrap_err();
    let RestoreError::Store(error) = twice else {
        panic!("{twice}");
    };
    let said = error.refusal().unwrap().message;
    assert!(said.contains("is restored already, until"), "{said}");
    assert_eq!(bed.count(RESTORED).await, 3 * OLD);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_the_database_lacks_is_named() {
    let archived = Archived::with("").await;
    let bed = &archived.bed;
    let renamed = "UPDATE lanekeeper.session SET name = 'other' WHERE name = 's2'";
    bed.client.batch_execute(renamed).await.unwrap();
    let said = refusal(bed, &archived.file()).await;
    assert!(said.contains("\"s2\" of the stream \"runs\""), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_restores_at_once_one_restores_the_day() {
    let archived = Archived::with("").await;
    let bed = &archived.bed;
    let file = archived.file();
    // One stands with its transaction open.
    let mut client = bed.db.connect().await;
    let transaction = client.transaction().await.unwrap();
    let lock = "SELECT pg_advisory_xact_lock(lanekeeper.maintenance_lock(9))";
    transaction.batch_execute(lock).await.unwrap();
    let said = refusal(bed, &file).await;
    assert!(said.contains("another restore is under way"), "{said}");
    transaction.rollback().await.unwrap();
    let (one, other) = tokio::join!(try_to(bed, &file), try_to(bed, &file));
    assert_eq!(
        u8::from(one.is_ok()) + u8::from(other.is_ok()),
        1,
        "{one:?} {other:?}"
    );
    let RestoreError::Store(error) = one.err().or(other.err()).unwrap() else {
        panic!("a refusal of the database");
    };
    assert!(
        ["LK006", "LK007"].contains(&error.sqlstate().unwrap()),
        "{error}"
    );
    assert_eq!(bed.count(RESTORED).await, 3 * OLD);
}
