//! Recordings and files that people send with their messages, fetched to a folder of the worker.
//!
//! **Whose folder.** It is a setting of the worker (`worker.attachments_dir`), never of a source: whoever may only `apply`
//! could otherwise have a worker write what a chat sends to any folder of its host. Each source has a folder in it, which is
//! judged as that of the spool is. Names of files are a hash of the message's id and an ending out of a list: neither the
//! sender nor the platform chooses them. The files are the worker's alone (mode 0600).
//!
//! **Once.** The name follows from the message, so a message that comes again finds its file. What comes is written to a
//! partial file of its own, and gets the name when it is whole and flushed: a worker that dies leaves no half file, and two
//! workers do not write into one another's.
//!
//! **Bounds.** A file has a largest size, by what the platform says and again by what comes, and a deadline. The folder of a
//! source has a largest sum: the oldest files give way, but none of the last day; where that is not enough nothing is
//! fetched. The platform alone is asked: at the base address of its API, without redirects.
//!
//! | failure | what happens |
//! |---|---|
//! | too large, refused, no room, a folder that others may write to | the error says why; the message goes without the file |
//! | the platform is away, the answer is cut off | tried again, within the deadline |
//! | the worker dies | its partial file is removed an hour later |

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lanekeeper_core::own_folder;
use lanekeeper_core::source::chat::Attachment;
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use crate::fetch_error::FetchError;

/// Nothing that is younger gives way: an agent may not have read it yet.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3_600);
/// A partial file that is older belongs to nobody.
const ABANDONED_AFTER: Duration = Duration::from_secs(3_600);
/// What a file takes of its folder at least: its block, so that the number of files is bounded too.
const BLOCK: u64 = 4_096;
const PARTIAL: &str = "part";
const ATTEMPTS: u32 = 3;
const BETWEEN: Duration = Duration::from_millis(500);

/// Where a worker keeps attachments.
#[derive(Clone, Debug)]
pub struct Attachments {
    dir: PathBuf,
    most_bytes: u64,
}

/// The platform that has the files.
pub trait FileServer: Sync {
    /// Writes a file that people sent, of at most so many bytes.
    ///
    /// # Errors
    /// It is not whole.
    fn download(
        &self,
        file_id: &str,
        most: u32,
        into: &mut tokio::fs::File,
    ) -> impl Future<Output = Result<(), FetchError>> + Send;
}

/// A file of which a part is there. Without [`Partial::keep`] it is removed.
struct Partial {
    path: PathBuf,
    is_kept: bool,
}

impl Attachments {
    /// `dir`: an absolute path. `most_bytes`: of the files of one source.
    pub fn new(dir: PathBuf, most_bytes: u64) -> Self {
        Self { dir, most_bytes }
    }

    /// Fetches what was sent with a message, and returns where it is.
    ///
    /// # Errors
    /// It is not there.
    pub async fn fetch(
        &self,
        server: &impl FileServer,
        (source, message_id): (&str, &str),
        attachment: &Attachment,
        most: u32,
        within: Duration,
    ) -> Result<String, FetchError> {
        if attachment.size.is_some_and(|size| size > u64::from(most)) {
            return Err(FetchError::TooLarge { most });
        }
        let path = self.dir.join(source).join(name(message_id, attachment));
        let Some(shown) = path.to_str().map(str::to_owned) else {
            return Err(FetchError::Refused(
                "the name of worker.attachments_dir is no UTF-8".to_owned(),
            ));
        };
        let fetching = async {
            let needed = attachment.size.unwrap_or(u64::from(most));
            let (at, room) = (path.clone(), self.most_bytes);
            let begun = spawn_blocking(move || begin(&at, needed, room));
            let Some((file, partial)) = begun.await?? else {
                return Ok(());
            };
            let mut file = tokio::fs::File::from_std(file);
            let mut attempt = 1;
            loop {
                match server.download(&attachment.file_id, most, &mut file).await {
                    Ok(()) => break,
                    Err(FetchError::Away(_)) if attempt < ATTEMPTS => {}
                    Err(error) => return Err(error),
                }
                file.set_len(0).await?;
                tokio::io::AsyncSeekExt::rewind(&mut file).await?;
                sleep(BETWEEN * attempt).await;
                attempt += 1;
            }
            file.sync_all().await?;
            let at = path.clone();
            spawn_blocking(move || partial.keep(&at)).await??;
            Ok(())
        };
        match timeout_at(Instant::now() + within, fetching).await {
            Ok(fetched) => fetched.map(|()| shown),
            Err(_) => Err(FetchError::TimedOut(within)),
        }
    }
}

impl Partial {
    fn keep(mut self, as_path: &Path) -> io::Result<()> {
        fs::rename(&self.path, as_path)?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_kept {
            // What cannot be removed now is removed with what dead workers left.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A partial file in the folder of `path`. `None`: the whole file is there.
fn begin(path: &Path, needed: u64, room: u64) -> Result<Option<(File, Partial)>, FetchError> {
    let folder = path.parent().unwrap_or(path);
    own_folder::check(folder)?;
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)?;
    // Somebody else may have made it meanwhile.
    own_folder::check(folder)?;
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => return Ok(None),
        Ok(_) => {
            return Err(FetchError::Io(io::Error::other(
                "something that is no file has its place",
            )));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    make_room(folder, needed, room, SystemTime::now())?;
    let partial = folder.join(format!("{}.{PARTIAL}", Uuid::now_v7()));
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial)?;
    let partial = Partial {
        path: partial,
        is_kept: false,
    };
    Ok(Some((file, partial)))
}

/// Removes the oldest files until there is room for as many bytes more.
fn make_room(folder: &Path, needed: u64, room: u64, now: SystemTime) -> Result<(), FetchError> {
    let (mut used, mut old) = (0, Vec::new());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let meta = match entry.metadata() {
            Ok(meta) if meta.is_file() => meta,
            Ok(_) => continue,
            // Another worker has removed it.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let age = now.duration_since(meta.modified()?).unwrap_or_default();
        let path = entry.path();
        let is_partial = path.extension().is_some_and(|ending| ending == PARTIAL);
        if is_partial && age > ABANDONED_AFTER {
            remove(&path)?;
            continue;
        }
        used += meta.len().max(BLOCK);
        if !is_partial && age > KEPT_FOR {
            old.push((age, meta.len().max(BLOCK), path));
        }
    }
    old.sort_by_key(|(age, ..)| std::cmp::Reverse(*age));
    for (_, bytes, path) in old {
        if used + needed.max(BLOCK) <= room {
            break;
        }
        remove(&path)?;
        used -= bytes;
    }
    match used + needed.max(BLOCK) <= room {
        true => Ok(()),
        false => Err(FetchError::NoRoom),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The name of a message's file.
fn name(message_id: &str, attachment: &Attachment) -> String {
    let digest = Sha256::digest(message_id.as_bytes());
    let mut name: String = digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    name.push('.');
    name.push_str(ending(attachment));
    name
}

/// Out of a list, so that no ending makes a program of a file.
fn ending(attachment: &Attachment) -> &'static str {
    match attachment.mime_type.as_deref() {
        Some("application/json") => "json",
        Some("application/pdf") => "pdf",
        Some("application/zip") => "zip",
        Some("audio/mp4" | "audio/x-m4a") => "m4a",
        Some("audio/mpeg") => "mp3",
        Some("audio/ogg") => "ogg",
        Some("audio/wav" | "audio/x-wav") => "wav",
        Some("image/gif") => "gif",
        Some("image/jpeg") => "jpg",
        Some("image/png") => "png",
        Some("image/webp") => "webp",
        Some("text/csv") => "csv",
        Some("text/markdown") => "md",
        Some("text/plain") => "txt",
        Some("video/mp4") => "mp4",
        Some("video/webm") => "webm",
        _ => match attachment.kind.as_str() {
            "audio" => "mp3",
            "photo" => "jpg",
            "sticker" => "webp",
            "animation" | "video" | "video_note" => "mp4",
            "voice" => "ogg",
            _ => "bin",
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn attachment(kind: &str, mime_type: Option<&str>) -> Attachment {
        Attachment {
            file_id: "../../etc/passwd".to_owned(),
            kind: kind.to_owned(),
            mime_type: mime_type.map(str::to_owned),
            size: None,
        }
    }

    #[test]
    fn nobody_chooses_the_name_of_a_file() {
        for (kind, mime_type, expected) in [
            ("voice", Some("audio/ogg"), "ogg"),
            ("photo", None, "jpg"),
            ("document", Some("text/x-shellscript"), "bin"),
            ("../x", Some("../../x.sh"), "bin"),
        ] {
            let name = name("-100/../../5", &attachment(kind, mime_type));
            let (stem, ending) = name.split_once('.').unwrap();
            assert_eq!(ending, expected);
            assert!(stem.len() == 32 && stem.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        let one = attachment("voice", None);
        assert_eq!(name("77/1", &one), name("77/1", &one));
        assert_ne!(name("77/1", &one), name("77/2", &one));
    }

    fn write(path: &Path, bytes: usize, age: Duration) {
        fs::write(path, vec![0; bytes]).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    #[test]
    fn the_oldest_files_give_way_and_none_of_the_last_day() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let hour = Duration::from_secs(3_600);
        write(&at("a.ogg"), 10_000, 72 * hour);
        write(&at("b.ogg"), 10_000, 48 * hour);
        write(&at("c.ogg"), 10_000, hour);
        write(&at("dead.part"), 10_000, 2 * hour);
        write(&at("live.part"), 1, hour / 60);
        let room = |needed| make_room(dir.path(), needed, 40_000, SystemTime::now());
        let is_there = |name: &str| at(name).exists();
        room(10_000).unwrap();
        assert!(!is_there("a.ogg") && is_there("b.ogg"));
        assert!(!is_there("dead.part") && is_there("live.part"));
        // A small file takes a block.
        assert!(matches!(room(26_000), Err(FetchError::NoRoom)));
        assert!(is_there("c.ogg") && !is_there("b.ogg"));
    }

    #[test]
    fn a_partial_file_is_the_workers_alone_and_goes_unless_it_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tg").join("x.ogg");
        let entries = || fs::read_dir(path.parent().unwrap()).unwrap().count();
        let (file, partial) = begin(&path, 1, 1 << 20).unwrap().unwrap();
        let mode = |meta: fs::Metadata| meta.permissions().mode() & 0o777;
        assert_eq!(mode(file.metadata().unwrap()), 0o600);
        assert_eq!(mode(fs::metadata(path.parent().unwrap()).unwrap()), 0o700);
        drop(partial);
        assert_eq!(entries(), 0);
        let (_, partial) = begin(&path, 1, 1 << 20).unwrap().unwrap();
        partial.keep(&path).unwrap();
        assert!(begin(&path, 1, 1 << 20).unwrap().is_none(), "it is there");
        assert_eq!(entries(), 1);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = begin(&open.join("tg").join("x.ogg"), 1, 1 << 20)
            .err()
            .unwrap();
        assert!(
            refused.to_string().contains("every user may write"),
            "{refused}"
        );
        assert!(!open.join("tg").exists());
        // A link in the place of a file leads nowhere.
        let own = dir.path().join("own");
        fs::create_dir(&own).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", own.join("x.ogg")).unwrap();
        let refused = begin(&own.join("x.ogg"), 1, 1 << 20).err().unwrap();
        assert!(refused.to_string().contains("no file"), "{refused}");
    }
}
