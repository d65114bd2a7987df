//! Files of the archive: under a temporary name until they are whole and on disk, and never over another.
//!
//! All of it blocks, and runs where it may. A file that somebody else put there stays, whoever it was: the next
//! number is taken.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::civil::Date;
use thiserror::Error;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::digest::Digesting;

/// Only the worker's user may read events.
const MODE: u32 = 0o600;
const BUFFER: usize = 64 << 10;
/// The most files of one day. More than one comes of late events and of processes that died.
const FILES: u32 = 10_000;
/// A temporary file that was not written to for this long is removed.
const LEFT_AFTER: Duration = Duration::from_secs(86_400);
const BEGINS: &str = "events-";
const UNFINISHED: &str = ".tmp";

/// A worker cannot archive to this folder.
#[derive(Debug, Error)]
#[error(
    "cannot write to {}, the folder of retention.archive_dir. Nothing was delivered or dropped by this worker. Make the folder, or give this worker's user the right to write there, or take the setting away from all workers",
    folder.display()
)]
pub struct FolderError {
    folder: PathBuf,
    source: io::Error,
}

impl FolderError {
    pub(super) fn unknown(
        folder: &Path,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            folder: folder.to_owned(),
            source: io::Error::other(error),
        }
    }
}

/// An operation on a file failed.
#[derive(Debug, Error)]
#[error("cannot {what} {}", path.display())]
pub(super) struct FileError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    fn on(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self { what, path, source }
    }
}

/// A part of a file's text.
#[derive(Debug)]
pub(super) enum Piece {
    Some(Vec<u8>),
    /// The last piece. A file that never gets it is removed.
    Last(Vec<u8>),
}

/// A file that is complete, on disk and under its own name.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) place: PathBuf,
    pub(super) bytes: i64,
    pub(super) sha256: [u8; 32],
}

impl Written {
    /// Removes the file, of which there is no record.
    pub(super) fn remove(self) -> Result<(), FileError> {
        fs::remove_file(&self.place).map_err(FileError::on("remove", &self.place))
    }
}

/// Creates the folder, and tries with a small file all operations that archiving needs.
pub(super) fn prepare(folder: &Path) -> Result<(), FolderError> {
    let try_it = || {
        fs::create_dir_all(folder)?;
        let unfinished = Unfinished::new(folder, "try")?;
        (&unfinished.file).write_all(b"x")?;
        unfinished.file.sync_all()?;
        sync(folder)
    };
    try_it().map_err(|source| FolderError {
        folder: folder.to_owned(),
        source,
    })
}

/// The path by which others find the folder.
pub(super) fn absolute(folder: &Path) -> Result<PathBuf, FileError> {
    std::path::absolute(folder).map_err(FileError::on("find", folder))
}

/// Removes temporary files of processes that died a day ago or earlier.
pub(super) fn sweep(folder: &Path) -> Result<(), FileError> {
    let read = FileError::on("look through", folder);
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in entries.map_err(read)? {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if !(name.starts_with(BEGINS) && name.ends_with(UNFINISHED)) {
            continue;
        }
        let path = entry.path();
        let old = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .map(|modified| modified.elapsed().is_ok_and(|age| age > LEFT_AFTER));
        match old.and_then(|old| if old { fs::remove_file(&path) } else { Ok(()) }) {
            // Another installation may sweep the same folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done.map_err(FileError::on("remove", &path))?,
        }
    }
    Ok(())
}

/// Writes pieces until the last one. `None`: the last one did not come, and no file is left.
pub(super) fn write(
    folder: &Path,
    day: Date,
    mut pieces: mpsc::Receiver<Piece>,
) -> Result<Option<Written>, FileError> {
    let unfinished = Unfinished::new(folder, &day.to_string())
        .map_err(FileError::on("make a file in", folder))?;
    let failed = || FileError::on("write to", &unfinished.path);
    let buffered = BufWriter::with_capacity(BUFFER, Digesting::new(&unfinished.file));
    let mut gzip = GzEncoder::new(buffered, Compression::default());
    loop {
        match pieces.blocking_recv() {
            Some(Piece::Some(text)) => gzip.write_all(&text).map_err(failed())?,
            Some(Piece::Last(text)) => {
                gzip.write_all(&text).map_err(failed())?;
                break;
            }
            None => return Ok(None),
        }
    }
    let buffered = gzip.finish().map_err(failed())?;
    let digesting = buffered
        .into_inner()
        .map_err(|error| failed()(error.into_error()))?;
    let sha256 = digesting.sha256();
    unfinished.file.sync_all().map_err(failed())?;
    let metadata = unfinished.file.metadata().map_err(failed())?;
    let bytes = i64::try_from(metadata.len()).unwrap_or(i64::MAX);
    let place = unfinished.publish(folder, day)?;
    Ok(Some(Written {
        place,
        bytes,
        sha256,
    }))
}

/// A file under a temporary name, removed unless it gets its own name.
struct Unfinished {
    path: PathBuf,
    file: File,
}

impl Unfinished {
    /// No two processes use the same name, on any host.
    fn new(folder: &Path, what: &str) -> io::Result<Self> {
        let name = format!("{BEGINS}{what}.jsonl.gz.{}{UNFINISHED}", Uuid::new_v4());
        let path = folder.join(name);
        let file = create(&path)?;
        Ok(Self { path, file })
    }

    /// Gives it the first free name of its day, on disk too.
    fn publish(&self, folder: &Path, day: Date) -> Result<PathBuf, FileError> {
        for number in 1..=FILES {
            let place = folder.join(match number {
                1 => format!("{BEGINS}{day}.jsonl.gz"),
                _ => format!("{BEGINS}{day}.{number}.jsonl.gz"),
            });
            // The name is created first, and then renamed onto: not every shared file system has links, or a rename
            // that keeps an existing file.
            match create(&place) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(FileError::on("make", &place)(error)),
            }
            let named = fs::rename(&self.path, &place).and_then(|()| sync(folder));
            if let Err(error) = named {
                // It is this process's file, empty or without a record. If it cannot be removed, the next number is
                // used next time.
                let _ = fs::remove_file(&place);
                return Err(FileError::on("rename a file to", &place)(error));
            }
            return Ok(place);
        }
        let many = io::Error::other("there are thousands of files of this day: move them away");
        Err(FileError::on("find a name for the day in", folder)(many))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // It has its own name by now, or is removed after a day.
        let _ = fs::remove_file(&self.path);
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(path)
}

/// Flushes a folder's names to disk.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
