//! Reads a small file, and lets nothing that lies at its path hang the process or fill its memory: a FIFO, a device,
//! a file without end. Judged is the open file, not its path, which may lead elsewhere by then.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

/// Whether a symbolic link in the file's place is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    Followed,
    /// For folders that somebody else filled. Links to the folders on its path are followed.
    Refused,
}

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("it is {0}, and only a regular file is read")]
    NotRegular(&'static str),
    #[error("it is a symbolic link")]
    Link,
    #[error("it is larger than {max} bytes")]
    TooLarge { max: u64 },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A regular file that is open.
#[derive(Debug)]
pub struct BoundedFile {
    file: File,
    metadata: Metadata,
}

impl BoundedFile {
    pub fn open(path: &Path, links: Links) -> Result<Self, ReadError> {
        // Without waiting for the other end of a FIFO, and without becoming the terminal's process.
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        if links == Links::Refused {
            flags |= OFlags::NOFOLLOW;
        }
        let file = open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::LOOP if links == Links::Refused => ReadError::Link,
            errno => ReadError::Io(errno.into()),
        })?;
        let file = File::from(file);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(ReadError::NotRegular(kind(&metadata)));
        }
        Ok(Self { file, metadata })
    }

    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its text, of `max` bytes at most.
    pub fn read(self, max: u64) -> Result<String, ReadError> {
        let mut text = String::new();
        self.file.take(max + 1).read_to_string(&mut text)?;
        if text.len() as u64 > max {
            return Err(ReadError::TooLarge { max });
        }
        Ok(text)
    }
}

/// Opens and reads a file whose owner does not matter.
pub fn read(path: &Path, links: Links, max: u64) -> Result<String, ReadError> {
    BoundedFile::open(path, links)?.read(max)
}

fn kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => "something else",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, mkfifoat};

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        let zero = dir.path().join("zero");
        symlink("/dev/zero", &zero).unwrap();
        for (path, is) in [
            (&*fifo, "it is a FIFO"),
            (&*zero, "it is a device"),
            (dir.path(), "it is a directory"),
        ] {
            let told = read(path, Links::Followed, 9).unwrap_err().to_string();
            assert!(told.contains(is), "{told}");
        }
        let told = read(&zero, Links::Refused, 9).unwrap_err();
        assert!(matches!(told, ReadError::Link), "{told}");
    }

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, Links::Refused, 5).unwrap(), "12345");
        let told = read(&path, Links::Refused, 4).unwrap_err();
        assert!(matches!(told, ReadError::TooLarge { max: 4 }), "{told}");
    }
}
