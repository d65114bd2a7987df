//! Runs a command as another user than the worker, with fewer rights.
//!
//! Only a worker that runs as root can start programs as another user. Then `std` sets the group, drops
//! all supplementary groups and sets the user, in this order, before it executes the program; the kernel takes the
//! capabilities away with the user.

use std::path::Path;

use rustix::process::{getgid, getgroups, getuid};

use super::KIND;
use crate::SettingsError;

const ACCOUNTS: &str = "/etc/passwd";
/// CAP_SETGID and CAP_SETUID in the mask of `/proc/self/status`.
const MAY_CHANGE_USER: u64 = 1 << 6 | 1 << 7;

/// The user that a command runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: String,
}

impl User {
    /// The user `given`, a name or `uid:gid`. `None`: the worker runs as this user already, and in no other group.
    pub(super) fn resolve(given: &str) -> Result<Option<Self>, SettingsError> {
        let accounts = std::fs::read_to_string(Path::new(ACCOUNTS)).unwrap_or_default();
        let user = Self::find(given, &accounts).ok_or_else(|| invalid(unknown(given)))?;
        let is_own = user.uid == getuid().as_raw() && user.gid == getgid().as_raw();
        if is_own && !has_other_groups(user.gid) {
            return Ok(None);
        }
        match may_change_user() {
            true => Ok(Some(user)),
            false if is_own => Err(invalid(format!(
                "this worker runs as {given} already, and may not take its supplementary groups from programs: start \
                 it without them, as root with the capabilities SETUID and SETGID, or leave `user` out"
            ))),
            false => Err(invalid(format!(
                "this worker may not start programs as {given}: it must run as root, with the capabilities SETUID \
                 and SETGID"
            ))),
        }
    }

    /// In the format of /etc/passwd.
    fn find(given: &str, accounts: &str) -> Option<Self> {
        let numbers = given
            .split_once(':')
            .map(|(uid, gid)| Some((uid.parse::<u32>().ok()?, gid.parse::<u32>().ok()?)));
        let mut known = accounts.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
            let home = fields.nth(1).unwrap_or("/").to_owned();
            Some((name, Self { uid, gid, home }))
        });
        match numbers {
            Some(numbers) => {
                let (uid, gid) = numbers?;
                let home = known
                    .find(|(_, user)| user.uid == uid)
                    .map_or_else(|| "/".to_owned(), |(_, user)| user.home);
                Some(Self { uid, gid, home })
            }
            None => known.find(|(name, _)| *name == given).map(|(_, user)| user),
        }
    }
}

/// Whether this process is in a group besides `gid`. Its programs would be too.
fn has_other_groups(gid: u32) -> bool {
    // Where they cannot be read there may be some.
    getgroups().map_or(true, |groups| {
        groups.iter().any(|group| group.as_raw() != gid)
    })
}

fn invalid(reason: impl Into<String>) -> SettingsError {
    SettingsError::invalid(KIND, "user", reason)
}

fn unknown(given: &str) -> String {
    format!(
        "{given:?} is no user of {ACCOUNTS} on this worker; a user that is not in it is given as uid:gid"
    )
}

/// `std` drops the supplementary groups only where the real user is root. A container may be root without the
/// capabilities.
fn may_change_user() -> bool {
    let capable = match std::fs::read_to_string("/proc/self/status") {
        Ok(status) => status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_none_or(|mask| mask & MAY_CHANGE_USER == MAY_CHANGE_USER),
        // Not Linux: root may.
        Err(_) => true,
    };
    getuid().is_root() && capable
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533::/nonexistent:/bin/false\nbroken\n";

    #[test]
    fn users_are_found_by_name_or_given_by_numbers() {
        let nobody = User {
            uid: 65534,
            gid: 65533,
            home: "/nonexistent".to_owned(),
        };
        assert_eq!(User::find("nobody", FILE), Some(nobody.clone()));
        let found = User::find("65534:12", FILE).unwrap();
        assert_eq!((found.gid, found.home), (12, nobody.home));
        let strange = User::find("4711:4712", FILE).unwrap();
        assert_eq!(
            (strange.uid, strange.gid, &*strange.home),
            (4711, 4712, "/")
        );
        for unknown in ["nobod", "broken", "", "4711", "-1:3", "a:b"] {
            assert_eq!(User::find(unknown, FILE), None, "{unknown}");
        }
    }
}
