//! Finds the transcript of a Codex session that did not say where it is.
//!
//! Codex passes `transcript_path: null` until it has written something, and its `notify` never passes
//! one. The file lies at `$CODEX_HOME/sessions/YYYY/MM/DD/rollout-…-ID.jsonl`, ID being the session's,
//! under the local day of the session's first moment. Only the agent's host can see it, so that the
//! hook call looks, at the events that matter, and tells what it found in the headers.
//!
//! Bounded three times: in folders, in names looked at, and in time, for a home may lie on a network
//! that hangs. The id is compared with names and never part of a path.

use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use uuid::Uuid;

/// Names looked at, over all folders. A busy day has some hundreds.
const MAX_NAMES: usize = 5_000;
/// The most of the hook's budget that the look may take.
pub const PATIENCE: Duration = Duration::from_millis(50);
/// Days looked at for a session whose id does not say when it began: how long people keep one open.
const DAYS_BACK: i8 = 7;

/// `$CODEX_HOME`, or `.codex` in the home directory.
pub fn codex_home(
    codex_home: Option<std::ffi::OsString>,
    home: Option<std::ffi::OsString>,
) -> Option<PathBuf> {
    let given = codex_home.filter(|path| !path.is_empty());
    given
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&home?).join(".codex")))
}

/// Looks for at most `patience`; the thread that looks is left behind where that is not enough.
pub fn find_within(patience: Duration, codex_home: PathBuf, session: String) -> Option<PathBuf> {
    let (sender, found) = sync_channel(1);
    thread::spawn(move || {
        // Nobody may be waiting any more.
        let _ = sender.send(find(&codex_home, &session, Timestamp::now()));
    });
    found.recv_timeout(patience).ok().flatten()
}

/// The transcript of a session, if there is one where it should be.
pub fn find(codex_home: &Path, session: &str, now: Timestamp) -> Option<PathBuf> {
    let mut names_left = MAX_NAMES;
    days(session, now).into_iter().find_map(|day| {
        let folder = codex_home
            .join("sessions")
            .join(format!("{:04}", day.year()))
            .join(format!("{:02}", day.month()))
            .join(format!("{:02}", day.day()));
        in_folder(&folder, session, &mut names_left)
    })
}

fn in_folder(folder: &Path, session: &str, names_left: &mut usize) -> Option<PathBuf> {
    for entry in std::fs::read_dir(folder).ok()? {
        *names_left = names_left.checked_sub(1)?;
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| is_of(name, session)) {
            return Some(entry.path());
        }
    }
    None
}

fn is_of(name: &str, session: &str) -> bool {
    let id = name
        .strip_prefix("rollout-")
        .and_then(|rest| rest.strip_suffix(".jsonl"))
        .and_then(|rest| rest.strip_suffix(session));
    // Before the id stands the instant and a hyphen, or nothing.
    !session.is_empty() && id.is_some_and(|before| before.is_empty() || before.ends_with('-'))
}

/// The days whose folder the session may be in, the likeliest first. The id of a session is a UUIDv7,
/// which has the moment of its birth; the folder's day is local, so that it may be the next or the
/// previous one in UTC.
fn days(session: &str, now: Timestamp) -> Vec<Date> {
    let in_utc = |instant: Timestamp| instant.to_zoned(TimeZone::UTC).date();
    let (born, back) = match birth(session) {
        Some(born) => (in_utc(born), 1),
        None => (in_utc(now), DAYS_BACK),
    };
    let offsets = [0, -1, 1].into_iter().chain((2..=back).map(|days| -days));
    offsets
        .filter_map(|days| born.checked_add(i32::from(days).days()).ok())
        .collect()
}

fn birth(session: &str) -> Option<Timestamp> {
    let id = Uuid::parse_str(session).ok()?;
    if id.get_version_num() != 7 {
        return None;
    }
    let (seconds, nanoseconds) = id.get_timestamp()?.to_unix();
    Timestamp::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SESSION: &str = "019d0000-0000-71a0-876c-b60a2425fcbb";

    /// The day that is in [`SESSION`].
    fn born() -> Date {
        birth(SESSION).unwrap().to_zoned(TimeZone::UTC).date()
    }

    fn plant(home: &Path, day: Date, name: &str) -> PathBuf {
        let folder = home.join(format!("sessions/{}", day.strftime("%Y/%m/%d")));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        fs::write(&path, "").unwrap();
        path
    }

    fn later() -> Timestamp {
        birth(SESSION).unwrap() + jiff::SignedDuration::from_hours(24 * 30)
    }

    #[test]
    fn a_session_is_found_under_its_first_day_and_the_days_beside_it() {
        for offset in [-1, 0, 1] {
            let home = tempfile::tempdir().unwrap();
            let day = born() + offset.days();
            let name = format!("rollout-2026-03-18T10-00-00-{SESSION}.jsonl");
            let planted = plant(home.path(), day, &name);
            assert_eq!(find(home.path(), SESSION, later()), Some(planted));
        }
        let home = tempfile::tempdir().unwrap();
        plant(
            home.path(),
            born() + 3.days(),
            &format!("rollout-{SESSION}.jsonl"),
        );
        assert_eq!(find(home.path(), SESSION, later()), None);
    }

    #[test]
    fn names_of_other_sessions_and_other_files_are_passed_over() {
        let home = tempfile::tempdir().unwrap();
        for name in [
            "rollout-2026-03-18T10-00-00-other.jsonl".to_owned(),
            format!("rollout-2026-03-18T10-00-00-x{SESSION}.jsonl"),
            format!("rollout-2026-03-18T10-00-00-{SESSION}.json"),
            format!("{SESSION}.jsonl"),
        ] {
            plant(home.path(), born(), &name);
        }
        assert_eq!(find(home.path(), SESSION, later()), None);
    }

    #[test]
    fn an_id_without_a_moment_is_looked_for_in_the_last_days() {
        let now = later();
        let today = now.to_zoned(TimeZone::UTC).date();
        for (back, is_found) in [(0, true), (7, true), (8, false)] {
            let home = tempfile::tempdir().unwrap();
            plant(home.path(), today - back.days(), "rollout-1-plain-id.jsonl");
            assert_eq!(
                find(home.path(), "plain-id", now).is_some(),
                is_found,
                "{back}"
            );
        }
    }

    #[test]
    fn an_id_that_is_a_path_leads_nowhere() {
        let home = tempfile::tempdir().unwrap();
        plant(home.path(), born(), "rollout-x.jsonl");
        for id in ["", "../../x", "/etc/passwd", "."] {
            assert_eq!(find(home.path(), id, later()), None, "{id:?}");
        }
    }

    #[test]
    fn no_more_names_are_looked_at_than_the_bound() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..20 {
            plant(home.path(), born(), &format!("rollout-{number}.jsonl"));
        }
        let folder = home
            .path()
            .join(format!("sessions/{}", born().strftime("%Y/%m/%d")));
        let mut names_left = 10;
        assert_eq!(in_folder(&folder, SESSION, &mut names_left), None);
        assert_eq!(names_left, 0);
    }

    #[test]
    fn codex_home_is_taken_before_the_home_directory() {
        let home = || Some("/home/dev".into());
        assert_eq!(
            codex_home(Some("/x".into()), home()),
            Some(PathBuf::from("/x"))
        );
        assert_eq!(
            codex_home(Some("".into()), home()),
            Some(PathBuf::from("/home/dev/.codex"))
        );
        assert_eq!(codex_home(None, None), None);
    }
}
