use std::os::unix::fs::PermissionsExt;

use std::fs::File;

use super::layout::LOCK_WAIT;
use super::record::example;
use super::*;

const STREAM: SpooledStream = SpooledStream {
    name: "runs",
    is_critical: |event_type| event_type == "agent_stop",
};

struct Scratch(Spool);

impl Scratch {
    fn new(max_bytes: u64) -> Self {
        let name = format!("lanekeeper-spool-{}", uuid::Uuid::now_v7());
        let dir = Some(std::env::temp_dir().join(name));
        Self(
            Spool::new(
                &SpoolConfig {
                    dir,
                    max_bytes,
                    ..SpoolConfig::default()
                },
                STREAM,
            )
            .unwrap(),
        )
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0.dir).unwrap();
    }
}

#[test]
fn a_session_is_held_from_its_first_append_on_in_a_private_file() {
    let scratch = Scratch::new(1 << 20);
    assert!(!scratch.0.holds("s"));
    scratch.0.append(&example("s", 1), LOCK_WAIT).unwrap();
    assert!(scratch.0.holds("s"));
    assert!(!scratch.0.holds("t"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&scratch.0.dir), 0o700);
    assert_eq!(mode(&scratch.0.file_of("s")), 0o600);
    assert_eq!(scratch.0.files().unwrap(), [scratch.0.file_of("s")]);
}

#[test]
fn the_last_tenth_is_kept_for_critical_events() {
    let mut record = example("s", 1);
    let scratch = Scratch::new(10 * record.to_line().len() as u64);
    let refused = loop {
        if let Err(error) = scratch.0.append(&record, LOCK_WAIT) {
            break error;
        }
    };
    assert!(matches!(refused, SpoolError::Full { .. }), "{refused}");
    record.event_type = "agent_stop".to_owned();
    scratch.0.append(&record, LOCK_WAIT).unwrap();
}

#[test]
fn a_rejected_record_is_kept_whole_with_its_reason() {
    let scratch = Scratch::new(1 << 20);
    let record = example("s", 9);
    let path = scratch.0.reject(&record, "too large").unwrap();
    assert_eq!(scratch.0.reject(&record, "again").unwrap(), path);
    let kept: Rejection = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(kept.reason, "again");
    let kept: Record = serde_json::from_str(kept.record.get()).unwrap();
    assert_eq!(kept.payload.get(), record.payload.get());
    assert_eq!(scratch.0.rejected().unwrap(), [path]);
}

#[test]
fn a_record_that_is_too_large_is_set_aside_at_once_and_a_stand_in_takes_its_place() {
    let mut scratch = Scratch::new(1 << 20);
    scratch.0.max_record_bytes = 500;
    let mut large = example("s", 1);
    large.payload =
        serde_json::value::to_raw_value(&format!("{},\"payload\":", "x".repeat(400))).unwrap();
    let appended = scratch.0.append(&large, LOCK_WAIT).unwrap();
    let (reason, kept_in) = appended.set_aside().unwrap();
    assert!(reason.contains("takes at most 500"), "{reason}");
    let (_, kept) = Spool::read_rejected(kept_in).unwrap();
    assert_eq!(kept.payload.get(), large.payload.get());
    let shown = Spool::show_rejected(kept_in).unwrap();
    assert_eq!(
        (shown.reason.as_str(), shown.record.session.as_str()),
        (reason, "s")
    );
    let file = file::SessionFile::open(&scratch.0.file_of("s"), 500)
        .unwrap()
        .unwrap();
    let stand_in: Record = serde_json::from_str(&file.first().unwrap().unwrap()).unwrap();
    assert_eq!(stand_in.message_id, large.message_id);
    assert!(stand_in.payload.get().contains("takes at most 500"));
    // What fits is as it was.
    assert!(
        scratch
            .0
            .append(&example("s", 2), LOCK_WAIT)
            .unwrap()
            .set_aside()
            .is_none()
    );
}

#[test]
fn a_file_that_is_written_to_belongs_to_its_own_call() {
    let scratch = Scratch::new(1 << 20);
    scratch.0.append(&example("s", 1), LOCK_WAIT).unwrap();
    scratch.0.append(&example("t", 2), LOCK_WAIT).unwrap();
    let age = Duration::from_secs(60);
    let left = scratch.0.file_of("s");
    let long_ago = SystemTime::now() - 2 * age;
    File::options()
        .write(true)
        .open(&left)
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
    assert_eq!(scratch.0.untouched_files(age, 9).unwrap(), [left]);
    assert_eq!(
        scratch.0.untouched_files(Duration::ZERO, 9).unwrap().len(),
        2
    );
    assert_eq!(
        scratch.0.untouched_files(Duration::ZERO, 1).unwrap().len(),
        1
    );
}

#[test]
fn sessions_that_are_written_to_do_not_hide_one_that_is_not() {
    let scratch = Scratch::new(1 << 20);
    let age = Duration::from_secs(60);
    // Whatever the order of the folder's names is, a session in use comes before an untouched one in it.
    for left in ["s", "t", "u", "v"] {
        for session in ["s", "t", "u", "v"] {
            scratch.0.append(&example(session, 1), LOCK_WAIT).unwrap();
        }
        let left = scratch.0.file_of(left);
        let file = File::options().write(true).open(&left).unwrap();
        file.set_modified(SystemTime::now() - 2 * age).unwrap();
        assert_eq!(scratch.0.untouched_files(age, 1).unwrap(), [left]);
    }
}

#[test]
fn below_a_folder_of_everybody_nothing_is_made() {
    let scratch = Scratch::new(1 << 20);
    make_dir(&scratch.0.dir).unwrap();
    let allow = |mode| fs::set_permissions(&scratch.0.dir, fs::Permissions::from_mode(mode));
    let mut below = scratch.0.clone();
    below.dir = scratch.0.dir.join("below");
    allow(0o777).unwrap();
    let error = below.append(&example("s", 1), LOCK_WAIT).unwrap_err();
    assert!(matches!(error, SpoolError::Untrusted { .. }), "{error}");
    assert!(!below.dir.exists());
    allow(0o1777).unwrap();
    below.append(&example("s", 1), LOCK_WAIT).unwrap();
}

#[test]
fn what_is_in_the_place_of_a_session_file_and_is_none_is_not_written_to() {
    let scratch = Scratch::new(1 << 20);
    make_dir(&scratch.0.dir).unwrap();
    let elsewhere = scratch.0.dir.join("elsewhere");
    fs::write(&elsewhere, "mine").unwrap();
    std::os::unix::fs::symlink(&elsewhere, scratch.0.file_of("s")).unwrap();
    scratch.0.append(&example("s", 1), LOCK_WAIT).unwrap_err();
    file::SessionFile::open(&scratch.0.file_of("s"), 500).unwrap_err();
    assert_eq!(fs::read(&elsewhere).unwrap(), b"mine");
    fs::create_dir(scratch.0.file_of("t")).unwrap();
    scratch.0.append(&example("t", 1), LOCK_WAIT).unwrap_err();
}

#[test]
fn a_folder_of_everybody_is_refused_by_every_way_into_it() {
    let scratch = Scratch::new(1 << 20);
    make_dir(&scratch.0.dir).unwrap();
    fs::set_permissions(&scratch.0.dir, fs::Permissions::from_mode(0o777)).unwrap();
    for error in [
        scratch.0.append(&example("s", 1), LOCK_WAIT).unwrap_err(),
        scratch.0.files().unwrap_err(),
        scratch.0.untouched_files(Duration::ZERO, 9).unwrap_err(),
        scratch.0.rejected().unwrap_err(),
    ] {
        assert!(matches!(error, SpoolError::Untrusted { .. }), "{error}");
    }
    assert_eq!(fs::read_dir(&scratch.0.dir).unwrap().count(), 0);
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error_that_names_it() {
    let dir = Some(PathBuf::from("/dev/null/spool"));
    let config = SpoolConfig {
        dir,
        ..SpoolConfig::default()
    };
    let spool = Spool::new(&config, STREAM).unwrap();
    let error = spool
        .append(&example("s", 1), LOCK_WAIT)
        .unwrap_err()
        .to_string();
    assert!(error.contains("/dev/null/spool"), "{error}");
}
